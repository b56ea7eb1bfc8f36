#include "io/model_source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/checkpoint/checkpoint.h"
#include "io/foreign.h"
#include "io/hf/hf_load.h"
#include "io/hf/hf_part.h"
#include "io/hf/hf_weights.h"
#include "io/hf/peft.h"
#include "model/config_file.h"
#include "model/config_keys.h"
#include "model/presets.h"
#include "tok/tok_format.h"

enum { PIECE_ELEMS = 4096 };

const char *model_source_kind_name(model_source_kind k) {
    static const char *const names[] = {"a Hugging Face folder", "a GGUF file of llama.cpp",
                                        "weights of llama2.c", "a checkpoint of llm.c",
                                        "an adapter and its base model"};
    return names[k];
}

/* ---- Hugging Face folders ---- */

static status read_config(model_source *s, const char *const *ignore, int n_ignore, err *e) {
    json_t *list = json_array(), *o = json_pack("{s:o}", "ignore_keys", list);
    json_object_set_new(o, "from", json_string_nocheck(s->path)); /* a path may be any bytes */
    for (int i = 0; i < n_ignore; i++) json_array_append_new(list, json_string_nocheck(ignore[i]));
    status st = hf_config_read(s->a, o, 0, &s->config, e);
    json_decref(o);
    if (st == ST_OK || !e) return st;
    const char *key = config_ignorable_key(e);
    if (key) err_hint(e, "if it changes nothing, name it: --ignore-key %s", key);
    return st;
}

static bool is_quantised(const hf_weight *w) {
    return w->scale || w->four.bits;
}

static dtype read_format(const hf_weight *w) {
    return is_quantised(w) ? DT_F32 : w->v->dt;
}

static status fill_from_folder(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const hf_weight *w = ctx;
    return hf_weight_read(w, first, n, dst, read_format(w), e);
}

static void declare(model_source *s) {
    s->params = param_store_new(s->a, DT_F32);
    model_declare(&s->config, s->params);
}

static status check_floats(const hf_weight *w, err *e) {
    dtype dt = w->v->dt;
    if (is_quantised(w) || dt == DT_F32 || dt == DT_BF16 || dt == DT_F16 || dt == DT_F64)
        return ST_OK;
    return err_at(e, ST_FORMAT, w->v->path,
                  "tensor %s is stored as %s, which holds no weights here", w->v->name,
                  w->v->format);
}

/* What is in 4 bits is a matrix, in whatever shape its bytes are stored. */
static st_tensor tensor_of(hf_weight *w) {
    const st_view *v = w->v;
    st_tensor t = {.dt = read_format(w), .rank = v->rank, .fill = fill_from_folder, .ctx = w};
    memcpy(t.dims, v->dims, sizeof t.dims);
    if (!w->four.bits) return t;
    t.rank = 2;
    t.dims[0] = w->four.rows, t.dims[1] = w->four.cols;
    return t;
}

static status find_tensors(model_source *s, err *e) {
    int n = param_count(s->params);
    hf_weight *list = ARENA_ARRAY(s->a, hf_weight, n);
    TRY(hf_find_weights(s->params, s->folder, (hf_differs){0}, list, e));
    s->tensors = ARENA_ARRAY(s->a, st_tensor, n);
    for (int i = 0; i < n; i++) {
        TRY(check_floats(&list[i], e));
        s->tensors[i] = tensor_of(&list[i]);
        s->tensors[i].name = param_at(s->params, i)->name;
    }
    return ST_OK;
}

static void note_lost_tokens(model_source *s) {
    long lost = (long)tok_vocab_size(s->tok) - (long)s->config.vocab_size;
    if (lost > 0)
        strbuf_printf(&s->notes,
                      "The tokenizer has %d tokens, the embedding %ld rows: the model cannot take "
                      "the last %ld.\n",
                      tok_vocab_size(s->tok), (long)s->config.vocab_size, lost);
}

