/* Golden models of every family through GGUF files: written, opened with the weights in the file,
 * run; read back as masters. What llama.cpp cannot express is refused by name. */
#include "golden.h"

#include <unistd.h>

#include "base/file.h"
#include "io/gguf/gguf_model.h"
#include "io/hf/hf_load.h"

/* Golden models that no GGUF file can hold, and the option that stands in the way. */
static const char *const refused[][2] = {
    {"mobilellm-shared", ""},
    {"qwen2-moe", ""},
    {"gpt2-scaled", "model.scale_attn_weights"},
    {"deepseek-v2", "model.rope_scaling"},
    {"deepseek-v2-groups", "model.router_group_best"},
    {"olmoe", "model.num_key_value_heads"},
    {"qwen3-moe", "model.expert_layers"},
    {"qwen3-moe-ahead", "model.expert_layers"},
    {"qwen3-next", "model.linear_value_head_dim"},
    {"qwen3-next-tied", "model.linear_value_head_dim"},
    {"phi-qknorm", "model.qk_norm"},
    {"llama-sinks-chunks", "model.attention_chunk_size"},
    {"smollm3-window", "model.sliding_window"},
    {"qwen2-window", "model.sliding_window"},
    {"qwen3-bias-window", "model.attention_bias"},
    {"mistral", "model.sliding_window"},
};

static const char *refused_for(const char *name) {
    for (int i = 0; i < ARRAY_LEN(refused); i++)
        if (strcmp(refused[i][0], name) == 0) return refused[i][1];
    return NULL;
}

static void path_in_tmp(char out[256]) {
    snprintf(out, 256, "/tmp/test_gguf_model.%d.gguf", (int)getpid());
}

/* The golden models are odd on purpose; llama.cpp fixes some things by architecture. */
static void adapt(golden *g) {
    if (strncmp(g->mc.family->model_type, "gemma", 5) == 0)
        g->mc.query_pre_attn_scalar = (double)g->mc.head_dim;
    if (strcmp(g->mc.family->model_type, "minicpm3") == 0) {
        g->mc.scale_emb = 12, g->mc.dim_model_base = 256;
        g->mc.rope.kind = ROPE_LONGROPE;
        g->mc.rope.attention_factor = 1;
        g->mc.rope.n_factors = (int)g->mc.qk_rope_head_dim / 2;
        g->mc.rope.original_max_position_embeddings = g->mc.max_position_embeddings;
        double *factor = ARENA_ARRAY(g->a, double, g->mc.qk_rope_head_dim / 2);
        for (int i = 0; i < g->mc.qk_rope_head_dim / 2; i++) factor[i] = 1 + 0.25 * i;
        g->mc.rope.long_factor = g->mc.rope.short_factor = factor;
    }
    if (strcmp(g->mc.family->model_type, "smollm3") != 0) return;
    int64_t *rope = ARENA_ARRAY(g->a, int64_t, g->mc.num_hidden_layers);
    for (int l = 0; l < g->mc.num_hidden_layers; l++) rope[l] = (l + 1) % 4 != 0;
    g->mc.rope_layers_of = rope;
    g->mc.rope_layers = 1;
}

static status write_golden(const golden *g, quant_type type, const char *path, err *e) {
    arena *a = arena_new("host store");
    param_store *s = param_store_new(a, DT_F32);
    model_declare(&g->mc, s);
    param_store_bind(s, NULL, &(param_arrays){.master = param_master(g->p->store)});
    gguf_model_source src = {.config = &g->mc, .store = s, .name = "golden"};
    status st = gguf_model_write(path, &src, type, e);
    arena_free(a);
    return st;
}

