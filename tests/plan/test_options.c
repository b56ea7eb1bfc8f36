/* Options are orthogonal: any of them on any family gives a model whose gradient is that of its
 * loss (a step along it against differences of the loss), whose decoding with a cache gives the
 * logits of one pass, and whose config.json reads back as the same model. */
#include "test.h"

#include "base/rng.h"
#include "plan/plan.h"
#include "prog_memory.h"

enum { T = 19, V = 53, LAYERS = 3, ROUNDS = 6 };

typedef struct lab {
    arena *a;
    dev *dev;
    plan *p;
    char what[1024];
    uint64_t at; /* of the random choices */
    rng_key key;
} lab;

static int64_t choose(lab *l, int64_t n) {
    return rng_u32(l->key, l->at++) % n;
}

static void set_word(lab *l, json_t *o, const char *key, const char *const *words, int n) {
    if (choose(l, 2)) json_object_set_new(o, key, json_string(words[choose(l, n)]));
}

static void set_flag(lab *l, json_t *o, const char *key) {
    if (choose(l, 3) == 0) json_object_set_new(o, key, json_boolean((int)choose(l, 2)));
}

static void set_num(lab *l, json_t *o, const char *key, double x) {
    if (choose(l, 3) == 0) json_object_set_new(o, key, json_real(x));
}

/* One number for all layers, or one for each. */
static void set_layers(lab *l, json_t *o, const char *key, int64_t lo, int64_t n, int64_t step) {
    if (choose(l, 2)) {
        json_object_set_new(o, key, json_integer(lo + step * choose(l, n)));
        return;
    }
    json_t *list = json_array();
    for (int i = 0; i < LAYERS; i++)
        json_array_append_new(list, json_integer(lo + step * choose(l, n)));
    json_object_set_new(o, key, list);
}

/* Layers with the gated delta rule, of any sizes. */
static void set_linear(lab *l, json_t *o) {
    static const char *const sizes[] = {"linear_key_head_dim", "linear_value_head_dim",
                                        "linear_conv_kernel_dim"};
    if (choose(l, 3) == 0) set_layers(l, o, "linear_layers", 0, 2, 1);
    /* norms of short outputs make the loss too rough for slopes */
    const char *type = json_string_value(json_object_get(o, "model_type"));
    if (json_object_get(o, "linear_layers") || strcmp(type, "qwen3_next") == 0)
        json_object_set_new(o, "rms_norm_eps", json_real(1e-2));
    int64_t heads = 1 + choose(l, 2);
    json_object_set_new(o, "linear_num_key_heads", json_integer(heads));
    json_object_set_new(o, "linear_num_value_heads", json_integer(heads * (1 + choose(l, 2))));
    for (int i = 0; i < 3; i++)
        json_object_set_new(o, sizes[i], json_integer((i < 2 ? 6 : 2) + choose(l, 6)));
}

/* Experts have no biases. A token goes through all of them: where it may choose, the loss has steps, and slopes
 * say nothing (tests of golden models look at the choice). */
static void set_experts(lab *l, json_t *o) {
    const char *type = json_string_value(json_object_get(o, "model_type"));
    bool always = strcmp(type, "mixtral") == 0 || strcmp(type, "olmoe") == 0 ||
                  strcmp(type, "qwen2_moe") == 0 || strcmp(type, "qwen3_moe") == 0 ||
                  strcmp(type, "qwen3_next") == 0 || strncmp(type, "deepseek", 8) == 0;
    if (!always && choose(l, 3) > 0) return;
    static const char *const routers[] = {"softmax", "sigmoid"};
    int experts = choose(l, 2) ? 3 : 4;
    json_object_set_new(o, "num_experts", json_integer(experts));
    json_object_set_new(o, "num_experts_per_tok", json_integer(experts));
    json_object_set_new(o, "moe_intermediate_size", json_integer(7 + choose(l, 20)));
    json_object_set_new(o, "mlp_bias", json_false());
    set_word(l, o, "router", routers, 2);
    set_flag(l, o, "router_bias");
    set_flag(l, o, "norm_topk_prob");
    set_num(l, o, "routed_scaling_factor", 1.7);
    json_object_set_new(o, "num_shared_experts", json_integer(choose(l, 3)));
    json_object_set_new(o, "shared_expert_intermediate_size", json_integer(choose(l, 2) * 11));
    set_flag(l, o, "shared_expert_gate");
    if (strncmp(type, "deepseek", 8) == 0) json_object_set_new(o, "router_groups", json_integer(0));
    if (experts == 3 || choose(l, 2)) return;
    json_object_set_new(o, "router_groups", json_integer(2));
    json_object_set_new(o, "router_groups_kept", json_integer(2));
    json_object_set_new(o, "router_group_best", json_integer(1 + choose(l, 2)));
}

