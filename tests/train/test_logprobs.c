/* Log-probabilities of the same tokens by all programs that say them, in fp32: training with a loss of
 * its own, training of a language model, validation, the scorer, and generation. */
#include "io/hf/hf_load.h"
#include "test.h"

#include "base/rng.h"
#include "infer/generate.h"
#include "interchange/open_model.h"
#include "train/execute.h"
#include "train/layouts/trial.h"

#define MODEL TEST_DIR "/golden/models/llama-gqa-tied"
enum { B = 4, T = 24, V = 97 };

static int32_t ids[B][T + 1];

static void draw_ids(void) {
    for (int i = 0; i < B * (T + 1); i++) ids[i / (T + 1)][i % (T + 1)] = (int32_t)(mix64(i) % V);
}

static void put(const batch_rows *r) {
    for (int i = 0; i < B * T; i++) {
        r->ids[i] = ids[i / T][i % T];
        r->targets[i] = ids[i / T][i % T + 1];
        r->pos[i] = i % T;
        if (r->start) r->start[i] = 0;
    }
}

/* nll [B,T] by the training program of an objective, or by its validation program. */
static void by_training(const char *name, bool valid, float nll[B * T]) {
    char path[] = "/tmp/logprobs_XXXXXX", key[64];
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    fprintf(f,
            "model: {from: %s}\n"
            "train: {steps: 1, seq_len: %d, global_batch_size: %d, micro_batch_size: %d, "
            "precision: fp32}\n",
            MODEL, T, B, B);
    fclose(f);
    snprintf(key, sizeof key, "train.objective=%s", name);
    config *c;
    session s;
    err e = {0};
    const char *keys[] = {key};
    arena *a = arena_new("test");
    assert_int_equal(config_load(&c, path, keys, 1, &e), ST_OK);
    unlink(path);
    if (trial_open(&s, a, c, NULL, false, &e) != ST_OK) fail_msg("%s", e.message);
    assert_int_equal(hf_load_weights(s.setup.plan->store, MODEL, &e), ST_OK);
    const batch_ports *io = valid ? &s.stage.validation : &s.stage.chunks[0];
    assert_non_null(io->p);
    op_run run = {.dev = s.setup.dev, .first_micro = true, .grad_scale = 1};
    put(&s.stage.rows);
    for (int first = 0; first < B; first += execute_pass_rows(&s.stage)) {
        batch_rows part = batch_rows_from(&s.stage.rows, first);
        batch_put(io, 0, &part);
        prog_replay(io->p, PROG_F, &run);
        batch_take_nll(io, 0, &part);
    }
    memcpy(nll, s.stage.rows.nll, sizeof *nll * B * T);
    session_close(&s);
    config_free(c);
}

/* The head of every program is the same, and so are its bits; so is the row of a sequence, whatever
 * other rows there are. */
static void test_training(void **state) {
    (void)state;
    float lm[B * T], dpo[B * T], kto[B * T], kto_valid[B * T];
    draw_ids();
    by_training("lm", false, lm);
    by_training("dpo", false, dpo);
    by_training("kto", false, kto); /* two rows at a time */
    by_training("kto", true, kto_valid);
    assert_memory_equal(dpo, lm, sizeof lm);
    assert_memory_equal(kto, lm, sizeof lm);
    assert_memory_equal(kto_valid, lm, sizeof lm);
}

static void open(open_model *m, int cache_tok) {
    err e = {0};
    assert_int_equal(open_model_read(m, MODEL, 2, &e), ST_OK);
    if (cache_tok == 0) open_model_set_scorer(m, T, 1 << 20);
    assert_int_equal(open_model_load(m, cache_tok, 0, &e), ST_OK);
}

static void test_scorer(void **state) {
    (void)state;
    float nll[B * T];
    open_model m;
    err e = {0};
    score_request r[B];
    score_options none = {0};
    draw_ids();
    by_training("dpo", false, nll);
    open(&m, 0);
    scorer *s = open_model_scorer(&m);
    for (int b = 0; b < B; b++)
        r[b] = (score_request){.ids = ids[b], .n = T + 1, .n_scored = T - 5 * b};
    assert_int_equal(scorer_run(s, r, B, &none, NULL, &e), ST_OK);
    for (int b = 0; b < B; b++) {
        double want = 0;
        for (int t = 5 * b; t < T; t++) want -= (double)nll[b * T + t];
        assert_true(r[b].loglik == want);
    }
    scorer_free(s);
    open_model_close(&m);
}

/* What generation says of its own tokens, which pass one by one through a cache. */
static void test_generation(void **state) {
    (void)state;
    enum { NEW = 16 };
    double said[NEW], worst = 0;
    float nll[B * T];
    tok_ids out = {0};
    strbuf text = {0};
    generate_result result;
    err e = {0};
    open_model m;
    draw_ids();
    open(&m, T + 1);
    generator g = open_model_generator(&m);
    generate_request rq = {
        .prompt = ids[0], .n_prompt = T + 1 - NEW, .max_new = NEW, .logprobs = said};
    rq.sample =
        (sample_options){.temperature = 0.9, .top_p = 1, .repetition_penalty = 1.1, .seed = 3};
    assert_int_equal(generate_run(&g, &rq, &out, &text, &result, &e), ST_OK);
    assert_int_equal(out.n, NEW);
    memcpy(ids[0] + T + 1 - NEW, out.id, sizeof *out.id * NEW);
    by_training("dpo", false, nll);
    for (int i = 0; i < NEW; i++) worst = fmax(worst, fabs(said[i] + (double)nll[T - NEW + i]));
    print_message("generation and training differ by %.2g\n", worst);
    assert_true(worst < 1e-5);
    tok_ids_free(&out);
    strbuf_free(&text);
    generator_free(&g);
    open_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training),
                                       cmocka_unit_test(test_scorer),
                                       cmocka_unit_test(test_generation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