/* Logits of all golden sequences, one after another: from a file, or (NULL) from the folder. */
static float *all_logits(golden *g, const gguf_model *m) {
    plan_spec spec = {.model = m ? m->config : g->mc, .compute = DT_F32, .T = 1, .logits_T = g->T};
    int64_t V = g->mc.vocab_size, one = g->T * V;
    float *out = xmalloc(sizeof *out * (size_t)(g->B * one));
    plan *p;
    if (m) {
        spec.locate = gguf_model_locate;
        spec.locate_ctx = (void *)(uintptr_t)m;
        spec.file = m->base;
    }
    MUST(plan_new(&p, g->dev, &spec, E));
    MUST(plan_commit(p, E));
    if (m)
        MUST(gguf_model_load_rest(m, p->store, E));
    else
        MUST(hf_load_weights(p->store, g->dir, E));
    const prog *l = plan_prog(p, USE_LOGITS, 0);
    const int32_t *ids = (const int32_t *)(const void *)g->ids->data;
    for (int b = 0; b < g->B; b++) {
        for (int t = 0; t < g->T; t++) {
            golden_ints(l, "ids")[t] = ids[b * (g->T + 1) + t];
            golden_ints(l, "pos")[t] = golden_ints(l, "rows")[t] = t;
        }
        op_run run = {.dev = g->dev};
        prog_replay(l, PROG_F, &run);
        memcpy(out + b * one, prog_at(l, "logits"), sizeof *out * (size_t)one);
    }
    plan_free(p);
    return out;
}

/* Mean KL divergence of the golden distribution from the file's. */
static double divergence(const float *got, const float *want, int64_t rows, int64_t V) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++, got += V, want += V) {
        double a = 0, b = 0, kl = 0;
        for (int64_t v = 0; v < V; v++) a += exp(got[v]), b += exp(want[v]);
        for (int64_t v = 0; v < V; v++)
            kl += exp(want[v]) / b * ((want[v] - log(b)) - (got[v] - log(a)));
        sum += kl;
    }
    return sum / (double)rows;
}

static void check_logits(golden *g, const char *name, quant_type type, const char *path) {
    gguf_model m;
    MUST(gguf_model_open(&m, path, E));
    if (g->T > m.config.max_position_embeddings) { /* beyond it nothing is scaled in a file */
        gguf_model_close(&m);
        return;
    }
    float *got = all_logits(g, &m), *want = all_logits(g, NULL);
    double d = golden_distance(got, want, g->logits->numel);
    if (type == QUANT_F32 && d > 1e-5) fail_msg("%s: logits differ by %g", name, d);
    d = divergence(got, want, (int64_t)g->B * g->T, g->mc.vocab_size);
    double most = type == QUANT_Q8_0 || type == QUANT_BF16 ? 2e-3 : 1e-4;
    if (!(d < most)) fail_msg("%s as %s: KL %g", name, quant_by_type(type)->name, d);
    free(got);
    free(want);
    gguf_model_close(&m);
}

static void check_masters(golden *g, const char *name, const char *path) {
    gguf_model m;
    MUST(gguf_model_open(&m, path, E));
    model_config hf = gguf_model_hf_config(&m);
    arena *a = arena_new("masters");
    param_store *s = param_store_new(a, DT_F32);
    model_declare(&hf, s);
    float *master = xcalloc((size_t)param_store_sizes(s).flat_elems, sizeof *master);
    param_store_bind(s, NULL, &(param_arrays){.master = master});
    MUST(gguf_model_read(&m, s, E));
    bool added = g->mc.norm_weights == NORM_WEIGHTS_OFFSET; /* 1 + w - 1 */
    for (int i = 0; i < param_count(g->p->store); i++) {
        const param *p = param_at(g->p->store, i);
        int at = param_find(s, p->name);
        if (model_param_is_ahead(&g->mc, p)) continue; /* files hold the model without modules */
        if (at < 0) fail_msg("%s: %s is not read back", name, p->name);
        const float *x = param_master(g->p->store) + p->offset;
        const float *y = master + param_at(s, at)->offset;
        int64_t rows = p->rank == 1 ? p->cols : p->rows, cols = param_elems(p) / rows;
        for (int64_t k = 0; k < param_elems(p); k++) {
            int64_t row = p->order == ROWS_PAIRS ? param_file_row(p, k / cols) : k / cols;
            float z = y[row * cols + k % cols];
            if (added && p->rank == 1 ? fabs(x[k] - z) > 1e-6 : x[k] != z)
                fail_msg("%s: %s[%ld] is %g, not %g", name, p->name, (long)k, z, x[k]);
        }
    }
    free(master);
    arena_free(a);
    gguf_model_close(&m);
}

