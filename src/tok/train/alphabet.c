/* The characters of a corpus, by how much of the text they make up. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/train/train.h"

enum { N_CODE_POINTS = 0x110000 };

static int by_count(const void *x, const void *y) {
    const char_count *a = x, *b = y;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return a->cp < b->cp ? -1 : a->cp > b->cp;
}

static int64_t count_characters(const word_ref *words, int64_t n_words, int64_t *count) {
    int64_t total = 0;
    for (int64_t i = 0; i < n_words; i++) {
        for (uint32_t at = 0; at < words[i].len;) {
            uint32_t cp;
            int n = utf8_decode(words[i].s + at, words[i].len - at, &cp);
            CHECK(n > 0, "a word is not UTF-8");
            at += (uint32_t)n;
            count[cp] += words[i].count;
            total += words[i].count;
        }
    }
    return total;
}

char_count *alphabet_by_count(int64_t *count, int32_t *n) {
    char_count *list = NULL;
    int32_t cap = 0;
    *n = 0;
    for (uint32_t cp = 1; cp < N_CODE_POINTS; cp++) {
        if (count[cp] > 0) VEC_PUSH(list, *n, cap, ((char_count){cp, count[cp]}));
    }
    free(count);
    if (*n > 0) qsort(list, (size_t)*n, sizeof(*list), by_count);
    return list;
}

char_count *alphabet_of_words(const word_ref *words, int64_t n_words, double coverage, int32_t *n) {
    int64_t *count = xcalloc(N_CODE_POINTS, sizeof(*count));
    int64_t total = count_characters(words, n_words, count), covered = 0;
    int32_t n_all;
    char_count *list = alphabet_by_count(count, &n_all);
    for (*n = 0; *n < n_all && (double)covered < coverage * (double)total; ++*n) {
        covered += list[*n].count;
    }
    return list;
}
