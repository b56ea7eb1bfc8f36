/* Drops tokens that a corpus does not use; see tok_edit.h. What must stay so that every text is still
 * represented, and what the merges of a token need, is found first; then the ids that are left are
 * written everywhere in the tokenizer.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "tok/edit/edit.h"

/* ---- the characters of a token ---- */

/* The characters a token is made of, as symbols that the model begins with. */
typedef struct symbols {
    int32_t *id; /* -1: not in the vocabulary */
    int32_t n, cap;
} symbols;

static const char *continuing_prefix(const edit *d) {
    bool is_default =
        edit_is(d, "WordPiece") && !json_object_get(d->model, "continuing_subword_prefix");
    return is_default ? "##" : edit_option(d, "continuing_subword_prefix");
}

static void symbols_of(const edit *d, const tok_token *k, symbols *out) {
    const char *prefix = continuing_prefix(d), *suffix = edit_option(d, "end_of_word_suffix");
    size_t n_prefix = strlen(prefix), n_suffix = strlen(suffix), at = 0, end = k->n_text;
    bool continues = n_prefix > 0 && end > n_prefix && memcmp(k->text, prefix, n_prefix) == 0;
    if (continues) at = n_prefix;
    bool ends = n_suffix > 0 && end - at > n_suffix &&
                memcmp(k->text + end - n_suffix, suffix, n_suffix) == 0;
    if (ends) end -= n_suffix;
    strbuf symbol = {0};
    out->n = 0;
    while (at < end) {
        uint32_t cp;
        int n = utf8_decode(k->text + at, end - at, &cp);
        if (n == 0) n = 1;
        strbuf_clear(&symbol);
        if (continues || out->n > 0) strbuf_puts(&symbol, prefix);
        strbuf_append(&symbol, k->text + at, (size_t)n);
        at += (size_t)n;
        if (at == end && ends) strbuf_puts(&symbol, suffix);
        int32_t id = tok_model_id(d->t, strbuf_cstr(&symbol), symbol.len);
        VEC_PUSH(out->id, out->n, out->cap, id);
    }
    strbuf_free(&symbol);
}

/* ---- ids beside the vocabulary ---- */

/* Takes an id and gives the one to write in its place. */
typedef int32_t id_fn(void *ctx, int32_t id);

/* A template may list ids that it does not use, which nobody has checked. */
static void map_id(const edit *d, json_t *id, id_fn *fn, void *ctx) {
    json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
    if (v >= 0 && v < d->t->n_token && d->t->token[v].text)
        json_integer_set(id, fn(ctx, (int32_t)v));
}

/* TemplateProcessing lists ids by name, the BERT and RoBERTa processors have [content, id]. */
static void map_processor(const edit *d, json_t *p, id_fn *fn, void *ctx) {
    static const char *const PAIRS[] = {"sep", "cls"};
    const char *name;
    json_t *special, *id, *part;
    size_t i;
    json_object_foreach(json_object_get(p, "special_tokens"), name, special)
        json_array_foreach(json_object_get(special, "ids"), i, id) map_id(d, id, fn, ctx);
    for (int k = 0; k < ARRAY_LEN(PAIRS); k++)
        map_id(d, json_array_get(json_object_get(p, PAIRS[k]), 1), fn, ctx);
    /* As deep as the reader let it be. */
    json_array_foreach(json_object_get(p, "processors"), i, part) map_processor(d, part, fn, ctx);
}

/* Calls `fn` on the ids in post-processor and padding, and writes what it returns. */
static void map_other_ids(edit *d, id_fn *fn, void *ctx) {
    map_processor(d, json_object_get(d->root, "post_processor"), fn, ctx);
    map_id(d, json_object_get(json_object_get(d->root, "padding"), "pad_id"), fn, ctx);
}

/* ---- what must stay ---- */

static int32_t mark(void *ctx, int32_t id) {
    bool *keep = ctx;
    keep[id] = true;
    return id;
}

static void mark_named(const edit *d, bool *keep) {
    const tok *t = d->t;
    for (int32_t id = 0; id < t->n_token; id++) keep[id] = t->token[id].added;
    const int32_t named[] = {t->unk, t->bos, t->eos};
    for (int i = 0; i < ARRAY_LEN(named); i++)
        if (named[i] >= 0) keep[named[i]] = true;
    map_other_ids((edit *)d, mark, keep);
}

