/* The loader: arithmetic from a sample's index to its tokens. Read loader_place_of first (index to
 * place), then fill_row (place to ids), then walk_next (places to documents). */
#include "data/loader.h"

#include "base/rng.h"
#include "data/mixture.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct source_state {
    shards *shards;
    uint64_t n_tok;     /* N */
    uint64_t sequences; /* in one pass */
    uint64_t seed;      /* of its phases and orders */
} source_state;

typedef enum fault_kind { FAULT_NONE, FAULT_ID, FAULT_BOUNDS } fault_kind;

struct loader {
    int seq_len;
    bool document_mask, shuffle;
    uint32_t vocab_size;
    source_state *source;
    int n_sources;
    mixture *mix;
    uint64_t sequences;
    shard_totals totals;
    /* The first fault found. `claimed` lets one thread write the details, `fault` publishes them.
     */
    atomic_flag claimed;
    _Atomic fault_kind fault;
    int fault_source;
    uint64_t fault_tok;
};

/* ---- opening ---- */

static status too_short(const char *path, uint64_t have, uint64_t need, int seq_len, err *e) {
    err_set(e, ST_USAGE,
            "%s has %" PRIu64 " tokens, one sequence of train.seq_len %d needs %" PRIu64, path,
            have, seq_len, need);
    err_where(e, "train.seq_len");
    err_hint(e, "lower train.seq_len below %" PRIu64 " or add text", have);
    return ST_USAGE;
}

static status check_vocab(const shards *s, int32_t vocab_size, err *e) {
    if (vocab_size == 0 || s->vocab_size <= vocab_size) return ST_OK;
    err_set(e, ST_USAGE, "%s has ids up to %d, the model's vocabulary has only %d", s->dir,
            s->vocab_size - 1, vocab_size);
    err_where(e, "model.vocab_size");
    err_hint(e, "set model.vocab_size to auto, or to at least %d", s->vocab_size);
    return ST_USAGE;
}

static status open_source(loader *l, int i, const loader_config *cfg, err *e) {
    source_state *src = &l->source[i];
    const char *path = cfg->sources[i].path;
    TRY(shards_open(&src->shards, path, e));
    if (cfg->tok_hash) TRY(shards_check_tokenizer(src->shards, cfg->tok_hash, e));
    TRY(check_vocab(src->shards, cfg->vocab_size, e));
    uint64_t T = (uint64_t)cfg->seq_len, need = cfg->shuffle ? T + 1 : 2;
    src->n_tok = src->shards->totals.tokens;
    if (src->n_tok < need) return too_short(path, src->n_tok, need, cfg->seq_len, e);
    src->sequences = cfg->shuffle ? src->n_tok / T : (src->n_tok - 1 + T - 1) / T;
    src->seed = mix64(cfg->seed ^ mix64((uint64_t)i + 1));
    l->sequences += src->sequences;
    l->totals.tokens += src->n_tok;
    l->totals.documents += src->shards->totals.documents;
    l->totals.text_bytes += src->shards->totals.text_bytes;
    uint32_t vocab = (uint32_t)(cfg->vocab_size ? cfg->vocab_size : src->shards->vocab_size);
    if (vocab > l->vocab_size) l->vocab_size = vocab;
    return ST_OK;
}

static status check_config(const loader_config *cfg, err *e) {
    if (cfg->n_sources < 1 || cfg->n_sources > LOADER_MAX_SOURCES) {
        err_set(e, ST_USAGE, "a loader needs 1 to %d sources, not %d", LOADER_MAX_SOURCES,
                cfg->n_sources);
        err_where(e, "data.train");
        return ST_USAGE;
    }
    if (cfg->seq_len < 1 || cfg->seq_len > LOADER_MAX_SEQ_LEN) {
        err_set(e, ST_USAGE, "train.seq_len is %d, it must be 1 to %d", cfg->seq_len,
                LOADER_MAX_SEQ_LEN);
        err_where(e, "train.seq_len");
        return ST_USAGE;
    }
    return ST_OK;
}

static status open_mixture(loader *l, const loader_config *cfg, err *e) {
    double *weights = xcalloc((size_t)cfg->n_sources, sizeof *weights);
    for (int i = 0; i < cfg->n_sources; i++) weights[i] = cfg->sources[i].weight;
    status st = mixture_new(&l->mix, weights, cfg->n_sources, e);
    free(weights);
    return st;
}

