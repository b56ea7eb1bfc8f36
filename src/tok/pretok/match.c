/* Hand-written matchers for the patterns of GPT-2 and of GPT-4's first tokenizer (cl100k), from
 * which most others descend.
 *
 * The patterns are alternations tried in order at each position, and their alternatives overlap so
 * little that one look at the character class decides. Only white space needs care: `\s+(?!\S)`
 * leaves the last space of a run to the word after it. */
#include "tok/pretok/match.h"

#include <limits.h>

#include "tok/pretok/scan.h"

enum { WORDS = UNI_LETTERS | UNI_DIGIT | UNI_BLANK }; /* all but symbols */

size_t pretok_gpt2_end(const char *s, size_t n, size_t i) {
    if (s[i] == '\'') {
        size_t end = scan_contraction(s, n, i, false);
        if (end) return end;
    }
    size_t len, word = i;
    unsigned bits = scan_at(s, n, i, &len);
    if (s[i] == ' ' && i + 1 < n) {
        unsigned next = scan_at(s, n, i + 1, &len);
        if (!(next & UNI_BLANK)) {
            bits = next;
            word++;
        }
    }
    if (bits & UNI_LETTERS) return scan_run(s, n, word, UNI_LETTERS);
    if (bits & UNI_DIGIT) return scan_run(s, n, word, UNI_DIGIT);
    if (bits & UNI_BLANK) return scan_space_gpt2(s, n, i, scan_run(s, n, i, UNI_BLANK));
    return scan_run_not(s, n, word, WORDS);
}

/* What distinguishes the members of the cl100k family; always a constant, so that each member is
 * compiled for itself. */
typedef struct cl100k_rule {
    unsigned letters; /* \p{L}, or with \p{M} */
    int max_digits;
    bool contractions;
    bool space_to_end; /* `\s++$` first: white space at the end of the text is one piece */
} cl100k_rule;

static inline size_t symbols_end(const char *s, size_t n, size_t i, unsigned words) {
    i = scan_run_not(s, n, i, words);
    while (i < n && scan_is_newline(s[i])) i++;
    return i;
}

static inline size_t cl100k_end(const char *s, size_t n, size_t i, cl100k_rule r) {
    unsigned words = r.letters | UNI_DIGIT | UNI_BLANK;
    if (r.contractions && s[i] == '\'') {
        size_t end = scan_contraction(s, n, i, true);
        if (end) return end;
    }
    size_t len, len_after;
    unsigned bits = scan_at(s, n, i, &len);
    if (bits & r.letters) return scan_run(s, n, i, r.letters);
    if (bits & UNI_DIGIT) return scan_some(s, n, i, UNI_DIGIT, r.max_digits);
    size_t after = i + len;
    unsigned next = scan_at(s, n, after, &len_after);
    if ((next & r.letters) && !scan_is_newline(s[i])) return scan_run(s, n, after, r.letters);
    if (!(bits & UNI_BLANK)) return symbols_end(s, n, i, words);
    if (s[i] == ' ' && after < n && !(next & words)) return symbols_end(s, n, after, words);
    if (r.space_to_end && scan_run(s, n, i, UNI_BLANK) == n) return n;
    return scan_space_cl100k(s, n, i);
}

size_t pretok_cl100k_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS, 3, true, false});
}

size_t match_cl100k_1_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS, 1, true, false});
}

size_t match_cl100k_2_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS, 2, true, false});
}

size_t match_cl100k_all_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS, INT_MAX, true, false});
}

size_t match_cl100k_plain_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS, 1, false, false});
}

size_t match_tiktoken_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS, 3, true, true});
}

size_t match_tiktoken_all_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS, INT_MAX, true, true});
}

size_t match_qwen35_end(const char *s, size_t n, size_t i) {
    return cl100k_end(s, n, i, (cl100k_rule){UNI_LETTERS | UNI_MARK, 1, true, false});
}
