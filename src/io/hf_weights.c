#include "io/hf_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prefixes that other tools put before or leave out of the names. */
static const char *const prefixes[] = {"", "transformer.", "model.", "module.", "_orig_mod."};

/* Buffers that files may hold beside the parameters. */
static bool is_buffer(const char *name) {
    static const char *const ends[] = {
        ".attn.bias",          ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
        "rotary_emb.inv_freq", "position_ids",      "cos_cached",      "sin_cached"};
    size_t n = strlen(name);
    for (int i = 0; i < ARRAY_LEN(ends); i++) {
        size_t m = strlen(ends[i]);
        if (n >= m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}

/* The tensor of a parameter: its own name, or one that differs by a prefix. */
static const st_view *find_view(const st_reader *r, const char *name) {
    for (int i = 0; i < ARRAY_LEN(prefixes); i++) {
        size_t n = strlen(prefixes[i]);
        char longer[512];
        snprintf(longer, sizeof longer, "%s%s", prefixes[i], name);
        const st_view *v = st_find(r, longer);
        if (!v && n && strncmp(name, prefixes[i], n) == 0) v = st_find(r, name + n);
        if (v) return v;
    }
    return NULL;
}

static status check_shape(const param *p, const st_view *v, err *e) {
    int64_t a = p->transposed ? p->cols : p->rows, b = p->transposed ? p->rows : p->cols;
    bool ok = p->rank == 1 ? v->rank == 1 && v->dims[0] == p->cols
                           : v->rank == 2 && v->dims[0] == a && v->dims[1] == b;
    if (ok) return ST_OK;
    char got[128] = "";
    for (int i = 0; i < v->rank; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%ld", i ? "," : "",
                 (long)v->dims[i]);
    if (p->rank == 1)
        err_set(e, ST_FORMAT, "tensor %s has shape [%s], the config asks for [%ld]", v->name, got,
                (long)p->cols);
    else
        err_set(e, ST_FORMAT, "tensor %s has shape [%s], the config asks for [%ld,%ld]", v->name,
                got, (long)a, (long)b);
    err_hint(e, "the weights and config.json belong to different models");
    return err_where(e, "%s", v->path);
}

/* dst[rows,cols] = transpose of the stored [cols,rows]. */
static status read_transposed(const param *p, const st_view *v, float *dst, err *e) {
    float *line = xmalloc(sizeof *line * (size_t)p->rows);
    status st = ST_OK;
    for (int64_t c = 0; c < p->cols && st == ST_OK; c++) {
        st = st_view_read(v, c * p->rows, p->rows, line, DT_F32, e);
        for (int64_t r = 0; r < p->rows && st == ST_OK; r++) dst[r * p->cols + c] = line[r];
    }
    free(line);
    return st;
}

static status load_one(const param_store *s, const st_reader *r, const param *p, err *e) {
    const st_view *v = find_view(r, p->name);
    if (!v) TRY(st_require(r, p->name, &v, e));
    TRY(check_shape(p, v, e));
    float *dst = param_master(s) + p->offset;
    if (p->transposed) return read_transposed(p, v, dst, e);
    return st_view_read(v, 0, param_elems(p), dst, DT_F32, e);
}

/* Is some parameter read from this tensor? */
static bool is_wanted(const param_store *s, const st_reader *r, const st_view *v) {
    for (int i = 0; i < param_count(s); i++)
        if (find_view(r, param_at(s, i)->name) == v) return true;
    return false;
}

/* A stored head of a tied model is fine when it equals the embedding. */
static status check_extra(const param_store *s, const st_view *v, err *e) {
    if (strcmp(v->name, "lm_head.weight") == 0) {
        const param *table = param_at(s, 0);
        if (v->numel == param_elems(table)) {
            float *head = xmalloc(sizeof *head * (size_t)v->numel);
            status st = st_view_read(v, 0, v->numel, head, DT_F32, e);
            bool same = st == ST_OK && memcmp(head, param_master(s) + table->offset,
                                              sizeof *head * (size_t)v->numel) == 0;
            free(head);
            if (st != ST_OK || same) return st;
        }
        err_set(e, ST_FORMAT,
                "lm_head.weight is stored and differs from the embedding, but the "
                "config ties them");
        err_hint(e, "set model.tie_word_embeddings=false");
        return err_where(e, "%s", v->path);
    }
    err_set(e, ST_FORMAT, "tensor %s belongs to no parameter of this model", v->name);
    err_hint(e, "check model_type and the sizes in config.json");
    return err_where(e, "%s", v->path);
}

status hf_load_weights(const param_store *s, const char *path, err *e) {
    st_reader *r;
    TRY(st_open(&r, path, e));
    status st = ST_OK;
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) st = load_one(s, r, param_at(s, i), e);
    for (int64_t i = 0; i < st_count(r) && st == ST_OK; i++) {
        const st_view *v = st_get(r, i);
        if (!is_buffer(v->name) && !is_wanted(s, r, v)) st = check_extra(s, v, e);
    }
    if (st == ST_OK) param_refresh_work(s);
    st_close(r);
    return st;
}

st_tensor *hf_tensors(arena *a, const param_store *s, const float *flat, const char *prefix,
                      dtype dt, bool hf_orientation) {
    st_tensor *list = ARENA_ARRAY(a, st_tensor, param_count(s));
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        bool flip = hf_orientation && p->transposed;
        st_tensor *t = &list[i];
        t->name = *prefix ? arena_printf(a, "%s%s", prefix, p->name) : p->name;
        t->dt = dt;
        t->rank = p->rank;
        t->dims[0] = p->rank == 1 ? p->cols : flip ? p->cols : p->rows;
        t->dims[1] = p->rank == 1 ? 0 : flip ? p->rows : p->cols;
        if (dt == DT_F32 && !flip) {
            t->data = flat + p->offset;
            continue;
        }
        st_source *src = ARENA_NEW(a, st_source);
        *src = (st_source){.data = flat + p->offset,
                           .dt = DT_F32,
                           .out_dt = dt,
                           .transpose = flip,
                           .rows = t->dims[0],
                           .cols = p->rank == 1 ? 1 : t->dims[1]};
        t->fill = st_source_fill;
        t->ctx = src;
    }
    return list;
}

status hf_read_flat(const param_store *s, const st_reader *r, const char *prefix, float *flat,
                    err *e) {
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        char name[512];
        snprintf(name, sizeof name, "%s%s", prefix, p->name);
        const st_view *v;
        TRY(st_require(r, name, &v, e));
        if (v->numel != param_elems(p)) {
            err_set(e, ST_FORMAT, "tensor %s has %ld elements, the model has %ld", name,
                    (long)v->numel, (long)param_elems(p));
            return err_where(e, "%s", v->path);
        }
        TRY(st_view_read(v, 0, v->numel, flat + p->offset, DT_F32, e));
    }
    return ST_OK;
}