static void mark_bytes(const edit *d, bool *keep) {
    for (int b = 0; b < 256; b++) {
        char name[8];
        int n = snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        int32_t id = tok_model_id(d->t, name, (size_t)n);
        if (id >= 0) keep[id] = true;
    }
}

/* Marks what must stay for any text to stay representable. */
static void find_required(const edit *d, const int64_t *count, bool *keep) {
    const tok *t = d->t;
    symbols s = {0};
    bool fallback = edit_flag(d, "byte_fallback"), bpe = edit_is(d, "BPE");
    mark_named(d, keep);
    if (fallback) mark_bytes(d, keep);
    for (int32_t id = 0; id < t->n_token; id++) {
        if (!t->token[id].in_model || keep[id]) continue;
        symbols_of(d, &t->token[id], &s);
        if (s.n == 1) keep[id] = !fallback || count[id] > 0;
        /* A piece may be all that represents one of its characters. (The score of an unknown
         * character depends on the lowest of all, but stays below what any such piece has.) */
        for (int32_t i = 0; i < s.n && !bpe && !fallback; i++)
            if (s.id[i] < 0) keep[id] = true;
    }
    free(s.id);
}

/* ---- which merge makes a token of a BPE model ---- */

/* Where a stretch of a word ends as one token, no merge crosses its borders, and the merges inside
 * come in the same order as if the stretch stood alone. So encoding the token's own text, alone, shows
 * its last merge. The two sides of that merge are tokens, and the same holds for them. Pruning that
 * keeps with every token the two sides of its last merge, and theirs, and so on, leaves all kept
 * tokens as they were: every text that had them still has them. */

/* Longer tokens, which no published vocabulary has, are not looked into: PARTS_UNKNOWN. */
enum { MAX_SYMBOLS = 1024, PARTS_UNKNOWN = -2 };
typedef struct bpe_parts {
    /* [n_token]; -1: a first symbol, or no merges lead there; left PARTS_UNKNOWN: too long */
    int32_t *left, *right;
} bpe_parts;

typedef struct ranks {
    pair_map rank;
    int32_t *result; /* by rank */
} ranks;

static ranks read_ranks(const edit *d) {
    ranks r = {0};
    size_t i, n = json_array_size(d->merges);
    const json_t *merge;
    r.result = xcalloc(n + 1, sizeof *r.result);
    pair_map_reserve(&r.rank, (uint32_t)n);
    json_array_foreach(d->merges, i, merge) {
        int32_t left, right;
        if (!edit_merge_ids(d, merge, &left, &right, &r.result[i])) continue;
        pair_map_put(&r.rank, pair_key(left, right), (int32_t)i);
    }
    return r;
}

/* Place of the pair with the lowest rank, the leftmost of equals; -1 when none can be merged. */
static int32_t best_pair(const ranks *r, const symbols *s, int32_t *rank) {
    int32_t at = -1;
    for (int32_t i = 0; i + 1 < s->n; i++) {
        int32_t found = pair_map_get(&r->rank, pair_key(s->id[i], s->id[i + 1]));
        if (found < 0 || (at >= 0 && found >= *rank)) continue;
        *rank = found;
        at = i;
    }
    return at;
}

/* Merges all; the last one's sides, if it leaves one symbol, `id`. */
static void find_last_merge(const ranks *r, symbols *s, int32_t id, int32_t *left, int32_t *right) {
    int32_t at, rank = 0, a = -1, b = -1;
    while ((at = best_pair(r, s, &rank)) >= 0) {
        a = s->id[at];
        b = s->id[at + 1];
        s->id[at] = r->result[rank];
        memmove(s->id + at + 1, s->id + at + 2, sizeof(int32_t) * (size_t)(s->n - at - 2));
        s->n--;
    }
    if (s->n != 1 || s->id[0] != id) return;
    *left = a;
    *right = b;
}

