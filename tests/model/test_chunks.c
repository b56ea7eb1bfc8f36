/* Chunks of layers: what they declare and record is the whole model, each thing once, and each
 * chunk reads nothing that it has not declared. */
#include "test.h"

#include "model/config_file.h"
#include "model/family.h"

enum { B = 2, T = 8 };

static const char *const MODELS[] = {
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":5,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":32,\"tie_word_embeddings\":true}",
    "{\"model_type\":\"qwen3\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"head_dim\":6,\"max_position_embeddings\":32,\"tie_word_embeddings\":false}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"max_position_embeddings\":32}",
    "{\"model_type\":\"mobilellm\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":32,\"share_embedding\":true,\"block_repeat\":2}",
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":32,\"num_nextn_predict_layers\":2}",
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,\"block_repeat\":"
    "2,"
    "\"max_position_embeddings\":32,\"num_nextn_predict_layers\":1,\"tie_word_embeddings\":true}"};

typedef struct lab {
    arena *a;
    dev *dev;
    model_config mc;
    param_store *whole;
    int *uses; /* by number in the whole: chunks that declare it */
} lab;

static void lab_open(lab *l, const char *model) {
    err e = {0};
    *l = (lab){.a = arena_new("chunks")};
    json_t *o = json_loads(model, 0, NULL);
    assert_int_equal(dev_open_meta(&l->dev, DEV_CPU, 1, &e), ST_OK);
    if (model_config_read(l->a, o, 0, &l->mc, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    l->whole = param_store_new(l->a, DT_F32);
    model_declare(&l->mc, l->whole);
    l->uses = ARENA_ARRAY(l->a, int, param_count(l->whole));
}

static void lab_close(lab *l) {
    dev_close(l->dev);
    arena_free(l->a);
}

static prog *record(lab *l, model_layer_range layers, const param_store *s) {
    graph_options opt = {.dev = l->dev,
                         .dt = DT_F32,
                         .train = true,
                         .random_ops_before = model_random_ops_before(&l->mc, layers.first)};
    model_rec r = {.g = graph_new(l->a, &opt),
                   .mc = &l->mc,
                   .params = s,
                   .task = TASK_LM,
                   .layers = layers,
                   .B = B,
                   .T = T};
    model_record(&r);
    prog *p;
    err e = {0};
    if (prog_finish(&p, r.g, &e) != ST_OK) fail_msg("%s", e.message);
    return p;
}

static bool has(const prog *p, const char *port) {
    return prog_find_port(p, port).bytes > 0;
}

/* As a rank of a pipeline would: its own layers, and no others. Returns the FLOPs. */
static double check_chunk(lab *l, int chunks, int i) {
    model_layer_range layers = model_chunk(&l->mc, chunks, i);
    param_store *own = param_store_new(l->a, DT_F32);
    model_declare_chunks(&l->mc, &layers, 1, own);
    param_store_set_whole(own, l->whole); /* the same order, too */
    for (int k = 0; k < param_count(own); k++) l->uses[param_number_in_whole(own, k)]++;
    const prog *p = record(l, layers, own);
    bool first = i == 0, last = i == chunks - 1;
    bool ahead = last && l->mc.num_nextn_predict_layers > 0; /* modules embed tokens */
    assert_true(has(p, "nll.1") == ahead && has(p, "ids") == (first || ahead) &&
                has(p, "x") == !first && has(p, "grad.x") == !first);
    assert_true(has(p, "nll") == last && has(p, "y") == !last && has(p, "grad.y") == !last);
    assert_true(has(p, "targets") == last && has(p, "pos"));
    const prog_stats *st = prog_get_stats(p);
    return st->flops_forward + st->flops_backward;
}

static void check(lab *l, int chunks) {
    bool shared = l->mc.tie_word_embeddings || l->mc.num_nextn_predict_layers > 0;
    memset(l->uses, 0, sizeof *l->uses * (size_t)param_count(l->whole));
    double flops = 0;
    int next = 0;
    for (int i = 0; i < chunks; i++) {
        model_layer_range layers = model_chunk(&l->mc, chunks, i);
        assert_true(layers.first == next && layers.end > layers.first);
        assert_true(layers.first % (int)l->mc.block_repeat == 0);
        next = layers.end;
        flops += check_chunk(l, chunks, i);
    }
    assert_int_equal(next, model_all_layers(&l->mc).end);
    for (int k = 0; k < param_count(l->whole); k++) {
        bool both = shared && chunks > 1 && param_at(l->whole, k)->part == PART_EMBED;
        assert_int_equal(l->uses[k], both ? 2 : 1);
    }
    const prog_stats *all = prog_get_stats(record(l, model_all_layers(&l->mc), l->whole));
    double want = all->flops_forward + all->flops_backward;
    /* products that begin a chunk have no residual to add; what is passed on is copied */
    if (!(flops > 0.99 * want && flops < 1.01 * want))
        fail_msg("%d chunks: %g FLOPs, the whole %g", chunks, flops, want);
}

static void test_chunks(void **state) {
    (void)state;
    for (int m = 0; m < ARRAY_LEN(MODELS); m++) {
        lab l;
        lab_open(&l, MODELS[m]);
        for (int chunks = 1; chunks <= (int)l.mc.num_hidden_layers; chunks++) check(&l, chunks);
        lab_close(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
