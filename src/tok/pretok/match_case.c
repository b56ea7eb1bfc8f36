/* Matchers that tell capitals from small letters: GPT-4o (o200k), Mistral's Tekken, Kimi K2.
 *
 * A word is `P?A*B+` or else `P?A+B*`, where A are capitals and caseless letters and marks, B small
 * ones and the same caseless ones, and P is anything but a letter, number or newline. Backtracking
 * comes to this: after the longest run of A, small letters go on with B; without them the word ends
 * after the last caseless character of the run, or, if all are capitals, with the run. A mark at
 * the start may be read as P or as A, with the same result. */
#include "tok/pretok/match.h"
#include "tok/pretok/scan.h"
#include "tok/text/unicode_sets.h"

enum {
    CASELESS = UNI_CASELESS | UNI_MARK,
    SET_A = UNI_UPPER | CASELESS,
    SET_B = UNI_LOWER | CASELESS,
    LETTERS = UNI_LETTERS | UNI_MARK,
    WORDS = UNI_LETTERS | UNI_DIGIT | UNI_BLANK,
};

typedef struct case_rule {
    int max_digits;
    bool contractions; /* at the end of a word */
    bool slash;        /* symbols may end with / as well as with newlines */
    bool han;          /* Han characters are no letters, their runs are pieces */
} case_rule;

static inline bool is_han(uint32_t cp) {
    if (cp >= 0x4E00 && cp < 0xA000) return true;
    return cp >= 0x2E80 && uni_script_of(cp) == uni_script_han;
}

static inline unsigned letter_at(const char *s, size_t n, size_t i, case_rule r, size_t *len) {
    unsigned bits = scan_at(s, n, i, len) & LETTERS;
    if (r.han && (bits & CASELESS) && *len > 2 && is_han(utf8_next(s + i, len))) return 0;
    return bits;
}

/* End of the word that starts at i without P; 0 when none does. */
static inline size_t word_end(const char *s, size_t n, size_t i, case_rule r) {
    size_t len, start = i, caseless = 0;
    unsigned bits;
    while ((bits = letter_at(s, n, i, r, &len)) & SET_A) {
        i += len;
        if (bits & CASELESS) caseless = i;
    }
    if (bits & UNI_LOWER) {
        while (letter_at(s, n, i, r, &len) & SET_B) i += len;
        return i;
    }
    return caseless ? caseless : i > start ? i : 0;
}

static inline size_t with_contraction(const char *s, size_t n, size_t end, case_rule r) {
    if (!r.contractions || end >= n || s[end] != '\'') return end;
    size_t longer = scan_contraction(s, n, end, true);
    return longer ? longer : end;
}

static inline size_t symbols_end(const char *s, size_t n, size_t i, case_rule r) {
    i = scan_run_not(s, n, i, WORDS);
    while (i < n && (scan_is_newline(s[i]) || (r.slash && s[i] == '/'))) i++;
    return i;
}

static size_t han_end(const char *s, size_t n, size_t i) {
    size_t len;
    while (i < n && (uint8_t)s[i] >= 0xE0 && is_han(utf8_next(s + i, &len))) i += len;
    return i;
}

static inline size_t case_end(const char *s, size_t n, size_t i, case_rule r) {
    size_t len, len_after, end;
    if (r.han && (uint8_t)s[i] >= 0xE0) {
        end = han_end(s, n, i);
        if (end > i) return end;
    }
    unsigned bits = scan_at(s, n, i, &len);
    if (bits & LETTERS) return with_contraction(s, n, word_end(s, n, i, r), r);
    if (bits & UNI_DIGIT) return scan_some(s, n, i, UNI_DIGIT, r.max_digits);
    size_t after = i + len;
    if (!scan_is_newline(s[i]) && (end = word_end(s, n, after, r)) > 0) {
        return with_contraction(s, n, end, r);
    }
    if (!(bits & UNI_BLANK)) return symbols_end(s, n, i, r);
    if (s[i] == ' ' && after < n && !(scan_at(s, n, after, &len_after) & WORDS)) {
        return symbols_end(s, n, after, r);
    }
    return scan_space_cl100k(s, n, i);
}

size_t match_o200k_end(const char *s, size_t n, size_t i) {
    return case_end(s, n, i, (case_rule){3, true, true, false});
}

size_t match_o200k_1_end(const char *s, size_t n, size_t i) {
    return case_end(s, n, i, (case_rule){1, true, true, false});
}

size_t match_o200k_plain_end(const char *s, size_t n, size_t i) {
    return case_end(s, n, i, (case_rule){1, false, true, false});
}

size_t match_kimi_end(const char *s, size_t n, size_t i) {
    return case_end(s, n, i, (case_rule){3, true, false, true});
}
