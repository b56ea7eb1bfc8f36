/* Rotary scaling in GGUF files. Keys say linear, yarn and longrope; the factors of llama3 stand in
 * a tensor (rope_freqs.weight), one divisor for each frequency, from which its parameters are found
 * again where they are the published ones. */
#include <math.h>
#include <string.h>

#include "io/gguf/gguf_config.h"

/* ---- reading ---- */

/* The numbers of a one-dimensional tensor as a list; NULL: absent. */
static status read_factors(const gguf_facts *f, const char *name, json_t **out, err *e) {
    const gguf_view *v = f->find(f->ctx, name);
    *out = NULL;
    if (!v) return ST_OK;
    float factor[512];
    if (v->rows != 1 || v->cols < 1 || v->cols > 512) {
        return err_at(e, ST_FORMAT, name,
                      "tensor '%s' has %lld x %lld numbers, not one for each pair", name,
                      (long long)v->rows, (long long)v->cols);
    }
    TRY(gguf_read_f32(v, 0, 1, factor, e));
    json_t *list = json_array();
    for (int64_t i = 0; i < v->cols; i++) {
        if (!(factor[i] > 0 && isfinite(factor[i]))) {
            json_decref(list);
            return err_at(e, ST_FORMAT, name, "tensor '%s' divides a frequency by %g", name,
                          factor[i]);
        }
        json_array_append_new(list, json_real(factor[i]));
    }
    *out = list;
    return ST_OK;
}

/* Whether llama3 scaling with these parameters gives the divisors. */
static bool is_llama3(const json_t *list, double theta, double factor, double original) {
    rope_spec plain = {.theta = theta, .rotary_dim = 2 * (int)json_array_size(list)};
    rope_spec scaled = plain;
    double a[512], b[512];
    scaled.scaling = (rope_scaling){.kind = ROPE_LLAMA3,
                                    .factor = factor,
                                    .low_freq_factor = 1,
                                    .high_freq_factor = 4,
                                    .original_max_position_embeddings = (int64_t)original};
    rope_frequencies(&plain, 1, a);
    rope_frequencies(&scaled, 1, b);
    for (size_t i = 0; i < json_array_size(list); i++) {
        double want = json_real_value(json_array_get(list, i));
        if (fabs(a[i] / b[i] / want - 1) > 2e-5) return false;
    }
    return true;
}

/* The scaling that divides each frequency by its factor. */
static json_t *divided(json_t *list, double theta) {
    static const double originals[] = {8192, 4096, 2048, 16384, 32768};
    double most = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        most = fmax(most, json_real_value(json_array_get(list, i)));
    for (int i = 0; i < ARRAY_LEN(originals) && most > 1; i++)
        if (is_llama3(list, theta, most, originals[i]))
            return json_pack("{s:s,s:f,s:f,s:f,s:f}", "rope_type", "llama3", "factor", most,
                             "low_freq_factor", 1.0, "high_freq_factor", 4.0,
                             "original_max_position_embeddings", originals[i]);
    return json_pack("{s:s,s:f,s:O,s:O}", "rope_type", "longrope", "attention_factor", 1.0,
                     "short_factor", list, "long_factor", list);
}

static status read_yarn(const gguf_facts *f, const gguf_arch *arch, double factor, json_t *rope,
                        err *e) {
    double attn = 1, more = 1, fast = 32, slow = 1;
    TRY(gguf_arch_float(f, arch, "rope.scaling.attn_factor", &attn, e));
    TRY(gguf_arch_float(f, arch, "rope.scaling.yarn_attn_factor", &more, e));
    TRY(gguf_arch_float(f, arch, "rope.scaling.yarn_beta_fast", &fast, e));
    TRY(gguf_arch_float(f, arch, "rope.scaling.yarn_beta_slow", &slow, e));
    json_object_set_new(rope, "factor", json_real(factor));
    json_object_set_new(rope, "beta_fast", json_real(fast));
    json_object_set_new(rope, "beta_slow", json_real(slow));
    if (arch->experts & GGUF_EXPERTS_DEEPSEEK) return gguf_deepseek_yarn(f, arch, rope, e);
    if (attn * more != 1)
        json_object_set_new(rope, "attention_factor",
                            json_real(attn * more * (0.1 * log(fmax(factor, 1)) + 1)));
    return ST_OK;
}

static status read_longrope(const gguf_facts *f, const gguf_arch *arch, json_t *rope, err *e) {
    static const char *const names[][2] = {{"rope_factors_short.weight", "short_factor"},
                                           {"rope_factors_long.weight", "long_factor"}};
    double attn = 1;
    TRY(gguf_arch_float(f, arch, "rope.scaling.attn_factor", &attn, e));
    json_object_set_new(rope, "attention_factor", json_real(attn));
    for (int i = 0; i < 2; i++) {
        json_t *list;
        TRY(read_factors(f, names[i][0], &list, e));
        if (list) json_object_set_new(rope, names[i][1], list);
    }
    return ST_OK;
}

