/* UTF-8 as the standard has it: no over-long forms, no surrogates, nothing beyond U+10FFFF. */
#include "base/utf8.h"

#include <string.h>

/* Length that the lead byte announces and the allowed range of the second byte, which is where
 * over-long forms, surrogates and values beyond U+10FFFF are excluded. */
static int lead_length(uint8_t b, uint8_t *lo, uint8_t *hi) {
    *lo = 0x80;
    *hi = 0xBF;
    if (b < 0x80) return 1;
    if (b < 0xC2) return 0;
    if (b < 0xE0) return 2;
    if (b < 0xF0) {
        if (b == 0xE0) *lo = 0xA0;
        if (b == 0xED) *hi = 0x9F;
        return 3;
    }
    if (b > 0xF4) return 0;
    if (b == 0xF0) *lo = 0x90;
    if (b == 0xF4) *hi = 0x8F;
    return 4;
}

int utf8_decode(const char *s, size_t n, uint32_t *cp) {
    const uint8_t *u = (const uint8_t *)s;
    uint8_t lo, hi;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    int len = lead_length(u[0], &lo, &hi);
    if (len == 0 || n < (size_t)len || u[1] < lo || u[1] > hi) return 0;
    uint32_t c = u[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((u[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3Fu);
    }
    *cp = c;
    return len;
}

int utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)((0xF00u >> len) | cp);
    return len;
}

size_t utf8_valid_prefix(const char *s, size_t n) {
    size_t i = 0;
    uint32_t cp;
    while (i < n) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, s + i, 8), (eight & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        int len = utf8_decode(s + i, n - i, &cp);
        if (len == 0) break;
        i += (size_t)len;
    }
    return i;
}

int utf8_open_tail(const char *s, size_t n) {
    for (int back = 1; back <= 3 && (size_t)back <= n; back++) {
        const uint8_t *u = (const uint8_t *)s + n - back;
        if ((u[0] & 0xC0) == 0x80) continue;
        uint8_t lo, hi;
        int len = lead_length(u[0], &lo, &hi);
        if (len <= back || (back > 1 && (u[1] < lo || u[1] > hi))) return 0;
        return back;
    }
    return 0;
}
