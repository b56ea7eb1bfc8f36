/* Counts what tokenizers make of documents; see tok_report.h.
 *
 * A batch is encoded by all threads, one task a document and tokenizer, each into its own slot; the
 * slots are then added up by one thread a tokenizer. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/utf8.h"
#include "tok/internal.h"
#include "tok/tok_report.h"

/* How many tokens a word has, by thread: natural text repeats its words. */
enum { WORD_KEY = 27, WORD_ENTRIES = 1 << 13 };
typedef struct known_word {
    int32_t n_tokens;
    uint8_t n_key; /* 0: free */
    char key[WORD_KEY];
} known_word;

typedef struct report_row {
    tok_tally sums;
    uint8_t *used; /* [vocabulary / 8 + 1], a bit an id */
} report_row;

typedef struct report_tok {
    const tok *t;
    int64_t *count; /* [vocabulary] */
    report_row *row;
} report_tok;

struct tok_report {
    report_tok *tok;
    bool count_words;
    int n_toks, n_threads, n_rows, cap_rows;
    known_word **words; /* [threads, tokenizers], made on first use */
};

/* What one tokenizer makes of one document. */
typedef struct outcome {
    tok_ids ids;
    tok_tally sums;
    status st;
    err e;
} outcome;

tok_report *tok_report_new(const tok *const *toks, int n_toks, bool words) {
    tok_report *r = xcalloc(1, sizeof *r);
    r->count_words = words;
    r->n_toks = n_toks;
    r->tok = xcalloc((size_t)n_toks, sizeof *r->tok);
    for (int i = 0; i < n_toks; i++) {
        report_tok *p = &r->tok[i];
        p->t = toks[i];
        p->count = xcalloc((size_t)tok_vocab_size(toks[i]), sizeof *p->count);
    }
    r->n_threads = omp_get_max_threads();
    r->words = xcalloc((size_t)(r->n_threads * n_toks), sizeof *r->words);
    return r;
}

void tok_report_free(tok_report *r) {
    if (!r) return;
    for (int i = 0; i < r->n_toks; i++) {
        for (int k = 0; k < r->n_rows; k++) free(r->tok[i].row[k].used);
        free(r->tok[i].row);
        free(r->tok[i].count);
    }
    for (int i = 0; i < r->n_threads * r->n_toks; i++) free(r->words[i]);
    free(r->words);
    free(r->tok);
    free(r);
}

int tok_report_row(tok_report *r) {
    int n = 0, cap = 0;
    for (int i = 0; i < r->n_toks; i++) {
        report_tok *p = &r->tok[i];
        report_row row = {.used = xcalloc((size_t)tok_vocab_size(p->t) / 8 + 1, 1)};
        n = r->n_rows;
        cap = r->cap_rows;
        VEC_PUSH(p->row, n, cap, row);
    }
    r->n_rows = n;
    r->cap_rows = cap;
    return n - 1;
}

/* ---- one document ---- */

static status count_word(const tok *t, known_word *known, const char *word, size_t len,
                         tok_ids *ids, int64_t *n, err *e) {
    known_word *k = &known[hash_bytes(word, len) % WORD_ENTRIES];
    bool fits = len <= WORD_KEY;
    if (fits && k->n_key == len && memcmp(k->key, word, len) == 0) {
        *n = k->n_tokens;
        return ST_OK;
    }
    ids->n = 0;
    TRY(tok_encode(t, word, len, 0, ids, e));
    *n = ids->n;
    if (!fits) return ST_OK;
    k->n_tokens = (int32_t)ids->n;
    k->n_key = (uint8_t)len;
    memcpy(k->key, word, len);
    return ST_OK;
}

static status count_words(const tok *t, known_word *known, const char *text, size_t len,
                          tok_tally *sums, err *e) {
    tok_ids ids = {0};
    status st = ST_OK;
    int64_t n = 0;
    for (size_t at = 0, start, end; st == ST_OK && tok_next_word(text, len, &at, &start, &end);) {
        st = count_word(t, known, text + start, end - start, &ids, &n, e);
        sums->words++;
        sums->word_tokens += n;
        sums->split_words += n > 1;
    }
    tok_ids_free(&ids);
    return st;
}

static int64_t count_chars(const char *text, size_t len) {
    int64_t n = 0;
    uint32_t cp;
    for (size_t i = 0; i < len; n++) {
        int k = utf8_decode(text + i, len - i, &cp);
        i += k > 0 ? (size_t)k : 1;
    }
    return n;
}