static void check_refused(const golden *g, const char *name, const char *where, const char *path) {
    err e = {0};
    assert_int_equal(write_golden(g, QUANT_F32, path, &e), ST_USAGE);
    if (strcmp(e.where, where) != 0) fail_msg("%s: %s at '%s'", name, e.message, e.where);
    assert_false(file_exists(path));
}

static void test_families(void **state) {
    static const quant_type types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0};
    (void)state;
    char path[256];
    path_in_tmp(path);
    for (int i = 0; i < ARRAY_LEN(golden_names); i++) {
        golden g;
        golden_open(&g, golden_names[i], (plan_spec){.compute = DT_F32});
        adapt(&g);
        const char *where = refused_for(golden_names[i]);
        if (where) check_refused(&g, golden_names[i], where, path);
        for (int t = 0; t < ARRAY_LEN(types) && !where; t++) {
            MUST(write_golden(&g, types[t], path, E));
            check_logits(&g, golden_names[i], types[t], path);
            if (types[t] == QUANT_F32) check_masters(&g, golden_names[i], path);
        }
        unlink(path);
        golden_close(&g);
    }
}

/* ---- older files of deepseek2 ---- */

/* The file as it was written before keys and values of latents were two tensors. */
static void write_joined(const golden *g, const gguf_reader *r, const char *path) {
    gguf_pairs pairs = {0};
    const gguf_meta *m = gguf_get_meta(r);
    const model_config *mc = &g->mc;
    for (int64_t i = 0; i < m->n; i++) {
        const char *key = m->pairs[i].key;
        if (strstr(key, ".attention.head_count_kv"))
            gguf_put_u32(&pairs, key, (uint32_t)mc->num_attention_heads);
        else if (strstr(key, "_length_mla"))
            gguf_put_u32(&pairs,
                         strstr(key, ".key") ? "deepseek2.attention.key_length"
                                             : "deepseek2.attention.value_length",
                         (uint32_t)(strstr(key, ".key") ? mc->head_dim : mc->v_head_dim));
        else if (!strstr(key, ".attention.key_length") && !strstr(key, ".attention.value_length"))
            gguf_put_value(&pairs, key, &m->pairs[i].value);
    }
    gguf_tensor *t = xcalloc((size_t)gguf_count(r), sizeof *t);
    int n = 0;
    for (int64_t i = 0; i < gguf_count(r); i++) {
        const gguf_view *v = gguf_get(r, i);
        if (strstr(v->name, ".attn_v_b.")) continue;
        t[n] = (gguf_tensor){
            .name = v->name, .type = v->format->type, .rank = v->rank, .data = v->data};
        memcpy(t[n].dims, v->dims, sizeof t[n].dims);
        int layer;
        if (strstr(v->name, ".attn_k_b.") && sscanf(v->name, "blk.%d.", &layer) == 1) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.self_attn.kv_b_proj.weight", layer);
            const param *p = param_at(g->p->store, param_find(g->p->store, name));
            t[n] = (gguf_tensor){.rank = 2, .dims = {p->cols, p->rows}};
            t[n].name = arena_printf(g->a, "blk.%d.attn_kv_b.weight", layer);
            t[n].data = param_master(g->p->store) + p->offset;
        }
        n++;
    }
    MUST(gguf_write(path, &pairs, t, n, E));
    gguf_pairs_free(&pairs);
    free(t);
}

static void test_joined_latents(void **state) {
    (void)state;
    char path[256], old[300];
    gguf_reader *r;
    golden g;
    path_in_tmp(path);
    snprintf(old, sizeof old, "%s.old", path);
    golden_open(&g, "deepseek-v3", (plan_spec){.compute = DT_F32});
    MUST(write_golden(&g, QUANT_F32, path, E));
    MUST(gguf_open(&r, path, E));
    assert_non_null(gguf_find(r, "blk.0.attn_k_b.weight"));
    write_joined(&g, r, old);
    check_logits(&g, "deepseek-v3, joined", QUANT_F32, old);
    check_masters(&g, "deepseek-v3, joined", old);
    gguf_close(r);
    unlink(path);
    unlink(old);
    golden_close(&g);
}

/* ---- other files of qwen3next ---- */