status loader_open(loader **out, const loader_config *cfg, err *e) {
    *out = NULL;
    TRY(check_config(cfg, e));
    loader *l = xcalloc(1, sizeof *l);
    l->seq_len = cfg->seq_len;
    l->document_mask = cfg->document_mask;
    l->shuffle = cfg->shuffle;
    l->n_sources = cfg->n_sources;
    l->source = xcalloc((size_t)cfg->n_sources, sizeof *l->source);
    atomic_flag_clear(&l->claimed);
    status st = cfg->shuffle ? open_mixture(l, cfg, e) : ST_OK;
    for (int i = 0; st == ST_OK && i < cfg->n_sources; i++) st = open_source(l, i, cfg, e);
    if (st == ST_OK)
        *out = l;
    else
        loader_close(l);
    return st;
}

void loader_close(loader *l) {
    if (!l) return;
    for (int i = 0; i < l->n_sources; i++) shards_close(l->source[i].shards);
    mixture_free(l->mix);
    free(l->source);
    free(l);
}

/* ---- from an index to a place ---- */

static loader_place place_shuffled(const loader *l, uint64_t sample) {
    uint64_t ordinal;
    int k = mixture_source(l->mix, sample, &ordinal);
    const source_state *src = &l->source[k];
    uint64_t epoch = ordinal / src->sequences, T = (uint64_t)l->seq_len;
    uint32_t bits[4];
    rng_block(rng_key_named(src->seed, "data.phase"), epoch, 0, bits);
    uint64_t phase = ((uint64_t)bits[0] << 32 | bits[1]) % src->n_tok;
    rng_key order = rng_key_numbered(src->seed, epoch);
    uint64_t seq = rng_permute(order, src->sequences, ordinal % src->sequences);
    return (loader_place){.source = k,
                          .epoch = epoch,
                          .sequence = seq,
                          .first_tok = (phase + seq * T) % src->n_tok,
                          .n_inputs = l->seq_len};
}

static loader_place place_in_order(const loader *l, uint64_t sample) {
    int k = 0;
    while (k < l->n_sources && sample >= l->source[k].sequences) sample -= l->source[k++].sequences;
    if (k == l->n_sources) return (loader_place){.source = k - 1, .sequence = sample};
    uint64_t T = (uint64_t)l->seq_len, first = sample * T, left = l->source[k].n_tok - 1 - first;
    return (loader_place){.source = k,
                          .sequence = sample,
                          .first_tok = first,
                          .n_inputs = left < T ? (int64_t)left : (int64_t)T};
}

loader_place loader_place_of(const loader *l, uint64_t sample) {
    return l->shuffle ? place_shuffled(l, sample) : place_in_order(l, sample);
}

uint64_t loader_epoch_of(const loader *l, uint64_t sample) {
    return loader_place_of(l, sample).epoch;
}

/* ---- from a place to rows ---- */

static void set_fault(loader *l, fault_kind kind, int source, uint64_t tok) {
    if (atomic_flag_test_and_set(&l->claimed)) return;
    l->fault_source = source;
    l->fault_tok = tok;
    atomic_store_explicit(&l->fault, kind, memory_order_release);
}

/* Copies n tokens of the ring from `first`; out-of-vocabulary ids become 0 and set the fault.
 * Returns false when there were any. */
static bool copy_ring(loader *l, int source, uint64_t first, int64_t n, int32_t *ids) {
    const source_state *src = &l->source[source];
    uint64_t at = first % src->n_tok, left = src->n_tok - at;
    int64_t head = (uint64_t)n < left ? n : (int64_t)left;
    uint32_t max = shards_copy(src->shards, at, head, ids);
    if (n > head) {
        uint32_t m = shards_copy(src->shards, 0, n - head, ids + head);
        max = m > max ? m : max;
    }
    if (max < l->vocab_size) return true;
    for (int64_t i = 0; i < n; i++)
        if ((uint32_t)ids[i] >= l->vocab_size) {
            set_fault(l, FAULT_ID, source, (at + (uint64_t)i) % src->n_tok);
            ids[i] = 0;
        }
    return false;
}