/* Bytes that became the unknown token; the places are asked for only where there is one. */
static status count_unknown(const tok *t, const char *text, size_t len, const tok_ids *ids,
                            int64_t *bytes, err *e) {
    int64_t first = 0;
    while (first < ids->n && ids->id[first] != t->unk) first++;
    if (t->unk < 0 || first == ids->n) return ST_OK;
    tok_ids again = {0};
    tok_spans spans = {0};
    status st = tok_encode_spans(t, text, len, 0, &again, &spans, e);
    for (int64_t i = 0; st == ST_OK && i < again.n; i++)
        if (again.id[i] == t->unk) *bytes += spans.span[i].end - spans.span[i].start;
    tok_ids_free(&again);
    tok_spans_free(&spans);
    return st;
}

static status check_round_trip(const tok *t, const char *text, size_t len, const tok_ids *ids,
                               bool *exact, err *e) {
    strbuf back = {0};
    status st = tok_decode(t, ids->id, ids->n, false, &back, e);
    *exact = st == ST_OK && back.len == len && memcmp(strbuf_cstr(&back), text, len) == 0;
    strbuf_free(&back);
    return st;
}

/* `known` NULL: words are not counted. */
static status measure(const tok *t, known_word *known, const tok_report_doc *doc, outcome *o) {
    bool exact;
    tok_tally *s = &o->sums;
    TRY(tok_encode(t, doc->text, doc->len, 0, &o->ids, &o->e));
    TRY(count_unknown(t, doc->text, doc->len, &o->ids, &s->unk_bytes, &o->e));
    TRY(check_round_trip(t, doc->text, doc->len, &o->ids, &exact, &o->e));
    if (known) TRY(count_words(t, known, doc->text, doc->len, s, &o->e));
    s->documents = 1;
    s->bytes = (int64_t)doc->len;
    s->chars = count_chars(doc->text, doc->len);
    s->tokens = o->ids.n;
    s->exact_documents = exact;
    return ST_OK;
}

static void run_task(tok_report *r, int k, const tok_report_doc *doc, outcome *o) {
    known_word **words = &r->words[omp_get_thread_num() * r->n_toks + k];
    if (!*words && r->count_words) *words = xcalloc(WORD_ENTRIES, sizeof **words);
    o->st = measure(r->tok[k].t, *words, doc, o);
    if (o->st != ST_FORMAT) return;
    o->st = ST_OK;
    o->ids.n = 0;
    o->sums = (tok_tally){.refused_documents = 1};
}

/* ---- sums ---- */

static void add_tally(tok_tally *to, const tok_tally *s) {
    to->documents += s->documents;
    to->bytes += s->bytes;
    to->chars += s->chars;
    to->words += s->words;
    to->tokens += s->tokens;
    to->word_tokens += s->word_tokens;
    to->split_words += s->split_words;
    to->unk_bytes += s->unk_bytes;
    to->exact_documents += s->exact_documents;
    to->refused_documents += s->refused_documents;
}

static void add_outcome(report_tok *p, const tok_report_doc *doc, const outcome *o) {
    for (int64_t i = 0; i < o->ids.n; i++) p->count[o->ids.id[i]]++;
    for (int k = 0; k < TOK_ROWS; k++) {
        if (doc->row[k] < 0) continue;
        report_row *row = &p->row[doc->row[k]];
        add_tally(&row->sums, &o->sums);
        for (int64_t i = 0; i < o->ids.n; i++) {
            int32_t id = o->ids.id[i];
            row->used[id >> 3] |= (uint8_t)(1u << (id & 7));
        }
    }
}

status tok_report_add(tok_report *r, const tok_report_doc *docs, int n, err *e) {
    int n_tasks = n * r->n_toks;
    outcome *out = xcalloc((size_t)n_tasks + 1, sizeof *out);
    status st = ST_OK;
#pragma omp parallel for schedule(dynamic, 1) num_threads(r->n_threads) if (n_tasks > 1)
    for (int i = 0; i < n_tasks; i++) run_task(r, i / n, &docs[i % n], &out[i]);
    for (int i = 0; i < n_tasks && st == ST_OK; i++)
        if ((st = out[i].st) != ST_OK && e) *e = out[i].e;
#pragma omp parallel for schedule(static, 1) num_threads(r->n_threads)
    for (int k = 0; k < r->n_toks; k++)
        for (int i = 0; i < n; i++) add_outcome(&r->tok[k], &docs[i], &out[k * n + i]);
    for (int i = 0; i < n_tasks; i++) tok_ids_free(&out[i].ids);
    free(out);
    return st;
}