/* Latent attention, without what does not go with it. */
static void set_latents(lab *l, json_t *o) {
    const char *type = json_string_value(json_object_get(o, "model_type"));
    bool usual = strncmp(type, "deepseek", 8) == 0 || strcmp(type, "minicpm3") == 0;
    if ((choose(l, 3) == 0) == usual) {
        if (usual) json_object_set_new(o, "kv_lora_rank", json_integer(0));
        return;
    }
    json_object_set_new(o, "kv_lora_rank", json_integer(5 + choose(l, 4)));
    json_object_set_new(o, "q_lora_rank", json_integer(choose(l, 2) * 7));
    json_object_set_new(o, "qk_nope_head_dim", json_integer(1 + choose(l, 5)));
    json_object_set_new(o, "qk_rope_head_dim", json_integer(2 + 2 * choose(l, 2)));
    json_object_set_new(o, "v_head_dim", json_integer(choose(l, 7)));
    json_object_set_new(o, "partial_rotary_factor", json_integer(1));
    json_object_set_new(o, "qk_norm", json_string("none"));
    json_object_set_new(o, "clip_qkv", json_integer(0));
    json_object_set_new(o, "attn_output_gate", json_false());
}

static json_t *random_config(lab *l, const model_family *f) {
    static const char *const norms[][2] = {{"rms", "none"},   {"rms", "weight"},
                                           {"rms", "offset"}, {"layer", "none"},
                                           {"layer", "bias"}, {"layer", "weight"}};
    static const char *const places[] = {"pre", "post", "sandwich"};
    static const char *const residuals[] = {"sequential", "parallel", "parallel_shared"};
    static const char *const qk[] = {"none", "head", "full"};
    static const char *const mlps[] = {"gated", "plain"};
    static const char *const positions[] = {"rotary", "learned", "none"};
    json_t *o =
        json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:f,s:n}", "model_type", f->model_type, "vocab_size", V,
                  "hidden_size", 24, "num_hidden_layers", LAYERS, "max_position_embeddings", 64,
                  "head_dim", 6, "initializer_range", 0.2, "pad_token_id");
    set_layers(l, o, "num_attention_heads", 2, 3, 2);
    json_object_set_new(o, "num_key_value_heads", json_integer(1 + choose(l, 2)));
    set_layers(l, o, "intermediate_size", 7, 40, 1);
    set_layers(l, o, "sliding_window", 0, 8, 1);
    set_layers(l, o, "attention_chunk_size", 0, 8, 1);
    set_linear(l, o);
    set_layers(l, o, "no_rope_layers", 0, 2, 1);
    if (choose(l, 2)) {
        const char *const *norm = norms[choose(l, ARRAY_LEN(norms))];
        json_object_set_new(o, "norm_type", json_string(norm[0]));
        json_object_set_new(o, "norm_weights", json_string(norm[1]));
    }
    set_word(l, o, "norm_placement", places, 3);
    set_word(l, o, "residual_type", residuals, 3);
    set_word(l, o, "qk_norm", qk, 3);
    set_word(l, o, "mlp_type", mlps, 2);
    set_word(l, o, "position_type", positions, 3);
    set_flag(l, o, "attention_bias");
    set_flag(l, o, "qkv_bias");
    set_flag(l, o, "attention_sinks");
    set_flag(l, o, "attn_output_gate");
    set_flag(l, o, "mlp_bias");
    set_experts(l, o);
    set_flag(l, o, "head_bias");
    set_flag(l, o, "rope_interleaved");
    set_flag(l, o, "tie_word_embeddings");
    json_object_set_new(o, "partial_rotary_factor", json_real(choose(l, 2) ? 1.0 : 0.7));
    set_num(l, o, "rope_local_base_freq", 100);
    set_num(l, o, "clip_qkv", 0.9);
    set_num(l, o, "attn_logit_softcapping", 1.5);
    set_num(l, o, "final_logit_softcapping", 2.5);
    set_num(l, o, "scale_depth", 1.4);
    set_num(l, o, "scale_emb", 3);
    set_num(l, o, "query_pre_attn_scalar", 9);
    set_latents(l, o);
    const char *place = json_string_value(json_object_get(o, "position_type"));
    bool latent = json_integer_value(json_object_get(o, "kv_lora_rank")) > 0;
    if (!latent && json_number_value(json_object_get(o, "partial_rotary_factor")) == 1.0 && place &&
        strcmp(place, "rotary") == 0)
        json_object_set_new(o, "logn_attn_length", json_integer(choose(l, 2) * 5));
    set_flag(l, o, "scale_attn_weights");
    set_flag(l, o, "scale_attn_by_inverse_layer_idx");
    json_object_set_new(o, "dim_model_base", json_integer(choose(l, 2) * 12));
    json_object_set_new(o, "block_repeat", json_integer(1 + choose(l, 2)));
    if (choose(l, 2))
        json_object_set_new(o, "num_nextn_predict_layers", json_integer(1 + choose(l, 2)));
    set_num(l, o, "mtp_loss_weight", 0.7);
    return o;
}

