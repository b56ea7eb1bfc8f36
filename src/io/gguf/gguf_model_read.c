/* GGUF model files, read (see gguf_model.h).
 *
 * Reading order: gguf_model_open (open_checked, check_tensors), gguf_model_locate,
 * gguf_model_read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/checkpoint/held.h"
#include "io/gguf/gguf_config.h"
#include "io/gguf/gguf_model.h"

static const gguf_view *find(const void *ctx, const char *name) {
    return gguf_find(ctx, name);
}

/* ---- checks ---- */

/* Dimensions are written as in Hugging Face files, the fastest last. */
static void shape_text(char out[96], int rank, const int64_t *dims) {
    out[0] = 0;
    for (int i = rank - 1; i >= 0; i--)
        snprintf(out + strlen(out), 96 - strlen(out), "%lld%s", (long long)dims[i], i ? "," : "");
}

static status wrong_shape(const gguf_view *v, int rank, const int64_t *dims, err *e) {
    char got[96], want[96];
    shape_text(got, v->rank, v->dims);
    shape_text(want, rank, dims);
    err_set(e, ST_FORMAT, "tensor '%s' has shape [%s], the metadata ask for [%s]", v->name, got,
            want);
    err_hint(e, "the file is damaged, or was made by a tool that llama.cpp does not agree with");
    return err_where(e, "%s", v->name);
}

static status check_format(const gguf_view *v, err *e) {
    dtype dt = v->format->dt;
    uintptr_t at = (uintptr_t)v->data;
    if (dt == DT_COUNT) {
        err_set(e, ST_FORMAT, "tensor '%s' is stored as %s, which is not computed with", v->name,
                v->format->name);
        err_hint(e, "get the model as F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or "
                    "Q6_K");
        return err_where(e, "%s", v->name);
    }
    if (dtype_is_blocks(dt) || at % dtype_bytes(dt) == 0) return ST_OK;
    err_set(e, ST_FORMAT, "tensor '%s' begins at an odd place for %s", v->name, v->format->name);
    return err_where(e, "%s", v->name);
}

static status check_named(const gguf_reader *r, const char *name, int rank, const int64_t dims[3],
                          err *e) {
    const gguf_view *v;
    TRY(gguf_require(r, name, &v, e));
    bool same = true; /* a matrix of one row may be a vector */
    for (int i = 0; i < GGUF_MAX_RANK; i++) same = same && v->dims[i] == (i < rank ? dims[i] : 1);
    return same ? check_format(v, e) : wrong_shape(v, rank, dims, e);
}

/* The file has it as two tensors. */
static bool is_halved(const gguf_reader *r, const param *p) {
    bool may = p->part == PART_KV_B || p->part == PART_LINEAR_QKVZ;
    return may && !gguf_find(r, p->name);
}

/* Each has a logarithm. */
static status check_decays(const gguf_view *v, err *e) {
    float *x = xmalloc(sizeof *x * (size_t)v->cols);
    status st = gguf_read_f32(v, 0, 1, x, e);
    for (int64_t i = 0; i < v->cols && st == ST_OK; i++)
        if (!isfinite(x[i]) || x[i] >= 0)
            st = err_at(e, ST_FORMAT, v->name, "tensor '%s' holds %g, which is no decay", v->name,
                        (double)x[i]);
    free(x);
    return st;
}

static status check_tensor(const gguf_model *m, const param *p, err *e) {
    if (is_halved(m->file, p)) {
        gguf_halves s = gguf_halves_of(&m->config, p);
        TRY(check_named(m->file, s.name[0], s.rank, s.dims[0], e));
        return check_named(m->file, s.name[1], s.rank, s.dims[1], e);
    }
    int64_t dims[3] = {p->cols, p->rows, p->experts};
    if (p->experts) dims[1] /= p->experts;
    if (p->taps) dims[0] = p->taps, dims[1] = p->cols / p->taps;
    TRY(check_named(m->file, p->name, p->experts ? 3 : p->taps ? 2 : p->rank, dims, e));
    bool decays = p->part == PART_LINEAR_A_LOG;
    return decays ? check_decays(gguf_find(m->file, p->name), e) : ST_OK;
}

/* Tensors that are read with the config, and one that repeats what the others say. */
static bool is_extra(const char *name) {
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                        "rope_factors_short.weight"};
    for (int i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0) return true;
    if (strstr(name, ".cross_attn_rel_b.")) return true; /* T5: nothing reads it */
    static const char freqs[] = ".attn_rot_embd.freqs";
    size_t n = strlen(name), m = sizeof freqs - 1;
    return n > m && strcmp(name + n - m, freqs) == 0;
}

/* Of a module that predicts further tokens, which stands behind the layers; the config has found that there are some. */
static bool is_ahead(const gguf_model *m, const char *name) {
    long long layer;
    return m->modules && sscanf(name, "blk.%lld.", &layer) == 1 &&
           layer >= m->config.num_hidden_layers && layer < m->config.num_hidden_layers + m->modules;
}

