/* UTF-8 and character classes. The table is generated (tools/make_unicode_table.py) from the regex
 * engine of Hugging Face tokenizers, so that splits are the same. */
#include "tok/text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "tok/text/unicode_table.h"

uni_class uni_class_of(uint32_t cp) {
    if (cp >= 0x110000) return UNI_OTHER;
    unsigned four = unicode_block[unicode_index[cp >> 8] * 64u + (cp >> 2 & 63)];
    return (uni_class)(four >> 2 * (cp & 3) & 3);
}

bool uni_is_word(uint32_t cp) {
    if (cp == 0x200C || cp == 0x200D) return true; /* joiners */
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default: /* circled and squared letters are Alphabetic symbols */
            return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
                   (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189);
    }
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
