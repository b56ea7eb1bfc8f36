/* What tests of clusters, of the planner's clock and of its search share: a cluster of round numbers and one from a text, small
 * models, and the step of one. */
#ifndef CLOCK_CASE_H
#define CLOCK_CASE_H

#include "test.h"

#include "base/yaml.h"
#include "plan/clock/search.h"

/* Round numbers: 1 TFLOP/s, 100 GB/s of memory, links of 10 and 1 GB/s; everything reaches its limit. */
static inline cluster plain(int per_node, int nodes) {
    cluster c = {.name = "plain",
                 .device_name = "a device",
                 .source = "a test",
                 .kind = DEV_CPU,
                 .peak_flops = {1e12, 2e12, 2e12},
                 .memory_bytes = 1 << 30,
                 .memory_bytes_per_s = 1e11,
                 .per_node = per_node,
                 .nodes = nodes,
                 .node = {1e10, 1e-6, 1},
                 .network = {1e9, 1e-4, 1}};
    cluster_index(&c);
    return c;
}

static inline void assert_near(double a, double b) {
    if (fabs(a - b) > 1e-9 * fabs(b) + 1e-15) fail_msg("%.17g is not %.17g", a, b);
}

static inline status read_cluster(const char *text, cluster *out, err *e) {
    json_t *root, *origins;
    TRY(yaml_parse(&root, &origins, "c.yaml", text, strlen(text), e));
    status st = cluster_read(out, root, origins, "c.yaml", e);
    json_decref(root);
    json_decref(origins);
    return st;
}

typedef struct layout {
    int dp, zero, micro_batches, cp; /* cp 0: one */
    context_kind context;
} layout;

static inline plan_spec spec_of_width(arena *a, int width) {
    err e = {0};
    json_t *o =
        json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i}", "model_type", "llama", "hidden_size", width,
                  "num_hidden_layers", 8, "num_attention_heads", 4, "num_key_value_heads", 2,
                  "intermediate_size", width * 11 / 4, "vocab_size", 2 * width);
    plan_spec spec = {.compute = DT_BF16,
                      .T = 128,
                      .train_B = 4,
                      .micro_batches = 1,
                      .optim = optim_find("adamw")};
    if (model_config_read(a, o, 0, &spec.model, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    return spec;
}

static inline plan_spec spec_of(arena *a) {
    return spec_of_width(a, 256);
}

static inline dev *meta_device(void) {
    dev *d;
    err e = {0};
    if (dev_open_meta(&d, DEV_CPU, 1, &e) != ST_OK) fail_msg("%s", e.message);
    return d;
}

static inline clock_time step_of(const cluster *c, layout l) {
    plan *p;
    mesh ranks;
    err e = {0};
    arena *a = arena_new("test");
    dev *d = meta_device();
    plan_spec spec = spec_of(a);
    spec.micro_batches = l.micro_batches;
    int cp = l.cp ? l.cp : 1;
    spec.sharing = (param_sharding){.shards = l.dp * cp, .zero = l.zero, .bucket_elems = 1 << 18};
    spec.ranks = &ranks;
    spec.context = l.context;
    mesh_place(&ranks, &(mesh_shape){.dp = l.dp, .dp_replicate = 1, .tp = 1, .cp = cp, .pp = 1}, 0);
    if (plan_new(&p, d, &spec, &e) != ST_OK) fail_msg("%s", e.message);
    clock_time t = clock_step(p, c);
    plan_free(p);
    dev_close(d);
    arena_free(a);
    return t;
}

static inline double parts_of(const clock_time *t) {
    return t->kernels_s + t->among_s + t->exposed_s + t->optimizer_s + t->host_s;
}

/* A mixture of experts in some layers. */
static inline plan_spec spec_of_experts(arena *a) {
    static const int64_t has[] = {0, 0, 1, 1, 0, 1, 1, 1};
    plan_spec s = spec_of(a);
    s.model.num_hidden_layers = ARRAY_LEN(has);
    s.model.num_experts = 8;
    s.model.num_experts_per_tok = 2;
    s.model.moe_intermediate_size = 256;
    s.model.expert_layers = 1;
    s.model.expert_layers_of = has;
    s.expert_load = 0.5;
    s.chunks = 1;
    return s;
}

/* A stage of a pipeline of `stages`; some of the first layers have a window. */
static inline plan_spec spec_of_stage(arena *a, mesh *ranks, int stages, int chunks, int stage) {
    static const int64_t windows[32] = {[3] = 64, [5] = 64};
    plan_spec s = spec_of(a);
    s.model.num_hidden_layers = ARRAY_LEN(windows);
    s.model.sliding_window_of = windows;
    s.micro_batches = 4 * stages;
    s.chunks = stages * chunks;
    s.pp_schedule = chunks > 1 ? SCHEDULE_INTERLEAVED : SCHEDULE_1F1B;
    s.reckoned = true;
    s.sharing = (param_sharding){.shards = 2, .zero = 2, .bucket_elems = 1 << 18};
    mesh_place(ranks,
               &(mesh_shape){.dp = 2, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = stages, .ep = 1},
               2 * stage);
    s.ranks = ranks;
    return s;
}

#endif
