/* Which merge makes a token of a BPE model.
 *
 * Where a stretch of a word ends as one token, no merge crosses its borders, and the merges inside
 * come in the same order as if the stretch stood alone. So encoding the token's own text, alone, shows
 * its last merge. The two sides of that merge are tokens, and the same holds for them. Pruning that
 * keeps with every token the two sides of its last merge, and theirs, and so on, leaves all kept
 * tokens as they were: every text that had them still has them. */
#include <stdlib.h>
#include <string.h>

#include "tok/edit/edit.h"

/* Longer tokens, which no published vocabulary has, are not looked into: PARTS_UNKNOWN. */
enum { MAX_SYMBOLS = 1024 };

typedef struct ranks {
    pair_map rank;
    int32_t *result; /* by rank */
} ranks;

bool edit_split_merge(const json_t *merge, const char **a, size_t *n_a, const char **b,
                      size_t *n_b) {
    if (json_is_array(merge)) {
        const json_t *x = json_array_get(merge, 0), *y = json_array_get(merge, 1);
        *a = json_string_value(x);
        *b = json_string_value(y);
        *n_a = json_string_length(x);
        *n_b = json_string_length(y);
        return *a && *b;
    }
    *a = json_string_value(merge);
    const char *space = *a ? strchr(*a, ' ') : NULL;
    if (!space) return false;
    *b = space + 1;
    *n_a = (size_t)(space - *a);
    *n_b = json_string_length(merge) - *n_a - 1;
    return true;
}

bool edit_merge_ids(const edit *d, const json_t *merge, int32_t *left, int32_t *right,
                    int32_t *result) {
    const char *a, *b;
    size_t n_a, n_b, n_prefix = strlen(edit_option(d, "continuing_subword_prefix"));
    if (!edit_split_merge(merge, &a, &n_a, &b, &n_b) || n_b < n_prefix) return false;
    *left = tok_model_id(d->t, a, n_a);
    *right = tok_model_id(d->t, b, n_b);
    strbuf whole = {0};
    strbuf_append(&whole, a, n_a);
    strbuf_append(&whole, b + n_prefix, n_b - n_prefix);
    *result = tok_model_id(d->t, strbuf_cstr(&whole), whole.len);
    strbuf_free(&whole);
    return *left >= 0 && *right >= 0 && *result >= 0;
}

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
static int32_t best_pair(const ranks *r, const edit_symbols *s, int32_t *rank) {
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
static void find_last_merge(const ranks *r, edit_symbols *s, int32_t id, int32_t *left,
                            int32_t *right) {
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

void bpe_parts_find(bpe_parts *p, const edit *d) {
    const tok *t = d->t;
    ranks r = read_ranks(d);
    edit_symbols s = {0};
    p->left = xmalloc(sizeof(int32_t) * (size_t)t->n_token);
    p->right = xmalloc(sizeof(int32_t) * (size_t)t->n_token);
    for (int32_t id = 0; id < t->n_token; id++) {
        p->left[id] = p->right[id] = -1;
        if (!t->token[id].in_model) continue;
        edit_symbols_of(d, &t->token[id], &s);
        if (s.n > MAX_SYMBOLS)
            p->left[id] = PARTS_UNKNOWN;
        else
            find_last_merge(&r, &s, id, &p->left[id], &p->right[id]);
    }
    free(s.id);
    free(r.result);
    pair_map_free(&r.rank);
}

void bpe_parts_free(bpe_parts *p) {
    free(p->left);
    free(p->right);
}
