#include "io/hf/shards.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

bool shards_may_be(const char *name) {
    static const char end[] = ".safetensors";
    size_t n = strlen(name), n_end = strlen(end);
    if (strcmp(name, "model.safetensors.index.json") == 0) return true;
    return strncmp(name, "model", 5) == 0 && n > n_end && strcmp(name + n - n_end, end) == 0;
}

typedef struct cut {
    int64_t *first; /* [n + 1] first tensor of each shard, and the end */
    int n;
    uint64_t bytes; /* of all tensors */
} cut;

static uint64_t tensor_bytes(const st_tensor *t) {
    uint64_t n = dtype_bytes(t->dt);
    for (int i = 0; i < t->rank; i++) n *= (uint64_t)t->dims[i];
    return n;
}

/* A tensor that does not fit beside those before it begins the next shard. */
static cut plan_cut(const st_tensor *tensors, int64_t n, uint64_t max_bytes) {
    cut c = {.first = xcalloc((size_t)n + 2, sizeof *c.first)};
    uint64_t filled = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bytes = tensor_bytes(&tensors[i]);
        if (i > 0 && max_bytes && filled + bytes > max_bytes) {
            c.first[++c.n] = i;
            filled = 0;
        }
        filled += bytes;
        c.bytes += bytes;
    }
    c.first[++c.n] = n;
    return c;
}

static status write_index(const char *dir, const st_tensor *tensors, const cut *c, err *e) {
    json_t *map = json_object();
    char name[64], path[4200];
    for (int k = 0; k < c->n; k++) {
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", k + 1, c->n);
        for (int64_t i = c->first[k]; i < c->first[k + 1]; i++)
            json_object_set_new(map, tensors[i].name, json_string(name));
    }
    json_t *o = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)c->bytes,
                          "weight_map", map);
    strbuf text = {0};
    json_format(&text, o, 2);
    strbuf_putc(&text, '\n');
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    status st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    json_decref(o);
    return st;
}

status shards_write(const char *dir, const st_tensor *tensors, int64_t n, uint64_t max_bytes,
                    int *n_files, err *e) {
    cut c = plan_cut(tensors, n, max_bytes);
    char path[4200];
    status st = ST_OK;
    for (int k = 0; k < c.n && st == ST_OK; k++) {
        if (c.n == 1)
            snprintf(path, sizeof path, "%s/model.safetensors", dir);
        else
            snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", dir, k + 1, c.n);
        st = st_write(path, tensors + c.first[k], c.first[k + 1] - c.first[k], NULL, e);
    }
    if (st == ST_OK && c.n > 1) st = write_index(dir, tensors, &c, e);
    if (n_files) *n_files = c.n;
    free(c.first);
    return st;
}
