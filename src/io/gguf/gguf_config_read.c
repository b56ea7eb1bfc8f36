/* Metadata to model_config: an object with the options of keys.def, which model_config_read then
 * checks as it does a config.json.
 *
 * Reading order: gguf_config_read at the end, read_sizes, read_attention, read_own, read_tensors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/gguf/gguf_config.h"

typedef struct reading {
    const gguf_facts *f;
    const gguf_arch *arch;
    json_t *o;
    int64_t layers, hidden, heads, head_dim, experts;
    err *e;
} reading;

static const char *full_key(const gguf_arch *arch, const char *key, char out[128]) {
    snprintf(out, 128, "%s.%s", arch->name, key);
    return out;
}

/* ---- numbers ---- */

status gguf_arch_int(const gguf_facts *f, const gguf_arch *arch, const char *key, int64_t *x,
                     err *e) {
    char name[128];
    if (!gguf_meta_find(f->meta, full_key(arch, key, name))) return ST_OK;
    return gguf_meta_int(f->meta, name, x, e);
}

/* Files hold floats; the double meant is the one with the fewest digits that rounds to it. */
static double shortest(double x) {
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        double y = strtod(text, NULL);
        if ((float)y == (float)x) return y;
    }
    return x;
}

status gguf_arch_float(const gguf_facts *f, const gguf_arch *arch, const char *key, double *x,
                       err *e) {
    char name[128];
    if (!gguf_meta_find(f->meta, full_key(arch, key, name))) return ST_OK;
    TRY(gguf_meta_float(f->meta, name, x, e));
    *x = shortest(*x);
    if (isfinite(*x)) return ST_OK;
    return err_at(e, ST_FORMAT, name, "%s: %s is not finite", f->meta->label, name);
}

static status need_int(const reading *r, const char *key, int64_t *x) {
    char name[128];
    return gguf_meta_int(r->f->meta, full_key(r->arch, key, name), x, r->e);
}

static void put_int(const reading *r, const char *option, int64_t x) {
    json_object_set_new(r->o, option, json_integer(x));
}

static void put_num(const reading *r, const char *option, double x) {
    json_object_set_new(r->o, option, json_real(x));
}

/* A whole number, or an array with one for each layer, divided by `parts`. */
static status put_layers(const reading *r, const char *key, const char *option, int64_t parts) {
    char name[128];
    const gguf_value *v = gguf_meta_find(r->f->meta, full_key(r->arch, key, name));
    if (!v) return ST_OK;
    bool list = v->type == GGUF_ARRAY, ok = !list || (int64_t)v->n == r->layers;
    json_t *all = json_array();
    for (uint64_t i = 0; ok && i < v->n; i++) {
        int64_t x = 0;
        ok = v->item != GGUF_STRING && gguf_value_int(v, i, &x) && x % parts == 0;
        json_array_append_new(all, json_integer(x / parts));
    }
    if (ok) json_object_set(r->o, option, list ? all : json_array_get(all, 0));
    json_decref(all);
    if (ok) return ST_OK;
    return err_at(r->e, ST_FORMAT, name, "%s: %s is neither a whole number nor a list of %lld",
                  r->f->meta->label, name, (long long)r->layers);
}

/* ---- options ---- */

static status read_experts(reading *r) {
    int64_t used, width = 0;
    TRY(need_int(r, "expert_used_count", &used));
    TRY(gguf_arch_int(r->f, r->arch, "expert_feed_forward_length", &width, r->e));
    put_int(r, "num_experts", r->experts);
    put_int(r, "num_experts_per_tok", used);
    if (r->arch->experts & GGUF_EXPERTS_OWN_WIDTH) put_int(r, "moe_intermediate_size", width);
    json_object_set_new(r->o, "norm_topk_prob",
                        json_boolean(!(r->arch->experts & GGUF_EXPERTS_NOT_RENORMALISED)));
    return ST_OK;
}

static status read_sizes(reading *r) {
    int64_t context, modules = 0;
    TRY(need_int(r, "block_count", &r->layers));
    if (r->arch->experts & GGUF_LINEAR) TRY(gguf_linear_modules(r->f, r->arch, &modules, r->e));
    r->layers -= modules;
    TRY(need_int(r, "embedding_length", &r->hidden));
    TRY(need_int(r, "context_length", &context));
    if (r->layers < 1 || r->layers > 4096)
        return err_set(r->e, ST_FORMAT, "%s: %lld layers are not possible", r->f->meta->label,
                       (long long)r->layers);
    put_int(r, "num_hidden_layers", r->layers);
    put_int(r, "hidden_size", r->hidden);
    put_int(r, "max_position_embeddings", context);
    double eps = 1e-5;
    const char *key =
        r->arch->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    TRY(gguf_arch_float(r->f, r->arch, key, &eps, r->e));
    put_num(r, "rms_norm_eps", eps);
    TRY(put_layers(r, "feed_forward_length", "intermediate_size", r->arch->ffn_parts));
    return r->experts ? read_experts(r) : ST_OK;
}

