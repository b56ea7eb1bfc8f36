#include "op/cuda/product_choice.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "op/machine.h"

static const double WORTH = 1.02;
enum { MOST_PRODUCTS = 4096 }; /* of a file */

int product_choice_fastest(const double seconds[], int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (seconds[i] * WORTH < seconds[0] && seconds[i] < seconds[best]) best = i;
    return best;
}

bool product_choices_path(char *out, size_t bytes) {
    char machine[4096];
    if (!machine_path(machine, sizeof machine)) return false;
    int n = snprintf(out, bytes, "%.*scublaslt.json", (int)(path_base(machine) - machine), machine);
    return n >= 0 && (size_t)n < bytes;
}

const product_choice *product_choices_find(const product_choices *c, const product_key *key) {
    for (int i = 0; i < c->n; i++)
        if (memcmp(&c->item[i].key, key, sizeof *key) == 0) return &c->item[i];
    return NULL;
}

void product_choices_free(product_choices *c) {
    free(c->item);
    *c = (product_choices){0};
}

/* ---- the file ---- */

static json_t *to_json(const product_choice *c) {
    const product_key *k = &c->key;
    json_t *times = json_array();
    for (int i = 0; i < c->candidates; i++)
        json_array_append_new(times, json_f32((float)(c->seconds[i] * 1e6)));
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:[i,i,i,i],s:b,s:b,s:s,s:s,s:b,s:i,s:o}",
                     "m", (json_int_t)k->m, "n", (json_int_t)k->n, "k", (json_int_t)k->k, "lda",
                     (json_int_t)k->lda, "ldb", (json_int_t)k->ldb, "ldc", (json_int_t)k->ldc,
                     "ld_add", (json_int_t)k->ld_add, "ld_slope", (json_int_t)k->ld_slope,
                     "alignment", k->alignment[0], k->alignment[1], k->alignment[2],
                     k->alignment[3], "a_trans", k->a_trans, "b_trans", k->b_trans, "dt",
                     dtype_name((dtype)k->ab_dt), "c_dt", dtype_name((dtype)k->c_dt), "bias",
                     k->bias, "algorithm", c->algorithm, "microseconds", times);
}

static bool from_json(json_t *o, product_choice *c) {
    product_key *k = &c->key;
    json_int_t size[8];
    int alignment[4], a_trans, b_trans, bias;
    const char *dt, *c_dt;
    dtype ab, out;
    json_t *times, *t;
    if (json_unpack(o, "{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:[i,i,i,i],s:b,s:b,s:s,s:s,s:b,s:i,s:o}",
                    "m", &size[0], "n", &size[1], "k", &size[2], "lda", &size[3], "ldb", &size[4],
                    "ldc", &size[5], "ld_add", &size[6], "ld_slope", &size[7], "alignment",
                    &alignment[0], &alignment[1], &alignment[2], &alignment[3], "a_trans", &a_trans,
                    "b_trans", &b_trans, "dt", &dt, "c_dt", &c_dt, "bias", &bias, "algorithm",
                    &c->algorithm, "microseconds", &times) != 0 ||
        !dtype_parse(dt, &ab) || !dtype_parse(c_dt, &out) || !json_is_array(times))
        return false;
    k->m = size[0], k->n = size[1], k->k = size[2], k->lda = size[3], k->ldb = size[4];
    k->ldc = size[5], k->ld_add = size[6], k->ld_slope = size[7];
    for (int i = 0; i < 4; i++) k->alignment[i] = (uint16_t)alignment[i];
    k->a_trans = a_trans != 0, k->b_trans = b_trans != 0, k->bias = bias != 0;
    k->ab_dt = (uint8_t)ab, k->c_dt = (uint8_t)out;
    size_t i;
    json_array_foreach(times, i, t) {
        if (i < PRODUCT_CANDIDATES) c->seconds[i] = json_number_value(t) * 1e-6;
    }
    c->candidates = (int)json_array_size(times);
    return c->candidates <= PRODUCT_CANDIDATES && c->algorithm >= 0 && c->algorithm < c->candidates;
}

static status read_products(product_choices *c, const json_t *root, const char *path, err *e) {
    json_t *list = json_object_get(root, "products"), *o;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > MOST_PRODUCTS)
        return err_set(e, ST_FORMAT, "%s has no list of at most %d products", path, MOST_PRODUCTS);
    json_array_foreach(list, i, o) {
        product_choice item;
        memset(&item, 0, sizeof item); /* keys are compared as bytes */
        if (!from_json(o, &item))
            return err_set(e, ST_FORMAT, "%s: product %zu is not one", path, i + 1);
        VEC_PUSH(c->item, c->n, c->cap, item);
    }
    return ST_OK;
}

static bool is_of(const json_t *root, const char *gpu, size_t version) {
    const char *name = json_string_value(json_object_get(root, "gpu"));
    json_int_t of = json_integer_value(json_object_get(root, "cublaslt"));
    return name && strcmp(name, gpu) == 0 && of == (json_int_t)version;
}

status product_choices_read(product_choices *c, const char *gpu, size_t version, const char *path,
                            err *e) {
    *c = (product_choices){0};
    if (!file_exists(path)) return ST_OK;
    json_t *root;
    status st = json_read_file(&root, path, JSON_FILE_MAX_BYTES, e);
    if (st == ST_OK && !json_is_object(root))
        st = err_set(e, ST_FORMAT, "%s is not a JSON object", path);
    else if (st == ST_OK && is_of(root, gpu, version))
        st = read_products(c, root, path, e);
    json_decref(root);
    if (st == ST_OK) return ST_OK;
    product_choices_free(c);
    return err_hint(e, "delete it: the products are then measured again");
}

status product_choices_write(const product_choices *c, const char *gpu, size_t version,
                             const char *path, err *e) {
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++) json_array_append_new(list, to_json(&c->item[i]));
    json_t *root =
        json_pack("{s:s,s:I,s:o}", "gpu", gpu, "cublaslt", (json_int_t)version, "products", list);
    strbuf text = {0};
    json_format(&text, root, 2);
    json_decref(root);
    char dir[4096];
    const char *base = path_base(path);
    snprintf(dir, sizeof dir, "%.*s", (int)(base - path), path);
    status st = base > path ? file_make_dirs(dir, e) : ST_OK;
    if (st == ST_OK) st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}