/* As older converters wrote it, with one tensor of what linear layers read, by heads. */
static void write_by_heads(const golden *g, gguf_tensor *t, int layer) {
    char name[96];
    snprintf(name, sizeof name, "model.layers.%d.linear_attn.in_proj_qkvz.weight", layer);
    const param *p = param_at(g->p->store, param_find(g->p->store, name));
    const float *from = param_master(g->p->store) + p->offset;
    float *to = ARENA_ARRAY(g->a, float, p->rows * p->cols);
    for (int64_t i = 0; i < p->rows; i++)
        memcpy(to + param_file_row(p, i) * p->cols, from + i * p->cols,
               sizeof *to * (size_t)p->cols);
    *t = (gguf_tensor){.rank = 2, .dims = {p->cols, p->rows}, .data = to};
    t->name = arena_printf(g->a, "blk.%d.ssm_in.weight", layer);
}

/* The golden file with that, with the interval in place of the list, or with a module behind its layers;
 * decay: a number of the first layer's decays. */
static void write_variant(const golden *g, const gguf_reader *r, bool older, float decay,
                          const char *path) {
    static const float module[2] = {1, 2};
    gguf_pairs pairs = {0};
    const gguf_meta *m = gguf_get_meta(r);
    gguf_tensor *t = xcalloc((size_t)gguf_count(r) + 1, sizeof *t);
    bool linear[] = {true, false, true, false};
    int n = 0, layer;
    for (int64_t i = 0; i < m->n; i++) {
        const char *key = m->pairs[i].key;
        if (strstr(key, "recurrent_layers") || (!older && strstr(key, "block_count"))) continue;
        gguf_put_value(&pairs, key, &m->pairs[i].value);
    }
    if (!older) {
        gguf_put_u32(&pairs, "qwen3next.block_count", 4);
        gguf_put_u32(&pairs, "qwen3next.nextn_predict_layers", 1);
        gguf_put_array(&pairs, "qwen3next.attention.recurrent_layers", GGUF_BOOL, linear, 4);
    }
    for (int64_t i = 0; i < gguf_count(r); i++) {
        const gguf_view *v = gguf_get(r, i);
        if (older && strstr(v->name, ".attn_gate.")) continue;
        t[n] = (gguf_tensor){
            .name = v->name, .type = v->format->type, .rank = v->rank, .data = v->data};
        memcpy(t[n].dims, v->dims, sizeof t[n].dims);
        if (older && strstr(v->name, ".attn_qkv.") && sscanf(v->name, "blk.%d.", &layer) == 1)
            write_by_heads(g, &t[n], layer);
        if (strcmp(v->name, "blk.0.ssm_a") == 0 && decay != 0) {
            float *a = ARENA_ARRAY(g->a, float, v->cols);
            memcpy(a, v->data, v->bytes);
            a[1] = decay;
            t[n].data = a;
        }
        n++;
    }
    if (!older)
        t[n++] = (gguf_tensor){
            .name = "blk.3.nextn.enorm.weight", .rank = 1, .dims = {2}, .data = module};
    MUST(gguf_write(path, &pairs, t, n, E));
    gguf_pairs_free(&pairs);
    free(t);
}

static void check_decays_refused(const char *path) {
    gguf_model m;
    err e = {0};
    assert_int_equal(gguf_model_open(&m, path, &e), ST_FORMAT);
    assert_string_equal(e.where, "blk.0.ssm_a");
    gguf_model_close(&m);
}

static void test_linear_variants(void **state) {
    (void)state;
    char path[256], other[300];
    gguf_reader *r;
    golden g;
    path_in_tmp(path);
    snprintf(other, sizeof other, "%s.other", path);
    golden_open(&g, "qwen3-next-experts", (plan_spec){.compute = DT_F32});
    MUST(write_golden(&g, QUANT_F32, path, E));
    MUST(gguf_open(&r, path, E));
    assert_non_null(gguf_find(r, "blk.0.attn_gate.weight"));
    for (int older = 0; older < 2; older++) {
        write_variant(&g, r, older, 0, other);
        check_logits(&g, older ? "qwen3next, older" : "qwen3next, a module", QUANT_F32, other);
        check_masters(&g, "qwen3next", other);
    }
    write_variant(&g, r, true, 0.5f, other);
    check_decays_refused(other);
    write_variant(&g, r, true, -INFINITY, other);
    check_decays_refused(other);
    gguf_close(r);
    unlink(path);
    unlink(other);
    golden_close(&g);
}

