/* The course of Unigram training; see unigram.h. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/train/unigram.h"

enum {
    N_CODE_POINTS = 0x110000,
    SEEDS = 1000000,
    SEEDS_PER_TOKEN = 16,
    EM_STEPS = 2,
    MAX_THREADS = 16
};
/* After each round of steps this share of the pieces stays; the last round has some to spare. */
static const double SHRINK = 0.75, SPARE = 1.1;

/* ---- text ---- */

/* Merging has no part in this: a character without a number only ends a run. */
static int32_t spell(const void *ctx, const char *word, uint32_t len, int32_t *out) {
    const int32_t *number = ctx;
    int32_t n = 0;
    for (uint32_t at = 0; at < len;) {
        uint32_t cp;
        at += (uint32_t)utf8_decode(word + at, len - at, &cp);
        out[n++] = number[cp];
    }
    return n;
}

static void build_text(bpe_text *t, const word_ref *words, int64_t n, const char_count *chars,
                       int32_t n_chars) {
    int32_t *number = xmalloc(N_CODE_POINTS * sizeof(*number));
    for (uint32_t cp = 0; cp < N_CODE_POINTS; cp++) number[cp] = SYM_END;
    for (int32_t i = 0; i < n_chars; i++) number[chars[i].cp] = i;
    bpe_text_build(t, words, n, spell, number);
    free(number);
}

/* ---- training ---- */

/* As many bits behind the point as the largest sum leaves. */
static int fraction_bits(const char_count *chars, int32_t n_chars) {
    double total = 0;
    for (int32_t i = 0; i < n_chars; i++) total += (double)chars[i].count;
    int bits = 61 - (int)ceil(log2(total + 1));
    return bits > 30 ? 30 : bits < 4 ? 4 : bits;
}

static void report(const uni_trainer *u, int32_t seeds, int32_t wanted,
                   const tok_train_options *opt) {
    double all = log((double)seeds / wanted), done = log((double)seeds / u->model.n);
    tok_train_report(opt, all > 0 && done < all ? done / all : 1, "pruning");
}

static void train(uni_trainer *u, int32_t n_pieces, const tok_train_options *opt) {
    int32_t wanted = (int32_t)(n_pieces * SPARE), seeds = u->model.n;
    for (;;) {
        for (int i = 0; i < EM_STEPS; i++) {
            uni_em_step(u);
            report(u, seeds, wanted, opt);
        }
        if (u->model.n <= wanted) break;
        int32_t keep = (int32_t)(SHRINK * u->model.n);
        uni_prune(u, keep > wanted ? keep : wanted);
    }
    uni_trie_free(&u->trie);
}

/* ---- result ---- */

static int by_score(const void *x, const void *y) {
    const uni_piece *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->len != b->len) return a->len < b->len ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* The pieces that go into the vocabulary, best first: all characters and the best others. */
static void choose(uni_model *m, int32_t n_pieces) {
    qsort(m->piece + m->n_chars, (size_t)(m->n - m->n_chars), sizeof(*m->piece), by_score);
    if (m->n > n_pieces) m->n = n_pieces;
    for (int32_t i = 0; i < m->n_chars; i++) {
        m->piece[i].len = 0; /* a character: `at` is its number */
        m->piece[i].at = (uint32_t)i;
    }
    qsort(m->piece, (size_t)m->n, sizeof(*m->piece), by_score);
}

static void add_piece(tok_draft *d, const uni_model *m, const uni_piece *p,
                      const char_count *chars) {
    char text[4 * PIECE_MAX_CHARS];
    size_t n = 0;
    for (int32_t i = 0; i < (p->len ? p->len : 1); i++) {
        int32_t ch = p->len ? m->text->sym[p->at + (uint32_t)i] : (int32_t)p->at;
        n += (size_t)utf8_encode(chars[ch].cp, text + n);
    }
    tok_draft_add(d, arena_strndup(d->mem, text, n));
}

static void fill_draft(const tok_trainer *tr, uni_model *m, const char_count *chars, tok_draft *d) {
    tok_draft_add_special(d, &tr->opt);
    if (tr->opt.byte_fallback) tok_draft_add_bytes(d);
    int32_t first = d->n_token;
    choose(m, tr->opt.vocab_size - first);
    d->score = xcalloc((size_t)(first + m->n), sizeof(*d->score));
    for (int32_t i = 0; i < m->n; i++) {
        add_piece(d, m, &m->piece[i], chars);
        d->score[first + i] = m->piece[i].score;
    }
}

/* ---- the whole ---- */

static void run(tok_trainer *tr, const word_ref *words, int64_t n, const char_count *chars,
                int32_t n_chars, tok_draft *d) {
    bpe_text text;
    uni_trainer u = {.model = {.text = &text, .n_chars = n_chars}};
    int32_t reserved = tr->opt.n_special + 256 * tr->opt.byte_fallback;
    int64_t *count = xmalloc(sizeof(*count) * (size_t)(n_chars + 1)), room = tok_trainer_room(tr);
    for (int32_t i = 0; i < n_chars; i++) count[i] = chars[i].count;
    build_text(&text, words, n, chars, n_chars);
    gather_drop_words(tr->gather);
    bpe_text_cut(&text, TEXT_PARTS, u.part);
    u.n_threads = omp_get_max_threads() < MAX_THREADS ? omp_get_max_threads() : MAX_THREADS;
    u.bits = fraction_bits(chars, n_chars);
    /* A candidate takes about 300 bytes at its peak, in the tree and in the sums of threads. */
    int64_t seeds = (room - 8 * text.n) / 512;
    if (seeds > SEEDS) seeds = SEEDS;
    if (seeds > (int64_t)SEEDS_PER_TOKEN * tr->opt.vocab_size) {
        seeds = (int64_t)SEEDS_PER_TOKEN * tr->opt.vocab_size;
    }
    if (seeds < 2 * (int64_t)tr->opt.vocab_size) seeds = 2 * (int64_t)tr->opt.vocab_size;
    uni_seed(&u.model, (int32_t)seeds, count, room, &tr->opt);
    train(&u, tr->opt.vocab_size - reserved, &tr->opt);
    fill_draft(tr, &u.model, chars, d);
    free(count);
    free(u.model.piece);
    bpe_text_free(&text);
}

status unigram_train(tok_trainer *tr, tok_draft *d, err *e) {
    word_ref *words;
    int64_t n;
    int32_t n_chars, reserved = tr->opt.n_special + 256 * tr->opt.byte_fallback;
    TRY(tok_trainer_words(tr, &words, &n, e));
    char_count *chars = alphabet_of_words(words, n, tr->opt.coverage, &n_chars);
    status st = ST_OK;
    if (n_chars + reserved > tr->opt.vocab_size) {
        st = tok_train_too_small(&tr->opt, n_chars + reserved, "characters", e);
    } else {
        run(tr, words, n, chars, n_chars, d);
    }
    free(chars);
    free(words);
    return st;
}
