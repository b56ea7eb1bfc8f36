#include "io/hf/hf_weights.h"

#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_patch.h"
#include "base/json.h"
#include "base/nf4.h"
#include "model/config_keys.h"
#include "model/family.h"

/* Prefixes that other tools put before or leave out of the names. */
static const char *const prefixes[] = {"",           "transformer.",    "model.",   "module.",
                                       "_orig_mod.", "language_model.", "gpt_neox."};

/* The embedding of T5, which both stacks share, under the names of one; some files have no other. */
static const char of_stacks[] = "decoder.embed_tokens.weight encoder.embed_tokens.weight";

/* With one of the words. */
static bool begins_in(const char *name, const char *words) {
    size_t n;
    for (const char *w = words; *w; w += n + (w[n] == ' ')) {
        n = strcspn(w, " ");
        if (strncmp(name, w, n) == 0) return true;
    }
    return false;
}

/* Parts of models of text and images that the text model does without. */
static bool is_of_images(const char *name) {
    if (strncmp(name, "model.", 6) == 0) name += 6;
    return begins_in(name, "vision_tower. multi_modal_projector.");
}

/* What published files hold and transformers passes over, too: modules of Qwen3-Next that predict further tokens, and
 * T5 1.0's biases of attention to the encoder, which has none. */
static bool is_passed_over(const char *name) {
    return begins_in(name, "mtp. decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.");
}

