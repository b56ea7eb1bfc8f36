/* See upcycle.h. Reading order: make_config, upcycle_source, then what tensors are filled with. */
#include "interchange/upcycle.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

/* Elements that are read at a time. */
enum { PIECE = 4096 };

/* ---- what tensors are filled with ---- */

/* A copy with noise, or with no tensor behind it noise alone. In fp32. */
typedef struct drawn {
    const st_tensor *in;
    rng_key key;
    double deviation;
} drawn;

static double normal(const drawn *d, int64_t i) {
    return d->deviation * ldexp((double)rng_normal_q24(d->key, (uint64_t)i), -24);
}

/* Of a tensor of the dense model, as fp32. */
static status read_f32(const st_tensor *t, int64_t first, int64_t n, float *dst, err *e) {
    double stored[PIECE]; /* room for any format */
    TRY(t->fill(t->ctx, first, n, stored, e));
    dtype_convert(dst, DT_F32, stored, t->dt, n);
    return ST_OK;
}

static status fill_drawn(void *ctx, int64_t first, int64_t n, void *dst, err *e) {
    const drawn *d = ctx;
    float *x = dst;
    for (int64_t done = 0, take; done < n; done += take) {
        take = n - done < PIECE ? n - done : PIECE;
        if (d->in) TRY(read_f32(d->in, first + done, take, x + done, e));
        for (int64_t i = done; i < done + take; i++)
            x[i] = (float)((d->in ? (double)x[i] : 0) + normal(d, first + i));
    }
    return ST_OK;
}

/* The root of the mean square of a matrix. */
static status measure(const st_tensor *t, double *out, err *e) {
    float x[PIECE];
    double sum = 0;
    int64_t n = t->dims[0] * t->dims[1];
    for (int64_t done = 0, take; done < n; done += take) {
        take = n - done < PIECE ? n - done : PIECE;
        TRY(read_f32(t, done, take, x, e));
        for (int64_t i = 0; i < take; i++) sum += (double)x[i] * (double)x[i];
    }
    *out = sqrt(sum / (double)n);
    return ST_OK;
}

/* ---- the config ---- */

static status not_upcycled(const model_config *mc, const char *why, err *e) {
    err_set(e, ST_USAGE, "a %s model with %s is not made one of experts", mc->family->model_type,
            why);
    return err_hint(e, "experts are copies of a feed-forward part of products without biases, "
                       "alike in all layers");
}

/* The family whose config.json says the same model with experts. */
static const model_family *family_with_experts(const model_config *mc) {
    static const char *const pairs[][2] = {
        {"llama", "mixtral"}, {"mistral", "mixtral"}, {"qwen3", "qwen3_moe"}};
    bool plain =
        strcmp(mc->family->model_type, "qwen3") == 0 || !(mc->attention_bias || mc->qkv_bias);
    for (int i = 0; plain && i < ARRAY_LEN(pairs); i++)
        if (strcmp(pairs[i][0], mc->family->model_type) == 0) return model_family_find(pairs[i][1]);
    return mc->family;
}

/* What a reader of the result's config.json understands, so that it says all. */
static status make_config(const model_source *dense, const upcycle_options *opt, model_config *out,
                          err *e) {
    model_config mc = model_source_folder_config(dense);
    if (mc.num_experts) return not_upcycled(&mc, "experts", e);
    if (mc.mlp_bias) return not_upcycled(&mc, "biases in its feed-forward parts", e);
    if (mc.intermediate_size_of) return not_upcycled(&mc, "another width in each layer", e);
    if (mc.family->names[PART_GATE_UP]) return not_upcycled(&mc, "fused products", e);
    mc.family = family_with_experts(&mc);
    mc.num_experts = opt->experts;
    mc.num_experts_per_tok = opt->per_token;
    mc.norm_topk_prob = true;
    mc.expert_layers = 1;
    mc.router_aux_loss_coef =
        mc.num_encoder_layers ? 0 : 0.001; /* which does not go with an encoder */
    mc.num_shared_experts = mc.shared_expert_intermediate_size = 0;
    mc.shared_expert_gate = false;
    if (strcmp(mc.family->model_type, "qwen3_moe") == 0 || mc.moe_intermediate_size > 0)
        mc.moe_intermediate_size = mc.intermediate_size;
    json_t *o = model_config_json(&mc, -1, -1, DT_F32);
    status st = model_config_read_file(dense->a, o, out, e);
    json_decref(o);
    return st;
}

/* ---- the tensors ---- */

static model_part dense_part(int part) {
    return part == PART_EXPERT_GATE   ? PART_GATE
           : part == PART_EXPERT_UP   ? PART_UP
           : part == PART_EXPERT_DOWN ? PART_DOWN
                                      : (model_part)part;
}

/* The number of the dense tensor that p is a copy of; -1: there is none. */
static int find_dense(const param_store *dense, const param *p) {
    for (int i = 0; i < param_count(dense); i++) {
        const param *q = param_at(dense, i);
        if (q->part == (int)dense_part(p->part) && q->layer == p->layer &&
            param_is_bias(q) == param_is_bias(p))
            return i;
    }
    return -1;
}

static st_tensor drawn_tensor(arena *a, const param *p, const drawn *d) {
    return (st_tensor){
        .name = p->name,
        .dt = DT_F32,
        .rank = p->rank,
        .dims = {p->transposed ? p->cols : p->rows, p->transposed ? p->rows : p->cols},
        .fill = fill_drawn,
        .ctx = arena_memdup(a, d, sizeof *d)};
}

/* first: it is the copy of the first expert, which stays as it is. */
static status copy_tensor(model_source *out, const param *p, const st_tensor *in, bool first,
                          const upcycle_options *opt, st_tensor *t, err *e) {
    *t = *in;
    t->name = p->name;
    if (!model_part_of_expert(p->part) || first || opt->noise <= 0) return ST_OK;
    drawn d = {.in = in, .key = rng_key_named(opt->seed, p->name)};
    TRY(measure(in, &d.deviation, e));
    d.deviation *= opt->noise;
    *t = drawn_tensor(out->a, p, &d);
    return ST_OK;
}

status upcycle_source(model_source *dense, const upcycle_options *opt, model_source *out, err *e) {
    *out = *dense;
    TRY(make_config(dense, opt, &out->config, e));
    arena *a = out->a;
    const st_tensor *list = model_source_folder_tensors(dense, a, DT_COUNT);
    out->order = HF_FILES;
    out->params = param_store_new(a, DT_F32);
    model_declare(&out->config, out->params);
    int n = param_count(out->params),
        seen[3] = {-1, -1, -1}; /* layer of the first expert of each part */
    out->tensors = ARENA_ARRAY(a, st_tensor, n);
    out->formats = ARENA_ARRAY(a, dtype, n);
    for (int i = 0; i < n; i++) {
        const param *p = param_at(out->params, i);
        int from = find_dense(dense->params, p);
        CHECK(from >= 0 || p->part == PART_ROUTER, "no dense tensor for %s", p->name);
        out->formats[i] = list[from < 0 ? 0 : from].dt;
        if (from < 0) {
            drawn d = {.key = rng_key_named(opt->seed, p->name),
                       .deviation = out->config.initializer_range};
            out->tensors[i] = drawn_tensor(a, p, &d);
            continue;
        }
        int kind = model_part_of_expert(p->part) ? p->part - PART_EXPERT_GATE : 0;
        bool first = model_part_of_expert(p->part) && seen[kind] != p->layer;
        if (first) seen[kind] = p->layer;
        TRY(copy_tensor(out, p, &list[from], first, opt, &out->tensors[i], e));
    }
    return ST_OK;
}