/* Any of the forms of tokenizers that folders hold. */
static status read_folder_tokenizer(model_source *s, err *e) {
    if (!tok_is_in_folder(s->path)) return ST_OK;
    TRY(tok_load_with(&s->tok, s->path, &(tok_load_options){0}, e));
    note_lost_tokens(s);
    return ST_OK;
}

static void settle_modules(model_source *s) {
    int64_t named = s->config.num_nextn_predict_layers, n = hf_count_ahead(s->folder, &s->config);
    if (n == named) return;
    strbuf_printf(
        &s->notes,
        "config.json names %ld modules of multi-token prediction, the files hold %ld: the "
        "others are left out.\n",
        (long)named, (long)n);
    s->config.num_nextn_predict_layers = n;
}

static status open_folder(model_source *s, const char *const *ignore, int n_ignore, err *e) {
    TRY(config_read_object(path_join(s->a, s->path, "config.json"), &s->keys, e));
    TRY(read_config(s, ignore, n_ignore, e));
    TRY(st_open(&s->folder, s->path, e));
    if (s->config.from_unties)
        strbuf_puts(&s->notes, "The head is stored and differs from the embedding: it is kept as a "
                               "head of its own, although config.json says that they are tied.\n");
    settle_modules(s);
    s->order = hf_order_of(s->path);
    declare(s);
    TRY(find_tensors(s, e));
    return read_folder_tokenizer(s, e);
}

/* ---- files of training programs ---- */

