/* Text to words; see gather.h.
 *
 * Documents are copied into a batch, in sections small enough to share out among threads and cut
 * where no published pattern makes a word cross: at a newline between two characters that are not
 * white space, else before a space between two letters. Only a section with neither (128 KiB
 * without a space or newline) is cut at any character. When the batch is full, threads cut sections
 * into words, each into a set of its own, and merge the sets. Batches depend on the text alone, so
 * what is dropped when memory runs short depends on the text and the limit alone. */
#include "tok/train/gather.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/text/unicode.h"
#include "tok/train/pieces.h"
#include "tok/train/train.h"

enum { SECTION_BYTES = 1 << 18, BATCH_BYTES = 16 << 20 };

/* One thread's walk through the stages; `enc` comes first, so that the stages' callback finds it.
 */
typedef struct cutter {
    tok_enc enc;
    gather_cut cut;
    word_set *words;
    err e;
    int64_t failed_at; /* the section that failed, -1: none */
} cutter;

typedef struct section {
    size_t start, len;
    bool first; /* begins a document */
} section;

struct gather {
    const tok *shell;
    const tok_train_options *opt; /* for progress */
    gather_cut cut;
    int64_t limit_bytes;
    word_set total;
    word_set *local; /* by thread; NULL with one thread, which counts into the total */
    int n_threads;
    strbuf batch;
    section *section;
    int32_t n_sections, cap_sections;
    int64_t n_dropped, most_dropped;
};

gather *gather_new(const tok *shell, gather_cut cut, int64_t ram_bytes,
                   const tok_train_options *opt) {
    gather *g = xcalloc(1, sizeof(*g));
    g->shell = shell;
    g->opt = opt;
    g->cut = cut;
    g->limit_bytes = ram_bytes;
    g->n_threads = omp_get_max_threads();
    if (g->n_threads > 1) g->local = xcalloc((size_t)g->n_threads, sizeof(*g->local));
    return g;
}

static void free_locals(gather *g) {
    for (int i = 0; g->local && i < g->n_threads; i++) words_free(&g->local[i]);
}

void gather_free(gather *g) {
    if (!g) return;
    words_free(&g->total);
    free_locals(g);
    free(g->local);
    strbuf_free(&g->batch);
    free(g->section);
    free(g);
}

void gather_drop_words(gather *g) {
    words_free(&g->total);
    free_locals(g);
    strbuf_free(&g->batch);
}

/* ---- a section into words ---- */

/* Longer words are cut at character borders. */
static void count_word(cutter *c, const char *s, size_t len) {
    while (len > WORD_MAX_BYTES) {
        size_t n = utf8_cut(s, WORD_MAX_BYTES);
        words_add(c->words, s, n, 1);
        s += n;
        len -= n;
    }
    words_add(c->words, s, len, 1);
}

static void count_pieces(cutter *c, const char *s, size_t len) {
    for (size_t at = 0; at < len;) {
        size_t end = pieces_end(s, len, at, c->cut == CUT_DIGITS);
        count_word(c, s + at, end - at);
        at = end;
    }
}

static status take_word(tok_enc *enc, const tok_piece *word) {
    cutter *c = (cutter *)enc;
    if (c->cut == CUT_NONE) {
        count_word(c, word->s, word->len);
    } else {
        count_pieces(c, word->s, word->len);
    }
    return ST_OK;
}

static status cut_valid(cutter *c, const tok_piece *text) {
    tok_enc *enc = &c->enc;
    const tok *t = enc->t;
    tok_piece normal;
    TRY(norm_run(t->norm, t->n_norm, text, &enc->norm, &normal, enc->e));
    return pretok_run(enc, t->step, t->n_steps, &normal, take_word);
}

/* Bytes that are not UTF-8 are no part of any word, as in encoding. */
static status cut_section(cutter *c, const char *s, size_t len, bool first) {
    for (size_t at = 0; at < len; at++) {
        size_t valid = utf8_valid_prefix(s + at, len - at);
        tok_piece part = {.s = s + at, .len = valid, .first = first && at == 0};
        if (valid > 0) TRY(cut_valid(c, &part));
        at += valid;
    }
    return ST_OK;
}

/* ---- a batch ---- */

static void cutter_free(cutter *c) {
    norm_work_free(&c->enc.norm);
    for (int i = 0; i < TOK_MAX_STEPS; i++) text_free(&c->enc.step_text[i]);
    pretok_match_data_free(c->enc.match_data);
}

/* The error of the first section that failed is the one reported, whoever met it. */
static void keep_first_error(cutter *worst, const cutter *c) {
    if (c->failed_at < 0 || (worst->failed_at >= 0 && worst->failed_at < c->failed_at)) return;
    worst->failed_at = c->failed_at;
    worst->e = c->e;
}