/* Buffers that files may hold beside the parameters. */
static bool is_buffer(const char *name) {
    static const char *const ends[] = {
        ".attn.bias",          ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
        "rotary_emb.inv_freq", "position_ids",      "cos_cached",      "sin_cached",
        ".input_scale",        ".k_scale",          ".v_scale",        ".input_scale_ub"};
    size_t n = strlen(name);
    for (int i = 0; i < ARRAY_LEN(ends); i++) {
        size_t m = strlen(ends[i]);
        if (n >= m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}

const st_view *hf_find_view(const st_reader *r, const char *name) {
    for (int i = 0; i < ARRAY_LEN(prefixes); i++) {
        size_t n = strlen(prefixes[i]);
        char longer[512];
        snprintf(longer, sizeof longer, "%s%s", prefixes[i], name);
        const st_view *v = st_find(r, longer);
        if (!v && strncmp(name, "model.", 6) == 0) { /* model.language_model.layers... */
            snprintf(longer, sizeof longer, "model.%s%s", prefixes[i], name + 6);
            v = st_find(r, longer);
        }
        if (!v && n && strncmp(name, prefixes[i], n) == 0) v = st_find(r, name + n);
        if (v) return v;
    }
    const st_view *v = NULL;
    char of_one[64];
    if (strcmp(name, "shared.weight") == 0)
        for (const char *s = of_stacks; !v && key_next_word(&s, of_one);) v = st_find(r, of_one);
    return v;
}

/* Whether it has a row (of a vector: an element) for each token. */
static bool is_of_tokens(const param *p) {
    return p->part == PART_EMBED || p->part == PART_HEAD;
}

/* vocab: tokens that the files have; 0: those of the store. */
static status check_shape(const param *p, const hf_weight *w, int64_t vocab, err *e) {
    st_view as_read = *w->v;
    const st_view *v = &as_read;
    if (w->four.bits)
        as_read.rank = 2, as_read.dims[0] = w->four.rows, as_read.dims[1] = w->four.cols;
    int64_t rows = param_whole_rows(p), cols = param_whole_cols(p);
    if (vocab && is_of_tokens(p)) *(p->rank == 1 ? &cols : &rows) = vocab;
    int64_t a = p->transposed ? cols : rows, b = p->transposed ? rows : cols;
    bool taps = p->taps && v->rank == 3 && v->dims[0] == cols / p->taps && v->dims[1] == 1 &&
                v->dims[2] == p->taps;
    bool ok = taps           ? true
              : p->rank == 1 ? v->rank == 1 && v->dims[0] == cols
                             : v->rank == 2 && v->dims[0] == a && v->dims[1] == b;
    if (ok) return ST_OK;
    char got[128] = "";
    for (int i = 0; i < v->rank; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%ld", i ? "," : "",
                 (long)v->dims[i]);
    if (p->rank == 1)
        err_set(e, ST_FORMAT, "tensor %s has shape [%s], the config asks for [%ld]", v->name, got,
                (long)cols);
    else
        err_set(e, ST_FORMAT, "tensor %s has shape [%s], the config asks for [%ld,%ld]", v->name,
                got, (long)a, (long)b);
    err_hint(e, "the weights and config.json belong to different models");
    return err_where(e, "%s", v->path);
}

/* ---- stored numbers ---- */

static status bad_scale(const st_view *v, const char *what, err *e) {
    err_set(e, ST_FORMAT, "tensor %s is stored as %s %s", v->name, v->format, what);
    err_hint(
        e, "fp8 is read as E4M3 with F32, BF16 or F16 factors of the matrix, of rows or of blocks");
    return err_where(e, "%s", v->path);
}

static status bad_factor(const st_view *s, int64_t i, double x, err *e) {
    err_set(e, ST_FORMAT, "tensor %s has the factor %g in row %lld", s->name, x,
            (long long)(s->rank == 2 ? i / s->dims[1] : i));
    err_hint(e, "a factor is a finite number that is not negative: fetch the file again");
    return err_where(e, "%s", s->path);
}

/* How many of n elements share a factor, where there are so many factors: all of them, or a power of two, of which no two
 * give the same number of blocks unless that is 1. */
static bool find_block(int64_t n, int64_t factors, int64_t *block) {
    *block = n;
    if (factors == 1) return true;
    for (*block = 1; *block < n; *block *= 2)
        if ((n + *block - 1) / *block == factors) return true;
    return false;
}

/* One factor for the matrix, one for each row, or one for each block. */
static bool fit_grid(const st_view *v, const st_view *s, fp8_grid *g) {
    int64_t down = s->rank > 0 ? s->dims[0] : 1, across = s->rank == 2 ? s->dims[1] : 1;
    *g = (fp8_grid){.scale = s->data, .dt = s->dt, .across = across};
    return v->rank == 2 && s->rank <= 2 &&
           (s->dt == DT_F32 || s->dt == DT_BF16 || s->dt == DT_F16) &&
           find_block(v->dims[0], down, &g->rows) && find_block(v->dims[1], across, &g->cols);
}

/* The factors of a matrix that is stored as 8-bit floats. */
static status find_scale(const st_reader *r, hf_weight *w, err *e) {
    static const char *const ends[] = {"_scale_inv", "_scale"};
    const st_view *v = w->v;
    if (strcmp(v->format, "F8_E4M3") != 0) return ST_OK;
    for (int i = 0; i < ARRAY_LEN(ends) && !w->scale; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s%s", v->name, ends[i]);
        w->scale = st_find(r, name);
    }
    const st_view *s = w->scale;
    if (!s) return bad_scale(v, "without a tensor of factors (_scale_inv or _scale)", e);
    if (!fit_grid(v, s, &w->grid))
        return bad_scale(v, "with factors of another shape or format", e);
    for (int64_t i = 0; i < s->numel; i++) {
        float x = fp8_factor(s->data, s->dt, i);
        if (!(x >= 0 && x <= FLT_MAX)) return bad_factor(s, i, (double)x, e);
    }
    return ST_OK;
}

/* Elements, also of 4 bits, of which files list the bytes. */
static int64_t elems_of(const hf_weight *w) {
    return w->four.bits ? w->four.rows * w->four.cols : w->v->numel;
}

status hf_weight_read(const hf_weight *w, int64_t first, int64_t n, void *dst, dtype dt, err *e) {
    int64_t elems = elems_of(w);
    if (!w->scale && !w->four.bits) return st_view_read(w->v, first, n, dst, dt, e);
    CHECK(first >= 0 && n >= 0 && first <= elems && n <= elems - first,
          "elements %lld + %lld of '%s', which has %lld", (long long)first, (long long)n,
          w->v->name, (long long)elems);
    float piece[1024];
    for (int64_t done = 0; done < n;) {
        int64_t take = n - done < ARRAY_LEN(piece) ? n - done : ARRAY_LEN(piece);
        if (w->four.bits)
            bnb_read(&w->four, first + done, take, piece);
        else
            fp8_blocks_to_f32(piece, w->v->data, &w->grid, w->v->dims[1], first + done, take);
        dtype_convert((char *)dst + (size_t)done * dtype_bytes(dt), dt, piece, DT_F32, take);
        done += take;
    }
    return ST_OK;
}

/* ---- finding ---- */

static bool ends_in(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* With whatever prefix. */
static bool is_head(const char *name) {
    static const char *const heads[] = {"lm_head.weight", "embed_out.weight"};
    size_t n = strlen(name);
    for (int i = 0; i < ARRAY_LEN(heads); i++) {
        size_t m = strlen(heads[i]);
        bool ends = n >= m && strcmp(name + n - m, heads[i]) == 0;
        if (ends && (n == m || name[n - m - 1] == '.')) return true;
    }
    return false;
}

static status find_weight(const st_reader *r, const param *p, int64_t vocab, hf_weight *w, err *e) {
    *w = (hf_weight){.v = hf_find_view(r, p->name)};
    status st = w->v ? ST_OK : st_require(r, p->name, &w->v, e);
    if (st != ST_OK && is_head(p->name))
        err_hint(e, "where the head is the embedding, config.json says tie_word_embeddings: true");
    TRY(st);
    TRY(bnb_find(r, w->v, &w->four, e));
    TRY(check_shape(p, w, vocab, e));
    return find_scale(r, w, e);
}

status hf_head_differs(const st_reader *r, const st_view *head, const st_view *table, bool *differs,
                       err *e) {
    enum { PIECE = 1024 };
    float a[PIECE], b[PIECE];
    hf_weight x = {.v = head}, y = {.v = table};
    TRY(find_scale(r, &x, e));
    TRY(find_scale(r, &y, e));
    *differs = head->numel != table->numel;
    bool alike = !x.scale && !y.scale && head->dt == table->dt;
    if (alike && !*differs && memcmp(head->data, table->data, head->bytes) == 0) return ST_OK;
    for (int64_t at = 0; at < head->numel && !*differs; at += PIECE) {
        int64_t n = head->numel - at < PIECE ? head->numel - at : PIECE;
        TRY(hf_weight_read(&x, at, n, a, DT_F32, e));
        TRY(hf_weight_read(&y, at, n, b, DT_F32, e));
        *differs = memcmp(a, b, sizeof *a * (size_t)n) != 0;
    }
    return ST_OK;
}

/* The tensors of the head and the embedding, if both are stored. */
static bool find_ends(const st_reader *r, const model_config *mc, const st_view **head,
                      const st_view **table) {
    const st_view **view[] = {head, table};
    const model_part part[] = {PART_HEAD, PART_EMBED};
    for (int i = 0; i < 2; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s.weight", mc->family->names[part[i]]);
        *view[i] = hf_find_view(r, name);
    }
    return *head && *table;
}

bool hf_has_own_head(const char *dir, const model_config *mc) {
    const st_view *head, *table;
    st_reader *r;
    err unread;
    bool differs = false;
    if (!model_head_is_table(mc) || st_open(&r, dir, &unread) != ST_OK) return false;
    if (find_ends(r, mc, &head, &table) &&
        hf_head_differs(r, head, table, &differs, &unread) != ST_OK)
        differs = false;
    st_close(r);
    return differs;
}

status hf_config_read(arena *a, const json_t *obj, int64_t vocab_if_auto, model_config *out,
                      err *e) {
    TRY(model_config_read(a, obj, vocab_if_auto, out, e));
    bool said = json_object_get(obj, "tie_word_embeddings") != NULL;
    out->from_unties = out->from && !said && hf_has_own_head(out->from, out);
    if (out->from_unties) out->tie_word_embeddings = false;
    return ST_OK;
}

/* ---- modules of multi-token prediction ---- */

/* Of a tensor of layer N: "...layers.N.eh_proj.weight", which a module has; NULL: it has none.
 * *rest: what stands behind "layers.N.". */
static const st_view *find_join(const st_reader *r, const char *name, const char **rest) {
    const char *at = strstr(name, "layers.");
    if (!at) return NULL;
    at += strlen("layers.");
    size_t digits = strspn(at, "0123456789");
    if (!digits || at[digits] != '.') return NULL;
    *rest = at + digits + 1;
    char join[512];
    snprintf(join, sizeof join, "%.*seh_proj.weight", (int)(*rest - name), name);
    return st_find(r, join);
}

int hf_count_ahead(const st_reader *r, const model_config *mc) {
    int n = 0;
    for (; n < mc->num_nextn_predict_layers; n++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.eh_proj.weight",
                 (int)mc->num_hidden_layers + n);
        if (!hf_find_view(r, name)) break;
    }
    return n;
}

status hf_settle_ahead(model_config *mc, const char *dir, err *e) {
    st_reader *r;
    if (mc->num_nextn_predict_layers == 0) return ST_OK;
    TRY(st_open(&r, dir, e));
    mc->num_nextn_predict_layers = hf_count_ahead(r, mc);
    st_close(r);
    return ST_OK;
}

/* What the files hold of a matrix; NULL: it is no parameter of its own. */
static const st_view *view_of_part(const param_store *whole, const hf_weight *list, int part) {
    for (int i = 0; i < param_count(whole); i++)
        if (param_at(whole, i)->part == part && param_at(whole, i)->rank == 2) return list[i].v;
    return NULL;
}

/* Published modules repeat embedding and head, which they share with the model. */
static status check_copy(const st_reader *r, const st_view *v, const char *rest,
                         const param_store *whole, const hf_weight *list, bool *fine, err *e) {
    const st_view *shared = NULL;
    if (strcmp(rest, "embed_tokens.weight") == 0)
        shared = view_of_part(whole, list, PART_EMBED);
    else if (strcmp(rest, "shared_head.head.weight") == 0) {
        shared = view_of_part(whole, list, PART_HEAD);
        if (!shared) shared = view_of_part(whole, list, PART_EMBED);
    }
    *fine = shared != NULL;
    if (!shared) return ST_OK;
    bool differs;
    TRY(hf_head_differs(r, v, shared, &differs, e));
    if (!differs) return ST_OK;
    err_at(e, ST_FORMAT, v->path, "%s differs from %s, which modules share", v->name, shared->name);
    return err_hint(e, "set num_nextn_predict_layers to 0, to have the model without its modules");
}

/* ---- tensors that are no parameters ---- */

/* A stored head of a tied model is fine when it equals the embedding, and so is that of a stack. */
static status check_extra(const st_reader *r, const st_view *v, const st_view *table, err *e) {
    bool head = is_head(v->name);
    if (head || key_in_words(of_stacks, v->name)) {
        bool differs;
        TRY(hf_head_differs(r, v, table, &differs, e));
        if (!differs) return ST_OK;
        err_set(e, ST_FORMAT, "%s is stored and differs from the embedding, but %s", v->name,
                head ? "the config ties them" : "both stacks share it");
        err_hint(e, head ? "leave tie_word_embeddings out: what is stored then decides"
                         : "no T5 has an embedding for each stack; fetch the file again");
        return err_where(e, "%s", v->path);
    }
    err_set(e, ST_FORMAT, "tensor %s belongs to no parameter of this model", v->name);
    err_hint(e, "check model_type and the sizes in config.json");
    return err_where(e, "%s", v->path);
}

/* What says how a parameter is in 4 bits. */
static bool is_beside(const st_reader *r, const st_view *v, const bool *wanted) {
    size_t n;
    char name[512];
    if (!bnb_is_part(v->name, &n) || n >= sizeof name) return false;
    snprintf(name, sizeof name, "%.*s", (int)n, v->name);
    const st_view *matrix = st_find(r, name);
    return matrix && matrix->dt == DT_U8 && wanted[matrix - st_get(r, 0)];
}

/* new_head: a head of labels is not looked for, and what the files have as a head is passed over. */
static status find_weights(const param_store *s, const st_reader *r, int64_t vocab, bool new_head,
                           hf_weight *list, err *e) {
    const param_store *whole = param_store_whole(s);
    bool *wanted = xcalloc((size_t)st_count(r) + 1, sizeof *wanted);
    const st_view *first = st_count(r) ? st_get(r, 0) : NULL;
    status st = ST_OK;
    for (int i = 0; i < param_count(whole) && st == ST_OK; i++) {
        if (new_head && param_at(whole, i)->part == PART_SCORE) continue;
        st = find_weight(r, param_at(whole, i), vocab, &list[i], e);
        if (st != ST_OK) break;
        wanted[list[i].v - first] = true;
        if (list[i].scale) wanted[list[i].scale - first] = true;
    }
    for (int64_t i = 0; i < st_count(r) && st == ST_OK; i++) {
        const st_view *v = st_get(r, i);
        bool head = new_head && (is_head(v->name) || ends_in(v->name, "score.weight") ||
                                 ends_in(v->name, "lm_head.bias"));
        if (wanted[i] || head || is_buffer(v->name) || is_of_images(v->name)) continue;
        if (is_passed_over(v->name) || v->numel == 0) continue;
        if (is_beside(r, v, wanted)) continue;
        const char *rest;
        const st_view *join = find_join(r, v->name, &rest);
        bool fine = join && !wanted[join - first]; /* of a module that is not asked for */
        if (join && !fine) st = check_copy(r, v, rest, whole, list, &fine, e);
        if (st == ST_OK && !fine) st = check_extra(r, v, view_of_part(whole, list, PART_EMBED), e);
    }
    free(wanted);
    return st;
}

status hf_find_weights(const param_store *s, const st_reader *r, hf_weight *list, err *e) {
    return find_weights(s, r, 0, false, list, e);
}

/* ---- rows of new tokens ---- */

static int64_t cols_of(const hf_weight *w) {
    if (w->four.bits) return w->four.cols;
    return w->v->rank == 1 ? 1 : w->v->dims[1];
}

/* The mean of the rows of a matrix [rows,cols], or of the elements of a vector (cols 1), summed in
 * double in the order of the file. */
static status read_mean(const hf_weight *w, int64_t cols, float *mean, err *e) {
    double *sum = xcalloc((size_t)cols, sizeof *sum);
    float *row = xmalloc((size_t)cols * sizeof *row);
    int64_t rows = elems_of(w) / cols;
    status st = ST_OK;
    for (int64_t i = 0; i < rows && st == ST_OK; i++) {
        st = hf_weight_read(w, i * cols, cols, row, DT_F32, e);
        for (int64_t k = 0; k < cols && st == ST_OK; k++) sum[k] += (double)row[k];
    }
    for (int64_t k = 0; k < cols; k++) mean[k] = (float)(sum[k] / (double)rows);
    free(sum);
    free(row);
    return st;
}

static status add_means(const param_store *s, hf_weight *list, arena *a, err *e) {
    const param_store *whole = param_store_whole(s);
    for (int i = 0; i < param_count(whole); i++) {
        const param *p = param_at(whole, i);
        if (!is_of_tokens(p) || !list[i].v) continue;
        int64_t cols = p->rank == 1 ? 1 : param_whole_cols(p);
        float *mean = ARENA_ARRAY(a, float, (int)cols);
        TRY(read_mean(&list[i], cols, mean, e));
        list[i].mean = mean;
    }
    return ST_OK;
}

/* As hf_weight_read in fp32, also behind the last element that is stored. */
static status read_grown(const hf_weight *w, int64_t first, int64_t n, float *dst, err *e) {
    int64_t left = elems_of(w) - first, cols = cols_of(w);
    int64_t stored = !w->mean || n < left ? n : left > 0 ? left : 0;
    for (int64_t i = stored; i < n; i++) dst[i] = w->mean[(first + i) % cols];
    return stored ? hf_weight_read(w, first, stored, dst, DT_F32, e) : ST_OK;
}

/* ---- loading ---- */

typedef struct filling {
    const hf_weight *w;
    float *host; /* element `first` of the array, and those that follow */
    int64_t first;
} filling;

static status fill_run(void *ctx, const held_run *r, err *e) {
    const filling *f = ctx;
    float *dst = f->host + (r->held - f->first);
    if (r->step == 1) return read_grown(f->w, r->file, r->n, dst, e);
    float piece[1024];
    for (int64_t done = 0; done < r->n;) {
        int64_t take = r->n - done < ARRAY_LEN(piece) ? r->n - done : ARRAY_LEN(piece);
        TRY(read_grown(f->w, r->file + done, take, piece, e));
        for (int64_t k = 0; k < take; k++) dst[(done + k) * r->step] = piece[k];
        done += take;
    }
    return ST_OK;
}

/* What this rank holds of parameter i, in the array. */
static status fill_held(const held_array *a, int i, const hf_weight *w, hf_order order,
                        dev_room *room, err *e) {
    held_piece h = held_piece_of(a, i);
    if (h.n == 0) return ST_OK;
    filling f = {w, held_borrow(a, &h, room), h.first};
    for (int k = 0; k < h.n_spans; k++)
        TRY(held_walk(param_at(a->store, i), &h.span[k], order, fill_run, &f, e));
    return held_put_back(a, &h, f.host, e);
}

hf_order hf_order_of(const char *dir) {
    char name[4096];
    snprintf(name, sizeof name, "%s/config.json", dir);
    json_t *o;
    if (json_read_file(&o, name, JSON_FILE_MAX_BYTES, NULL) != ST_OK) return HF_FILES;
    bool pairs = json_is_true(json_object_get(o, "rope_interleaved"));
    json_decref(o);
    return pairs ? HF_FILES_PAIRS : HF_FILES;
}

/* list[n]: that of hf_find_weights. Of what is mapped this rank holds nothing. */
static status fill_masters(const param_store *s, const hf_weight *list, int n, hf_order order,
                           err *e) {
    held_array masters = held_masters(s);
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) {
        int k = param_number_in_whole(s, i);
        if (k < n && list[k].v) st = fill_held(&masters, i, &list[k], order, &room, e);
    }
    dev_room_free(&room);
    if (st == ST_OK) param_refresh_work(s);
    return st;
}

static status load(const param_store *s, const char *path, int64_t rows, bool new_head, err *e) {
    st_reader *r;
    TRY(st_open(&r, path, e));
    arena *a = arena_new("weights of files");
    int n = param_count(param_store_whole(s));
    hf_weight *list = ARENA_ARRAY(a, hf_weight, n);
    status st = find_weights(s, r, rows, new_head, list, e);
    if (st == ST_OK && rows) st = add_means(s, list, a, e);
    if (st == ST_OK) st = fill_masters(s, list, n, hf_order_of(path), e);
    arena_free(a);
    st_close(r);
    return st;
}

status hf_load_grown(const param_store *s, const char *path, int64_t rows, err *e) {
    return load(s, path, rows, false, e);
}

status hf_load_body(const param_store *s, const char *path, int64_t rows, err *e) {
    return load(s, path, rows, true, e);
}

status hf_load_weights(const param_store *s, const char *path, err *e) {
    return load(s, path, 0, false, e);
}

/* ---- other files ---- */

const int64_t *hf_file_rows(arena *a, const param *p, hf_order order) {
    if (!held_is_reordered(p, order)) return NULL;
    int64_t n = held_rows(p), *from = ARENA_ARRAY(a, int64_t, (int)n);
    for (int64_t i = 0; i < n; i++) from[param_file_row(p, i)] = i;
    return from;
}

/* By its name, or without the first word of it: adapters of a model without a head lack that. A head also by the name of
 * its module in transformers, which adapters have (peft.h). */
static status find_in_array(const st_reader *r, const char *prefix, const param *p, hf_weight *w,
                            err *e) {
    int64_t elems = param_whole_elems(p);
    char name[512];
    const char *dot = strchr(p->name, '.');
    snprintf(name, sizeof name, "%s%s", prefix, dot ? dot + 1 : p->name);
    *w = (hf_weight){.v = st_find(r, name)};
    snprintf(name, sizeof name, "%slm_head.weight", prefix);
    if (p->part == PART_HEAD && p->rank == 2 && !w->v) w->v = st_find(r, name);
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    if (st_find(r, name) || !w->v) TRY(st_require(r, name, &w->v, e));
    if (w->v->numel == elems) return ST_OK;
    err_set(e, ST_FORMAT, "tensor %s has %ld elements, the model has %ld", name, (long)w->v->numel,
            (long)elems);
    return err_where(e, "%s", w->v->path);
}

status hf_read_array(const held_array *a, const st_reader *r, const char *prefix, hf_order order,
                     err *e) {
    const param_store *whole = param_store_whole(a->store);
    dev_room room = {0};
    status st = ST_OK;
    for (int k = 0, own = 0; k < param_count(whole) && st == ST_OK; k++) {
        hf_weight w;
        bool frozen = param_at(whole, k)->frozen;
        if (!frozen) st = find_in_array(r, prefix, param_at(whole, k), &w, e);
        if (own == param_count(a->store) || param_number_in_whole(a->store, own) != k) continue;
        if (st == ST_OK && !frozen) st = fill_held(a, own, &w, order, &room, e);
        own++;
    }
    dev_room_free(&room);
    return st;
}

/* ---- a folder opened for inference ---- */

static status find_all(hf_model *m, const model_config *mc, err *e) {
    arena *a = arena_new("hf check");
    param_store *s = param_store_new(a, DT_F32);
    model_declare(mc, s);
    m->n = param_count(s);
    m->weights = ARENA_ARRAY(m->a, hf_weight, m->n);
    int64_t vocab = mc->from_vocab < mc->vocab_size ? mc->from_vocab : 0;
    bool new_head = mc->num_labels && mc->num_labels != mc->from_labels;
    status st = find_weights(s, m->file, vocab, new_head, m->weights, e);
    if (st == ST_OK && vocab) st = add_means(s, m->weights, m->a, e);
    arena_free(a);
    return st;
}

/* The lowest address of a tensor in any of the files. */
static const uint8_t *lowest(const st_reader *r) {
    const uint8_t *low = NULL;
    for (int64_t i = 0; i < st_count(r); i++) {
        const uint8_t *at = st_get(r, i)->data;
        if (!low || (uintptr_t)at < (uintptr_t)low) low = at;
    }
    return low;
}

status hf_model_open(hf_model *m, const char *dir, const model_config *mc, err *e) {
    *m = (hf_model){.a = arena_new("hf model"), .order = hf_order_of(dir)};
    TRY(st_open(&m->file, dir, e));
    m->base = lowest(m->file);
    return find_all(m, mc, e);
}

void hf_model_close(hf_model *m) {
    st_close(m->file);
    arena_free(m->a);
    *m = (hf_model){0};
}

/* The rows of a matrix of 8-bit floats. */
static fp8_row *make_rows(arena *a, const hf_weight *w) {
    int64_t rows = w->v->dims[0], cols = w->v->dims[1], shift = FP8_WHOLE;
    const fp8_grid *g = &w->grid;
    int64_t down = (rows + g->rows - 1) / g->rows;
    float *factor = ARENA_ARRAY(a, float, down * g->across);
    fp8_row *list = ARENA_ARRAY(a, fp8_row, rows);
    for (int64_t i = 0; i < down * g->across; i++) factor[i] = fp8_factor(g->scale, g->dt, i);
    if (g->cols < cols)
        for (shift = 0; (int64_t)1 << shift < g->cols;) shift++;
    for (int64_t r = 0; r < rows; r++)
        list[r] = (fp8_row){w->v->data + r * cols, factor + r / g->rows * g->across, shift};
    return list;
}

/* NULL: its factors do not lie as kernels want them. */
static const fp8_row *rows_of(hf_model *m, const st_view *v) {
    hf_weight w = {.v = v};
    err unread;
    if (find_scale(m->file, &w, &unread) != ST_OK || !w.scale) return NULL;
    bool wide = w.grid.cols >= v->dims[1] || w.grid.cols >= (int64_t)1 << FP8_LEAST_SHIFT;
    if (!wide) return NULL;
    if (!m->fp8) m->fp8 = ARENA_ARRAY(m->a, fp8_row *, st_count(m->file));
    fp8_row **rows = &m->fp8[v - st_get(m->file, 0)];
    if (!*rows) *rows = make_rows(m->a, &w);
    return *rows;
}

static bool is_computed_with(const st_view *v) {
    bool known = v->dt == DT_F32 || v->dt == DT_BF16 || v->dt == DT_F16;
    return known && (uintptr_t)v->data % dtype_bytes(v->dt) == 0;
}

/* Files are mapped one by one, so the distance from `base` is one of addresses, not of pointers
 * into the same object. */
bool hf_model_locate(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes) {
    hf_model *m = ctx;
    if (p->rank == 1 || held_is_transposed(p, m->order) || held_is_reordered(p, m->order))
        return false;
    const st_view *v = hf_find_view(m->file, p->name);
    CHECK(v, "tensor %s was checked", p->name);
    if (v->dims[0] != param_whole_rows(p)) return false;
    const fp8_row *rows = m->fp8_stays ? rows_of(m, v) : NULL;
    if (!rows && !is_computed_with(v)) return false;
    const void *at = rows ? (const void *)rows : v->data;
    *stored = rows ? DT_FP8 : v->dt;
    *offset_bytes = (int64_t)((uintptr_t)at - (uintptr_t)m->base);
    return true;
}

status hf_model_load_rest(const hf_model *m, const param_store *s, err *e) {
    int n = param_count(param_store_whole(s));
    CHECK(n >= m->n, "%d parameters, %d were checked", n, m->n);
    status st = fill_masters(s, m->weights, m->n, m->order, e);
    st_release(m->file); /* what was copied is not needed twice */
    return st;
}

/* ---- in 4 bits ---- */

/* Weights that are read at a time. */
enum { QUANT_PIECE = 1 << 18 };

static status quantise_rows(const hf_model *m, const param *p, const hf_weight *w, nf4_matrix *to,
                            float *piece, float *largest, err *e) {
    int64_t most = QUANT_PIECE / p->cols;
    most = most > 0 ? most : 1;
    for (int64_t r = 0; r < p->rows; r += most) {
        int64_t rows = p->rows - r < most ? p->rows - r : most;
        vec_span span = {.n = rows * p->cols, .index = r * p->cols};
        TRY(held_walk(p, &span, m->order, fill_run, &(filling){w, piece, 0}, e));
        if (nf4_put_rows(to, r, rows, piece, largest)) continue;
        err_set(e, ST_FORMAT, "tensor %s has a weight that is no finite number", w->v->name);
        return err_where(e, "%s", w->v->path);
    }
    nf4_finish(to, largest);
    return ST_OK;
}

static status quantise(const hf_model *m, const param_store *s, int i, dev_room *room, err *e) {
    const param *p = param_at(s, i);
    const hf_weight *w = &m->weights[param_number_in_whole(s, i)];
    size_t bytes = (size_t)param_quant_bytes(p);
    size_t piece = (size_t)(p->cols > QUANT_PIECE ? p->cols : QUANT_PIECE);
    size_t blocks = (size_t)(param_elems(p) / NF4_BLOCK);
    float *floats = xmalloc((piece + blocks) * sizeof *floats);
    nf4_matrix *to = dev_borrow(param_device(s), param_quant(s, i), bytes, false, room);
    memset(to, 0, bytes);
    nf4_begin(to, p->rows, p->cols);
    bool as_stored = w->four.bits && !held_is_transposed(p, m->order) &&
                     !held_is_reordered(p, m->order) && bnb_take(&w->four, to);
    status st = as_stored ? ST_OK : quantise_rows(m, p, w, to, floats, floats + piece, e);
    dev_put_back(param_device(s), param_quant(s, i), to, bytes);
    free(floats);
    return st;
}

status hf_model_quantise(const hf_model *m, const param_store *s, err *e) {
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) {
        if (!param_quant(s, i)) continue;
        st = quantise(m, s, i, &room, e);
        st_release(m->file); /* what was read is not needed twice */
    }
    dev_room_free(&room);
    return st;
}