/* ---- files that are refused ---- */

static void expect_refused(const model_config *mc, const char *where) {
    arena *a = arena_new("refused");
    param_store *s = param_store_new(a, DT_F32);
    err e = {0};
    model_declare(mc, s);
    assert_int_equal(gguf_model_check(&(gguf_model_source){.config = mc, .store = s}, &e),
                     ST_USAGE);
    assert_string_equal(e.where, where);
    arena_free(a);
}

/* An architecture without latents says so, whatever else it would say first. */
static void test_latents_elsewhere(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "llama-gqa-tied", (plan_spec){.compute = DT_F32});
    model_config mc = g.mc;
    mc.kv_lora_rank = 8, mc.qk_nope_head_dim = 4, mc.qk_rope_head_dim = 4, mc.v_head_dim = 4;
    mc.head_dim = 8;
    expect_refused(&mc, "model.kv_lora_rank");
    golden_close(&g);
}

/* Without groups, how good one is says nothing, and stays what the family has. */
static void test_experts_without_groups(void **state) {
    (void)state;
    char path[256];
    golden g;
    gguf_model m;
    path_in_tmp(path);
    golden_open(&g, "deepseek-v3-ahead", (plan_spec){.compute = DT_F32});
    assert_true(g.mc.router_groups <= 1);
    MUST(write_golden(&g, QUANT_F32, path, E));
    MUST(gguf_model_open(&m, path, E));
    assert_int_equal(m.config.router_group_best, g.mc.router_group_best);
    gguf_model_close(&m);
    unlink(path);
    golden_close(&g);
}

static void test_latents_without_positions(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "deepseek-v3", (plan_spec){.compute = DT_F32});
    model_config mc = g.mc;
    mc.positions = POSITIONS_NONE;
    expect_refused(&mc, "model.position_type");
    golden_close(&g);
}

/* llama.cpp works out the width of all heads from that of the stream, and opens no file in which it is another. */
static void test_heads_of_another_width(void **state) {
    (void)state;
    static const char *const models[] = {
        "gpt2-tanh-tied", "neox-parallel", "olmo-untied", "olmo2", "phi", "qwen1", "qwen2-tied"};
    for (int i = 0; i < ARRAY_LEN(models); i++) {
        golden g;
        golden_open(&g, models[i], (plan_spec){.compute = DT_F32});
        model_config mc = g.mc;
        mc.head_dim *= 2;
        expect_refused(&mc, "model.head_dim");
        golden_close(&g);
    }
}

/* All layers are as the first one there. */
static void test_layers_of_other_widths(void **state) {
    (void)state;
    static const char *const models[] = {"llama-gqa-tied", "qwen3-tied", "minicpm", "olmo2"};
    for (int i = 0; i < ARRAY_LEN(models); i++) {
        golden g;
        golden_open(&g, models[i], (plan_spec){.compute = DT_F32});
        int64_t n = g.mc.num_hidden_layers, widths[64], heads[64];
        model_config mc = g.mc, other = g.mc;
        assert_in_range(n, 2, 64);
        for (int64_t l = 0; l < n; l++)
            widths[l] = 16 * (l + 1), heads[l] = l ? 1 : g.mc.num_key_value_heads;
        mc.intermediate_size_of = widths;
        expect_refused(&mc, "model.intermediate_size");
        if (g.mc.num_key_value_heads > 1) {
            other.num_key_value_heads_of = heads;
            expect_refused(&other, "model.num_key_value_heads");
        }
        golden_close(&g);
    }
}

/* Most architectures rotate whole heads: with another file llama.cpp aborts. */
static void test_rotated_in_part(void **state) {
    (void)state;
    static const char *const models[] = {"llama-rope3-mqa", "qwen2-tied", "qwen3-tied", "minicpm"};
    for (int i = 0; i < ARRAY_LEN(models); i++) {
        golden g;
        golden_open(&g, models[i], (plan_spec){.compute = DT_F32});
        model_config mc = g.mc;
        mc.partial_rotary_factor = 0.5;
        expect_refused(&mc, "model.partial_rotary_factor");
        golden_close(&g);
    }
}