static void find_parts(bpe_parts *p, const edit *d) {
    const tok *t = d->t;
    ranks r = read_ranks(d);
    symbols s = {0};
    p->left = xmalloc(sizeof(int32_t) * (size_t)t->n_token);
    p->right = xmalloc(sizeof(int32_t) * (size_t)t->n_token);
    for (int32_t id = 0; id < t->n_token; id++) {
        p->left[id] = p->right[id] = -1;
        if (!t->token[id].in_model) continue;
        symbols_of(d, &t->token[id], &s);
        if (s.n > MAX_SYMBOLS)
            p->left[id] = PARTS_UNKNOWN;
        else
            find_last_merge(&r, &s, id, &p->left[id], &p->right[id]);
    }
    free(s.id);
    free(r.result);
    pair_map_free(&r.rank);
}

static void free_parts(bpe_parts *p) {
    free(p->left);
    free(p->right);
}

/* ---- new ids ---- */

static void renumber_object(edit *d, const int32_t *new_id) {
    json_t *vocab = json_object();
    for (int32_t id = 0; id < d->t->n_token; id++) {
        const tok_token *k = &d->t->token[id];
        if (k->in_model && new_id[id] >= 0)
            json_object_set_new(vocab, k->text, json_integer(new_id[id]));
    }
    json_object_set_new(d->model, "vocab", vocab);
    d->vocab = vocab;
}

static void renumber_list(edit *d, const int32_t *new_id) {
    json_t *vocab = json_array(), *piece, *unk = json_object_get(d->model, "unk_id");
    size_t i;
    json_array_foreach(d->vocab, i, piece) if (new_id[i] >= 0) json_array_append(vocab, piece);
    json_object_set_new(d->model, "vocab", vocab);
    d->vocab = vocab;
    if (json_is_integer(unk)) json_integer_set(unk, new_id[json_integer_value(unk)]);
}

static void drop_merges(edit *d, const int32_t *new_id) {
    json_t *merges = json_array(), *merge;
    size_t i;
    json_array_foreach(d->merges, i, merge) {
        int32_t left, right, result;
        if (edit_merge_ids(d, merge, &left, &right, &result) && new_id[left] >= 0 &&
            new_id[right] >= 0 && new_id[result] >= 0)
            json_array_append(merges, merge);
    }
    json_object_set_new(d->model, "merges", merges);
    d->merges = merges;
}

static int32_t look_up(void *ctx, int32_t id) {
    const int32_t *new_id = ctx;
    return new_id[id];
}

/* Drops what is not kept: new_id[old] is -1, else the new id. */
static void renumber(edit *d, const int32_t *new_id) {
    json_t *entry;
    size_t i;
    if (d->merges) drop_merges(d, new_id);
    if (json_is_array(d->vocab))
        renumber_list(d, new_id);
    else
        renumber_object(d, new_id);
    json_array_foreach(d->added, i, entry)
        map_id(d, json_object_get(entry, "id"), look_up, (void *)new_id);
    map_other_ids(d, look_up, (void *)new_id);
}

/* ---- pruning ---- */

typedef struct prune {
    edit d;
    const tok_prune_options *opt;
    int64_t min_count;
    bpe_parts parts;       /* NULL members: not BPE */
    bool *keep, *required; /* [n_token] */
    int32_t n_keep;
    tok_ids taken; /* of the candidate at hand */
} prune;

typedef struct candidate {
    int64_t count;
    int32_t id;
} candidate;