/* ---- files that several ranks write: parameters are walked in the file's order, so what is whole is
 * written from the beginning to the end ---- */

dtype hf_file_dtype(const param *p, dtype dt) {
    bool narrow = dt == DT_F16 || dt == DT_BF16;
    return narrow && p->part == PART_ROUTER_BIAS ? DT_F32 : dt;
}

void hf_shape_taps(const param *p, st_tensor *t) {
    if (!p->taps) return;
    t->rank = 3;
    t->dims[0] /= p->taps, t->dims[1] = 1, t->dims[2] = p->taps;
}

int hf_declared(const param_store *s) {
    const param_store *whole = param_store_whole(s);
    int n = 0;
    for (int i = 0; i < param_count(whole); i++) n += !param_at(whole, i)->frozen;
    return n;
}

st_tensor *hf_declare(arena *a, const param_store *s, const char *prefix, dtype dt,
                      hf_order order) {
    const param_store *whole = param_store_whole(s);
    st_tensor *list = ARENA_ARRAY(a, st_tensor, hf_declared(s)), *t = list;
    for (int i = 0; i < param_count(whole); i++) {
        const param *p = param_at(whole, i);
        if (p->frozen) continue;
        bool flip = held_is_transposed(p, order);
        int64_t rows = param_whole_rows(p), cols = param_whole_cols(p);
        *t++ = (st_tensor){.name = *prefix ? arena_printf(a, "%s%s", prefix, p->name) : p->name,
                           .dt = hf_file_dtype(p, dt),
                           .rank = p->rank,
                           .dims = {p->rank == 1 || flip ? cols : rows, p->rank == 1 ? 0
                                                                        : flip       ? rows
                                                                                     : cols}};
        hf_shape_taps(p, &t[-1]);
    }
    return list;
}

