/* The loader: opening its sources, and questions about it. What it does with a sample is in place.c
 * (sample to place, place to documents) and rows.c (place to ids). */
#include "data/order/loader_impl.h"

#include "base/rng.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOADER_OPEN_FILES = 64 };

/* ---- checks ---- */

static status too_short(const char *path, uint64_t have, uint64_t need, int seq_len, err *e) {
    err_at(e, ST_USAGE, "train.seq_len",
           "%s has %" PRIu64 " token%s, one sequence of train.seq_len %d needs %" PRIu64, path,
           have, text_s(have), seq_len, need);
    return err_hint(e, "lower train.seq_len below %" PRIu64 " or add text", have);
}

static status check_vocab(const shards *s, int32_t vocab_size, err *e) {
    if (vocab_size == 0 || s->vocab_size <= vocab_size) return ST_OK;
    err_at(e, ST_USAGE, "model.vocab_size",
           "%s has ids up to %d, the model's vocabulary has only %d", s->dir, s->vocab_size - 1,
           vocab_size);
    return err_hint(e, "set model.vocab_size to auto, or to at least %d", s->vocab_size);
}

static status check_config(const loader_config *cfg, err *e) {
    if (cfg->n_sources < 1 || cfg->n_sources > LOADER_MAX_SOURCES)
        return err_at(e, ST_USAGE, "data.train", "a loader needs 1 to %d sources, not %d",
                      LOADER_MAX_SOURCES, cfg->n_sources);
    if (cfg->seq_len < 1 || cfg->seq_len > LOADER_MAX_SEQ_LEN)
        return err_at(e, ST_USAGE, "train.seq_len", "train.seq_len is %d, it must be 1 to %d",
                      cfg->seq_len, LOADER_MAX_SEQ_LEN);
    return ST_OK;
}

/* ---- opening ---- */

static status open_shards(const loader *l, const loader_config *cfg, int i, shards **out, err *e) {
    const loader_source *src = &cfg->sources[i];
    shards_spec spec = {.path = src->path,
                        .format = src->format,
                        .width_bytes = src->width_bytes,
                        .vocab_size = cfg->tok_vocab ? cfg->tok_vocab : cfg->vocab_size,
                        .eos = cfg->eos,
                        .max_tok = src->max_tok,
                        .files = l->files};
    TRY(shards_open(out, &spec, e));
    if (cfg->tok_hash) TRY(shards_check_tokenizer(*out, cfg->tok_hash, e));
    return check_vocab(*out, cfg->vocab_size, e);
}

/* The order belongs to the content: it stays when a folder is moved, or when sources are listed in
 * another order. Equal sets in one list get different ones. */
static uint64_t source_seed(const loader *l, int i, uint64_t seed) {
    uint64_t fingerprint = l->source[i].shards->fingerprint, twins = 0;
    for (int j = 0; j < i; j++) twins += l->source[j].shards->fingerprint == fingerprint;
    return mix64(seed ^ mix64(fingerprint + mix64(twins + 1)));
}

/* How many sequences one pass has, from the index or from the number of tokens. */
static status open_sequences(loader *l, source_state *src, err *e) {
    uint64_t T = (uint64_t)l->seq_len, need = l->shuffle ? T + 1 : 2;
    if (!loader_is_packed(l) && src->n_tok < need)
        return too_short(src->shards->dir, src->n_tok, need, l->seq_len, e);
    src->sequences = l->shuffle ? src->n_tok / T : (src->n_tok - 1 + T - 1) / T;
    if (!loader_is_packed(l) && l->order == ORDER_SHUFFLE) return ST_OK;
    packing_spec spec = {.set = src->shards,
                         .packing = l->packing,
                         .order = l->order,
                         .seq_len = l->seq_len,
                         .source_len = l->cuts_spans ? 0 : l->S,
                         .firsts = l->values};
    TRY(packing_open(&src->packing, &spec, e));
    src->sequences = packing_get_totals(src->packing).sequences;
    return ST_OK;
}

