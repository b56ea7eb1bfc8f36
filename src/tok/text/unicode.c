/* UTF-8, and the properties of characters that are found by search. */
#include "tok/text/unicode.h"

#include <string.h>

#include "tok/text/unicode_sets.h"

/* The value at cp in a table of starts. */
static int value_at(const uint32_t *starts, int n, uint32_t cp) {
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (starts[mid] >> 8 <= cp) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return (int)(starts[lo] & 0xFF);
}

uni_category uni_category_of(uint32_t cp) {
    return (uni_category)value_at(uni_category_starts, uni_category_starts_n, cp);
}

int uni_script_of(uint32_t cp) {
    return value_at(uni_script_starts, uni_script_starts_n, cp);
}

int uni_spm_script_of(uint32_t cp) {
    return value_at(uni_spm_script_starts, uni_spm_script_starts_n, cp);
}

bool uni_set_has(const uni_set *set, uint32_t cp) {
    int lo = 0, hi = 2 * set->n; /* edges at or below cp */
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (set->edge[mid] <= cp) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo & 1;
}

bool uni_is_word(uint32_t cp) {
    unsigned bits = uni_bits(cp);
    if (bits & (UNI_LETTERS | UNI_MARK)) return true;
    if (cp < 0x80) return (bits & UNI_DIGIT) || cp == '_';
    if (bits & (UNI_DIGIT | UNI_PUNCT)) {
        uni_category c = uni_category_of(cp);
        return c == UNI_ND || c == UNI_NL || c == UNI_PC;
    }
    if (cp == 0x200C || cp == 0x200D) return true; /* joiners */
    /* circled and squared letters are Alphabetic symbols */
    return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
           (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
}

bool uni_is_numeric(uint32_t cp) {
    return (uni_bits(cp) & UNI_DIGIT) || (cp >= 0x80 && uni_set_has(&uni_numeric_more, cp));
}

bool uni_is_bert_punct(uint32_t cp) {
    unsigned bits = uni_bits(cp);
    if (cp < 0x80) return bits & (UNI_PUNCT | UNI_SYMBOL);
    if (bits & UNI_PUNCT) return !uni_set_has(&uni_punct_not, cp);
    return uni_set_has(&uni_punct_more, cp);
}

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
