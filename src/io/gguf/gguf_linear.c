/* Files of llama.cpp's architecture qwen3next: linear layers between those of attention, and in every layer experts with a part
 * beside them.
 *
 *   ssm.conv_kernel                      taps of the convolution
 *   ssm.state_size                       width of a head, of keys as of values
 *   ssm.group_count, time_step_rank      heads of keys, of values
 *   ssm.inner_size                       width of all heads of values
 *   attention.recurrent_layers           which layers are linear. Absent, all but every n-th are:
 *   full_attention_interval              n; 4 if that is absent, too
 *   expert_shared_feed_forward_length    width of the part beside experts
 *   nextn_predict_layers                 the last so many of block_count are modules that predict further tokens
 *
 * blk.N.ssm_a holds -exp(A_log). */
#include <math.h>
#include <stdio.h>

#include "io/gguf/gguf_config.h"

/* Lengths of queries and keys have this epsilon (model/linear_attention.c), and llama.cpp has one for all norms. */
static const double LENGTH_EPS = 1e-6;

enum { USUAL_INTERVAL = 4 };

static const linear_layer *first_linear(const model_config *mc, layer_spec *k) {
    for (int l = 0; l < model_layers(mc); l++)
        if ((*k = model_layer(mc, l)).linear.Hv) return &k->linear;
    return NULL;
}

static int linear_layers(const model_config *mc) {
    int n = 0;
    for (int l = 0; l < model_layers(mc); l++) n += model_layer(mc, l).linear.Hv > 0;
    return n;
}

const char *gguf_linear_lacks(const model_config *mc) {
    layer_spec k;
    const linear_layer *a = first_linear(mc, &k);
    /* llama.cpp asks for widths of linear layers, and ends where no layer has keys */
    if (!a || linear_layers(mc) == model_layers(mc)) return "linear_layers";
    if (a->Dk != a->Dv) return "linear_value_head_dim";
    if (fabs(mc->norm_eps / LENGTH_EPS - 1) > 1e-9) return "rms_norm_eps";
    if (mc->rope_interleaved) return "rope_interleaved";
    if (!k.norm_in || k.norm_out) return "norm_placement";
    if (k.mlp.E && !k.mlp.shared) return "shared_expert_intermediate_size";
    return NULL;
}

/* ---- writing ---- */

static const char *key_of(const gguf_arch *arch, const char *key, char out[128]) {
    snprintf(out, 128, "%s.%s", arch->name, key);
    return out;
}

/* Programs that do not know the list go by the interval. */
static void write_places(const model_config *mc, const gguf_arch *arch, gguf_pairs *p) {
    bool linear[4096];
    int64_t n = mc->num_hidden_layers, first = n;
    char key[128];
    for (int64_t l = n - 1; l >= 0; l--) {
        linear[l] = model_layer(mc, (int)l).linear.Hv > 0;
        if (!linear[l]) first = l;
    }
    gguf_put_u32(p, key_of(arch, "full_attention_interval", key), (uint32_t)first + 1);
    gguf_put_array(p, key_of(arch, "attention.recurrent_layers", key), GGUF_BOOL, linear,
                   (uint64_t)n);
}

void gguf_linear_write(const model_config *mc, const gguf_arch *arch, gguf_pairs *p) {
    layer_spec k;
    const linear_layer *a = first_linear(mc, &k);
    const struct {
        const char *key;
        int64_t x;
    } ints[] = {
        {"ssm.conv_kernel", a->taps},      {"ssm.state_size", a->Dk},
        {"ssm.group_count", a->Hk},        {"ssm.time_step_rank", a->Hv},
        {"ssm.inner_size", a->Hv * a->Dv}, {"expert_shared_feed_forward_length", k.mlp.shared},
    };
    char key[128];
    for (int i = 0; i < ARRAY_LEN(ints); i++)
        gguf_put_u32(p, key_of(arch, ints[i].key, key), (uint32_t)ints[i].x);
    write_places(mc, arch, p);
}

/* ---- reading ---- */

static status wrong(const gguf_facts *f, const gguf_arch *arch, const char *key, const char *wanted,
                    err *e) {
    err_set(e, ST_FORMAT, "%s: %s.%s is not %s", f->meta->label, arch->name, key, wanted);
    return err_where(e, "%s.%s", arch->name, key);
}

status gguf_linear_modules(const gguf_facts *f, const gguf_arch *arch, int64_t *n, err *e) {
    *n = 0;
    TRY(gguf_arch_int(f, arch, "nextn_predict_layers", n, e));
    return *n >= 0 ? ST_OK : wrong(f, arch, "nextn_predict_layers", "a number of layers", e);
}

static status read_places(const gguf_facts *f, const gguf_arch *arch, int64_t layers, json_t *o,
                          err *e) {
    static const char where[] = "attention.recurrent_layers";
    int64_t every = USUAL_INTERVAL, modules;
    char key[128];
    TRY(gguf_linear_modules(f, arch, &modules, e));
    TRY(gguf_arch_int(f, arch, "full_attention_interval", &every, e));
    if (every < 1) return wrong(f, arch, "full_attention_interval", "above 0", e);
    const gguf_value *v = gguf_meta_find(f->meta, key_of(arch, where, key));
    bool ok = !v || (v->type == GGUF_ARRAY && (int64_t)v->n == layers + modules);
    json_t *list = json_array();
    json_object_set_new(o, "linear_layers", list);
    for (int64_t l = 0; l < layers && ok; l++) {
        bool linear = (l + 1) % every != 0;
        ok = !v || gguf_value_bool(v, (uint64_t)l, &linear);
        json_array_append_new(list, json_integer(linear));
    }
    return ok ? ST_OK : wrong(f, arch, where, "a list with a flag for each layer", e);
}

status gguf_linear_read(const gguf_facts *f, const gguf_arch *arch, int64_t layers, json_t *o,
                        err *e) {
    int64_t taps = 0, width = 0, keys = 0, values = 0, inner = 0, shared = 0;
    const struct {
        const char *key;
        int64_t *x;
        const char *option;
    } ints[] = {
        {"ssm.conv_kernel", &taps, "linear_conv_kernel_dim"},
        {"ssm.state_size", &width, "linear_key_head_dim"},
        {"ssm.group_count", &keys, "linear_num_key_heads"},
        {"ssm.time_step_rank", &values, "linear_num_value_heads"},
        {"ssm.inner_size", &inner, NULL},
        {"expert_shared_feed_forward_length", &shared, "shared_expert_intermediate_size"},
    };
    for (int i = 0; i < ARRAY_LEN(ints); i++) {
        TRY(gguf_arch_int(f, arch, ints[i].key, ints[i].x, e));
        if (*ints[i].x < 1 || *ints[i].x > INT32_MAX)
            return wrong(f, arch, ints[i].key, "a possible width or number", e);
        if (ints[i].option) json_object_set_new(o, ints[i].option, json_integer(*ints[i].x));
    }
    if (inner != width * values)
        return wrong(f, arch, "ssm.inner_size", "ssm.state_size times ssm.time_step_rank", e);
    json_object_set_new(o, "linear_value_head_dim", json_integer(width));
    return read_places(f, arch, layers, o, e);
}

/* ---- decays ---- */

float gguf_linear_decay(float a_log) {
    return (float)-exp((double)a_log);
}

float gguf_linear_a_log(float decay) {
    return (float)log(-(double)decay);
}
