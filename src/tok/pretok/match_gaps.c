/* Matchers whose matches leave gaps: runs of one class, DeepSeek's main pattern, BLOOM's, and the
 * single characters and words of the pre-tokenizers that have no pattern. */
#include "tok/pretok/match.h"
#include "tok/pretok/scan.h"
#include "tok/text/unicode_sets.h"

/* ---- runs of numbers ---- */

static inline void find_numbers(const char *s, size_t n, size_t from, int max, size_t *start,
                                size_t *end) {
    *start = scan_run_not(s, n, from, UNI_DIGIT);
    *end = scan_some(s, n, *start, UNI_DIGIT, max);
}

void match_n_find(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    *start = scan_run_not(s, n, from, UNI_DIGIT);
    *end = scan_run(s, n, *start, UNI_DIGIT);
}

void match_n_1_find(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    find_numbers(s, n, from, 1, start, end);
}

void match_n_2_find(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    find_numbers(s, n, from, 2, start, end);
}

void match_n_3_find(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    find_numbers(s, n, from, 3, start, end);
}

/* ---- DeepSeek ---- */

static inline bool is_kana(const char *s, size_t n, size_t i, size_t *len) {
    if (i >= n) return false;
    uint32_t cp = utf8_next(s + i, len);
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF);
}

void match_kana_find(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    size_t i = from, len;
    while (i < n && ((uint8_t)s[i] < 0xE3 || !is_kana(s, n, i, &len))) i += utf8_size(s[i]);
    *start = i;
    while (is_kana(s, n, i, &len)) i += len;
    *end = i;
}

static inline bool is_ascii_letter(char c) {
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static size_t marks_end(const char *s, size_t n, size_t i) {
    i = scan_run(s, n, i, UNI_PUNCT | UNI_SYMBOL);
    while (i < n && scan_is_newline(s[i])) i++;
    return i;
}

/* End of the match at i, 0 when there is none; the order is that of the pattern. */
static size_t deepseek_at(const char *s, size_t n, size_t i) {
    enum { WORD = UNI_LETTERS | UNI_MARK, MARKS = UNI_PUNCT | UNI_SYMBOL };
    size_t len, len_after;
    unsigned bits = scan_at(s, n, i, &len);
    if (bits & WORD) return scan_run(s, n, i, WORD);
    size_t after = i + len;
    if (bits & MARKS) {
        if (len > 1 || after >= n || !is_ascii_letter(s[after])) return marks_end(s, n, i);
        while (after < n && is_ascii_letter(s[after])) after++;
        return after;
    }
    unsigned next = scan_at(s, n, after, &len_after);
    if (!scan_is_newline(s[i]) && (next & WORD)) return scan_run(s, n, after, WORD);
    if (s[i] == ' ' && (next & MARKS)) return marks_end(s, n, after);
    return bits & UNI_BLANK ? scan_space_cl100k(s, n, i) : 0;
}

void match_deepseek_find(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    for (size_t i = from; i < n; i += utf8_size(s[i])) {
        *end = deepseek_at(s, n, i);
        *start = i;
        if (*end) return;
    }
    *start = *end = n;
}

/* ---- BLOOM: ` ?` and a run of anything but white space and ()|.,!?…。，、।۔، ---- */

static bool bloom_stops(const char *s, size_t i, size_t *len) {
    uint32_t cp = utf8_next(s + i, len);
    switch (cp) {
        case '(':
        case ')':
        case '|':
        case '.':
        case ',':
        case '!':
        case '?':
        case 0x2026:
        case 0x3002:
        case 0xFF0C:
        case 0x3001:
        case 0x964:
        case 0x6D4:
        case 0x60C: return true;
        default: return uni_bits(cp) & UNI_BLANK;
    }
}

void match_bloom_find(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    size_t i = from, len;
    while (i < n && bloom_stops(s, i, &len)) i += len;
    *start = i > from && i < n && s[i - 1] == ' ' ? i - 1 : i;
    while (i < n && !bloom_stops(s, i, &len)) i += len;
    *end = i;
}

/* ---- pre-tokenizers without a pattern ---- */

static inline void find_char(const char *s, size_t n, size_t from, bool is(uint32_t cp),
                             size_t *start, size_t *end) {
    size_t i = from, len = 0;
    while (i < n && !is(utf8_next(s + i, &len))) i += len;
    *start = i;
    *end = i < n ? i + len : n;
}

static bool is_space(uint32_t cp) {
    return uni_bits(cp) & UNI_BLANK;
}

void pretok_find_number(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    find_char(s, n, from, uni_is_numeric, start, end);
}

void pretok_find_punct(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    find_char(s, n, from, uni_is_bert_punct, start, end);
}

void pretok_find_unspaced(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    *start = scan_run(s, n, from, UNI_BLANK);
    *end = scan_run_not(s, n, *start, UNI_BLANK);
}

void pretok_find_words(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    size_t i = scan_run(s, n, from, UNI_BLANK), len;
    *start = *end = i;
    if (i == n) return;
    bool word = uni_is_word(utf8_next(s + i, &len));
    for (; i < n; i += len) {
        if (word) i = scan_run(s, n, i, UNI_LETTERS);
        if (i == n) break;
        uint32_t cp = utf8_next(s + i, &len);
        if (uni_is_word(cp) != word || is_space(cp)) break;
    }
    *end = i;
}

void pretok_find_bert_words(const char *s, size_t n, size_t from, size_t *start, size_t *end) {
    size_t i = scan_run(s, n, from, UNI_BLANK), len;
    *start = *end = i;
    if (i == n) return;
    if (uni_is_bert_punct(utf8_next(s + i, &len))) {
        *end = i + len;
        return;
    }
    for (; i < n; i += len) {
        i = scan_run(s, n, i, UNI_LETTERS | UNI_DIGIT); /* one mark was punctuation once */
        if (i == n) break;
        uint32_t cp = utf8_next(s + i, &len);
        if (is_space(cp) || uni_is_bert_punct(cp)) break;
    }
    *end = i;
}
