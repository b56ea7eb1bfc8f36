#include "op/gemm_choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"

static const double WORTH = 1.03;
enum { MOST_PRODUCTS = 4096 }; /* of a list */

gemm_impl gemm_choice_faster(const double gflops[GEMM_IMPLS]) {
    return gflops[GEMM_ONEDNN] > WORTH * gflops[GEMM_OWN] ? GEMM_ONEDNN : GEMM_OWN;
}

static bool same_product(const gemm_choice *a, const gemm_choice *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_trans == b->a_trans &&
           a->b_trans == b->b_trans && a->ab_dt == b->ab_dt && a->c_dt == b->c_dt;
}

void gemm_choices_put(gemm_choices *c, const gemm_choice *item) {
    for (int i = 0; i < c->n; i++)
        if (same_product(&c->item[i], item)) {
            c->item[i] = *item;
            return;
        }
    if (c->n == MOST_PRODUCTS) memmove(c->item, c->item + 1, sizeof *item * (size_t)--c->n);
    VEC_PUSH(c->item, c->n, c->cap, *item);
}

const gemm_choice *gemm_choices_find(const gemm_choices *c, const gemm_args *g) {
    gemm_choice wanted = {.m = g->m, .n = g->n, .k = g->k, .ab_dt = g->ab_dt, .c_dt = g->c_dt};
    wanted.a_trans = g->a_trans, wanted.b_trans = g->b_trans;
    for (int i = 0; i < c->n; i++)
        if (same_product(&c->item[i], &wanted)) return &c->item[i];
    return NULL;
}

void gemm_choices_free(gemm_choices *c) {
    free(c->item);
    *c = (gemm_choices){0};
}

/* ---- as JSON ---- */

static json_t *to_json(const gemm_choice *c) {
    return json_pack("{s:I,s:I,s:I,s:b,s:b,s:s,s:s,s:s,s:o,s:o}", "m", (json_int_t)c->m, "n",
                     (json_int_t)c->n, "k", (json_int_t)c->k, "a_trans", (int)c->a_trans, "b_trans",
                     (int)c->b_trans, "dt", dtype_name(c->ab_dt), "c_dt", dtype_name(c->c_dt),
                     "implementation", gemm_impl_name(c->impl), "own_gflops",
                     json_f32((float)c->gflops[GEMM_OWN]), "onednn_gflops",
                     json_f32((float)c->gflops[GEMM_ONEDNN]));
}

static bool dtype_of(const char *name, dtype *out) {
    return dtype_parse(name, out) && (*out == DT_F32 || *out == DT_BF16 || *out == DT_F16);
}

static bool from_json(json_t *o, gemm_choice *c) {
    json_int_t m, n, k;
    int a_trans, b_trans;
    const char *dt, *c_dt, *impl;
    if (json_unpack(o, "{s:I,s:I,s:I,s:b,s:b,s:s,s:s,s:s,s:F,s:F}", "m", &m, "n", &n, "k", &k,
                    "a_trans", &a_trans, "b_trans", &b_trans, "dt", &dt, "c_dt", &c_dt,
                    "implementation", &impl, "own_gflops", &c->gflops[GEMM_OWN], "onednn_gflops",
                    &c->gflops[GEMM_ONEDNN]) != 0)
        return false;
    c->m = m, c->n = n, c->k = k, c->a_trans = a_trans, c->b_trans = b_trans;
    for (c->impl = 0; c->impl < GEMM_IMPLS; c->impl++)
        if (strcmp(impl, gemm_impl_name(c->impl)) == 0) break;
    return c->impl < GEMM_IMPLS && dtype_of(dt, &c->ab_dt) && dtype_of(c_dt, &c->c_dt);
}

json_t *gemm_choices_json(const gemm_choices *c) {
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++) json_array_append_new(list, to_json(&c->item[i]));
    return list;
}

status gemm_choices_from_json(gemm_choices *c, const json_t *list, const char *path, err *e) {
    json_t *o;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > MOST_PRODUCTS)
        return err_set(e, ST_FORMAT, "%s has no list of at most %d products", path, MOST_PRODUCTS);
    json_array_foreach(list, i, o) {
        gemm_choice item = {0};
        if (!from_json(o, &item))
            return err_set(e, ST_FORMAT, "%s: product %zu is not one", path, i + 1);
        gemm_choices_put(c, &item);
    }
    return ST_OK;
}