/* The documents of a sample one after the other. */
typedef struct doc_walk {
    const source_state *src;
    uint64_t tok, doc; /* where the next span begins */
    int64_t t, end;    /* the same in the row; where the row ends */
    shard_range range; /* of the span just given */
    int64_t t0, t1;    /* its part of the row */
    bool ends;         /* the document ends at t1 */
} doc_walk;

static doc_walk walk_begin(const loader *l, const loader_place *p, int64_t n) {
    const source_state *src = &l->source[p->source];
    return (doc_walk){.src = src,
                      .tok = p->first_tok,
                      .doc = shards_documents_before(src->shards, p->first_tok),
                      .end = n};
}

/* 1: a span; 0: the row is done; -1: the bounds are corrupt. */
static int walk_next(doc_walk *w) {
    if (w->t >= w->end) return 0;
    if (!shards_document(w->src->shards, w->doc, &w->range)) return -1;
    if (w->tok < w->range.first_tok || w->tok >= w->range.end_tok) return -1;
    int64_t len = (int64_t)(w->range.end_tok - w->tok), room = w->end - w->t;
    w->ends = len <= room;
    w->t0 = w->t;
    w->t1 = w->t + (w->ends ? len : room);
    w->t = w->t1;
    w->tok = w->range.end_tok;
    w->doc++;
    if (w->tok == w->src->n_tok) w->tok = w->doc = 0; /* around the ring */
    return 1;
}

static void fill_starts(int32_t *start, int64_t from, int64_t to, int64_t value) {
    if (!start) return;
    for (int64_t t = from; t < to; t++) start[t] = (int32_t)value;
}

static void ignore_targets(int32_t *targets, int64_t from, int64_t to) {
    for (int64_t t = from; t < to; t++) targets[t] = LOADER_IGNORE;
}

/* Starts and masked targets of the live part of a row; `start` may be NULL. */
static void mask_documents(loader *l, const loader_place *p, int32_t *targets, int32_t *start) {
    doc_walk w = walk_begin(l, p, p->n_inputs);
    int more;
    while ((more = walk_next(&w)) > 0) {
        fill_starts(start, w.t0, w.t1, w.t0);
        if (w.ends) targets[w.t1 - 1] = LOADER_IGNORE;
    }
    if (more == 0) return;
    set_fault(l, FAULT_BOUNDS, p->source, w.tok);
    fill_starts(start, w.t, w.end, w.t);
    ignore_targets(targets, w.t, w.end);
}

static int64_t count_live(const int32_t *targets, int64_t n) {
    int64_t live = 0;
    for (int64_t t = 0; t < n; t++) live += targets[t] != LOADER_IGNORE;
    return live;
}

static int64_t fill_row(loader *l, uint64_t sample, int32_t *ids, int32_t *targets, int32_t *start,
                        int32_t *pos) {
    const loader_place p = loader_place_of(l, sample);
    const int64_t T = l->seq_len, n = p.n_inputs;
    int32_t last = 0;
    fill_starts(start, 0, T, 0);
    if (n > 0) {
        bool good = copy_ring(l, p.source, p.first_tok, n, ids);
        good &= copy_ring(l, p.source, p.first_tok + (uint64_t)n, 1, &last);
        memcpy(targets, ids + 1, (size_t)(n - 1) * sizeof *ids);
        targets[n - 1] = last;
        if (l->document_mask) mask_documents(l, &p, targets, start);
        if (!good) ignore_targets(targets, 0, n);
    }
    memset(ids + n, 0, (size_t)(T - n) * sizeof *ids);
    ignore_targets(targets, n, T);
    for (int64_t t = 0; pos && t < T; t++) pos[t] = (int32_t)t;
    return count_live(targets, n);
}

static void subtract(int32_t *pos, const int32_t *start, int64_t n) {
    for (int64_t i = 0; i < n; i++) pos[i] -= start[i];
}

int64_t loader_fill(loader *l, uint64_t first_sample, int B, int32_t *ids, int32_t *targets,
                    int32_t *start, int32_t *pos) {
    const int64_t T = l->seq_len;
    int64_t live = 0;
    for (int64_t b = 0; b < B; b++) {
        int32_t *row_start = start ? start + b * T : NULL;
        int32_t *row_pos = pos ? pos + b * T : NULL;
        live += fill_row(l, first_sample + (uint64_t)b, ids + b * T, targets + b * T, row_start,
                         row_pos);
        if (row_pos && row_start) subtract(row_pos, row_start, T);
    }
    return live;
}