typedef struct writing {
    file_patch *out;
    uint64_t at; /* of the tensor's first byte in the file */
    dtype dt;
    const float *host; /* element `first` of the array, and those that follow */
    int64_t first;
} writing;

static void convert(const writing *w, const float *src, int64_t step, int64_t n, void *dst) {
    if (step == 1) {
        dtype_convert(dst, w->dt, src, DT_F32, n);
        return;
    }
    float line[512];
    for (int64_t done = 0; done < n;) {
        int64_t take = n - done < ARRAY_LEN(line) ? n - done : ARRAY_LEN(line);
        for (int64_t k = 0; k < take; k++) line[k] = src[(done + k) * step];
        dtype_convert((char *)dst + (size_t)done * dtype_bytes(w->dt), w->dt, line, DT_F32, take);
        done += take;
    }
}

static status write_run(void *ctx, const held_run *r, err *e) {
    const writing *w = ctx;
    const float *src = w->host + (r->held - w->first);
    int64_t size = (int64_t)dtype_bytes(w->dt), most = FILE_PATCH_BYTES / size;
    uint64_t at = w->at + (uint64_t)(r->file * size);
    if (w->dt == DT_F32 && r->step == 1)
        return file_patch_write(w->out, at, src, (size_t)(r->n * size), e);
    for (int64_t done = 0; done < r->n;) {
        int64_t take = r->n - done < most ? r->n - done : most;
        void *room;
        TRY(file_patch_room(w->out, at + (uint64_t)(done * size), (size_t)(take * size), &room, e));
        convert(w, src + done * r->step, r->step, take, room);
        done += take;
    }
    return ST_OK;
}