/* The share of a head such that its product with the width is `rotary` again. */
static double rotary_share(int64_t rotary, int64_t head_dim) {
    double share = (double)rotary / (double)head_dim;
    return (int64_t)((double)head_dim * share) < rotary ? nextafter(share, 2) : share;
}

static status read_heads(reading *r) {
    TRY(put_layers(r, "attention.head_count", "num_attention_heads", 1));
    TRY(put_layers(r, "attention.head_count_kv", "num_key_value_heads", 1));
    const json_t *heads = json_object_get(r->o, "num_attention_heads");
    if (json_is_array(heads)) heads = json_array_get(heads, 0);
    r->heads = heads ? json_integer_value(heads) : 0;
    int64_t key_length = r->heads > 0 ? r->hidden / r->heads : 0, value_length = key_length;
    TRY(gguf_arch_int(r->f, r->arch, "attention.key_length", &key_length, r->e));
    TRY(gguf_arch_int(r->f, r->arch, "attention.value_length", &value_length, r->e));
    bool latent = r->arch->experts & GGUF_LATENTS;
    if (r->heads < 1 || key_length < 1 || (key_length != value_length && !latent)) {
        err_set(r->e, ST_FORMAT, "%s: %lld heads of %lld columns, values of %lld are not possible",
                r->f->meta->label, (long long)r->heads, (long long)key_length,
                (long long)value_length);
        return err_where(r->e, "%s.attention.head_count", r->arch->name);
    }
    r->head_dim = key_length;
    put_int(r, "head_dim", key_length);
    return ST_OK;
}

static status read_rotary(reading *r) {
    if (strcmp(r->arch->name, "gpt2") == 0 || r->arch->experts & GGUF_ENCODER) return ST_OK;
    int64_t rotary = r->head_dim;
    double theta = 1e4;
    TRY(gguf_arch_int(r->f, r->arch, "rope.dimension_count", &rotary, r->e));
    TRY(gguf_arch_float(r->f, r->arch, "rope.freq_base", &theta, r->e));
    if (rotary < 2 || rotary > r->head_dim || rotary % 2) {
        err_set(r->e, ST_FORMAT, "%s: %lld of the %lld columns of a head cannot be rotated",
                r->f->meta->label, (long long)rotary, (long long)r->head_dim);
        return err_where(r->e, "%s.rope.dimension_count", r->arch->name);
    }
    put_num(r, "partial_rotary_factor", rotary_share(rotary, r->head_dim));
    put_num(r, "rope_theta", theta);
    return gguf_rope_read(r->f, r->arch, r->o, r->e);
}

/* Which layers have the window: a list of flags, or each but every n-th. */
static status window_flag(const reading *r, const gguf_value *v, int64_t every, int64_t l,
                          bool *local) {
    int64_t x = 0;
    *local = every == 0 || (l + 1) % every != 0;
    if (!v || v->type != GGUF_ARRAY) return ST_OK;
    bool ok = (int64_t)v->n == r->layers && v->item != GGUF_STRING &&
              (gguf_value_bool(v, (uint64_t)l, local) || gguf_value_int(v, (uint64_t)l, &x));
    if (ok && v->item != GGUF_BOOL) *local = x != 0;
    if (ok) return ST_OK;
    err_set(r->e, ST_FORMAT, "%s: attention.sliding_window_pattern is no list of %lld flags",
            r->f->meta->label, (long long)r->layers);
    return err_where(r->e, "%s.attention.sliding_window_pattern", r->arch->name);
}

static status read_windows(reading *r) {
    char name[128];
    int64_t width = strcmp(r->arch->name, "gemma2") == 0 ? 4096 : 0, every = r->arch->window_every;
    json_object_set_new(r->o, "sliding_window", json_integer(0));
    if (!every) return ST_OK;
    TRY(gguf_arch_int(r->f, r->arch, "attention.sliding_window", &width, r->e));
    if (width <= 0) return ST_OK;
    const gguf_value *v =
        gguf_meta_find(r->f->meta, full_key(r->arch, "attention.sliding_window_pattern", name));
    if (v && v->type != GGUF_ARRAY) TRY(gguf_meta_int(r->f->meta, name, &every, r->e));
    json_t *list = json_array();
    json_object_set_new(r->o, "sliding_window", list);
    for (int64_t l = 0; l < r->layers; l++) {
        bool local;
        TRY(window_flag(r, v, every < 0 ? 0 : every, l, &local));
        json_array_append_new(list, json_integer(local ? width : 0));
    }
    return ST_OK;
}