static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of the tensors that the model has in the file, sorted. */
static const char **tensor_names(const gguf_model *m, const param_store *s, arena *a, int *n) {
    const char **names = ARENA_ARRAY(a, const char *, 2 * param_count(s));
    *n = 0;
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        if (!is_halved(m->file, p)) {
            names[(*n)++] = p->name;
            continue;
        }
        gguf_halves h = gguf_halves_of(&m->config, p);
        names[(*n)++] = arena_printf(a, "%s", h.name[0]);
        names[(*n)++] = arena_printf(a, "%s", h.name[1]);
    }
    qsort(names, (size_t)*n, sizeof *names, compare_text);
    return names;
}

/* No tensor but those of the model: one that is left out would change what is computed. */
static status check_no_other(const gguf_model *m, const param_store *s, arena *a, err *e) {
    int n;
    const char **names = tensor_names(m, s, a, &n), *other = NULL;
    for (int64_t i = 0; i < gguf_count(m->file) && !other; i++) {
        const char *name = gguf_get(m->file, i)->name;
        if (is_extra(name) || is_ahead(m, name)) continue;
        if (!bsearch(&name, names, (size_t)n, sizeof *names, compare_text)) other = name;
    }
    if (!other) return ST_OK;
    err_set(e, ST_FORMAT, "%s: tensor '%s' belongs to no part of this architecture",
            gguf_get_meta(m->file)->label, other);
    return err_where(e, "%s", other);
}

static status check_tensors(const gguf_model *m, err *e) {
    arena *a = arena_new("gguf check");
    param_store *s = param_store_new(a, DT_F32);
    status st = ST_OK;
    /* before anything is declared: a file that claims many layers must have their tensors */
    if (m->config.num_hidden_layers > gguf_count(m->file))
        st = err_set(e, ST_FORMAT, "there are %lld tensors for %lld layers",
                     (long long)gguf_count(m->file), (long long)m->config.num_hidden_layers);
    if (st == ST_OK) model_declare(&m->config, s);
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) st = check_tensor(m, param_at(s, i), e);
    if (st == ST_OK) st = check_no_other(m, s, a, e);
    arena_free(a);
    return st;
}

/* ---- opening ---- */

/* The lowest address of a tensor: offsets are counted from there. */
static const void *lowest(const gguf_reader *r) {
    const uint8_t *low = NULL;
    for (int64_t i = 0; i < gguf_count(r); i++) {
        const uint8_t *at = gguf_get(r, i)->data;
        if (!low || at < low) low = at;
    }
    return low;
}

static status open_checked(gguf_model *m, err *e) {
    gguf_facts facts = {gguf_get_meta(m->file), find, m->file};
    m->base = lowest(m->file);
    status st = gguf_config_read(m->a, &facts, &m->config, e);
    if (st == ST_OK) st = gguf_config_modules(&facts, &m->modules, e);
    if (st == ST_OK) st = check_tensors(m, e);
    if (st == ST_FORMAT && e && !e->hint[0])
        err_hint(e,
                 "the file is damaged, or was made by a tool that llama.cpp does not agree with");
    if (st == ST_FORMAT && e && !e->where[0]) err_where(e, "%s", facts.meta->label);
    return st;
}

status gguf_model_open(gguf_model *m, const char *path, err *e) {
    *m = (gguf_model){.a = arena_new("gguf model")};
    TRY(gguf_open(&m->file, path, e));
    return open_checked(m, e);
}

status gguf_model_open_bytes(gguf_model *m, const void *bytes, size_t len, const char *label,
                             err *e) {
    *m = (gguf_model){.a = arena_new("gguf model")};
    TRY(gguf_open_bytes(&m->file, bytes, len, label, e));
    return open_checked(m, e);
}

void gguf_model_close(gguf_model *m) {
    gguf_close(m->file);
    arena_free(m->a);
    *m = (gguf_model){0};
}

/* ---- weights in place ---- */

static const gguf_view *view_of(const gguf_model *m, const param *p) {
    const gguf_view *v = gguf_find(m->file, p->name);
    CHECK(v, "tensor %s was checked", p->name);
    return v;
}

bool gguf_model_locate(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes) {
    const gguf_model *m = ctx;
    if (p->rank == 1 || p->order != ROWS_SAME || is_halved(m->file, p)) return false;
    const gguf_view *v = view_of(m, p);
    *offset_bytes = v->data - (const uint8_t *)m->base;
    *stored = v->format->dt;
    return *stored != DT_COUNT;
}