static bool counts_any(const held_piece *h) {
    bool any = false;
    for (int k = 0; k < h->n_spans; k++) any = any || h->span[k].counted;
    return any;
}

static status write_param(file_patch *out, const held_array *a, int i, uint64_t at, dtype dt,
                          hf_order order, dev_room *room, err *e) {
    held_piece h = held_piece_of(a, i);
    if (!counts_any(&h)) return ST_OK;
    writing w = {out, at, dt, NULL, h.first};
    TRY(held_look(a, &h, room, &w.host, e));
    for (int k = 0; k < h.n_spans; k++)
        if (h.span[k].counted)
            TRY(held_walk(param_at(a->store, i), &h.span[k], order, write_run, &w, e));
    return ST_OK;
}

/* k: number in the whole model. */
static bool is_written(const held_array *a, int k) {
    return a->only ? k == a->only - 1 : !param_at(param_store_whole(a->store), k)->frozen;
}

/* `declared` and first_byte are of the array's first tensor. */
static status write_array(file_patch *out, const held_array *a, const st_tensor *declared,
                          const uint64_t *first_byte, hf_order order, err *e) {
    dev_room room = {0};
    status st = ST_OK;
    for (int i = 0, k = 0, t = 0; i < param_count(a->store) && st == ST_OK; i++) {
        for (; k < param_number_in_whole(a->store, i); k++) t += is_written(a, k);
        if (is_written(a, k))
            st = write_param(out, a, i, first_byte[t], declared[t].dt, order, &room, e);
    }
    dev_room_free(&room);
    return st;
}

static int64_t tensors_of(const held_array *a) {
    return a->only ? 1 : hf_declared(a->store);
}

static status write_arrays(file_patch *out, const st_tensor *declared, const uint64_t *first_byte,
                           const held_array *arrays, int n, hf_order order, err *e) {
    int64_t before = 0;
    for (int i = 0; i < n; i++) {
        TRY(write_array(out, &arrays[i], declared + before, first_byte + before, order, e));
        before += tensors_of(&arrays[i]);
    }
    return ST_OK;
}

status hf_write_part(const char *path, const st_tensor *declared, const held_array *arrays, int n,
                     hf_order order, err *e) {
    int64_t tensors = 0;
    for (int i = 0; i < n; i++) tensors += tensors_of(&arrays[i]);
    uint64_t *first_byte = xmalloc(sizeof *first_byte * (size_t)(tensors + 1));
    st_locate(declared, tensors, first_byte);
    file_patch out;
    status st = file_patch_open(&out, path, e);
    if (st == ST_OK) {
        st = write_arrays(&out, declared, first_byte, arrays, n, order, e);
        status closed = file_patch_close(&out, st == ST_OK, e);
        if (st == ST_OK) st = closed;
    }
    free(first_byte);
    return st;
}