static const st_tensor *find_tensor(const foreign_model *m, const char *name) {
    for (int64_t i = 0; i < m->n; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return &m->tensors[i];
    return NULL;
}

/* The reader's names and shapes follow from the same header as the config: they cannot differ. */
static void adopt_tensors(model_source *s, const foreign_model *m) {
    int n = param_count(s->params);
    CHECK(m->n == n, "%lld tensors for %d parameters", (long long)m->n, n);
    s->tensors = ARENA_ARRAY(s->a, st_tensor, n);
    for (int i = 0; i < n; i++) {
        const param *p = param_at(s->params, i);
        const st_tensor *t = find_tensor(m, p->name);
        CHECK(t && t->dims[0] * (t->rank == 2 ? t->dims[1] : 1) == param_elems(p),
              "the tensors of %s", p->name);
        s->tensors[i] = *t;
    }
}

static status open_foreign(model_source *s, err *e) {
    foreign_model m;
    bool llmc = llmc_looks_weights(s->file.data, s->file.len);
    s->kind = llmc ? MODEL_SOURCE_LLMC : MODEL_SOURCE_LLAMA2C;
    s->order = HF_MEMORY;
    TRY((llmc ? llmc_parse : llama2c_parse)(s->a, s->file.data, s->file.len, s->path, &m, e));
    s->keys = m.config;
    TRY(model_config_read_file(s->a, s->keys, &s->config, e));
    declare(s);
    adopt_tensors(s, &m);
    return ST_OK;
}

static status read_tokenizer_beside(model_source *s, err *e) {
    const char *slash = strrchr(s->path, '/');
    char *path = slash ? arena_printf(s->a, "%.*s/tokenizer.bin", (int)(slash - s->path), s->path)
                       : "tokenizer.bin";
    if (s->kind != MODEL_SOURCE_LLAMA2C || !file_exists(path)) return ST_OK;
    TRY(tok_load_with(&s->tok, path, &(tok_load_options){0}, e));
    if (tok_vocab_size(s->tok) == s->config.vocab_size) return ST_OK;
    strbuf_printf(&s->notes,
                  "%s has %d tokens, the model %ld: it belongs to another model and is left out.\n",
                  path, tok_vocab_size(s->tok), (long)s->config.vocab_size);
    tok_free(s->tok);
    s->tok = NULL;
    return ST_OK;
}

/* ---- in memory ---- */

/* All weights as numbers, which are still to be read. */
static void declare_in_memory(model_source *s) {
    s->order = HF_MEMORY;
    declare(s);
    s->masters = xcalloc((size_t)param_store_sizes(s->params).flat_elems, sizeof *s->masters);
    param_store_bind(s->params, NULL, &(param_arrays){.master = s->masters});
    int n = param_count(s->params);
    s->tensors = ARENA_ARRAY(s->a, st_tensor, n);
    for (int i = 0; i < n; i++) {
        const param *p = param_at(s->params, i);
        s->tensors[i] = (st_tensor){.name = p->name,
                                    .dt = DT_F32,
                                    .rank = p->rank,
                                    .dims = {p->rank == 1 ? p->cols : p->rows, p->cols},
                                    .data = s->masters + p->offset};
        hf_shape_taps(p, &s->tensors[i]);
    }
}

/* ---- GGUF ---- */

/* What matrices are stored in, where it is one plain format; else F32, which holds all. */
static dtype plain_format(const gguf_reader *r) {
    dtype all = DT_COUNT;
    for (int64_t i = 0; i < gguf_count(r); i++) {
        const gguf_view *v = gguf_get(r, i);
        dtype dt = v->format->dt;
        if (v->rank < 2) continue;
        if (dt == DT_COUNT || (all != DT_COUNT && dt != all)) return DT_F32;
        all = dt;
    }
    return all == DT_F16 || all == DT_BF16 ? all : DT_F32;
}

/* The ids that end a text, as config.json has them: a number, or a list. */
static json_t *end_keys(const gguf_model *m) {
    tok_ids end = {0};
    gguf_model_end_ids(m, &end);
    json_t *o = json_object(), *list = json_array();
    for (int64_t i = 0; i < end.n; i++) json_array_append_new(list, json_integer(end.id[i]));
    if (end.n == 1)
        json_object_set(o, "eos_token_id", json_array_get(list, 0));
    else if (end.n > 1)
        json_object_set(o, "eos_token_id", list);
    json_decref(list);
    tok_ids_free(&end);
    return o;
}

/* The weights as numbers, in memory: formats with blocks exist nowhere else. */
static status open_gguf(model_source *s, err *e) {
    s->kind = MODEL_SOURCE_GGUF;
    TRY(gguf_model_open(&s->gguf, s->path, e));
    s->config = gguf_model_hf_config(&s->gguf);
    declare_in_memory(s);
    TRY(gguf_model_read(&s->gguf, s->params, e));
    s->matrices = plain_format(s->gguf.file);
    s->keys = end_keys(&s->gguf);
    if (!gguf_meta_find(gguf_get_meta(s->gguf.file), "tokenizer.ggml.tokens")) return ST_OK;
    return tok_load_with(&s->tok, s->path, &(tok_load_options){0}, e);
}

static status open_file(model_source *s, const char *path, err *e) {
    s->path = arena_strdup(s->a, path);
    TRY(file_map_open(&s->file, path, e));
    const uint8_t *b = s->file.data;
    if (s->file.len >= 4 && memcmp(b, "GGUF", 4) == 0) return open_gguf(s, e);
    if (llmc_looks_weights(b, s->file.len) || llama2c_looks_weights(b, s->file.len)) {
        TRY(open_foreign(s, e));
        return read_tokenizer_beside(s, e);
    }
    err_at(e, ST_FORMAT, path, "%s is no model that is read here", path);
    return err_hint(
        e, "give a Hugging Face folder, a run, a .gguf file, or a .bin of llama2.c or llm.c");
}

/* ---- adapters ---- */

/* Takes over what the base model is, and its weights as numbers. */
static status read_base(model_source *s, model_source *base, const peft_adapter *p, err *e) {
    int n = param_count(base->params);
    s->config = model_source_folder_config(base);
    s->config.from = NULL;
    bool grown = p->vocab > s->config.vocab_size; /* the adapter knows more tokens */
    if (grown && base->kind != MODEL_SOURCE_HF) {
        err_at(e, ST_USAGE, p->dir, "the adapter %s has more tokens than %s", p->dir, base->path);
        return err_hint(e, "give a folder as its base model");
    }
    if (grown) s->config.vocab_size = p->vocab;
    s->keys = json_incref(base->keys);
    s->tok = base->tok;
    base->tok = NULL;
    strbuf_append(&s->notes, strbuf_cstr(&base->notes), base->notes.len);
    declare_in_memory(s);
    s->formats = ARENA_ARRAY(s->a, dtype, n);
    const st_tensor *list = model_source_folder_tensors(base, base->a, DT_COUNT);
    for (int i = 0; i < n; i++) s->formats[i] = list[i].dt;
    if (grown) return hf_load_grown(s->params, base->path, base->config.vocab_size, e);
    return model_source_load_folder(base, s->params, e);
}

static status merge(model_source *s, const peft_adapter *p, const char *const *ignore, int n_ignore,
                    err *e) {
    model_source base;
    status st = model_source_open(&base, s->base, ignore, n_ignore, e);
    if (st == ST_OK && base.kind == MODEL_SOURCE_ADAPTER) {
        err_at(e, ST_USAGE, s->base, "the base model %s is an adapter itself", s->base);
        st = err_hint(e, "export that first, and give the folder that this makes");
    }
    if (st == ST_OK) st = read_base(s, &base, p, e);
    if (st == ST_OK) s->config = model_config_copy(s->a, &s->config);
    if (st == ST_OK) st = peft_merge(p, s->params, e);
    model_source_close(&base);
    return st;
}

static status open_adapter(model_source *s, const char *base, const char *const *ignore,
                           int n_ignore, err *e) {
    peft_adapter p;
    s->kind = MODEL_SOURCE_ADAPTER;
    status st = peft_open(&p, s->path, e);
    if (st == ST_OK && !base) st = peft_find_base(&p, "name it with --base FOLDER", &base, e);
    if (st == ST_OK) s->base = arena_strdup(s->a, base);
    if (st == ST_OK) st = merge(s, &p, ignore, n_ignore, e);
    peft_close(&p);
    TRY(st);
    if (file_exists(path_join(s->a, s->path, "tokenizer.json"))) {
        tok_free(s->tok);
        s->tok = NULL;
    }
    return s->tok ? ST_OK : read_folder_tokenizer(s, e);
}

static status open_dir(model_source *s, const char *path, const char *base,
                       const char *const *ignore, int n_ignore, err *e) {
    char *dir;
    TRY(checkpoint_resolve(s->a, path, &dir, e));
    s->path = dir;
    if (peft_is_folder(dir)) return open_adapter(s, base, ignore, n_ignore, e);
    if (!base) return open_folder(s, ignore, n_ignore, e);
    err_at(e, ST_USAGE, "--base", "%s is no adapter, and has no base model", path);
    return err_hint(e, "leave --base out");
}

status model_source_missing(const char *path, const char *takes, err *e) {
    err_at(e, ST_USAGE, path, "there is no model at %s", path);
    if (!preset_json(path)) return err_hint(e, "%s", takes);
    return err_hint(e, "%s is a preset, which has sizes and no weights: %s", path, takes);
}

status model_source_open_on(model_source *s, const char *path, const char *base,
                            const char *const *ignore, int n_ignore, err *e) {
    *s = (model_source){.a = arena_new("model source")};
    if (!file_exists(path))
        return model_source_missing(
            path, "give a Hugging Face folder, a run, a .gguf file, or a .bin of llama2.c or llm.c",
            e);
    if (file_is_dir(path)) return open_dir(s, path, base, ignore, n_ignore, e);
    return open_file(s, path, e);
}

status model_source_open(model_source *s, const char *path, const char *const *ignore, int n_ignore,
                         err *e) {
    return model_source_open_on(s, path, NULL, ignore, n_ignore, e);
}

void model_source_close(model_source *s) {
    st_close(s->folder);
    if (s->file.data) file_map_close(&s->file);
    if (s->gguf.a) gguf_model_close(&s->gguf);
    free(s->masters);
    tok_free(s->tok);
    json_decref(s->keys);
    json_decref(s->generation);
    strbuf_free(&s->notes);
    arena_free(s->a);
    *s = (model_source){0};
}

/* ---- as a folder holds it ---- */

model_config model_source_folder_config(const model_source *s) {
    model_config mc = s->config;
    mc.gguf_order = false;
    mc.from = NULL;
    bool halves = key_in_words(mc.family->keys, "rope_interleaved") && mc.kv_lora_rank == 0;
    if (halves) mc.rope_interleaved = false;
    return mc;
}

/* A stored tensor in another order of rows and another format. */
typedef struct adapted {
    const st_tensor *in;
    dtype out;
    const int64_t *row_from; /* NULL: the same rows */
    int64_t cols;
    int64_t piece; /* elements that are converted at once */
} adapted;

static status read_in(const st_tensor *t, int64_t first, int64_t n, void *dst, err *e) {
    if (!t->data) return t->fill(t->ctx, first, n, dst, e);
    size_t size = dtype_bytes(t->dt);
    memcpy(dst, (const char *)t->data + (size_t)first * size, (size_t)n * size);
    return ST_OK;
}

static status check_range(const adapted *a, const float *src, const uint16_t *half, int64_t n,
                          err *e) {
    for (int64_t i = 0; i < n; i++) {
        if ((half[i] & 0x7c00u) != 0x7c00u || !isfinite(src[i])) continue;
        err_set(e, ST_NONFINITE, "tensor %s holds %g, which is beyond F16", a->in->name,
                (double)src[i]);
        return err_hint(e, "use --dtype BF16 or F32");
    }
    return ST_OK;
}

static status convert_piece(const adapted *a, int64_t first, int64_t n, void *stored, float *wide,
                            char *dst, err *e) {
    TRY(read_in(a->in, first, n, stored, e));
    dtype_convert(wide, DT_F32, stored, a->in->dt, n);
    dtype_convert(dst, a->out, wide, DT_F32, n);
    return a->out == DT_F16 ? check_range(a, wide, (const uint16_t *)(void *)dst, n, e) : ST_OK;
}

/* Elements of successive rows of the source. */
static status convert_run(const adapted *a, int64_t first, int64_t n, char *dst, err *e) {
    if (a->in->dt == a->out) return read_in(a->in, first, n, dst, e);
    int64_t most = a->piece < n ? a->piece : n;
    void *stored = xmalloc((size_t)most * dtype_bytes(a->in->dt));
    float *wide = xmalloc((size_t)most * sizeof *wide);
    status st = ST_OK;
    for (int64_t done = 0; done < n && st == ST_OK; done += most) {
        int64_t take = n - done < most ? n - done : most;
        st = convert_piece(a, first + done, take, stored, wide,
                           dst + (size_t)done * dtype_bytes(a->out), e);
    }
    free(wide);
    free(stored);
    return st;
}

static status fill_adapted(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const adapted *a = ctx;
    if (!a->row_from) return convert_run(a, first, n, dst, e);
    size_t size = dtype_bytes(a->out);
    for (int64_t done = 0; done < n;) {
        int64_t row = (first + done) / a->cols, col = (first + done) % a->cols;
        int64_t take = a->cols - col < n - done ? a->cols - col : n - done;
        TRY(convert_run(a, a->row_from[row] * a->cols + col, take,
                        (char *)dst + (size_t)done * size, e));
        done += take;
    }
    return ST_OK;
}

/* The context of fill_transposed: a tensor in memory, [cols,rows] of what is asked for. */
typedef struct flipped {
    st_tensor t; /* [rows,cols] */
    const char *data;
} flipped;

/* By rows of the result, each of which is a column of what lies in memory. */
static status fill_transposed(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    (void)e;
    const flipped *f = ctx;
    size_t size = dtype_bytes(f->t.dt);
    int64_t rows = f->t.dims[0], cols = f->t.dims[1], row = first / cols, col = first % cols;
    for (int64_t i = 0; i < n; i++) {
        memcpy((char *)dst + (size_t)i * size, f->data + (size_t)(col * rows + row) * size, size);
        if (++col == cols) col = 0, row++;
    }
    return ST_OK;
}

/* [in,out] of what lies [out,in] in memory. */
static const st_tensor *transposed(arena *a, const st_tensor *t) {
    CHECK(t->data, "%s is not in memory", t->name);
    flipped *f = ARENA_NEW(a, flipped);
    *f = (flipped){.t = *t, .data = t->data};
    f->t.dims[0] = t->dims[1];
    f->t.dims[1] = t->dims[0];
    f->t.data = NULL;
    f->t.fill = fill_transposed;
    f->t.ctx = f;
    return &f->t;
}

/* The format that keeps what is stored; for blocks of fp8 and 4 bits the one that their publishers use. */
static dtype stored_format(const model_source *s, int i, dtype asked) {
    const st_tensor *in = &s->tensors[i];
    if (asked != DT_COUNT) return hf_file_dtype(param_at(s->params, i), asked);
    if (s->formats) return s->formats[i];
    if (s->kind == MODEL_SOURCE_GGUF && in->rank == 2) return s->matrices;
    bool quantised = s->kind == MODEL_SOURCE_HF && is_quantised(in->ctx);
    return quantised ? DT_BF16 : in->dt;
}

st_tensor *model_source_folder_tensors(const model_source *s, arena *a, dtype dt) {
    int n = param_count(s->params);
    st_tensor *list = ARENA_ARRAY(a, st_tensor, n);
    for (int i = 0; i < n; i++) {
        const param *p = param_at(s->params, i);
        const st_tensor *in = &s->tensors[i];
        bool flip = s->order == HF_MEMORY && p->transposed && p->rank == 2;
        if (flip) in = transposed(a, in);
        adapted *ad = ARENA_NEW(a, adapted);
        *ad = (adapted){.in = in,
                        .out = stored_format(s, i, dt),
                        .row_from = s->order == HF_FILES ? NULL : hf_file_rows(a, p, HF_FILES),
                        .cols = p->rank == 1 ? 1 : p->cols,
                        .piece = flip ? in->dims[1] : PIECE_ELEMS};
        list[i] = *in;
        list[i].dt = ad->out;
        list[i].data = NULL;
        list[i].fill = fill_adapted;
        list[i].ctx = ad;
    }
    return list;
}

static status fill_master(const held_array *masters, int i, adapted *ad, dev_room *room, err *e) {
    held_piece h = held_piece_of(masters, i);
    float *host = held_borrow(masters, &h, room);
    TRY(fill_adapted(ad, 0, h.n, host, e));
    return held_put_back(masters, &h, host, e);
}

/* By names: a source may have more than the store. `reordered`: where the store has other rows than the source, those of Hugging
 * Face files. */
static status fill_masters(const model_source *s, const param_store *store, bool reordered,
                           err *e) {
    held_array masters = held_masters(store);
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0; i < param_count(store) && st == ST_OK; i++) {
        int at = param_find(s->params, param_at(store, i)->name);
        CHECK(at >= 0, "the source has no %s", param_at(store, i)->name);
        const param *p = param_at(s->params, at); /* the order of rows is that of the source */
        bool other = reordered && p->order == ROWS_PAIRS;
        adapted ad = {.in = &s->tensors[at],
                      .out = DT_F32,
                      .row_from = other ? hf_file_rows(s->a, p, HF_FILES) : NULL,
                      .cols = p->rank == 1 ? 1 : p->cols,
                      .piece = PIECE_ELEMS};
        st = fill_master(&masters, i, &ad, &room, e);
    }
    dev_room_free(&room);
    if (st == ST_OK) param_refresh_work(store);
    return st;
}

status model_source_load(const model_source *s, const param_store *store, err *e) {
    if (s->kind == MODEL_SOURCE_HF) return hf_load_weights(store, s->path, e);
    return fill_masters(s, store, false, e);
}

/* How many tokens the source has, where the store has more; else 0. */
static int64_t fewer_tokens(const model_source *s, const param_store *store) {
    for (int i = 0; i < param_count(store); i++) {
        const param *p = param_at(store, i);
        if (p->part == PART_EMBED) return p->rows > s->config.vocab_size ? s->config.vocab_size : 0;
    }
    return 0;
}

status model_source_load_folder(const model_source *s, const param_store *store, err *e) {
    if (s->order == HF_FILES) return hf_load_grown(store, s->path, fewer_tokens(s, store), e);
    return fill_masters(s, store, true, e);
}
