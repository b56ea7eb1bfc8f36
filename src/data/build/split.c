/* See split.h. */
#include "data/build/split.h"

#include <string.h>

#include "base/rng.h"
#include "base/status.h"
#include "base/utf8.h"

enum { NEAR_BYTES = 4096 };

static const char *const NAMES[] = {"auto", "documents", "lines", "tail"};

bool data_split_parse(const char *name, data_split *out) {
    for (int i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *out = (data_split)i;
            return true;
        }
    return false;
}

const char *data_split_name(data_split split) {
    return NAMES[split];
}

/* The line end nearest to `cut` within NEAR_BYTES, as the byte after it; 0 when none is near. */
static size_t near_line_end(const char *text, size_t n, size_t cut) {
    for (size_t d = 0; d < NEAR_BYTES; d++) {
        if (d < cut && text[cut - d - 1] == '\n') return cut - d;
        if (cut + d < n - 1 && text[cut + d] == '\n') return cut + d + 1;
    }
    return 0;
}

static size_t exact_cut(size_t n, double valid_fraction) {
    return (size_t)((double)n * (1.0 - valid_fraction));
}

void data_split_range(size_t n, double valid_fraction, size_t *from, size_t *to) {
    size_t cut = exact_cut(n, valid_fraction);
    *from = cut > NEAR_BYTES ? cut - NEAR_BYTES : 0;
    *to = n - cut > NEAR_BYTES ? cut + NEAR_BYTES : n;
}

size_t data_split_point(const char *text, size_t n, double valid_fraction, data_split split) {
    size_t cut = exact_cut(n, valid_fraction);
    if (cut >= n) return n;
    size_t line = split == DATA_SPLIT_TAIL ? 0 : near_line_end(text, n, cut);
    if (line) return line;
    return utf8_cut(text, cut);
}

bool data_split_is_valid(uint64_t seed, uint64_t document, double valid_fraction) {
    rng_key key = rng_key_named(seed, "data.split");
    uint32_t bits[4];
    rng_block(key, document, 0, bits);
    double u = ((double)bits[0] * 4294967296.0 + bits[1]) / 18446744073709551616.0;
    return u < valid_fraction;
}