/* ---- what samples are ---- */

static const char *samples_of(int sequences, bool labels) {
    if (labels) return "single answers with labels";
    return sequences > 1 ? "pairs of a chosen and a rejected conversation" : "single sequences";
}

/* A set that a run has made of a file of conversations lies where nobody has put it. */
static const char *name_of_set(const shards *s, char *out, size_t n) {
    if (s->chat.marks && s->n_sources == 1)
        snprintf(out, n, "%s (made of %s)", s->dir, s->source[0]);
    else
        snprintf(out, n, "%s", s->dir);
    return out;
}

static status check_samples(const loader_config *cfg, const shards *s, err *e) {
    int want = cfg->sequences ? cfg->sequences : 1, have = s->chat.marks ? s->chat.sequences : 1;
    bool uneven = s->totals.documents % (uint64_t)have != 0;
    if (uneven) return err_at(e, ST_FORMAT, s->dir, "%s holds half a sample at its end", s->dir);
    if (cfg->values && (s->chat.marks || !s->has_scores)) {
        err_at(e, ST_USAGE, "train.objective",
               "%s holds no labelled texts, from which the objective learns", s->dir);
        return err_hint(e, "name the file of texts and labels itself (.jsonl, .csv, .tsv, "
                           ".parquet), or build shards of it "
                           "with score=FIELD, the field of the label");
    }
    if (have == want && s->chat.labels == cfg->labels) return ST_OK;
    char name[512];
    err_at(e, ST_USAGE, "train.objective", "%s holds %s, the objective learns from %s",
           name_of_set(s, name, sizeof name), samples_of(have, s->chat.labels),
           samples_of(want, cfg->labels));
    return err_hint(e, "take an objective that learns from them: %s",
                    s->chat.labels ? "kto"
                    : have > 1     ? "dpo"
                                   : "lm");
}

static status wrong_sources(const char *hint, const char *sentence, err *e) {
    err_at(e, ST_USAGE, "data.packing", "%s", sentence);
    return err_hint(e, "%s", hint);
}

/* Pairs or texts; how long the texts are that become pairs. */
static status choose_sources(loader *l, const loader_config *cfg, bool pairs, err *e) {
    const span_rules *r = &cfg->spans;
    for (int i = 0; i < l->n_sources; i++)
        if (l->source[i].shards->chat.marks != pairs)
            return wrong_sources("take sets of one kind",
                                 "some sets are pairs and others are texts", e);
    if (pairs && l->packing == PACKING_CONCAT)
        return wrong_sources("leave data.packing out",
                             "pairs are not cut: data.packing concat does not go", e);
    if (pairs && l->packing == PACKING_BESTFIT && !cfg->document_mask)
        return wrong_sources("data.document_mask=true, or data.packing=none",
                             "pairs in one row must not see each other", e);
    if (pairs) return ST_OK;
    if (l->packing != PACKING_CONCAT)
        return wrong_sources("leave data.packing out",
                             "spans are cut out of texts that are packed by concat", e);
    size_t bytes = sizeof *r->sentinels * (size_t)r->n_sentinels;
    l->cuts_spans = true;
    l->spans = *r;
    l->sentinels = xmalloc(bytes + 1);
    if (bytes) memcpy(l->sentinels, r->sentinels, bytes);
    l->spans.sentinels = l->sentinels;
    l->seq_len = (int)spans_longest(r, l->S, l->T);
    if (l->seq_len < 2) {
        err_at(e, ST_USAGE, "train.seq_len",
               "no text fits into a source of %d and a target of %d tokens", l->S, l->T);
        return err_hint(e, "raise train.source_len and train.seq_len");
    }
    int64_t need = spans_of(r, l->seq_len).spans;
    if (need <= r->n_sentinels) return ST_OK;
    err_at(e, ST_USAGE, "tokenizer",
           "span corruption of %d tokens needs %ld sentinels, the tokenizer has %d", l->seq_len,
           (long)need, r->n_sentinels);
    return err_hint(
        e, "add <extra_id_0>, <extra_id_1>, ...: athanor tok add TOK --special '<extra_id_0>,...'");
}