static int by_count(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static void take(prune *p, int32_t id) {
    if (id < 0 || p->keep[id]) return;
    p->keep[id] = true;
    tok_ids_push(&p->taken, id);
}

/* Takes a token and all that its merges need; gives them back if they are too many. */
static void take_with_parts(prune *p, int32_t id) {
    p->taken.n = 0;
    take(p, id);
    for (int64_t i = 0; i < p->taken.n && p->parts.left; i++) {
        int32_t part = p->taken.id[i];
        take(p, p->parts.left[part]);
        take(p, p->parts.right[part]);
    }
    if (p->opt->keep == 0 || p->n_keep + p->taken.n <= p->opt->keep) {
        p->n_keep += (int32_t)p->taken.n;
        return;
    }
    for (int64_t i = 0; i < p->taken.n; i++) p->keep[p->taken.id[i]] = false;
}

static status mark_required(prune *p, tok_prune_result *r, err *e) {
    const tok *t = p->d.t;
    find_required(&p->d, p->opt->count, p->required);
    for (int32_t id = 0; id < t->n_token; id++) r->n_required += p->keep[id] = p->required[id];
    p->n_keep = r->n_required;
    if (p->opt->keep == 0 || p->n_keep <= p->opt->keep) return ST_OK;
    err_set(e, ST_USAGE, "%d tokens cannot stay alone: %d are added tokens or cover characters",
            (int)p->opt->keep, (int)r->n_required);
    return err_hint(e, "keep %d or more", (int)r->n_required);
}

static void take_frequent(prune *p) {
    const tok *t = p->d.t;
    candidate *list = xmalloc(sizeof *list * (size_t)t->n_token);
    int32_t n = 0;
    for (int32_t id = 0; id < t->n_token; id++) {
        bool frequent = t->token[id].text && p->opt->count[id] >= p->min_count;
        bool known = !p->parts.left || p->parts.left[id] != PARTS_UNKNOWN;
        if (frequent && known && !p->keep[id]) list[n++] = (candidate){p->opt->count[id], id};
    }
    qsort(list, (size_t)n, sizeof *list, by_count);
    for (int32_t i = 0; i < n; i++)
        if (!p->keep[list[i].id]) take_with_parts(p, list[i].id);
    free(list);
}

/* Dense ids in the order of the old ones; tokens outside the model come last, as readers number
 * them. */
static int32_t *number(const prune *p, tok_prune_result *r) {
    const tok *t = p->d.t;
    int32_t *new_id = xmalloc(sizeof *new_id * (size_t)t->n_token);
    r->row = xmalloc(sizeof *r->row * (size_t)(p->n_keep + 1));
    for (int32_t id = 0; id < t->n_token; id++) new_id[id] = -1;
    for (int outside = 0; outside <= 1; outside++) {
        for (int32_t id = 0; id < t->n_token; id++) {
            if (!p->keep[id] || t->token[id].in_model == outside) continue;
            new_id[id] = r->n;
            r->row[r->n++] = id;
        }
    }
    return new_id;
}

static void count_kinds(const prune *p, tok_prune_result *r) {
    for (int32_t i = 0; i < r->n; i++) {
        int32_t id = r->row[i];
        r->n_used += !p->required[id] && p->opt->count[id] >= p->min_count;
    }
    r->n_parts = r->n - r->n_required - r->n_used;
}

static status check_kind(const edit *d, err *e) {
    if (edit_is(d, "BPE") || edit_is(d, "Unigram") || edit_is(d, "WordPiece")) return ST_OK;
    return err_at(e, ST_USAGE, "model.type",
                  "a %s vocabulary cannot be pruned: a word that goes has no parts",
                  edit_option(d, "type"));
}

static status run(prune *p, tok **out, tok_prune_result *r, err *e) {
    TRY(check_kind(&p->d, e));
    if (p->d.merges) find_parts(&p->parts, &p->d);
    TRY(mark_required(p, r, e));
    take_frequent(p);
    int32_t *new_id = number(p, r);
    count_kinds(p, r);
    renumber(&p->d, new_id);
    free(new_id);
    return edit_finish(&p->d, out, e);
}

status tok_edit_prune(const tok *t, const tok_prune_options *o, tok **out, tok_prune_result *r,
                      err *e) {
    prune p = {.opt = o, .min_count = o->min_count > 0 ? o->min_count : 1};
    *out = NULL;
    *r = (tok_prune_result){0};
    TRY(edit_open(&p.d, t, e));
    p.keep = xcalloc((size_t)t->n_token, sizeof *p.keep);
    p.required = xcalloc((size_t)t->n_token, sizeof *p.required);
    status st = run(&p, out, r, e);
    if (st != ST_OK) {
        free(r->row);
        *r = (tok_prune_result){0};
    }
    edit_drop(&p.d);
    free_parts(&p.parts);
    tok_ids_free(&p.taken);
    free(p.keep);
    free(p.required);
    return st;
}
