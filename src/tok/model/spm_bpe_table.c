/* Builds the model of spm_bpe.h from the pieces of a loaded tok. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/format/spm.h"
#include "tok/model/spm_bpe.h"

/* Comparisons spent on taking unused pieces apart; far above any real model. */
#define MAX_WORK ((uint64_t)1 << 32)

typedef struct builder {
    const tok *t;
    const spm_bpe_options *opt;
    spm_bpe *m;
    bpe_merge *merge;
    int64_t n_merges, cap_merges;
    int32_t n_virtual;
    bool has_unused;
    err *e;
} builder;

static bool can_merge(const builder *b, int32_t id) {
    return b->t->token[id].text &&
           (b->opt->type[id] == SPM_NORMAL || b->opt->type[id] == SPM_UNUSED);
}

/* ---- texts ---- */

static void add_text(builder *b, const char *s, size_t n, int32_t id) {
    if (str_map_get(&b->m->bpe.by_bytes, s, n) < 0) str_map_add(&b->m->bpe.by_bytes, s, n, id);
}

/* Pieces by their text, and the characters that are only parts of pieces. */
static void index_texts(builder *b) {
    const tok *t = b->t;
    for (int32_t id = 0; id < t->n_token; id++) {
        if (can_merge(b, id)) add_text(b, t->token[id].text, t->token[id].n_text, id);
        b->has_unused |= t->token[id].text && b->opt->type[id] == SPM_UNUSED;
    }
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        for (uint32_t i = 0; can_merge(b, id) && i < k->n_text;) {
            size_t n = utf8_size(k->text[i]);
            if (str_map_get(&b->m->bpe.by_bytes, k->text + i, n) < 0) {
                add_text(b, k->text + i, n, t->n_token + b->n_virtual++);
            }
            i += (uint32_t)n;
        }
    }
}

/* An unused mark falls apart into what is unknown, and runs of that are one token. */
static void find_cuts(builder *b) {
    const tok *t = b->t;
    bpe_cut *c = &b->m->bpe.cut;
    int32_t mark = tok_model_id(t, SPM_SPACE, strlen(SPM_SPACE));
    bpe_cut_find(t, &b->m->bpe);
    c->before_mark &= mark >= 0 && b->opt->type[mark] != SPM_UNUSED;
    c->possible = c->before_mark || c->elsewhere;
}

static status find_user_defined(builder *b, arena *scratch) {
    const tok *t = b->t;
    piece_key *keys = ARENA_ARRAY(scratch, piece_key, t->n_token);
    int32_t n = 0;
    for (int32_t id = 0; id < t->n_token; id++) {
        const tok_token *k = &t->token[id];
        if (!k->text || b->opt->type[id] != SPM_USER_DEFINED) continue;
        keys[n++] = (piece_key){k->text, k->n_text, id};
        b->m->user_first[(uint8_t)k->text[0]] = true;
    }
    b->m->has_user = n > 0;
    if (n > 0 && !piece_trie_build(&b->m->user, keys, n)) {
        return err_set(b->e, ST_FORMAT, "the list of user-defined pieces " PIECE_TRIE_LIMITS);
    }
    return ST_OK;
}

/* ---- merges ---- */

typedef struct by_rank {
    float score;
    int32_t id;
} by_rank;