/* Which packing, now that the sets are known. */
static status choose_packing(loader *l, const loader_config *cfg, err *e) {
    bool chat = false;
    for (int i = 0; i < l->n_sources; i++) chat = chat || l->source[i].shards->chat.marks;
    l->packing = cfg->packing;
    if (cfg->packing == PACKING_AUTO) l->packing = chat ? PACKING_BESTFIT : PACKING_CONCAT;
    bool mixes = l->S && !cfg->document_mask; /* texts of one row would see each other */
    if (cfg->packing == PACKING_AUTO && (l->parts > 1 || mixes))
        l->packing = chat ? PACKING_NONE : PACKING_CONCAT;
    if (!cfg->shuffle) l->packing = chat ? PACKING_NONE : PACKING_CONCAT;
    if (cfg->values) l->packing = PACKING_NONE; /* a user's other choice was refused before */
    if (l->S) TRY(choose_sources(l, cfg, chat, e));
    if (l->parts == 1 || (l->packing == PACKING_NONE && l->order == ORDER_SHUFFLE)) return ST_OK;
    err_at(e, ST_USAGE, l->packing == PACKING_NONE ? "data.order" : "data.packing",
           "pairs stay together: one conversation a row, shuffled");
    return err_hint(e, "leave data.packing and data.order out");
}

/* A sum in which one unknown part makes the whole unknown. */
static void add_known(uint64_t *sum, uint64_t part, bool first) {
    *sum = part && (first || *sum) ? *sum + part : 0;
}

static status open_source(loader *l, int i, const loader_config *cfg, err *e) {
    source_state *src = &l->source[i];
    const shard_totals *t = &src->shards->totals;
    src->n_tok = t->tokens;
    src->consumed = cfg->sources[i].consumed;
    src->seed = source_seed(l, i, cfg->seed);
    TRY(open_sequences(l, src, e));
    l->sequences += src->sequences;
    l->totals.tokens += t->tokens;
    add_known(&l->totals.documents, t->documents, i == 0);
    add_known(&l->totals.text_bytes, t->text_bytes, i == 0);
    uint32_t vocab = (uint32_t)(cfg->vocab_size ? cfg->vocab_size : src->shards->vocab_size);
    if (vocab > l->vocab_size) l->vocab_size = vocab;
    return ST_OK;
}

/* Which source has which sample must not depend on the order in which sources are listed: ties are
 * broken by the order of fingerprints, sorted here by insertion. */