static void lab_open(lab *l, dev *d, const model_family *f, int trial) {
    *l = (lab){.a = arena_new("options"), .dev = d, .key = rng_key_numbered(29, (uint64_t)trial)};
    json_t *o = random_config(l, f);
    char *text = json_dumps(o, JSON_COMPACT);
    snprintf(l->what, sizeof l->what, "%s", text);
    free(text);
    plan_spec spec = {.compute = DT_F32,
                      .T = T,
                      .train_B = 1,
                      .logits_T = T,
                      .cache_tok = T,
                      .prefill_T = 5,
                      .optim = optim_find("adamw")};
    err e = {0};
    if (model_config_read(l->a, o, 0, &spec.model, &e) != ST_OK)
        fail_msg("%s: %s", l->what, e.message);
    json_decref(o);
    if (plan_new(&l->p, d, &spec, &e) != ST_OK) fail_msg("%s: %s", l->what, e.message);
    assert_int_equal(plan_commit(l->p, &e), ST_OK);
    param_init_all(l->p->store, (uint64_t)trial);
    /* norms and biases, too, are to be something */
    float *w = param_master(l->p->store);
    int64_t n = param_store_sizes(l->p->store).flat_elems;
    for (int64_t i = 0; i < n; i++) w[i] += 0.1f * (float)rng_u32(l->key, (uint64_t)i) * 0x1p-32f;
    /* queries and keys that get length 1 are to be far from 0, or the loss is too rough for slopes */
    for (int k = 0; k < param_count(l->p->store); k++) {
        const param *p = param_at(l->p->store, k);
        for (int64_t i = 0; p->taps && i < param_elems(p); i++) w[p->offset + i] += 1.0f;
    }
}

static void lab_close(lab *l) {
    plan_free(l->p);
    arena_free(l->a);
}

static void feed(const prog *p, int from, int n, const int32_t *ids) {
    int32_t *in = prog_at(p, "ids"), *pos = prog_at(p, "pos");
    for (int i = 0; i < n; i++) {
        in[i] = ids[from + i];
        pos[i] = from + i;
    }
}

static double sum_of(const float *nll) {
    double sum = 0;
    for (int i = 0; i < T; i++) sum += nll[i];
    return sum;
}

/* What is minimised, and its gradient: the mean of nll, and those of modules by their weight. */
static double loss(lab *l, const int32_t *ids) {
    const prog *p = plan_prog(l->p, USE_TRAIN, 0);
    feed(p, 0, T, ids);
    int32_t *targets = prog_at(p, "targets");
    for (int i = 0; i < T; i++) targets[i] = ids[i + 1];
    op_run run = {.dev = l->dev, .first_micro = true, .grad_scale = 1.0f / T};
    prog_replay(p, PROG_ALL, &run);
    const model_config *mc = &l->p->spec.model;
    double sum = sum_of(prog_at(p, "nll"));
    for (int k = 1; k <= mc->num_nextn_predict_layers; k++) {
        char name[16];
        snprintf(name, sizeof name, "nll.%d", k);
        sum +=
            mc->mtp_loss_weight / (double)mc->num_nextn_predict_layers * sum_of(prog_at(p, name));
    }
    return sum / T;
}