/* The base of the layers with a window; they are not scaled. */
static status read_local_base(reading *r) {
    bool gemma2 = strcmp(r->arch->name, "gemma2") == 0;
    double theta = 1e4;
    if (!r->arch->window_every) return ST_OK;
    if (strcmp(r->arch->name, "gemma3") != 0)
        theta = json_real_value(json_object_get(r->o, "rope_theta"));
    TRY(gguf_arch_float(r->f, r->arch, "rope.freq_base_swa", &theta, r->e));
    bool same = theta == json_real_value(json_object_get(r->o, "rope_theta"));
    put_num(r, "rope_local_base_freq",
            same && (gemma2 || !json_object_get(r->o, "rope_parameters")) ? 0.0 : theta);
    return ST_OK;
}

static status read_gemma(reading *r) {
    bool second = strcmp(r->arch->name, "gemma2") == 0;
    double attn = second ? 50 : 0, final = second ? 30 : 0;
    if (second) TRY(gguf_arch_float(r->f, r->arch, "attn_logit_softcapping", &attn, r->e));
    TRY(gguf_arch_float(r->f, r->arch, "final_logit_softcapping", &final, r->e));
    put_num(r, "attn_logit_softcapping", attn);
    put_num(r, "final_logit_softcapping", final);
    /* the largest of each divides by the width of the stream over the heads; a file does not say */
    bool largest = r->layers == (second ? 46 : 62);
    put_int(r, "query_pre_attn_scalar", largest ? r->hidden / r->heads : r->head_dim);
    return ST_OK;
}

static status read_minicpm(reading *r) {
    double embedding = 12, depth = 1.4 / sqrt((double)r->layers), head = (double)r->hidden / 256;
    TRY(gguf_arch_float(r->f, r->arch, "embedding_scale", &embedding, r->e));
    TRY(gguf_arch_float(r->f, r->arch, "residual_scale", &depth, r->e));
    TRY(gguf_arch_float(r->f, r->arch, "logit_scale", &head, r->e));
    if (!(head > 0)) {
        return err_at(r->e, ST_FORMAT, "minicpm.logit_scale",
                      "%s: minicpm.logit_scale must be positive", r->f->meta->label);
    }
    put_num(r, "scale_emb", embedding);
    put_num(r, "scale_depth", shortest(depth * sqrt((double)r->layers)));
    put_int(r, "dim_model_base", llround((double)r->hidden / head));
    return ST_OK;
}

/* llama.cpp has these numbers in its program. */
static void read_minicpm3(reading *r) {
    put_num(r, "scale_emb", 12);
    put_num(r, "scale_depth", 1.4);
    put_int(r, "dim_model_base", 256);
}

static void read_smollm3(reading *r) {
    json_t *list = json_array();
    for (int64_t l = 0; l < r->layers; l++)
        json_array_append_new(list, json_integer((l + 1) % 4 != 0));
    json_object_set_new(r->o, "no_rope_layers", list);
}

/* What one architecture has alone. */
static status read_own(reading *r) {
    const char *name = r->arch->name;
    if (r->arch->experts & GGUF_LATENTS) TRY(gguf_latents_read(r->f, r->arch, r->o, r->e));
    if (r->arch->experts & GGUF_ENCODER)
        return gguf_encoder_read(r->f, r->arch, r->layers, r->o, r->e);
    if (r->arch->experts & GGUF_EXPERTS_DEEPSEEK)
        return gguf_deepseek_read(r->f, r->arch, r->layers, r->o, r->e);
    if (r->arch->experts & GGUF_LINEAR)
        return gguf_linear_read(r->f, r->arch, r->layers, r->o, r->e);
    if (strncmp(name, "gemma", 5) == 0) return read_gemma(r);
    if (strcmp(name, "minicpm") == 0) return read_minicpm(r);
    if (strcmp(name, "minicpm3") == 0) read_minicpm3(r);
    if (strcmp(name, "smollm3") == 0) read_smollm3(r);
    if (strcmp(name, "olmo") == 0) {
        double clip = 0;
        TRY(gguf_arch_float(r->f, r->arch, "attention.clamp_kqv", &clip, r->e));
        put_num(r, "clip_qkv", clip);
    }
    if (strcmp(name, "gptneox") == 0) {
        bool parallel = true;
        TRY(gguf_meta_bool(r->f->meta, "gptneox.use_parallel_residual", &parallel, r->e));
        json_object_set_new(r->o, "residual_type",
                            json_string(parallel ? "parallel" : "sequential"));
    }
    return ST_OK;
}

