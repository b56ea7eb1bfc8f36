#include "op/gemm_choice.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"

static const double WORTH = 1.03;
enum { MOST_PRODUCTS = 4096 }; /* of a file */

gemm_impl gemm_choice_faster(const double gflops[GEMM_IMPLS]) {
    return gflops[GEMM_ONEDNN] > WORTH * gflops[GEMM_OWN] ? GEMM_ONEDNN : GEMM_OWN;
}

bool gemm_choices_path(char *out, size_t bytes) {
    const char *file = getenv("ATHANOR_GEMM_FILE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;
    if (file && *file)
        n = snprintf(out, bytes, "%s", file);
    else if (cache && *cache)
        n = snprintf(out, bytes, "%s/athanor/gemm.json", cache);
    else if (home && *home)
        n = snprintf(out, bytes, "%s/.cache/athanor/gemm.json", home);
    return n >= 0 && (size_t)n < bytes;
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

/* ---- the file ---- */

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

static bool of_this_machine(const json_t *root, const dev *d) {
    char machine[DEV_NAME_MAX];
    const char *name = json_string_value(json_object_get(root, "machine"));
    const char *isa = json_string_value(json_object_get(root, "isa"));
    json_int_t threads = json_integer_value(json_object_get(root, "threads"));
    dev_machine_name(machine);
    return name && strcmp(name, machine) == 0 && isa &&
           strcmp(isa, cpu_isa_name(dev_isa(d))) == 0 && threads == dev_threads(d);
}

static status read_products(gemm_choices *c, const json_t *root, const char *path, err *e) {
    json_t *list = json_object_get(root, "products"), *o;
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

status gemm_choices_read(gemm_choices *c, const dev *d, const char *path, err *e) {
    *c = (gemm_choices){0};
    if (!file_exists(path)) return ST_OK;
    json_t *root;
    status st = json_read_file(&root, path, JSON_FILE_MAX_BYTES, e);
    if (st == ST_OK && !json_is_object(root))
        st = err_set(e, ST_FORMAT, "%s is not a JSON object", path);
    else if (st == ST_OK && of_this_machine(root, d))
        st = read_products(c, root, path, e);
    json_decref(root);
    if (st == ST_OK) return ST_OK;
    gemm_choices_free(c);
    return err_hint(e, "delete it, or measure again with athanor bench gemm --remember");
}

/* Its folder is made. */
static status make_folder(const char *path, err *e) {
    const char *base = path_base(path);
    char dir[4096];
    if (base == path) return ST_OK;
    snprintf(dir, sizeof dir, "%.*s", (int)(base - path), path);
    return file_make_dirs(dir, e);
}

status gemm_choices_write(const gemm_choices *c, const dev *d, const char *path, err *e) {
    char machine[DEV_NAME_MAX];
    dev_machine_name(machine);
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++) json_array_append_new(list, to_json(&c->item[i]));
    json_t *root = json_pack("{s:s,s:s,s:i,s:o}", "machine", machine, "isa",
                             cpu_isa_name(dev_isa(d)), "threads", dev_threads(d), "products", list);
    strbuf text = {0};
    json_format(&text, root, 2);
    json_decref(root);
    status st = make_folder(path, e);
    if (st == ST_OK) st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}