static void count_sections(gather *g, cutter *worst) {
#pragma omp parallel num_threads(g->n_threads)
    {
        cutter c = {.enc = {.t = g->shell}, .cut = g->cut, .failed_at = -1};
        c.enc.e = &c.e;
        c.words = g->local ? &g->local[omp_get_thread_num()] : &g->total;
#pragma omp for schedule(dynamic)
        for (int32_t i = 0; i < g->n_sections; i++) {
            section s = g->section[i];
            if (c.failed_at >= 0) continue;
            if (cut_section(&c, g->batch.data + s.start, s.len, s.first) != ST_OK) c.failed_at = i;
        }
#pragma omp critical
        keep_first_error(worst, &c);
        cutter_free(&c);
    }
}

static void merge_locals(gather *g) {
    if (!g->local) return;
#pragma omp parallel for schedule(dynamic) num_threads(g->n_threads)
    for (int s = 0; s < WORD_SHARDS; s++) {
        for (int i = 0; i < g->n_threads; i++) words_merge_shard(&g->total, &g->local[i], s);
    }
    for (int i = 0; i < g->n_threads; i++) words_clear(&g->local[i]);
}

/* What training will take at its start: the words, and 4 bytes for each of their bytes and ends. */
static int64_t memory_needed(const gather *g) {
    return words_memory(&g->total) + 4 * (words_total_bytes(&g->total) + words_total(&g->total));
}

/* The last resort: the rarest words go until half of the memory is free again. */
static void drop_rare(gather *g) {
    if (g->limit_bytes <= 0 || memory_needed(g) <= g->limit_bytes) return;
    int64_t least = 2;
    for (; memory_needed(g) > g->limit_bytes / 2 && least < INT64_MAX / 2; least *= 2) {
        g->n_dropped += words_drop_rare(&g->total, least);
        g->most_dropped = least - 1 > g->most_dropped ? least - 1 : g->most_dropped;
    }
}

static status run_batch(gather *g, err *e) {
    cutter worst = {.failed_at = -1};
    count_sections(g, &worst);
    merge_locals(g);
    drop_rare(g);
    g->n_sections = 0;
    strbuf_clear(&g->batch);
    if (worst.failed_at < 0) return ST_OK;
    if (e) *e = worst.e;
    return worst.e.code;
}

/* ---- documents into sections ---- */

/* Class of the character at s[i], and of the one before it. */
static uni_class class_at(const char *s, size_t len, size_t i) {
    uint32_t cp;
    return utf8_decode(s + i, len - i, &cp) > 0 ? uni_class_of(cp) : UNI_OTHER;
}

static uni_class class_before(const char *s, size_t i) {
    size_t start = i - 1;
    while (start > 0 && i - start < 4 && utf8_continues(s[start])) start--;
    return class_at(s, i, start);
}

static bool cuts_at_newline(const char *s, size_t len, size_t i) {
    return s[i - 1] == '\n' && class_before(s, i - 1) != UNI_SPACE &&
           class_at(s, len, i) != UNI_SPACE;
}

static bool cuts_at_space(const char *s, size_t len, size_t i) {
    return s[i] == ' ' && class_before(s, i) == UNI_LETTER && class_at(s, len, i + 1) == UNI_LETTER;
}

/* Where the section that begins at s ends; there is more text than one holds. */
static size_t section_end(const char *s, size_t len) {
    const size_t most = SECTION_BYTES;
    for (size_t i = most - 1; i > most / 2; i--) {
        if (cuts_at_newline(s, len, i)) return i;
    }
    for (size_t i = most - 1; i > most / 2; i--) {
        if (cuts_at_space(s, len, i)) return i;
    }
    return utf8_cut(s, most);
}

status gather_add(gather *g, const char *text, size_t len, err *e) {
    for (size_t at = 0; at < len;) {
        size_t n = len - at;
        if (n > SECTION_BYTES) n = section_end(text + at, n);
        section s = {.start = g->batch.len, .len = n, .first = at == 0};
        strbuf_append(&g->batch, text + at, n);
        VEC_PUSH(g->section, g->n_sections, g->cap_sections, s);
        at += n;
        if (g->batch.len < BATCH_BYTES) continue;
        TRY(run_batch(g, e));
        tok_train_report(g->opt, (double)at / (double)len, "reading");
    }
    return ST_OK;
}

status gather_words(gather *g, word_set **words, err *e) {
    if (g->n_sections > 0) TRY(run_batch(g, e));
    *words = &g->total;
    return ST_OK;
}

int64_t gather_dropped(const gather *g, int64_t *most) {
    *most = g->most_dropped;
    return g->n_dropped;
}
