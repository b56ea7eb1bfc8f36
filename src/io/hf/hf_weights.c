#include "io/hf/hf_weights.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
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
    for (int i = 0; i < ARRAY_LEN(ends); i++)
        if (text_ends_with(name, ends[i])) return true;
    return false;
}

/* Under the name that transformers 5 has for it, where the files that it makes have another: Mixtral's experts and routers, the
 * head of GPT-NeoX. */
static const st_view *find_renamed(const st_reader *r, const char *name) {
    static const struct {
        const char *ours, *theirs;
    } parts[] = {{"block_sparse_moe.", "mlp."}, {"embed_out.", "lm_head."}};
    for (int i = 0; i < ARRAY_LEN(parts); i++) {
        const char *at = strstr(name, parts[i].ours);
        char other[512];
        if (!at) continue;
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name, parts[i].theirs,
                 at + strlen(parts[i].ours));
        return hf_find_view(r, other);
    }
    return NULL;
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
    const st_view *v = find_renamed(r, name);
    char of_one[64];
    if (strcmp(name, "shared.weight") == 0)
        for (const char *s = of_stacks; !v && key_next_word(&s, of_one);) v = st_find(r, of_one);
    return v;
}

bool hf_is_of_tokens(const param *p) {
    return p->part == PART_EMBED || p->part == PART_HEAD;
}

/* vocab: tokens that the files have; 0: those of the store. */
static status check_shape(const param *p, const hf_weight *w, int64_t vocab, err *e) {
    st_view as_read = *w->v;
    const st_view *v = &as_read;
    if (w->four.bits)
        as_read.rank = 2, as_read.dims[0] = w->four.rows, as_read.dims[1] = w->four.cols;
    int64_t rows = param_whole_rows(p), cols = param_whole_cols(p);
    if (vocab && hf_is_of_tokens(p)) *(p->rank == 1 ? &cols : &rows) = vocab;
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

/* ---- finding ---- */

/* With whatever prefix. */
static bool is_head(const char *name) {
    static const char *const heads[] = {"lm_head.weight", "embed_out.weight"};
    size_t n = strlen(name);
    for (int i = 0; i < ARRAY_LEN(heads); i++) {
        size_t m = strlen(heads[i]);
        if (text_ends_with(name, heads[i]) && (n == m || name[n - m - 1] == '.')) return true;
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
    return hf_find_scale(r, w, e);
}

status hf_head_differs(const st_reader *r, const st_view *head, const st_view *table, bool *differs,
                       err *e) {
    enum { PIECE = 1024 };
    float a[PIECE], b[PIECE];
    hf_weight x = {.v = head}, y = {.v = table};
    TRY(hf_find_scale(r, &x, e));
    TRY(hf_find_scale(r, &y, e));
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

hf_order hf_order_of(const char *dir) {
    char name[4096];
    snprintf(name, sizeof name, "%s/config.json", dir);
    json_t *o;
    if (json_read_file(&o, name, JSON_FILE_MAX_BYTES, NULL) != ST_OK) return HF_FILES;
    bool pairs = json_is_true(json_object_get(o, "rope_interleaved"));
    json_decref(o);
    return pairs ? HF_FILES_PAIRS : HF_FILES;
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

status hf_find_weights(const param_store *s, st_reader *r, hf_differs how, hf_weight *list,
                       err *e) {
    const param_store *whole = param_store_whole(s);
    TRY(hf_part_experts(r, whole, e));
    bool *wanted = xcalloc((size_t)st_count(r) + 1, sizeof *wanted);
    const st_view *first = st_count(r) ? st_get(r, 0) : NULL;
    status st = ST_OK;
    for (int i = 0; i < param_count(whole) && st == ST_OK; i++) {
        if (how.new_head && param_at(whole, i)->part == PART_SCORE) continue;
        st = find_weight(r, param_at(whole, i), how.vocab, &list[i], e);
        if (st != ST_OK) break;
        wanted[list[i].v - first] = true;
        if (list[i].scale) wanted[list[i].scale - first] = true;
    }
    for (int64_t i = 0; i < st_count(r) && st == ST_OK; i++) {
        const st_view *v = st_get(r, i);
        bool head = how.new_head && (is_head(v->name) || text_ends_with(v->name, "score.weight") ||
                                     text_ends_with(v->name, "lm_head.bias"));
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
