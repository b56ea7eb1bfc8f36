/* Hand-written matchers for the published patterns.
 *
 * Both patterns are alternations tried in order at each position, and their alternatives overlap so
 * little that one look at the character class decides. Only white space needs care: `\s+(?!\S)`
 * leaves the last space of a run to the word after it. */
#include "tok/pretok/pretok.h"

#include <string.h>

#include "tok/text/unicode.h"

const char *const PRETOK_GPT2_REGEX =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const PRETOK_LLAMA3_REGEX =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char *const QWEN2_REGEX =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Class and length of the character at i; at the end class -1. */
static inline int class_at(const char *s, size_t n, size_t i, int *len) {
    if (i >= n) {
        *len = 0;
        return -1;
    }
    uint32_t cp;
    *len = utf8_decode(s + i, n - i, &cp);
    CHECK(*len > 0, "pre-tokenizer text is not UTF-8 at byte %zu", i);
    return (int)uni_class_of(cp);
}

static size_t run_end(const char *s, size_t n, size_t i, uni_class class) {
    int len;
    while (class_at(s, n, i, &len) == (int)class) i += (size_t)len;
    return i;
}

static inline bool is_newline(char c) {
    return c == '\r' || c == '\n';
}

/* 's 't 're 've 'm 'll 'd after the apostrophe at i; 0 when none. With `fold` in any case, where
 * U+017F (long s) folds to s. */
static size_t contraction_end(const char *s, size_t n, size_t i, bool fold) {
    size_t left = n - i - 1;
    if (left == 0) return 0;
    char fold_bit = fold ? 0x20 : 0;
    char a = s[i + 1] | fold_bit, b = left > 1 ? (char)(s[i + 2] | fold_bit) : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    if (fold && left > 1 && memcmp(s + i + 1, "\xC5\xBF", 2) == 0) return i + 3;
    return 0;
}

/* `\s+(?!\S)|\s+` for the run [i, end): all but its last character, unless the text ends or there
 * is only one. */
static size_t space_end(const char *s, size_t n, size_t i, size_t end) {
    if (end == n) return end;
    size_t last = end - 1;
    while (((uint8_t)s[last] & 0xC0) == 0x80) last--;
    return last > i ? last : end;
}

size_t pretok_gpt2_end(const char *s, size_t n, size_t i) {
    if (s[i] == '\'') {
        size_t end = contraction_end(s, n, i, false);
        if (end) return end;
    }
    int len;
    int class = class_at(s, n, i, &len);
    if (s[i] == ' ') {
        int next = class_at(s, n, i + 1, &len);
        if (next >= 0 && next != UNI_SPACE) return run_end(s, n, i + 1, (uni_class)next);
    }
    size_t end = run_end(s, n, i, (uni_class) class);
    return class == UNI_SPACE ? space_end(s, n, i, end) : end;
}

/* The run of white space at i: up to its last newline if it has one, else as space_end. */
static size_t cl100k_space_end(const char *s, size_t n, size_t i) {
    size_t end = run_end(s, n, i, UNI_SPACE);
    for (size_t j = end; j > i; j--) {
        if (is_newline(s[j - 1])) return j;
    }
    return space_end(s, n, i, end);
}

static size_t symbols_end(const char *s, size_t n, size_t i) {
    i = run_end(s, n, i, UNI_OTHER);
    while (i < n && is_newline(s[i])) i++;
    return i;
}

size_t pretok_cl100k_end(const char *s, size_t n, size_t i, int max_digits) {
    if (s[i] == '\'') {
        size_t end = contraction_end(s, n, i, true);
        if (end) return end;
    }
    int len, len_after;
    int class = class_at(s, n, i, &len);
    if (class == UNI_LETTER) return run_end(s, n, i, UNI_LETTER);
    if (class == UNI_NUMBER) {
        for (int k = 0; k < max_digits && class == UNI_NUMBER; k++) {
            i += (size_t)len;
            class = class_at(s, n, i, &len);
        }
        return i;
    }
    size_t after = i + (size_t)len;
    int next = class_at(s, n, after, &len_after);
    if (next == UNI_LETTER && !is_newline(s[i])) return run_end(s, n, after, UNI_LETTER);
    if (class == UNI_OTHER) return symbols_end(s, n, i);
    if (s[i] == ' ' && next == UNI_OTHER) return symbols_end(s, n, after);
    return cl100k_space_end(s, n, i);
}

static void find_digits(const char *s, size_t n, size_t from, bool single, size_t *start,
                        size_t *end) {
    int len;
    size_t i = from;
    while (i < n && class_at(s, n, i, &len) != UNI_NUMBER) i += (size_t)len;
    *start = i;
    *end = i == n ? n : single ? i + (size_t)len : run_end(s, n, i, UNI_NUMBER);
}

status pretok_find(const pretok_step *p, const char *s, size_t n, size_t from, size_t *start,
                   size_t *end, void **match_data, err *e) {
    *start = from;
    *end = n;
    if (from >= n) return ST_OK;
    switch (p->kind) {
        case PRETOK_GPT2: *end = pretok_gpt2_end(s, n, from); break;
        case PRETOK_CL100K: *end = pretok_cl100k_end(s, n, from, p->max_digits); break;
        case PRETOK_DIGITS: find_digits(s, n, from, p->max_digits == 1, start, end); break;
        case PRETOK_LITERAL: {
            const char *hit = memmem(s + from, n - from, p->literal, p->n_literal);
            *start = hit ? (size_t)(hit - s) : n;
            *end = hit ? *start + p->n_literal : n;
            break;
        }
        case PRETOK_REGEX:
            return pretok_regex_find(p->regex, s, n, from, start, end, match_data, e);
        case PRETOK_PREFIX: break;
    }
    return ST_OK;
}

status pretok_step_regex(pretok_step *p, const char *regex, err *e) {
    if (strcmp(regex, PRETOK_GPT2_REGEX) == 0) {
        p->kind = PRETOK_GPT2;
    } else if (strcmp(regex, PRETOK_LLAMA3_REGEX) == 0 || strcmp(regex, QWEN2_REGEX) == 0) {
        p->kind = PRETOK_CL100K;
        p->max_digits = strcmp(regex, QWEN2_REGEX) == 0 ? 1 : 3;
    } else {
        p->kind = PRETOK_REGEX;
        return pretok_regex_compile(&p->regex, regex, e);
    }
    return ST_OK;
}

void pretok_step_free(pretok_step *p) {
    if (p->kind == PRETOK_REGEX) pretok_regex_free(p->regex);
    p->regex = NULL;
}
