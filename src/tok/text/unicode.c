/* The properties of characters that are found by search. */
#include "tok/text/unicode.h"

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