static status open_mixture(loader *l, const loader_config *cfg, err *e) {
    size_t n = (size_t)cfg->n_sources;
    double *weights = xcalloc(n, sizeof *weights);
    int *order = xcalloc(n, sizeof *order);
    for (int i = 0; i < cfg->n_sources; i++) {
        weights[i] = cfg->sources[i].weight;
        int at = i;
        uint64_t name = l->source[i].shards->fingerprint;
        for (; at > 0 && l->source[order[at - 1]].shards->fingerprint > name; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    status st = mixture_new(&l->mix, weights, order, cfg->n_sources, e);
    free(weights);
    free(order);
    return st;
}

status loader_open(loader **out, const loader_config *cfg, err *e) {
    *out = NULL;
    TRY(check_config(cfg, e));
    loader *l = xcalloc(1, sizeof *l);
    l->seq_len = l->T = cfg->seq_len;
    l->S = cfg->source_len;
    l->decoder_start = cfg->decoder_start;
    l->seed = cfg->seed;
    l->document_mask = cfg->document_mask;
    l->shuffle = cfg->shuffle;
    l->cut_once = cfg->cut_once;
    l->in_turn = cfg->in_turn;
    l->values = cfg->values;
    l->parts = cfg->sequences ? cfg->sequences : 1;
    l->order = cfg->shuffle ? cfg->order : ORDER_SHUFFLE;
    l->n_sources = cfg->n_sources;
    l->source = xcalloc((size_t)cfg->n_sources, sizeof *l->source);
    l->files = shard_files_new(LOADER_OPEN_FILES);
    l->fault = xcalloc(1, sizeof *l->fault);
    atomic_flag_clear(&l->fault->claimed);
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < cfg->n_sources; i++) {
        st = open_shards(l, cfg, i, &l->source[i].shards, e);
        if (st == ST_OK) st = check_samples(cfg, l->source[i].shards, e);
    }
    if (st == ST_OK) st = choose_packing(l, cfg, e);
    for (int i = 0; st == ST_OK && i < cfg->n_sources; i++) st = open_source(l, i, cfg, e);
    if (st == ST_OK && cfg->shuffle) st = open_mixture(l, cfg, e);
    if (st == ST_OK)
        *out = l;
    else
        loader_close(l);
    return st;
}

void loader_close(loader *l) {
    if (!l) return;
    for (int i = 0; i < l->n_sources; i++) {
        packing_close(l->source[i].packing);
        free(l->source[i].chosen);
        shards_close(l->source[i].shards);
    }
    shard_files_free(l->files);
    mixture_free(l->mix);
    free(l->source);
    free(l->sentinels);
    free(l->fault);
    free(l);
}

void loader_choose(loader *l, int source, uint32_t *sequences, uint64_t n) {
    source_state *src = &l->source[source];
    CHECK(l->shuffle && l->cut_once && l->parts == 1 && n > 0 && !src->chosen, "chosen sequences");
    src->chosen = sequences;
    src->n_chosen = n;
}

/* ---- faults ---- */

void loader_set_fault(const loader *l, const err *e) {
    if (atomic_flag_test_and_set(&l->fault->claimed)) return;
    l->fault->e = *e;
    atomic_store_explicit(&l->fault->known, true, memory_order_release);
}

status loader_error(const loader *l, err *e) {
    if (!atomic_load_explicit(&l->fault->known, memory_order_acquire)) return ST_OK;
    if (e) *e = l->fault->e;
    return l->fault->e.code;
}

/* ---- questions ---- */

int loader_seq_len(const loader *l) {
    return l->T;
}
int loader_source_len(const loader *l) {
    return l->S;
}
uint64_t loader_sequences(const loader *l) {
    return l->sequences;
}
uint64_t loader_source_sequences(const loader *l, int i) {
    return l->source[i].sequences;
}
shard_totals loader_totals(const loader *l) {
    return l->totals;
}
int loader_n_sources(const loader *l) {
    return l->n_sources;
}
loader_packing loader_get_packing(const loader *l) {
    return l->packing;
}
const shards *loader_source_shards(const loader *l, int i) {
    return l->source[i].shards;
}

double loader_source_share(const loader *l, int i) {
    if (l->mix) return mixture_share(l->mix, i);
    return (double)l->source[i].sequences / (double)l->sequences;
}

uint64_t loader_samples_of(const loader *l, int i, uint64_t n) {
    uint64_t parts = (uint64_t)l->parts;
    if (l->mix) return mixture_count(l->mix, i, n / parts) * parts;
    for (int k = 0; k < i; k++) {
        uint64_t before = l->source[k].sequences;
        n -= n < before ? n : before;
    }
    return n < l->source[i].sequences ? n : l->source[i].sequences;
}

packing_totals loader_source_packing_totals(const loader *l, int i) {
    return loader_is_packed(l) ? packing_get_totals(l->source[i].packing) : (packing_totals){0};
}

packing_totals loader_packing_totals(const loader *l) {
    packing_totals sum = {0};
    for (int i = 0; i < l->n_sources; i++) {
        packing_totals t = loader_source_packing_totals(l, i);
        sum.sequences += t.sequences;
        sum.documents += t.documents;
        sum.documents_cut += t.documents_cut;
        sum.tokens += t.tokens;
        sum.targets += t.targets;
    }
    return sum;
}
