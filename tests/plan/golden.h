/* Golden models (tests/oracle): loading one and running it in the layout under test. */
#ifndef TESTS_PLAN_GOLDEN_H
#define TESTS_PLAN_GOLDEN_H
#include "test.h"

#include "io/hf/hf_load.h"
#include "io/hf/hf_weights.h"
#include "plan/plan.h"
#include "prog_memory.h"

static const char *const golden_names[] = {"gpt2-tanh-tied",
                                           "gpt2-erf-untied",
                                           "gpt2-scaled",
                                           "llama-gqa-tied",
                                           "llama-bias-untied",
                                           "llama-rope3-mqa",
                                           "gpt2-nanogpt",
                                           "mistral",
                                           "llama-linear",
                                           "llama-dynamic",
                                           "llama-yarn",
                                           "llama-longrope",
                                           "llama-longrope-short",
                                           "llama-interleaved",
                                           "neox-parallel",
                                           "neox-sequential",
                                           "phi",
                                           "phi-qknorm",
                                           "olmo-clip-tied",
                                           "olmo-untied",
                                           "olmo2",
                                           "smollm3",
                                           "smollm3-window",
                                           "qwen1",
                                           "qwen1-beyond",
                                           "qwen2-window",
                                           "qwen2-tied",
                                           "qwen3-tied",
                                           "qwen3-bias-window",
                                           "gemma2",
                                           "gemma3",
                                           "gemma3-pattern",
                                           "openelm",
                                           "mobilellm-shared",
                                           "minicpm",
                                           "llama-ahead",
                                           "llama-sinks-chunks",
                                           "mixtral",
                                           "olmoe",
                                           "qwen2-moe",
                                           "qwen3-moe",
                                           "qwen3-next",
                                           "qwen3-next-experts",
                                           "qwen3-next-tied",
                                           "qwen3-moe-ahead",
                                           "minicpm3",
                                           "deepseek-v2",
                                           "deepseek-v2-groups",
                                           "deepseek-v3",
                                           "deepseek-v3-ahead"};

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        err must_err = {0};                                                                        \
        status must_status = (expr);                                                               \
        if (must_status != ST_OK)                                                                  \
            fail_msg("%s: %s (%s)", #expr, must_err.message, must_err.where);                      \
        (void)must_err;                                                                            \
    } while (0)
#define E (&must_err)

typedef struct golden {
    char dir[512];
    arena *a;
    dev *dev;
    model_config mc;
    st_reader *file; /* golden.safetensors */
    const st_view *ids, *logits, *loss;
    int B, T;
    double loss_scale; /* 1; tests of fp16 set another */
    plan *p;
} golden;

/* NULL when the folder has no such file. */
static inline json_t *golden_json(const golden *g, const char *name) {
    char path[640];
    snprintf(path, sizeof path, "%s/%s", g->dir, name);
    return json_load_file(path, 0, NULL);
}

/* The device of ATHANOR_DEVICE, whose memory the tests read and write as the host's. */
static inline dev *golden_device(void) {
    dev_kind kind;
    dev *d;
    MUST(dev_find_kind(NULL, &kind, E));
    MUST(dev_open(&d, kind, 0, E));
    dev_enter(d);
    return d;
}

/* All that was given has run, and well. */
static inline void golden_wait(const golden *g) {
    dev_sync(g->dev);
    MUST(dev_check(g->dev, E));
}

/* The config, which may be changed before golden_build. */
static inline void golden_read(golden *g, const char *name) {
    *g = (golden){.a = arena_new("golden"), .loss_scale = 1};
    snprintf(g->dir, sizeof g->dir, "%s/golden/models/%s", TEST_DIR, name);
    g->dev = golden_device();
    json_t *config = golden_json(g, "config.json");
    assert_non_null(config);
    MUST(model_config_read_file(g->a, config, &g->mc, E));
    MUST(hf_settle_ahead(&g->mc, g->dir, E)); /* transformers names modules that it does not have */
    json_decref(config);
}

/* `spec` gives compute, recompute, document_mask; shapes come from the golden ids. */
static inline void golden_build(golden *g, plan_spec spec) {
    char path[640];
    snprintf(path, sizeof path, "%s/golden.safetensors", g->dir);
    MUST(st_open(&g->file, path, E));
    g->ids = st_find(g->file, "ids");
    g->logits = st_find(g->file, "logits");
    g->loss = st_find(g->file, "loss");
    g->B = (int)g->ids->dims[0];
    g->T = (int)g->ids->dims[1] - 1;
    spec.model = g->mc;
    if (!spec.T) spec.T = g->T;
    if (!spec.train_B) spec.train_B = g->B;
    spec.optim = optim_find("adamw");
    MUST(plan_new(&g->p, g->dev, &spec, E));
    MUST(plan_commit(g->p, E));
    MUST(hf_load_weights(g->p->store, g->dir, E));
    golden_wait(g);
}

static inline void golden_open(golden *g, const char *name, plan_spec spec) {
    golden_read(g, name);
    golden_build(g, spec);
}

static inline void golden_close(golden *g) {
    plan_free(g->p);
    st_close(g->file);
    dev_leave(g->dev);
    dev_close(g->dev);
    arena_free(g->a);
}

static inline int32_t *golden_ints(const prog *p, const char *name) {
    return prog_at(p, name);
}

/* Splits ids [B,T+1] into the inputs of a language-model program. */
static inline void golden_feed(const prog *p, const int32_t *ids, int B, int T) {
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            golden_ints(p, "ids")[b * T + t] = ids[b * (T + 1) + t];
            golden_ints(p, "pos")[b * T + t] = t;
            if (prog_at(p, "targets"))
                golden_ints(p, "targets")[b * T + t] = ids[b * (T + 1) + t + 1];
        }
}

/* What a pass of another micro-batch would leave where passes take turns. */
static inline void golden_spoil_scratch(const golden *g, const prog *p) {
    const plan *all = g->p;
    char *at = (char *)all->base + all->region[REGION_FRAME].offset;
    golden_wait(g);
    memset(at, 0xff, (size_t)prog_get_stats(p)->scratch_bytes);
}

/* One forward and backward over the inputs of the training program; returns the mean loss. */
static inline double golden_run(golden *g, uint64_t step) {
    const prog *p = plan_prog(g->p, USE_TRAIN, 0);
    int64_t n = (int64_t)g->p->spec.train_B * g->p->spec.T;
    op_run run = {.dev = g->dev,
                  .seed = 1,
                  .step = step,
                  .first_micro = true,
                  .grad_scale = (float)(g->loss_scale / (double)n)};
    golden_spoil_scratch(g, p);
    prog_replay(p, PROG_F, &run);
    golden_spoil_scratch(g, p);
    prog_replay(p, PROG_B | PROG_W, &run);
    golden_wait(g);
    const float *nll = prog_at(p, "nll");
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += nll[i];
    return sum / (double)n;
}

/* The same over `ids` [B,T+1]. */
static inline double golden_step(golden *g, const int32_t *ids, uint64_t step) {
    golden_feed(plan_prog(g->p, USE_TRAIN, 0), ids, g->B, g->T);
    return golden_run(g, step);
}

/* max |a-b| / max |b| */
static inline double golden_distance(const float *a, const float *b, int64_t n) {
    double diff = 0, size = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= diff)) diff = d; /* NaN counts */
        if (fabs(b[i]) > size) size = fabs(b[i]);
    }
    return diff / size;
}

#endif