/* A file as it was read, with one thing changed, in memory. */
typedef struct change {
    const char *drop, *flip, *rename; /* tensors: left out, transposed, under another name */
    const char *key;                  /* replaced by `text`, or else by the number */
    const char *text;
    uint32_t number;
    const char *where; /* of the error that is expected */
} change;

#define FILE_ITSELF "the file" /* as `where` */

static gguf_pairs changed_pairs(const gguf_meta *m, const change *c) {
    gguf_pairs p = {0};
    for (int64_t i = 0; i < m->n; i++) {
        if (!c->key || strcmp(m->pairs[i].key, c->key) != 0)
            gguf_put_value(&p, m->pairs[i].key, &m->pairs[i].value);
        else if (c->text)
            gguf_put_string(&p, c->key, c->text);
        else
            gguf_put_u32(&p, c->key, c->number);
    }
    return p;
}

static int changed_tensors(const gguf_reader *r, const change *c, gguf_tensor *out) {
    int n = 0;
    for (int64_t i = 0; i < gguf_count(r); i++) {
        const gguf_view *v = gguf_get(r, i);
        if (c->drop && strcmp(c->drop, v->name) == 0) continue;
        gguf_tensor *t = &out[n++];
        *t = (gguf_tensor){.name = v->name,
                           .type = v->format->type,
                           .rank = v->rank,
                           .dims = {v->dims[0], v->dims[1], v->dims[2], v->dims[3]},
                           .data = v->data};
        if (c->rename && strcmp(c->rename, v->name) == 0) t->name = "blk.0.attn_sinks.weight";
        if (!c->flip || strcmp(c->flip, v->name) != 0) continue;
        t->dims[0] = v->dims[1];
        t->dims[1] = v->dims[0];
    }
    return n;
}

static void check_change(const char *good, const change *c) {
    char bad[300];
    gguf_reader *r;
    snprintf(bad, sizeof bad, "%s.bad", good);
    MUST(gguf_open(&r, good, E));
    gguf_pairs pairs = changed_pairs(gguf_get_meta(r), c);
    gguf_tensor *tensors = xcalloc((size_t)gguf_count(r), sizeof *tensors);
    MUST(gguf_write(bad, &pairs, tensors, changed_tensors(r, c, tensors), E));
    gguf_model m;
    err e = {0};
    status st = gguf_model_open(&m, bad, &e);
    if (st != ST_FORMAT && !(st == ST_USAGE && c->text)) fail_msg("%s: %d", c->where, (int)st);
    const char *where = strcmp(c->where, FILE_ITSELF) == 0 ? bad : c->where;
    if (strcmp(e.where, where) != 0) fail_msg("%s: %s at '%s'", c->where, e.message, e.where);
    if (!e.hint[0]) fail_msg("%s: no hint", e.message);
    gguf_model_close(&m);
    gguf_pairs_free(&pairs);
    free(tensors);
    gguf_close(r);
    unlink(bad);
}

static void test_damaged_files(void **state) {
    static const change changes[] = {
        {.drop = "blk.1.attn_k.weight", .where = "blk.1.attn_k.weight"},
        {.drop = "token_embd.weight", .where = "token_embd.weight"},
        {.flip = "blk.0.ffn_up.weight", .where = "blk.0.ffn_up.weight"},
        {.rename = "output_norm.weight", .where = "output_norm.weight"},
        {.key = "general.architecture", .text = "mamba", .where = "general.architecture"},
        {.key = "llama.attention.head_count", .number = 0, .where = "llama.attention.head_count"},
        {.key = "llama.rope.dimension_count", .number = 3, .where = "llama.rope.dimension_count"},
        {.key = "llama.embedding_length", .text = "wide", .where = "llama.embedding_length"},
    };
    (void)state;
    char path[256];
    path_in_tmp(path);
    golden g;
    golden_open(&g, "llama-gqa-tied", (plan_spec){.compute = DT_F32});
    MUST(write_golden(&g, QUANT_F32, path, E));
    for (int i = 0; i < ARRAY_LEN(changes); i++) check_change(path, &changes[i]);
    unlink(path);
    golden_close(&g);
}

