/* GGUF model files, written (see gguf_model.h).
 *
 * The file's parameters are declared from the config that it will say, so their names, shapes and
 * order follow from model_declare; rows come from the store by gguf_rows.c. Before anything is
 * written the metadata are read back, and what a reader computes from them is compared with the
 * model.
 *
 * Reading order: writer_prepare, make_tensor, gguf_model_write. */
#include <stdlib.h>
#include <string.h>

#include "io/gguf/gguf_config.h"
#include "io/gguf/gguf_model.h"

typedef struct writer {
    arena *a;
    const gguf_model_source *src;
    quant_type type;
    model_config file;   /* the model as the file holds it */
    param_store *params; /* declared from it */
    gguf_rows rows;
    gguf_tensor *tensors;
    int n;
    gguf_pairs pairs;
} writer;

/* A matrix: the context of fill_rows. */
typedef struct matrix {
    const writer *w;
    param p; /* whose rows are taken */
    const quant_format *format;
} matrix;

static status not_held(const matrix *m, int64_t row, err *e) {
    err_at(e, ST_NONFINITE, m->p.name, "tensor '%s', row %lld: a number is not finite or beyond %s",
           m->p.name, (long long)row, m->format->name);
    return err_hint(e, "write F32 or BF16, or look where such weights come from");
}

static status fill_rows(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const matrix *m = ctx;
    const quant_format *f = m->format;
    size_t bytes = (size_t)(m->p.cols / f->block) * (size_t)f->bytes;
    for (int64_t i = 0; i < n; i++) {
        const float *row = gguf_rows_at(&m->w->rows, &m->p, first + i);
        if (quant_from_f32(f, (uint8_t *)dst + (size_t)i * bytes, row, m->p.cols)) continue;
        return not_held(m, first + i, e);
    }
    return ST_OK;
}

static bool is_block(quant_type type) {
    return quant_by_type(type)->block > 1;
}

/* As llama.cpp chooses: positions and routers stay exact, the matrix of the head is not in 4 bits. */
static quant_type type_of(const writer *w, const param *p, int64_t cols) {
    quant_type type = w->type;
    bool head = p->part == PART_HEAD || (p->part == PART_EMBED && w->file.tie_word_embeddings);
    bool exact = p->part == PART_POSITIONS || p->part == PART_ROUTER || p->part == PART_RELATIVE ||
                 p->part == PART_SHARED_SCALE || p->part == PART_ENCODER_RELATIVE;
    if (exact) return QUANT_F32;
    if (head && is_block(type)) type = QUANT_Q8_0;
    return cols % quant_by_type(type)->block == 0 ? type : QUANT_F16;
}

/* One of the two tensors that a matrix is in a file: the context of fill_half. */
typedef struct half {
    matrix m; /* p: of both */
    gguf_halves s;
    int which;
} half;

static status fill_half(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const half *h = ctx;
    const quant_format *f = h->m.format;
    const float *from = gguf_rows_at(&h->m.w->rows, &h->m.p, 0);
    int64_t cols = h->s.dims[h->which][0];
    size_t bytes = (size_t)(cols / f->block) * (size_t)f->bytes;
    float *line = xmalloc(sizeof *line * (size_t)cols);
    status st = ST_OK;
    for (int64_t i = 0; i < n && st == ST_OK; i++) {
        for (int64_t j = 0; j < cols; j++) {
            int64_t row, col;
            gguf_halves_place(&h->s, h->which, first + i, j, &row, &col);
            line[j] = from[row * h->s.cols + col];
        }
        if (!quant_from_f32(f, (uint8_t *)dst + (size_t)i * bytes, line, cols))
            st = not_held(&h->m, first + i, e);
    }
    free(line);
    return st;
}

/* The numbers of a vector; where the model has none, or the store that is only checked is not
 * bound, those that change nothing. */
static float *vector(const writer *w, const param *p) {
    float *out = ARENA_ARRAY(w->a, float, p->cols), added = gguf_rows_offset(&w->rows, p);
    bool bound = param_host_master(w->src->store) != NULL;
    for (int64_t i = 0; i < p->cols; i++) {
        const float *from = bound ? gguf_rows_at(&w->rows, p, i) : NULL;
        if (from && p->part == PART_LINEAR_A_LOG)
            out[i] = gguf_linear_decay(*from);
        else
            out[i] = from ? *from + added : p->init.kind == INIT_ONES ? 1.0f : 0.0f;
    }
    return out;
}

static gguf_tensor make_tensor(writer *w, const param *p) {
    gguf_tensor t = {.name = p->name, .rank = p->rank, .dims = {p->cols, p->rows}};
    if (p->rank == 1) {
        t.type = QUANT_F32;
        t.data = vector(w, p);
        if (p->taps) t.rank = 2, t.dims[0] = p->taps, t.dims[1] = p->cols / p->taps;
        return t;
    }
    if (p->experts) t.rank = 3, t.dims[1] = p->rows / p->experts, t.dims[2] = p->experts;
    matrix *m = ARENA_NEW(w->a, matrix);
    t.type = type_of(w, p, p->cols);
    *m = (matrix){.w = w, .p = *p, .format = quant_by_type(t.type)};
    if (p->part == PART_HEAD && w->src->config->tie_word_embeddings) m->p.part = PART_EMBED;
    t.fill = fill_rows;
    t.ctx = m;
    return t;
}