tok_tally tok_report_tally(const tok_report *r, int tok_index, int row) {
    const report_tok *p = &r->tok[tok_index];
    tok_tally sums = p->row[row].sums;
    for (int32_t i = 0; i <= tok_vocab_size(p->t) / 8; i++)
        sums.used_tokens += __builtin_popcount(p->row[row].used[i]);
    return sums;
}

const int64_t *tok_report_counts(const tok_report *r, int tok_index) {
    return r->tok[tok_index].count;
}

/* ---- the vocabulary, once a corpus is counted ---- */

/* A token that no text produces is never trained, and misleads a model when it appears (Land and
 * Bartolo, arXiv:2405.05417). Whether a text gives a token: */
static bool produces(const tok *t, const char *text, size_t len, int32_t id, tok_ids *ids) {
    ids->n = 0;
    if (tok_encode(t, text, len, 0, ids, NULL) != ST_OK) return false;
    for (int64_t i = 0; i < ids->n; i++)
        if (ids->id[i] == id) return true;
    return false;
}

/* The text of a token alone, without the space that some tokenizers put there themselves, and where
 * a word goes on: behind letters and marks that merge with little. Parts of characters are not
 * judged: they are no text. */
static bool is_reachable(const tok *t, int32_t id, tok_ids *ids, strbuf *text) {
    static const char *const BEFORE[] = {"", "a", "q", "z", "0", "\n", "("};
    size_t len;
    const char *bytes = tok_bytes(t, id, &len);
    if (utf8_valid_prefix(bytes, len) < len) return true;
    if (len > 0 && bytes[0] == ' ' && produces(t, bytes + 1, len - 1, id, ids)) return true;
    for (int i = 0; i < ARRAY_LEN(BEFORE); i++) {
        strbuf_clear(text);
        strbuf_puts(text, BEFORE[i]);
        strbuf_append(text, bytes, len);
        if (produces(t, strbuf_cstr(text), text->len, id, ids)) return true;
    }
    return false;
}

static void list_unreachable(const tok *t, tok_vocab_report *out) {
    int64_t n = out->unused.n;
    bool *reachable = xcalloc((size_t)n + 1, sizeof *reachable);
#pragma omp parallel
    {
        tok_ids ids = {0};
        strbuf text = {0};
#pragma omp for schedule(dynamic, 256)
        for (int64_t i = 0; i < n; i++)
            reachable[i] = is_reachable(t, out->unused.id[i], &ids, &text);
        tok_ids_free(&ids);
        strbuf_free(&text);
    }
    for (int64_t i = 0; i < n; i++)
        if (!reachable[i]) tok_ids_push(&out->unreachable, out->unused.id[i]);
    free(reachable);
}

/* Keeps the list of the longest in order; among equals the lower id is first. */
static void offer_longest(const tok *t, tok_ids *list, int32_t id) {
    int64_t at = list->n;
    while (at > 0 && t->token[list->id[at - 1]].n_bytes < t->token[id].n_bytes) at--;
    if (at == TOK_REPORT_LONGEST) return;
    if (list->n < TOK_REPORT_LONGEST) tok_ids_push(list, id);
    memmove(list->id + at + 1, list->id + at, sizeof(int32_t) * (size_t)(list->n - at - 1));
    list->id[at] = id;
}

void tok_report_vocabulary(const tok_report *r, int tok_index, tok_vocab_report *out) {
    const tok *t = r->tok[tok_index].t;
    const int64_t *count = r->tok[tok_index].count;
    *out = (tok_vocab_report){0};
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->text) continue;
        out->size++;
        out->used += count[id] > 0;
        out->special += k->special;
        if (k->special) continue;
        if (count[id] == 0) tok_ids_push(&out->unused, id);
        offer_longest(t, &out->longest, id);
        if (k->n_bytes > 1 && utf8_valid_prefix(k->bytes, k->n_bytes) < k->n_bytes)
            tok_ids_push(&out->partial, id);
    }
    list_unreachable(t, out);
}

void tok_vocab_report_free(tok_vocab_report *v) {
    tok_ids_free(&v->unused);
    tok_ids_free(&v->unreachable);
    tok_ids_free(&v->partial);
    tok_ids_free(&v->longest);
}