static bool has(const reading *r, const char *name) {
    return r->f->find(r->f->ctx, name) != NULL;
}

/* Options that the tensors say. What they leave out, or have beyond these, is found when each is
 * looked up. */
static status read_tensors(reading *r, model_config *mc) {
    const gguf_view *table = r->f->find(r->f->ctx, "token_embd.weight");
    if (!table) {
        return err_at(r->e, ST_FORMAT, "token_embd.weight", "%s has no tensor 'token_embd.weight'",
                      r->f->meta->label);
    }
    put_int(r, "vocab_size", table->rows);
    bool linear = r->arch->experts & GGUF_LINEAR; /* whose layers have a tensor of that name */
    bool fused = !linear && has(r, "blk.0.attn_qkv.weight");
    const struct {
        const char *option;
        bool on;
    } flags[] = {{"tie_word_embeddings", !has(r, "output.weight")},
                 {"qkv_bias", has(r, fused ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias")},
                 {"attention_bias", has(r, "blk.0.attn_output.bias")},
                 {"mlp_bias", has(r, "blk.0.ffn_down.bias")},
                 {"head_bias", has(r, "output.bias")}};
    for (int i = 0; i < ARRAY_LEN(flags); i++)
        json_object_set_new(r->o, flags[i].option, json_boolean(flags[i].on));
    gguf_name_parts(r->arch, fused, mc);
    return ST_OK;
}

static status find_arch(reading *r, const model_family **family) {
    gguf_text t;
    char name[64];
    TRY(gguf_meta_text(r->f->meta, "general.architecture", &t, r->e));
    snprintf(name, sizeof name, "%.*s", (int)(t.len < 63 ? t.len : 63), t.text);
    r->arch = gguf_arch_find(name);
    if (r->arch && r->arch->experts)
        TRY(gguf_arch_int(r->f, r->arch, "expert_count", &r->experts, r->e));
    *family = r->arch ? gguf_arch_family(r->arch, r->experts > 0) : NULL;
    if (*family && r->arch->experts & GGUF_EXPERTS_DEEPSEEK)
        return gguf_deepseek_family(r->f, r->arch, family, r->e);
    if (*family) return ST_OK;
    err_set(r->e, ST_USAGE, "%s: the architecture '%s' is not available in this version",
            r->f->meta->label, name);
    strbuf list = {0};
    for (int i = 0; gguf_arch_at(i); i++)
        strbuf_printf(&list, "%s%s", i ? ", " : "", gguf_arch_at(i)->name);
    err_hint(r->e, "available are %s", strbuf_cstr(&list));
    strbuf_free(&list);
    return err_where(r->e, "general.architecture");
}

static status read_act(reading *r) {
    gguf_text t;
    if (!gguf_meta_find(r->f->meta, GGUF_KEY_ACT)) return ST_OK;
    TRY(gguf_meta_text(r->f->meta, GGUF_KEY_ACT, &t, r->e));
    json_object_set_new(r->o, "hidden_act", json_stringn_nocheck(t.text, t.len));
    return ST_OK;
}

static status read_all(reading *r, model_config *mc) {
    TRY(read_sizes(r));
    TRY(read_heads(r));
    TRY(read_rotary(r));
    TRY(read_windows(r));
    TRY(read_local_base(r));
    TRY(read_own(r));
    TRY(read_act(r));
    return read_tensors(r, mc);
}

status gguf_config_modules(const gguf_facts *f, int64_t *n, err *e) {
    reading r = {.f = f, .e = e};
    const model_family *family;
    *n = 0;
    TRY(find_arch(&r, &family));
    return r.arch->experts & GGUF_LINEAR ? gguf_linear_modules(f, r.arch, n, e) : ST_OK;
}

status gguf_config_read(arena *a, const gguf_facts *f, model_config *out, err *e) {
    reading r = {.f = f, .e = e, .o = json_object()};
    const model_family *family;
    model_config own = {0};
    status st = find_arch(&r, &family);
    if (st == ST_OK) {
        json_object_set_new(r.o, "model_type", json_string(family->model_type));
        st = read_all(&r, &own);
    }
    if (st == ST_OK && (st = model_config_read(a, r.o, 0, out, e)) != ST_OK) {
        st = ST_FORMAT; /* a file's value, not the user's */
        if (e) e->code = st;
        err_context(e, "reading %s", f->meta->label);
    }
    json_decref(r.o);
    if (st != ST_OK) return st;
    out->names = own.names;
    out->encoder_names = own.encoder_names;
    out->gguf_order = true;
    out->rope_interleaved = r.arch->pairs;
    return ST_OK;
}