static void test_damaged_linear(void **state) {
    static const change changes[] = {
        {.drop = "blk.2.attn_gate.weight", .where = "blk.2.attn_gate.weight"},
        {.flip = "blk.0.attn_qkv.weight", .where = "blk.0.attn_qkv.weight"},
        {.flip = "blk.0.ssm_conv1d.weight", .where = "blk.0.ssm_conv1d.weight"},
        {.key = "qwen3next.ssm.state_size", .number = 0, .where = "qwen3next.ssm.state_size"},
        {.key = "qwen3next.ssm.inner_size", .number = 45, .where = "qwen3next.ssm.inner_size"},
        {.key = "qwen3next.full_attention_interval",
         .number = 0,
         .where = "qwen3next.full_attention_interval"},
        {.key = "qwen3next.attention.recurrent_layers",
         .number = 1,
         .where = "qwen3next.attention.recurrent_layers"},
        {.key = "qwen3next.expert_shared_feed_forward_length",
         .number = 0,
         .where = "qwen3next.expert_shared_feed_forward_length"},
    };
    (void)state;
    char path[256];
    path_in_tmp(path);
    golden g;
    golden_open(&g, "qwen3-next-experts", (plan_spec){.compute = DT_F32});
    MUST(write_golden(&g, QUANT_F32, path, E));
    for (int i = 0; i < ARRAY_LEN(changes); i++) check_change(path, &changes[i]);
    unlink(path);
    golden_close(&g);
}

/* Old converters wrote rotary frequencies, which follow from the metadata. */
static void test_tensors_that_repeat(void **state) {
    (void)state;
    char path[256];
    path_in_tmp(path);
    golden g;
    golden_open(&g, "llama-gqa-tied", (plan_spec){.compute = DT_F32});
    MUST(write_golden(&g, QUANT_F32, path, E));
    gguf_reader *r;
    MUST(gguf_open(&r, path, E));
    char more[300];
    snprintf(more, sizeof more, "%s.more", path);
    const change none = {0};
    gguf_pairs pairs = changed_pairs(gguf_get_meta(r), &none);
    gguf_tensor *tensors = xcalloc((size_t)gguf_count(r) + 1, sizeof *tensors);
    const float freqs[3] = {1, 1, 1};
    int n = changed_tensors(r, &none, tensors);
    tensors[n] = (gguf_tensor){.name = "blk.0.attn_rot_embd.freqs",
                               .type = QUANT_F32,
                               .rank = 1,
                               .dims = {ARRAY_LEN(freqs)},
                               .data = freqs};
    MUST(gguf_write(more, &pairs, tensors, n + 1, E));
    gguf_model m;
    MUST(gguf_model_open(&m, more, E));
    gguf_model_close(&m);
    gguf_pairs_free(&pairs);
    free(tensors);
    gguf_close(r);
    unlink(more);
    unlink(path);
    golden_close(&g);
}

/* A model that says more layers than there are tensors is refused before they are declared. */
static void test_layers_without_tensors(void **state) {
    static const change many = {.key = "llama.block_count", .number = 4000, .where = FILE_ITSELF};
    (void)state;
    char path[256];
    path_in_tmp(path);
    golden g;
    golden_open(&g, "llama-gqa-tied", (plan_spec){.compute = DT_F32});
    MUST(write_golden(&g, QUANT_F32, path, E));
    check_change(path, &many);
    unlink(path);
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_joined_latents),
                                       cmocka_unit_test(test_linear_variants),
                                       cmocka_unit_test(test_damaged_linear),
                                       cmocka_unit_test(test_latents_elsewhere),
                                       cmocka_unit_test(test_experts_without_groups),
                                       cmocka_unit_test(test_latents_without_positions),
                                       cmocka_unit_test(test_rotated_in_part),
                                       cmocka_unit_test(test_heads_of_another_width),
                                       cmocka_unit_test(test_layers_of_other_widths),
                                       cmocka_unit_test(test_damaged_files),
                                       cmocka_unit_test(test_tensors_that_repeat),
                                       cmocka_unit_test(test_layers_without_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
