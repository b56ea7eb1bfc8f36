/* Models with an encoder and a decoder against transformers' (tests/oracle/encoder_models.py): logits, greedy tokens, loss and every
 * gradient, the same bits under every recompute policy; and what must not see what. */
#include "test.h"

#include "io/io_test.h"

#include <math.h>

#include "infer/generate.h"
#include "interchange/open_model.h"
#include "io/safetensors/safetensors.h"
#include "train/train.h"

static const char *const MODELS[] = {TEST_DIR "/golden/encoder/t5-relu-tied",
                                     TEST_DIR "/golden/encoder/t5-gated-untied"};

static void read_golden(st_reader **r, const char *folder) {
    char path[512];
    err e = {0};
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    assert_ok(st_open(r, path, &e), e);
}

/* All elements of a tensor; free them. */
static void *elements(const st_reader *r, const char *name, dtype dt) {
    err e = {0};
    const st_view *v;
    assert_ok(st_require(r, name, &v, &e), e);
    void *x = xmalloc((size_t)v->numel * 4);
    assert_ok(st_view_read(v, 0, v->numel, x, dt, &e), e);
    return x;
}

static void assert_near(const char *what, const float *got, const float *want, int64_t n,
                        double tolerance) {
    double most = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)want[i]));
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    }
    if (!(worst <= tolerance * fmax(most, 1e-6))) fail_msg("%s: %g beside %g", what, worst, most);
}

static void check_text(const char *folder) {
    st_reader *r;
    open_model m;
    err e = {0};
    read_golden(&r, folder);
    int n = (int)st_find(r, "ids")->numel;
    int32_t *ids = elements(r, "ids", DT_I32), *greedy = elements(r, "greedy", DT_I32);
    float *want = elements(r, "logits", DT_F32);
    assert_ok(open_model_read(&m, folder, 1, &e), e);
    open_model_set_source(&m, n);
    assert_ok(open_model_load(&m, 65, n, &e), e);
    const float *logits = open_model_logits(&m, ids, n);
    assert_near("logits", logits, want, (int64_t)n * m.config.vocab_size, 1e-5);
    generator g = open_model_generator(&m);
    tok_ids out = {0};
    strbuf text = {0};
    generate_result result;
    generate_request rq = {.prompt = ids, .n_prompt = n, .max_new = 64};
    assert_ok(generate_run(&g, &rq, &out, &text, &result, &e), e);
    assert_int_equal(out.n, 64);
    assert_memory_equal(out.id, greedy, 64 * sizeof(int32_t));
    tok_ids_free(&out);
    generator_free(&g);
    free(ids), free(greedy), free(want);
    open_model_close(&m);
    st_close(r);
}

static void test_text(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(MODELS); i++) check_text(MODELS[i]);
}

/* The gradients of one recompute policy, as a file. */
static double dump(const test_dir *d, const char *folder, const char *policy, char *out) {
    char pairs[512];
    config *c;
    err e = {0};
    double loss;
    json_t *o = json_pack("{s:{s:s},s:{s:s,s:s}}", "model", "from", folder, "train", "precision",
                          "fp32", "recompute", policy);
    snprintf(pairs, sizeof pairs, "%s/pairs.npz", folder);
    snprintf(out, 512, "%s", path_join(d->mem, d->path, policy));
    assert_ok(config_from_json(&c, o, NULL, "test", NULL, 0, &e), e);
    assert_ok(train_dump_gradients(c, pairs, out, &loss, &e), e);
    config_free(c);
    json_decref(o);
    return loss;
}

static void compare_gradients(const st_reader *want, const char *path) {
    st_reader *got;
    err e = {0};
    assert_ok(st_open(&got, path, &e), e);
    for (int64_t i = 0; i < st_count(got); i++) {
        char name[512];
        const st_view *v = st_get(got, i);
        snprintf(name, sizeof name, "grad.%s", v->name);
        float *x = elements(got, v->name, DT_F32), *y = elements(want, name, DT_F32);
        assert_near(name, x, y, v->numel, 1e-4);
        free(x), free(y);
    }
    st_close(got);
}

static void test_gradients(void **state) {
    test_dir *d = *state;
    for (int i = 0; i < ARRAY_LEN(MODELS); i++) {
        st_reader *want;
        char none[512], other[512], *a, *b;
        size_t n, m;
        read_golden(&want, MODELS[i]);
        float *loss = elements(want, "loss", DT_F32);
        assert_true(fabs(dump(d, MODELS[i], "none", none) - (double)*loss) < 1e-4);
        compare_gradients(want, none);
        static const char *const policies[] = {"selective", "full"};
        for (int k = 0; k < 2; k++) {
            dump(d, MODELS[i], policies[k], other);
            err e = {0};
            assert_ok(file_read_all(none, &a, &n, &e), e);
            assert_ok(file_read_all(other, &b, &m, &e), e);
            assert_int_equal(n, m);
            assert_memory_equal(a, b, n);
            free(a), free(b);
        }
        free(loss);
        st_close(want);
    }
}

/* The last token of the source changes all logits, but for the decoder that of the prompt's end only the last. */
static void test_who_sees_whom(void **state) {
    (void)state;
    enum { N = 12 };
    open_model m;
    err e = {0};
    assert_ok(open_model_read(&m, MODELS[0], 1, &e), e);
    assert_ok(open_model_load(&m, 0, N, &e), e);
    int64_t V = m.config.vocab_size;
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = 5 + 7 * i;
    float *before = xmalloc((size_t)(N * V) * sizeof *before);
    memcpy(before, open_model_logits(&m, ids, N), (size_t)(N * V) * sizeof *before);
    ids[N - 1]++;
    const float *after = open_model_logits(&m, ids, N);
    assert_memory_not_equal(before, after, (size_t)V * sizeof *before);
    free(before);
    const prog *p = plan_prog(m.plan, USE_LOGITS, 0);
    prog_port port = prog_find_port(p, "ids");
    int32_t row[N];
    prog_get(p, 0, port, row);
    float *first = xmalloc((size_t)(N * V) * sizeof *first);
    memcpy(first, after, (size_t)(N * V) * sizeof *first);
    row[N - 1]++;
    prog_put(p, 0, port, row);
    op_run run = {.dev = m.dev, .first_micro = true, .grad_scale = 1.0f};
    prog_replay(p, PROG_F, &run);
    float *then = xmalloc((size_t)(N * V) * sizeof *then);
    prog_get(p, 0, prog_find_port(p, "logits"), then);
    assert_memory_equal(first, then, (size_t)((N - 1) * V) * sizeof *then);
    assert_memory_not_equal(first + (N - 1) * V, then + (N - 1) * V, (size_t)V * sizeof *then);
    free(first), free(then);
    open_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), IO_TEST(test_gradients),
                                       cmocka_unit_test(test_who_sees_whom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