static void check_gradient(lab *l, const int32_t *ids) {
    const param_store *s = l->p->store;
    int64_t n = param_store_sizes(s).flat_elems;
    float *w = param_master(s), *g = malloc(sizeof *g * (size_t)n),
          *old = malloc(sizeof *g * (size_t)n);
    memset(g, 0, sizeof *g * (size_t)n);
    memcpy(old, w, sizeof *g * (size_t)n);
    loss(l, ids);
    double square = 0;
    for (int i = 0; i < param_count(s); i++) {
        const param *p = param_at(s, i);
        for (int64_t k = p->offset; k < p->offset + param_elems(p); k++) {
            g[k] = param_grad(s)[k];
            square += (double)g[k] * g[k];
        }
    }
    /* short: clips and ReLUs have kinks */
    double step = 3e-5 / sqrt(square), up, down;
    for (int64_t i = 0; i < n; i++) w[i] = (float)(old[i] + step * g[i]);
    up = loss(l, ids);
    for (int64_t i = 0; i < n; i++) w[i] = (float)(old[i] - step * g[i]);
    down = loss(l, ids);
    memcpy(w, old, sizeof *g * (size_t)n);
    free(g);
    free(old);
    double slope = (up - down) / (2 * step);
    if (fabs(slope - square) > 0.02 * square + 1e-3)
        fail_msg("slope %g, gradient %g: %s", slope, square, l->what);
}

static void check_decoding(lab *l, const int32_t *ids) {
    const prog *all = plan_prog(l->p, USE_LOGITS, 0);
    op_run run = {.dev = l->dev, .first_micro = true};
    feed(all, 0, T, ids);
    for (int i = 0; i < T; i++) ((int32_t *)prog_at(all, "rows"))[i] = i;
    prog_replay(all, PROG_F, &run);
    const float *want = prog_at(all, "logits");
    for (int done = 0; done < T;) {
        int n = done == 0 ? 5 : 1;
        const prog *p = plan_prog(l->p, done == 0 ? USE_PREFILL : USE_DECODE, 0);
        feed(p, done, n, ids);
        ((int32_t *)prog_at(p, "qpos"))[0] = done;
        const int32_t span[] = {done, n};
        prog_put(p, 0, prog_find_port(p, "span"), span);
        ((int32_t *)prog_at(p, "rows"))[0] = n - 1;
        prog_replay(p, PROG_F, &run);
        done += n;
        const float *got = prog_at(p, "logits");
        for (int v = 0; v < V; v++)
            if (fabsf(got[v] - want[(done - 1) * V + v]) > 2e-4f)
                fail_msg("logits after %d tokens: %g, %g: %s", done, (double)got[v],
                         (double)want[(done - 1) * V + v], l->what);
    }
}

/* All but the family and lists, by their JSON. */
static void check_config(lab *l) {
    json_t *first = model_config_json(&l->p->spec.model, 1, 2, DT_F32);
    model_config again;
    err e = {0};
    if (model_config_read_file(l->a, first, &again, &e) != ST_OK)
        fail_msg("%s (%s): %s", e.message, e.where, l->what);
    json_t *second = model_config_json(&again, 1, 2, DT_F32);
    if (!json_equal(first, second)) {
        json_dumpf(first, stderr, JSON_COMPACT);
        fputs("\nis read as\n", stderr);
        json_dumpf(second, stderr, JSON_COMPACT);
        fail_msg("%s", l->what);
    }
    json_decref(first);
    json_decref(second);
}

static void test_options(void **state) {
    (void)state;
    dev *d;
    assert_int_equal(dev_open(&d, DEV_CPU, 1, NULL), ST_OK);
    for (int i = 0; model_family_at(i); i++)
        for (int k = 0; k < ROUNDS; k++) {
            lab l;
            if (model_family_at(i)->encoder_names[PART_Q]) continue; /* train/test_encoder.c */
            lab_open(&l, d, model_family_at(i), i * ROUNDS + k);
            int32_t ids[T + 1];
            for (int t = 0; t <= T; t++) ids[t] = (int32_t)choose(&l, V);
            check_config(&l);
            check_decoding(&l, ids);
            check_gradient(&l, ids);
            lab_close(&l);
        }
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