static status read_kind(const gguf_facts *f, const gguf_arch *arch, const char *kind, json_t *rope,
                        err *e) {
    double factor = 0;
    int64_t original = 0;
    TRY(gguf_arch_float(f, arch, "rope.scale_linear", &factor, e));
    TRY(gguf_arch_float(f, arch, "rope.scaling.factor", &factor, e));
    TRY(gguf_arch_int(f, arch, "rope.scaling.original_context_length", &original, e));
    bool scaled = factor > 0 && factor != 1;
    /* llama.cpp looks at these lists whatever the file says of scaling; MiniCPM 3's converter says nothing */
    bool lists = arch->has_rope_factors && f->find(f->ctx, "rope_factors_long.weight");
    if (strcmp(kind, "linear") == 0 && !scaled && lists) kind = "longrope";
    if (strcmp(kind, "linear") == 0 && !scaled) return ST_OK;
    json_object_set_new(rope, "rope_type", json_string(kind));
    if (original > 0)
        json_object_set_new(rope, "original_max_position_embeddings", json_integer(original));
    if (strcmp(kind, "yarn") == 0) return read_yarn(f, arch, scaled ? factor : 1, rope, e);
    if (strcmp(kind, "longrope") == 0) return read_longrope(f, arch, rope, e);
    json_object_set_new(rope, "factor", json_real(factor));
    return ST_OK;
}

static status read_type(const gguf_facts *f, const gguf_arch *arch, char out[16], err *e) {
    char name[128];
    static const char *const known[] = {"none", "linear", "yarn", "longrope"};
    snprintf(name, sizeof name, "%s.rope.scaling.type", arch->name);
    strcpy(out, "linear");
    if (!gguf_meta_find(f->meta, name)) return ST_OK;
    gguf_text t;
    TRY(gguf_meta_text(f->meta, name, &t, e));
    for (int i = 0; i < ARRAY_LEN(known); i++) {
        if (strlen(known[i]) != t.len || memcmp(known[i], t.text, t.len) != 0) continue;
        strcpy(out, known[i]);
        return ST_OK;
    }
    err_at(e, ST_FORMAT, name, "%s: there is no rotary scaling '%.*s'", f->meta->label,
           (int)(t.len < 40 ? t.len : 40), t.text);
    return err_hint(e, "known are none, linear, yarn and longrope");
}

status gguf_rope_read(const gguf_facts *f, const gguf_arch *arch, json_t *o, err *e) {
    char kind[16];
    TRY(read_type(f, arch, kind, e));
    json_t *list = NULL, *rope = json_object();
    status st = strcmp(kind, "none") == 0 ? ST_OK : read_kind(f, arch, kind, rope, e);
    if (st == ST_OK && arch->has_rope_factors && strcmp(kind, "longrope") != 0)
        st = read_factors(f, "rope_freqs.weight", &list, e);
    if (st == ST_OK && list && json_object_size(rope) > 0) {
        st = err_set(e, ST_FORMAT,
                     "%s scales rotary positions twice: by rope.scaling.%s and by "
                     "rope_freqs.weight",
                     f->meta->label, kind);
    } else if (st == ST_OK && list) {
        json_decref(rope);
        rope = divided(list, json_real_value(json_object_get(o, "rope_theta")));
    }
    if (st == ST_OK && json_object_size(rope) > 0) json_object_set(o, "rope_parameters", rope);
    json_decref(list);
    json_decref(rope);
    return st;
}

/* ---- writing ---- */

static float *floats(arena *a, const double *list, int n) {
    float *out = ARENA_ARRAY(a, float, n);
    for (int i = 0; i < n; i++) out[i] = (float)list[i];
    return out;
}

int gguf_rope_factors(arena *a, const model_config *mc, gguf_factors out[2]) {
    rope_spec s = model_rope(mc, false), plain = s;
    int n = s.rotary_dim / 2;
    if (mc->positions != POSITIONS_ROTARY) return 0;
    if (mc->rope.kind == ROPE_LONGROPE) {
        out[0] = (gguf_factors){"rope_factors_long.weight", floats(a, mc->rope.long_factor, n), n};
        out[1] =
            (gguf_factors){"rope_factors_short.weight", floats(a, mc->rope.short_factor, n), n};
        return 2;
    }
    if (mc->rope.kind != ROPE_LLAMA3) return 0;
    double from[512], to[512];
    plain.scaling = (rope_scaling){0};
    rope_frequencies(&plain, 1, from);
    rope_frequencies(&s, 1, to);
    for (int i = 0; i < n; i++) from[i] /= to[i];
    out[0] = (gguf_factors){"rope_freqs.weight", floats(a, from, n), n};
    return 1;
}
