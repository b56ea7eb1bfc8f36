/* Drops tokens that a corpus does not use; see tok_edit.h. */
#include <stdlib.h>

#include "base/arena.h"
#include "tok/edit/edit.h"

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
    edit_mark_required(&p->d, p->opt->count, p->required);
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
    err_set(e, ST_USAGE, "a %s vocabulary cannot be pruned: a word that goes has no parts",
            edit_option(d, "type"));
    return err_where(e, "model.type");
}

static status run(prune *p, tok **out, tok_prune_result *r, err *e) {
    TRY(check_kind(&p->d, e));
    if (p->d.merges) bpe_parts_find(&p->parts, &p->d);
    TRY(mark_required(p, r, e));
    take_frequent(p);
    int32_t *new_id = number(p, r);
    count_kinds(p, r);
    edit_renumber(&p->d, new_id);
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
    bpe_parts_free(&p.parts);
    tok_ids_free(&p.taken);
    free(p.keep);
    free(p.required);
    return st;
}
