/* Reading order: cutting into words, n-grams, BLEU, ROUGE. A word is known by its hash from then on: of a million
 * different n-grams two have the same by chance in one of thirty million corpora. */
#include "eval/similarity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "jinja/jinja.h"

typedef struct words {
    uint64_t *hash;
    int64_t n, cap;
} words;

static void add_word(words *w, const char *s, size_t len) {
    VEC_PUSH(w->hash, w->n, w->cap, hash_bytes(s, len));
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_mark(char c) {
    return c == '.' || c == ',';
}

/* ---- words of mteval-v13a ---- */

static void put_instead(const char *s, size_t len, const char *old, const char *new, strbuf *out) {
    size_t n = strlen(old);
    for (size_t i = 0; i < len;) {
        bool here = len - i >= n && memcmp(s + i, old, n) == 0;
        strbuf_append(out, here ? new : s + i, here ? strlen(new) : 1);
        i += here ? n : 1;
    }
}

/* What stands for other characters, and white space at the end. */
static void normalise(eval_text t, strbuf *out) {
    static const char *const rules[][2] = {
        {"<skipped>", ""}, {"-\n", ""},   {"\n", " "},   {"&quot;", "\""},
        {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"},
    };
    const char *s = t.s;
    size_t n = t.len;
    jinja_strip(&s, &n, false, true);
    strbuf_putc(out, ' ');
    strbuf_append(out, s, n);
    strbuf_putc(out, ' ');
    for (int i = 0; i < ARRAY_LEN(rules); i++) {
        strbuf next = {0};
        put_instead(strbuf_cstr(out), out->len, rules[i][0], rules[i][1], &next);
        strbuf_free(out);
        *out = next;
    }
}

/* A match of one of the script's expressions at s[i]: of `one` or two bytes, with a space before, between and
 * behind where it says so. */
typedef bool match_at(const char *s, size_t i, size_t n);

static bool is_symbol(const char *s, size_t i, size_t n) {
    char c = s[i];
    (void)n;
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
           (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}
static bool ends_before_mark(const char *s, size_t i, size_t n) {
    return i + 1 < n && !is_digit(s[i]) && is_mark(s[i + 1]);
}
static bool mark_before_other(const char *s, size_t i, size_t n) {
    return i + 1 < n && is_mark(s[i]) && !is_digit(s[i + 1]);
}
static bool digit_before_dash(const char *s, size_t i, size_t n) {
    return i + 1 < n && is_digit(s[i]) && s[i + 1] == '-';
}

static void split_where(strbuf *text, match_at *matches, int bytes, bool before, bool behind) {
    strbuf out = {0};
    const char *s = strbuf_cstr(text);
    for (size_t i = 0; i < text->len;) {
        if (!matches(s, i, text->len)) {
            strbuf_putc(&out, s[i++]);
            continue;
        }
        if (before) strbuf_putc(&out, ' ');
        strbuf_putc(&out, s[i++]);
        if (bytes == 2) strbuf_putc(&out, ' ');
        if (bytes == 2) strbuf_putc(&out, s[i++]);
        if (behind) strbuf_putc(&out, ' ');
    }
    strbuf_free(text);
    *text = out;
}

/* As Python's split(): white space of Unicode. */
static void split_at_space(const strbuf *text, words *out) {
    const char *s = strbuf_cstr(text);
    size_t n = text->len, start;
    jinja_strip(&s, &n, true, false);
    while (n > 0) {
        for (start = 0; start < n;) { /* the word ends where stripping would begin */
            const char *at = s + start;
            size_t left = n - start;
            jinja_strip(&at, &left, true, false);
            if (left != n - start) break;
            for (start++; start < n && ((uint8_t)s[start] & 0xC0) == 0x80; start++) {
            }
        }
        add_word(out, s, start);
        s += start, n -= start;
        jinja_strip(&s, &n, true, false);
    }
}

static words words_13a(eval_text t) {
    words w = {0};
    strbuf text = {0};
    normalise(t, &text);
    split_where(&text, is_symbol, 1, true, true);
    split_where(&text, ends_before_mark, 2, false, true);
    split_where(&text, mark_before_other, 2, true, false);
    split_where(&text, digit_before_dash, 2, false, true);
    split_at_space(&text, &w);
    strbuf_free(&text);
    return w;
}

/* ---- n-grams ---- */

static int by_hash(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The n-grams of w, sorted. */
static words grams_of(const words *w, int n) {
    words g = {0};
    for (int64_t i = 0; i + n <= w->n; i++) {
        uint64_t hash = 0;
        for (int k = 0; k < n; k++) hash = mix64(hash + w->hash[i + k]);
        VEC_PUSH(g.hash, g.n, g.cap, hash);
    }
    if (g.n) qsort(g.hash, (size_t)g.n, sizeof *g.hash, by_hash);
    return g;
}

/* How often the n-gram at i comes, in a sorted list. */
static int64_t times(const words *g, int64_t i) {
    int64_t n = 1;
    while (i + n < g->n && g->hash[i + n] == g->hash[i]) n++;
    return n;
}

static int64_t times_of(const words *g, uint64_t hash) {
    int64_t low = 0, high = g->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (g->hash[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->n && g->hash[low] == hash ? times(g, low) : 0;
}

/* N-grams of a that are in one of the references, each as often as in the one that has most of it. */
static int64_t found_in(const words *a, const words *references, int n) {
    int64_t found = 0;
    for (int64_t i = 0, have; i < a->n; i += have) {
        int64_t most = 0;
        have = times(a, i);
        for (int k = 0; k < n; k++) {
            int64_t there = times_of(&references[k], a->hash[i]);
            if (there > most) most = there;
        }
        found += most < have ? most : have;
    }
    return found;
}

/* ---- BLEU ---- */

/* The length that is nearest; of two as near the shorter. */
static int64_t nearest_length(const words *references, int n, int64_t length) {
    int64_t best = references[0].n;
    for (int k = 1; k < n; k++) {
        int64_t near = llabs(references[k].n - length), was = llabs(best - length);
        if (near < was || (near == was && references[k].n < best)) best = references[k].n;
    }
    return best;
}

void eval_bleu_add(bleu_counts *sum, eval_text text, const eval_text *references, int n) {
    words own = words_13a(text), *all = xcalloc(2 * (size_t)n, sizeof *all), *grams = all + n;
    for (int k = 0; k < n; k++) all[k] = words_13a(references[k]);
    for (int g = 1; g <= BLEU_N; g++) {
        words a = grams_of(&own, g);
        for (int k = 0; k < n; k++) grams[k] = grams_of(&all[k], g);
        sum->all[g - 1] += (double)a.n;
        sum->found[g - 1] += (double)found_in(&a, grams, n);
        for (int k = 0; k < n; k++) free(grams[k].hash);
        free(a.hash);
    }
    sum->words += (double)own.n;
    sum->reference_words += (double)nearest_length(all, n, own.n);
    for (int k = 0; k < n; k++) free(all[k].hash);
    free(all);
    free(own.hash);
}

double eval_bleu(const bleu_counts *c) {
    double logs = 0, smooth = 1, any = 0;
    for (int g = 0; g < BLEU_N; g++) any += c->found[g];
    if (any == 0) return 0;
    for (int g = 0; g < BLEU_N; g++) {
        if (c->all[g] == 0) return 0;
        if (c->found[g] == 0) smooth *= 2;
        logs += log(c->found[g] > 0 ? 100 * c->found[g] / c->all[g] : 100 / (smooth * c->all[g]));
    }
    double brevity = c->words < c->reference_words ? exp(1 - c->reference_words / c->words) : 1;
    return brevity * exp(logs / BLEU_N);
}

/* ---- ROUGE ---- */

/* Two letters beyond ASCII have a small letter, or begin with one, in a-z: the dotted I and the sign of Kelvin. */
static char small(const char *s, size_t n, size_t *bytes) {
    *bytes = 1;
    if (n >= 2 && memcmp(s, "\xc4\xb0", 2) == 0) return *bytes = 2, 'i';
    if (n >= 3 && memcmp(s, "\xe2\x84\xaa", 3) == 0) return *bytes = 3, 'k';
    return *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
}

static words words_of_letters(eval_text t) {
    words w = {0};
    strbuf word = {0};
    for (size_t i = 0, bytes; i < t.len; i += bytes) {
        char c = small(t.s + i, t.len - i, &bytes);
        bool inside = (c >= 'a' && c <= 'z') || is_digit(c);
        bool dotted = bytes == 2; /* a combining dot follows the i: it ends the word */
        if (inside) strbuf_putc(&word, c);
        if ((!inside || dotted || i + bytes >= t.len) && word.len) {
            add_word(&w, strbuf_cstr(&word), word.len);
            strbuf_truncate(&word, 0);
        }
    }
    strbuf_free(&word);
    return w;
}

static int64_t common_subsequence(const words *a, const words *b) {
    int64_t *row = xcalloc((size_t)b->n + 1, sizeof *row);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t j = 0, corner = 0; j < b->n; j++) {
            int64_t above = row[j + 1], left = row[j];
            row[j + 1] = a->hash[i] == b->hash[j] ? corner + 1 : above > left ? above : left;
            corner = above;
        }
    int64_t length = row[b->n];
    free(row);
    return length;
}

static double f1(int64_t common, int64_t own, int64_t reference) {
    if (common == 0) return 0;
    double p = (double)common / (double)own, r = (double)common / (double)reference;
    return 2 * p * r / (p + r);
}

double eval_rouge(rouge_kind kind, eval_text text, eval_text reference) {
    words a = words_of_letters(text), b = words_of_letters(reference);
    double score;
    if (kind == ROUGE_L) {
        score = f1(common_subsequence(&a, &b), a.n, b.n);
    } else {
        words x = grams_of(&a, (int)kind), y = grams_of(&b, (int)kind);
        score = f1(found_in(&x, &y, 1), x.n, y.n);
        free(x.hash);
        free(y.hash);
    }
    free(a.hash);
    free(b.hash);
    return score;
}
