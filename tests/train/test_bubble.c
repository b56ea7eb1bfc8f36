/* The bubble of a pipeline, as a step has it: ranks are threads, ops take a stated time and compute nothing. Stages wait as long as
 * the formulas of the schedules say, and keep as many micro-batches.
 *
 * The time is slept away, so that two cores do for eight ranks. Another load of the machine makes stages wait longer, never
 * shorter: a layout is tried a few times, and the shortest of its times counts. */
#include "test.h"

#include <time.h>

#include "base/clock.h"
#include "prog/graph_int.h"
#include "train/layouts/layouts.h"
#include "train/session.h"

enum { MOST_STAGES = 8, TRIES = 6 };

static const char MODEL[] =
    "model: {model_type: llama, hidden_size: 8, num_hidden_layers: 16, num_attention_heads: 1,"
    " intermediate_size: 8, vocab_size: 17, max_position_embeddings: 4, tie_word_embeddings: "
    "false}\n"
    "train: {steps: 1, seq_len: 4, global_batch_size: 2, micro_batch_size: 2, precision: fp32}\n";

static layout_trial *trial_of(int micro_batches) {
    char path[] = "/tmp/athanor-bubble-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, MODEL, sizeof MODEL - 1), sizeof MODEL - 1);
    close(fd);
    config *c;
    layout_trial *t;
    err e = {0};
    if (config_load(&c, path, NULL, 0, &e) != ST_OK) fail_msg("%s", e.message);
    remove(path);
    if (layout_trial_new(&t, c, 0, micro_batches, &e) != ST_OK) fail_msg("%s", e.message);
    config_free(c);
    return t;
}

/* ---- ops that sleep ---- */

/* What a stage did in the step. Only its own thread writes it; ops have no other place for notes. */
typedef struct notes {
    int64_t begin_ns, end_ns, busy_ns;
    int kept, most_kept;
} notes;
static notes noted[MOST_STAGES];
static int64_t unit_ns; /* of a forward; a backward takes twice that */

static void take(const op_call *c, int units, int kept) {
    notes *n = &noted[c->run->mesh->rank[MESH_PP]];
    int64_t began = clock_now_ns();
    nanosleep(&(struct timespec){.tv_nsec = units * unit_ns}, NULL);
    if (!n->begin_ns) n->begin_ns = began;
    n->end_ns = clock_now_ns();
    n->busy_ns += n->end_ns - began;
    n->kept += kept;
    if (n->kept > n->most_kept) n->most_kept = n->kept;
}

static void forward(const op_call *c) {
    take(c, 1, 1);
}
static void whole_backward(const op_call *c) {
    take(c, 2, -1);
}
static void nothing(const op_call *c) {
    (void)c;
}

static void slow_down(session *s, int step) {
    const step_parts *parts = &s->stage.parts;
    for (int c = 0; step == 1 && c < parts->chunks; c++) {
        if (!parts->chunk[c]) continue;
        graph *g = parts->chunk[c]->g;
        for (int i = 0; i < g->n_ops; i++) g->op[i].fn = nothing;
        g->op[0].fn = forward;
        g->op[prog_get_stats(parts->chunk[c])->ops_forward].fn = whole_backward;
    }
}

/* ---- shares ---- */

/* The time in which stages waited, over that in which they worked. */
static double idle_share(int stages) {
    int64_t begin = INT64_MAX, end = 0, busy = 0;
    for (int i = 0; i < stages; i++) {
        if (noted[i].begin_ns < begin) begin = noted[i].begin_ns;
        if (noted[i].end_ns > end) end = noted[i].end_ns;
        busy += noted[i].busy_ns;
    }
    return (double)(end - begin) * stages / (double)busy - 1;
}

/* In units: F = 1 and B = 2 of a chunk, of which a stage has `of_stage`. */
static double formula(int kind, int P, int M, int of_stage) {
    (void)kind;
    return (P - 1.0) / M / of_stage;
}

/* Most passes that a stage has done forward and not back. */
static int kept(int kind, int P, int M, int of_stage, int s) {
    int ahead = kind == CONFIG_PP_AFAB ? of_stage * M
                : of_stage == 1        ? P - s
                                       : 2 * (P - 1 - s) + (of_stage - 1) * P + 1;
    return ahead < of_stage * M ? ahead : of_stage * M;
}

static void check(int kind, int P, int M, int of_stage) {
    layout l = {.dp = 1, .dp_replicate = 1, .tp = 1, .pp = P};
    l.schedule = kind, l.virtual = of_stage;
    layout_way way = {.precision = CONFIG_PRECISION_FP32, .steps = 1, .between = slow_down};
    double want = formula(kind, P, M, of_stage), least = INFINITY;
    layout_trial *t = trial_of(M);
    unit_ns = of_stage == 1 ? 10000000 : 7000000;
    for (int i = 0; i < TRIES && least > 1.05 * want; i++) {
        err e = {0};
        memset(noted, 0, sizeof noted);
        layout_result *r = layout_result_new(t, &way);
        if (layout_run(t, &l, &way, r, &e) != ST_OK) fail_msg("%s", e.message);
        least = fmin(least, idle_share(P));
        for (int s = 0; s < P; s++)
            assert_int_equal(noted[s].most_kept, kept(kind, P, M, of_stage, s));
    }
    layout_trial_free(t);
    char name[LAYOUT_NAME_MAX];
    layout_name(&l, name);
    if (getenv("BUBBLE_SHOW")) printf("%s, %d micro-batches: %.4f, %.4f\n", name, M, least, want);
    if (!(least > 0.99 * want && least < 1.05 * want))
        fail_msg("%s, %d micro-batches: stages wait %.4f of what they work, not %.4f", name, M,
                 least, want);
}

/* All sizes of the formulas' range with `all`; else the ends of it. */
static void check_kind(int kind, int of_stage) {
    bool all = getenv("BUBBLE_ALL");
    for (int P = 2; P <= MOST_STAGES; P *= 2)
        for (int k = 1; k <= 8; k *= 2)
            if (all || k == (P == 8 ? 1 : P == 4 ? 2 : 4)) check(kind, P, k * P, of_stage);
}

static void test_afab(void **state) {
    (void)state;
    check_kind(CONFIG_PP_AFAB, 1);
}
static void test_1f1b(void **state) {
    (void)state;
    check_kind(CONFIG_PP_1F1B, 1);
}
static void test_interleaved(void **state) {
    (void)state;
    check_kind(CONFIG_PP_INTERLEAVED, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_afab),
        cmocka_unit_test(test_1f1b),
        cmocka_unit_test(test_interleaved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