static int best_first(const void *a, const void *b) {
    const by_rank *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void add_merges_of(builder *b, int32_t id, int32_t rank) {
    const tok_token *k = &b->t->token[id];
    for (uint32_t at = 1; at < k->n_text; at++) {
        if (utf8_continues(k->text[at])) continue;
        int32_t left = str_map_get(&b->m->bpe.by_bytes, k->text, at);
        if (left < 0) continue;
        int32_t right = str_map_get(&b->m->bpe.by_bytes, k->text + at, k->n_text - at);
        if (right < 0) continue;
        bpe_merge merge = {pair_key(left, right) + 1, rank, id};
        VEC_PUSH(b->merge, b->n_merges, b->cap_merges, merge);
    }
}

static void fill_table(builder *b) {
    bpe_model *m = &b->m->bpe;
    bpe_reserve_merges(m, (size_t)b->n_merges);
    m->n_merges = (int32_t)b->n_merges;
    for (int64_t i = 0; i < b->n_merges; i++) {
        uint32_t at = (uint32_t)mix64(b->merge[i].pair) & m->mask;
        while (m->slot[at].pair != 0) at = (at + 1) & m->mask;
        m->slot[at] = b->merge[i];
    }
}

/* Pieces of equal score share a rank, so that the leftmost goes first. */
static void make_merges(builder *b, arena *scratch) {
    const tok *t = b->t;
    by_rank *order = ARENA_ARRAY(scratch, by_rank, t->n_token);
    int32_t n = 0, rank = 0;
    for (int32_t id = 0; id < t->n_token && !b->opt->no_merges; id++) {
        if (can_merge(b, id)) order[n++] = (by_rank){b->opt->score[id], id};
    }
    qsort(order, (size_t)n, sizeof(*order), best_first);
    for (int32_t i = 0; i < n; i++) {
        rank += i > 0 && order[i].score < order[i - 1].score;
        add_merges_of(b, order[i].id, rank);
    }
    fill_table(b);
}

/* ---- unused pieces ---- */

/* Merges the characters of a piece until two symbols are left, which the last merge makes one. */
static bool take_apart(const tok *t, const bpe_model *m, int32_t id, spm_bpe_split *s,
                       uint64_t *work) {
    const tok_token *k = &t->token[id];
    int32_t sym[SPM_MAX_PIECE_BYTES], n = 0;
    uint32_t bytes[SPM_MAX_PIECE_BYTES];
    for (uint32_t i = 0; i < k->n_text; i += bytes[n++]) {
        bytes[n] = (uint32_t)utf8_size(k->text[i]);
        sym[n] = str_map_get(&m->by_bytes, k->text + i, bytes[n]);
        if (sym[n] < 0) return false;
    }
    for (; n > 2; n--) {
        const bpe_merge *best = NULL;
        int32_t at = 0;
        for (int32_t i = 0; i + 1 < n; i++) {
            const bpe_merge *c = bpe_find(m, sym[i], sym[i + 1]);
            if (!c || (best && c->rank >= best->rank)) continue;
            best = c;
            at = i;
        }
        *work += (uint64_t)n;
        if (!best) return false;
        sym[at] = best->id;
        bytes[at] += bytes[at + 1];
        memmove(sym + at + 1, sym + at + 2, sizeof(*sym) * (size_t)(n - at - 2));
        memmove(bytes + at + 1, bytes + at + 2, sizeof(*bytes) * (size_t)(n - at - 2));
    }
    const bpe_merge *last = n == 2 ? bpe_find(m, sym[0], sym[1]) : NULL;
    if (!last || last->id != id) return false;
    *s = (spm_bpe_split){sym[0], sym[1], bytes[0]};
    return true;
}

static status find_halves(builder *b) {
    const tok *t = b->t;
    uint64_t work = 0;
    if (!b->has_unused && b->n_virtual == 0) return ST_OK;
    b->m->halves = xmalloc(sizeof(spm_bpe_split) * (size_t)t->n_token);
    for (int32_t id = 0; id < t->n_token; id++) {
        b->m->halves[id] = (spm_bpe_split){SPM_BPE_STAYS, -1, 0};
        if (!t->token[id].text || b->opt->type[id] != SPM_UNUSED) continue;
        if (!take_apart(t, &b->m->bpe, id, &b->m->halves[id], &work)) {
            b->m->halves[id].left = SPM_BPE_UNKNOWN;
        }
        if (work > MAX_WORK) {
            return err_set(b->e, ST_FORMAT, "there are too many long unused pieces");
        }
    }
    return ST_OK;
}

bool spm_bpe_made_of(const tok *t, int32_t id, spm_bpe_split *s) {
    uint64_t work = 0;
    CHECK(t->class == &MODEL_SPM_BPE || t->class == &MODEL_SPM_BPE_APART, "not such a model");
    return take_apart(t, &((const spm_bpe *)t->model)->bpe, id, s, &work);
}

/* ---- the whole ---- */

/* What the old model decided, and what decides now. */
static uint64_t hash_of(const tok *t, const spm_bpe_options *opt) {
    XXH3_state_t *x = XXH3_createState();
    CHECK(x, "no memory for a hash state");
    XXH3_64bits_reset(x);
    tok_hash_number(x, (int64_t)t->hash);
    tok_hash_number(x, opt->no_merges);
    XXH3_64bits_update(x, opt->type, (size_t)t->n_token);
    XXH3_64bits_update(x, opt->score, sizeof(float) * (size_t)t->n_token);
    uint64_t hash = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return hash;
}

static status build(builder *b, arena *scratch) {
    index_texts(b);
    TRY(find_user_defined(b, scratch));
    make_merges(b, scratch);
    find_cuts(b);
    return find_halves(b);
}

status spm_bpe_use(tok *t, const spm_bpe_options *opt, err *e) {
    CHECK(t->class == &MODEL_BPE, "the model is not BPE");
    const bpe_model *old = t->model;
    spm_bpe *m = xcalloc(1, sizeof(*m));
    m->bpe.fuse_unk = true;
    m->bpe.byte_fallback = old->byte_fallback;
    builder b = {.t = t, .opt = opt, .m = m, .e = e};
    arena *scratch = arena_new("sentencepiece model");
    status st = build(&b, scratch);
    arena_free(scratch);
    free(b.merge);
    if (st != ST_OK) {
        spm_bpe_free(m);
        return st;
    }
    t->class->free(t->model);
    t->model = m;
    t->class = m->halves ? &MODEL_SPM_BPE_APART : &MODEL_SPM_BPE;
    m->hash = t->hash = hash_of(t, opt);
    return ST_OK;
}

void spm_bpe_hash(const tok *t, XXH3_state_t *x) {
    tok_hash_number(x, (int64_t)((const spm_bpe *)t->model)->hash);
}

void spm_bpe_free(void *model) {
    spm_bpe *m = model;
    if (!m) return;
    free(m->bpe.slot);
    str_map_free(&m->bpe.by_bytes);
    piece_trie_free(&m->user);
    free(m->halves);
    free(m);
}