/* A matrix, of its two tensors. */
static status read_half(const gguf_model *m, const gguf_halves *s, int which, float *dst, err *e) {
    const gguf_view *v = gguf_find(m->file, s->name[which]);
    float *line = xmalloc(sizeof *line * (size_t)v->cols);
    status st = ST_OK;
    for (int64_t i = 0; i < v->rows && st == ST_OK; i++) {
        st = gguf_read_f32(v, i, 1, line, e);
        for (int64_t j = 0; j < v->cols && st == ST_OK; j++) {
            int64_t row, col;
            gguf_halves_place(s, which, i, j, &row, &col);
            dst[row * s->cols + col] = line[j];
        }
    }
    free(line);
    return st;
}

static status read_halves(const gguf_model *m, const param *p, float *dst, err *e) {
    gguf_halves s = gguf_halves_of(&m->config, p);
    TRY(read_half(m, &s, 0, dst, e));
    return read_half(m, &s, 1, dst, e);
}

/* A tensor that is read as the store has it, but for what is added to norms. */
static status read_whole(const gguf_model *m, const param *p, float *dst, err *e) {
    const gguf_view *v = view_of(m, p);
    if (p->order == ROWS_SAME || p->rank == 1) {
        TRY(gguf_read_f32(v, 0, v->rows, dst, e));
        for (int64_t i = 0; p->part == PART_LINEAR_A_LOG && i < p->cols; i++)
            dst[i] = gguf_linear_a_log(dst[i]);
        return ST_OK;
    }
    for (int64_t i = 0; i < p->rows; i++)
        TRY(gguf_read_f32(v, param_file_row(p, i), 1, dst + i * p->cols, e));
    return ST_OK;
}

static status load_rest(const gguf_model *m, const held_array *a, int i, dev_room *room, err *e) {
    const param *p = param_at(a->store, i);
    held_piece h = held_piece_of(a, i);
    float *host = held_borrow(a, &h, room);
    if (is_halved(m->file, p)) {
        TRY(read_halves(m, p, host, e));
    } else {
        TRY(read_whole(m, p, host, e));
    }
    return held_put_back(a, &h, host, e);
}

status gguf_model_load_rest(const gguf_model *m, const param_store *s, err *e) {
    held_array masters = held_masters(s);
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) {
        const param *p = param_at(s, i);
        if (!p->mapped && p->part < PART_LORA_A) st = load_rest(m, &masters, i, &room, e);
    }
    dev_room_free(&room);
    if (st == ST_OK) param_refresh_work(s);
    return st;
}

void gguf_model_end_ids(const gguf_model *m, tok_ids *out) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (int i = 0; i < ARRAY_LEN(keys); i++) {
        int64_t id = -1;
        if (!gguf_meta_find(gguf_get_meta(m->file), keys[i])) continue;
        if (gguf_meta_int(gguf_get_meta(m->file), keys[i], &id, NULL) != ST_OK) continue;
        bool there = id < 0 || id >= m->config.vocab_size;
        for (int64_t k = 0; k < out->n; k++) there = there || out->id[k] == id;
        if (!there) tok_ids_push(out, (int32_t)id);
    }
}

/* ---- to masters ---- */

model_config gguf_model_hf_config(const gguf_model *m) {
    model_config mc = m->config;
    mc.names = mc.encoder_names = NULL;
    mc.gguf_order = false;
    if (mc.kv_lora_rank == 0)
        mc.rope_interleaved = false; /* latents have neighbours as pairs in both */
    return mc;
}

static status read_matrix(const gguf_view *v, gguf_rows *to, const param *p, err *e) {
    for (int64_t i = 0; i < p->rows; i++) TRY(gguf_read_f32(v, i, 1, gguf_rows_at(to, p, i), e));
    return ST_OK;
}

static status read_vector(const gguf_model *m, gguf_rows *to, const param *p, err *e) {
    float *line = xmalloc(sizeof *line * (size_t)p->cols);
    status st = read_whole(m, p, line, e);
    float added = gguf_rows_offset(to, p);
    for (int64_t i = 0; i < p->cols && st == ST_OK; i++) *gguf_rows_at(to, p, i) = line[i] - added;
    free(line);
    return st;
}

status gguf_model_read(const gguf_model *m, const param_store *s, err *e) {
    model_config hf = gguf_model_hf_config(m);
    arena *a = arena_new("gguf rows");
    param_store *file = param_store_new(a, DT_F32);
    model_declare(&m->config, file);
    gguf_rows rows = gguf_rows_new(a, &m->config, &hf, s);
    status st = ST_OK;
    for (int i = 0; i < param_count(file) && st == ST_OK; i++) {
        const param *p = param_at(file, i);
        if (is_halved(m->file, p))
            st = read_halves(m, p, gguf_rows_at(&rows, p, 0), e);
        else
            st = p->rank == 1 ? read_vector(m, &rows, p, e)
                              : read_matrix(view_of(m, p), &rows, p, e);
    }
    if (st == ST_OK) param_refresh_work(s);
    arena_free(a);
    return st;
}