/* Documents that end inside (first, first + n] of the ring: each masks one target. */
static int64_t count_ends(const source_state *src, uint64_t first, uint64_t n) {
    uint64_t end = first + n, wrapped = 0;
    if (end > src->n_tok) {
        wrapped = shards_documents_before(src->shards, end - src->n_tok);
        end = src->n_tok;
    }
    uint64_t upto = shards_documents_before(src->shards, end);
    return (int64_t)(upto + wrapped) - (int64_t)shards_documents_before(src->shards, first);
}

int64_t loader_count_targets(const loader *l, uint64_t first_sample, uint64_t n) {
    if (l->shuffle && !l->document_mask) return (int64_t)n * l->seq_len;
    int64_t live = 0;
    for (uint64_t i = 0; i < n; i++) {
        loader_place p = loader_place_of(l, first_sample + i);
        live += p.n_inputs;
        if (l->document_mask && p.n_inputs > 0)
            live -= count_ends(&l->source[p.source], p.first_tok, (uint64_t)p.n_inputs);
    }
    return live;
}

status loader_error(const loader *l, err *e) {
    fault_kind kind = atomic_load_explicit(&l->fault, memory_order_acquire);
    if (kind == FAULT_NONE) return ST_OK;
    const shards *s = l->source[l->fault_source].shards;
    const shard *sh = &s->shard[0];
    while (sh + 1 < s->shard + s->n_shards && sh[1].first_tok <= l->fault_tok) sh++;
    const char *what =
        kind == FAULT_ID ? "a token id outside the vocabulary" : "impossible document bounds";
    err_set(e, ST_FORMAT, "%s/%s is corrupt: %s at token %" PRIu64, s->dir, sh->file, what,
            l->fault_tok - sh->first_tok);
    err_where(e, "%s/%s", s->dir, sh->file);
    err_hint(e,
             "check the folder with `athanor data show --verify %s`, rebuild it with `athanor data "
             "build`",
             s->dir);
    return ST_FORMAT;
}

/* ---- questions ---- */

int loader_seq_len(const loader *l) {
    return l->seq_len;
}
uint64_t loader_sequences(const loader *l) {
    return l->sequences;
}
shard_totals loader_totals(const loader *l) {
    return l->totals;
}
int loader_n_sources(const loader *l) {
    return l->n_sources;
}
const shards *loader_source_shards(const loader *l, int i) {
    return l->source[i].shards;
}

double loader_source_share(const loader *l, int i) {
    if (l->mix) return mixture_share(l->mix, i);
    return (double)l->source[i].sequences / (double)l->sequences;
}

status loader_describe(const loader *l, uint64_t sample, arena *a, loader_span **spans, int *n,
                       err *e) {
    loader_place p = loader_place_of(l, sample);
    const shards *s = l->source[p.source].shards;
    *spans = ARENA_ARRAY(a, loader_span, p.n_inputs);
    *n = 0;
    doc_walk w = walk_begin(l, &p, p.n_inputs);
    int more;
    while ((more = walk_next(&w)) > 0) {
        uint64_t doc = w.doc ? w.doc - 1 : s->totals.documents - 1;
        uint64_t first = w.t0 ? w.range.first_tok : p.first_tok;
        (*spans)[(*n)++] = (loader_span){.source = s->dir,
                                         .shard = s->shard[w.range.shard].file,
                                         .text_source = s->source[w.range.source],
                                         .line = w.range.line,
                                         .document = doc,
                                         .first_tok = first,
                                         .end_tok = first + (uint64_t)(w.t1 - w.t0),
                                         .from_start = first == w.range.first_tok};
    }
    if (more == 0) return ST_OK;
    err_set(e, ST_FORMAT, "%s is corrupt: impossible document bounds near token %" PRIu64, s->dir,
            w.tok);
    err_where(e, "%s", s->dir);
    err_hint(e, "rebuild the folder with `athanor data build`");
    return ST_FORMAT;
}