static gguf_tensor make_half(writer *w, const param *p, int which) {
    half *h = ARENA_NEW(w->a, half);
    *h = (half){.m = {.w = w, .p = *p}, .s = gguf_halves_of(&w->file, p), .which = which};
    const gguf_halves *s = &h->s;
    gguf_tensor t = {.name = s->name[which], .rank = s->rank, .fill = fill_half, .ctx = h};
    for (int i = 0; i < s->rank; i++) t.dims[i] = s->dims[which][i];
    t.type = type_of(w, p, t.dims[0]);
    h->m.format = quant_by_type(t.type);
    return t;
}

static void make_tensors(writer *w) {
    const gguf_arch *arch = gguf_arch_find(w->file.family->gguf_arch);
    gguf_factors factors[2];
    int n = gguf_rope_factors(w->a, &w->file, factors);
    w->tensors = ARENA_ARRAY(w->a, gguf_tensor, 2 * param_count(w->params) + n);
    for (int i = 0; i < n; i++)
        w->tensors[w->n++] = (gguf_tensor){.name = factors[i].name,
                                           .type = QUANT_F32,
                                           .rank = 1,
                                           .dims = {factors[i].n},
                                           .data = factors[i].factor};
    for (int i = 0; i < param_count(w->params); i++) {
        const param *p = param_at(w->params, i);
        bool two = gguf_halves_written(arch, p);
        w->tensors[w->n++] = two ? make_half(w, p, 0) : make_tensor(w, p);
        if (two) w->tensors[w->n++] = make_half(w, p, 1);
    }
}

/* ---- metadata ---- */

/* general.file_type */
static uint32_t file_type(quant_type type) {
    switch (type) {
        case QUANT_F32: return 0;
        case QUANT_F16: return 1;
        case QUANT_Q4_0: return 2;
        case QUANT_Q4_1: return 3;
        case QUANT_Q8_0: return 7;
        default: return 32; /* BF16 */
    }
}

static status make_pairs(writer *w, err *e) {
    gguf_pairs *p = &w->pairs;
    gguf_put_string(p, "general.architecture", w->file.family->gguf_arch);
    gguf_put_string(p, "general.type", "model");
    if (w->src->name) gguf_put_string(p, "general.name", w->src->name);
    gguf_put_u32(p, "general.file_type", file_type(w->type));
    gguf_put_u32(p, "general.quantization_version", 2);
    gguf_config_write(&w->file, p);
    if (w->src->tok) return gguf_tok_write(w->a, w->src, p, e);
    gguf_put_string(p, "tokenizer.ggml.model", "none"); /* without the key llama.cpp refuses */
    return ST_OK;
}

/* ---- what will be read ---- */

static const gguf_view *find_written(const void *ctx, const char *name) {
    const writer *w = ctx;
    for (int i = 0; i < w->n; i++) {
        const gguf_tensor *t = &w->tensors[i];
        if (strcmp(t->name, name) != 0) continue;
        gguf_view *v = ARENA_NEW(w->a, gguf_view);
        *v = (gguf_view){.name = t->name,
                         .format = quant_by_type(t->type),
                         .rank = t->rank,
                         .rows = t->rank < 2 ? 1 : t->dims[1] * (t->rank < 3 ? 1 : t->dims[2]),
                         .cols = t->dims[0],
                         .data = t->data};
        return v;
    }
    return NULL;
}

static status check_read_back(writer *w, err *e) {
    strbuf header = {0};
    gguf_meta meta;
    model_config read;
    gguf_append_header(&header, (uint64_t)w->n, &w->pairs);
    status st = gguf_meta_read(&meta, w->a, header.data, header.len, "the file to be written", e);
    gguf_facts facts = {&meta, find_written, w};
    if (st == ST_OK) st = gguf_config_read(w->a, &facts, &read, e);
    if (st == ST_OK) st = gguf_config_compare(&w->file, &read, e);
    strbuf_free(&header);
    return st;
}

static status writer_prepare(writer *w, const gguf_model_source *src, quant_type type, err *e) {
    *w = (writer){.a = arena_new("gguf writer"), .src = src, .type = type};
    if (src->config->num_labels) {
        err_set(e, ST_USAGE, "a GGUF file has no head of labels for language models");
        return err_hint(e, "a folder of Hugging Face has: --to hf");
    }
    TRY(gguf_config_for(src->config, &w->file, e));
    w->file.num_nextn_predict_layers = 0; /* as llama.cpp's converter leaves them out */
    w->params = param_store_new(w->a, DT_F32);
    model_declare(&w->file, w->params);
    w->rows = gguf_rows_new(w->a, &w->file, src->config, src->store);
    TRY(make_pairs(w, e));
    make_tensors(w);
    return check_read_back(w, e);
}

static void writer_free(writer *w) {
    gguf_pairs_free(&w->pairs);
    arena_free(w->a);
}

status gguf_model_check(const gguf_model_source *src, err *e) {
    writer w;
    status st = writer_prepare(&w, src, QUANT_F32, e);
    writer_free(&w);
    return st;
}

status gguf_model_write(const char *path, const gguf_model_source *src, quant_type type, err *e) {
    writer w;
    status st = writer_prepare(&w, src, type, e);
    if (st == ST_OK) st = gguf_write(path, &w.pairs, w.tensors, w.n, e);
    writer_free(&w);
    return st;
}
