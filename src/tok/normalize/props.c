/* The table of properties, and lower case. */
#include "tok/normalize/props.h"

#include "tok/normalize/norm_table.h"

int norm_lower_of(uint32_t cp, uint32_t out[2]) {
    if (cp == 0x130) { /* the only one of two characters: i with dot above */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    int lo = 0, hi = norm_n_lower - 1;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (cp > norm_lower[mid].last) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    out[0] = (uint32_t)((int32_t)cp + norm_lower[lo].delta);
    return 1;
}
