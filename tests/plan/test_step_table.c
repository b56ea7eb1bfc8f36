/* The step table: whatever the model, stage of ZeRO, recompute, chunks and number of micro-batches
 * under way, every micro-batch goes through all chunks and back in a frame of its own, no op reads
 * weights that are not in their slot, and no op writes gradients where a reduction still reads.
 * (Here and not under step: plans make the programs.) */
#include "test.h"

#include "plan/plan.h"
#include "step/step.h"

enum { MOST_FRAMES = 4, MOST_CHUNKS = 4 };

/* Where the micro-batch in a frame is. */
typedef struct journey {
    int micro_batch; /* -1: none is in it */
    int chunk, next; /* op of it */
    bool back;
    bool ready; /* the chunk has its input: rows or activations, or gradients */
} journey;

typedef struct machine {
    const param_store *s;
    const step_parts *parts;
    journey frame[MOST_FRAMES];
    int forwards[MOST_CHUNKS], backwards[MOST_CHUNKS]; /* micro-batches that are through */
    int holder[64];                /* unit that a unit's slot holds, by unit; -1: none */
    bool coming[64], reducing[64]; /* a transfer is under way */
    bool written[64], done[64];    /* gradients: by this pass; reduced for the step */
    int first, end;                /* ops of the entry that runs */
    int gathers, reductions, overlapped;
} machine;

static bool same_slot(const machine *m, int u, int v) {
    return param_unit_at(m->s, u)->slot == param_unit_at(m->s, v)->slot;
}

static void check_use(void *ctx, int op, int unit, bool grad) {
    machine *m = ctx;
    if (op < m->first || op >= m->end) return;
    bool moves = param_weights_in_slots(m->s) && param_weights_transfer(m->s, unit).n > 0;
    if (!grad && moves && (m->holder[unit] != unit || m->coming[unit]))
        fail_msg("op %d reads unit %d, which is not there", op, unit);
    if (!grad) return;
    for (int u = 0; u < param_units(m->s); u++)
        if (m->reducing[u] && (u == unit || (param_grads_in_slots(m->s) && same_slot(m, u, unit))))
            fail_msg("op %d writes where unit %d is being reduced", op, u);
    m->written[unit] = true;
}

static void begin_gather(machine *m, int unit) {
    for (int u = 0; u < param_units(m->s); u++)
        if (same_slot(m, u, unit)) {
            assert_false(m->coming[u]);
            m->holder[u] = unit;
        }
    m->coming[unit] = true;
    m->gathers++;
}

static void run_entry(machine *m, const step_entry *e, const prog *p) {
    switch (e->action) {
        case STEP_FORWARD:
        case STEP_BACKWARD:
            m->first = e->first, m->end = e->end;
            for (int u = 0; u < param_units(m->s); u++) m->overlapped += m->reducing[u];
            prog_visit_units(p, check_use, m);
            break;
        case STEP_GATHER: begin_gather(m, e->unit); break;
        case STEP_GATHERED:
            assert_true(m->coming[e->unit]);
            m->coming[e->unit] = false;
            break;
        case STEP_REDUCE:
            assert_true(m->written[e->unit] && !m->reducing[e->unit]);
            m->written[e->unit] = false;
            m->reducing[e->unit] = true;
            m->done[e->unit] = e->last;
            m->reductions++;
            break;
        case STEP_REDUCED:
            assert_true(m->reducing[e->unit]);
            m->reducing[e->unit] = false;
            break;
        case STEP_OPTIMIZER:
            for (int u = 0; u < param_units(m->s); u++)
                assert_true(m->done[u] && !m->reducing[u] && !m->coming[u] && !m->written[u]);
            break;
        default: break;
    }
}

static const prog_stats *stats_of(const machine *m, int chunk) {
    return prog_get_stats(m->parts->chunk[chunk]);
}

static void end_forward(machine *m, journey *j, bool last) {
    assert_int_equal(j->next, stats_of(m, j->chunk)->ops_forward);
    assert_int_equal(last, j->chunk == m->parts->chunks - 1);
    assert_int_equal(m->forwards[j->chunk]++, j->micro_batch);
    if (last)
        j->back = j->ready = true;
    else
        *j = (journey){.micro_batch = j->micro_batch, .chunk = j->chunk + 1};
}

static void end_backward(machine *m, journey *j) {
    assert_int_equal(m->backwards[j->chunk]++, j->micro_batch);
    j->ready = false;
    if (j->chunk-- == 0)
        j->micro_batch = -1;
    else
        j->next = stats_of(m, j->chunk)->ops_forward;
}

static void run_ops(machine *m, journey *j, const step_entry *e) {
    assert_true(j->ready && e->first == j->next && e->end > e->first);
    assert_int_equal(j->back, e->action == STEP_BACKWARD);
    j->next = e->end;
    if (j->next == stats_of(m, j->chunk)->ops) end_backward(m, j);
}

/* Through all chunks and back, the micro-batches in order. */
static void travel(machine *m, const step_entry *e) {
    assert_in_range(e->frame, 0, m->parts->frames - 1);
    journey *j = &m->frame[e->frame];
    if (e->action == STEP_FILL && e->chunk == 0) {
        assert_int_equal(j->micro_batch, -1);
        *j = (journey){.micro_batch = e->micro_batch};
    }
    assert_int_equal(e->micro_batch, j->micro_batch);
    assert_int_equal(e->chunk, j->chunk);
    switch (e->action) {
        case STEP_FILL: /* beside what the chunk before has passed on */
            assert_false(j->ready || j->back);
            j->ready = true;
            break;
        case STEP_FORWARD:
        case STEP_BACKWARD: run_ops(m, j, e); break;
        case STEP_PASS_ON: end_forward(m, j, false); break;
        case STEP_LOSS: end_forward(m, j, true); break;
        case STEP_PASS_BACK:
            assert_true(j->back && !j->ready);
            j->ready = true;
            break;
        default: break;
    }
}

static bool moves_data(const step_entry *e) {
    return e->action <= STEP_BACKWARD;
}

static machine check_table(const plan *p, const step_parts *parts, const step_table *t) {
    machine m = {.s = p->store, .parts = parts};
    for (int u = 0; u < 64; u++) m.holder[u] = -1;
    for (int f = 0; f < MOST_FRAMES; f++) m.frame[f].micro_batch = -1;
    for (int i = 0; i < t->n; i++) {
        if (moves_data(&t->entry[i])) travel(&m, &t->entry[i]);
        run_entry(&m, &t->entry[i], step_prog_of(parts, &t->entry[i]));
    }
    for (int c = 0; c < parts->chunks; c++) {
        assert_int_equal(m.forwards[c], t->micro_batches);
        assert_int_equal(m.backwards[c], t->micro_batches);
    }
    return m;
}

static const char *const MODELS[] = {
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":5,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":32,\"tie_word_embeddings\":true}",
    "{\"model_type\":\"gpt2\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"max_position_embeddings\":32}",
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"intermediate_size\":40,\"max_position_embeddings\":32,"
    "\"tie_word_embeddings\":false}",
    "{\"model_type\":\"mobilellm\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":32,\"share_embedding\":true,\"block_repeat\":2}"};

/* How a step is cut up. */
typedef struct cut {
    int micro_batches, frames, chunks;
} cut;

static machine check(const char *model, int zero, int recompute, cut c, int64_t bucket) {
    arena *a = arena_new("test");
    dev *d;
    plan *p;
    err e = {0};
    json_t *o = json_loads(model, 0, NULL);
    plan_spec spec = {.compute = DT_F32,
                      .T = 8,
                      .train_B = 1,
                      .micro_batches = c.micro_batches,
                      .frames = c.frames,
                      .chunks = c.chunks,
                      .optim = optim_find("adamw"),
                      .recompute = (recompute_policy)recompute,
                      .sharing = {.shards = 2, .rank = 1, .zero = zero, .bucket_elems = bucket}};
    mesh ranks;
    mesh_place(&ranks, &(mesh_shape){.dp = 2, .dp_replicate = 1, .tp = 1, .cp = 1, .pp = 1}, 1);
    spec.ranks = &ranks;
    if (model_config_read(a, o, 0, &spec.model, &e) != ST_OK) fail_msg("%s", e.message);
    json_decref(o);
    assert_int_equal(dev_open_meta(&d, DEV_CPU, 1, &e), ST_OK);
    if (plan_new(&p, d, &spec, &e) != ST_OK) fail_msg("%s", e.message);
    step_parts parts = plan_step_parts(p, a, c.micro_batches, true);
    step_table t = step_build(a, &parts);
    machine m = check_table(p, &parts, &t);
    plan_free(p);
    dev_close(d);
    arena_free(a);
    return m;
}

static void check_cuts(const char *model, int zero, int recompute, int64_t bucket, int layers) {
    for (int chunks = 1; chunks <= layers && chunks <= MOST_CHUNKS; chunks++)
        for (int m = 1; m <= 3; m++)
            for (int frames = 1; frames <= MOST_FRAMES; frames++)
                check(model, zero, recompute, (cut){m, frames, chunks}, bucket);
}

static void test_all(void **state) {
    (void)state;
    static const int layers[ARRAY_LEN(MODELS)] = {5, 4, 1, 3};
    for (int k = 0; k < ARRAY_LEN(MODELS); k++)
        for (int zero = 0; zero <= 3; zero++)
            for (int recompute = 0; recompute < 3; recompute++)
                for (int64_t bucket = 1; bucket < 100000; bucket *= 300)
                    check_cuts(MODELS[k], zero, recompute, bucket, layers[k]);
}

/* Five layers and the tied embedding. What the two slots still hold when the backward begins is not
 * gathered again. */
static void test_counts(void **state) {
    (void)state;
    machine m = check(MODELS[0], 3, RECOMPUTE_NONE, (cut){1, 1, 1}, 1);
    assert_int_equal(m.gathers, 1 + 5 + 5 - 2);
    assert_int_equal(m.reductions, 1 + 1 + 5); /* vectors, embedding, layers */
    assert_true(m.overlapped > 5);
    m = check(MODELS[0], 0, RECOMPUTE_NONE, (cut){3, 1, 1}, 1);
    assert_int_equal(m.gathers, 0);
    assert_int_equal(m.reductions, 1 + 1 + 5); /* of the last micro-batch only */
    m = check(MODELS[0], 2, RECOMPUTE_NONE, (cut){3, 1, 1}, 1);
    assert_int_equal(m.reductions, 1 + 1 + 3 * 5); /* layers leave their slots */
    m = check(MODELS[0], 0, RECOMPUTE_NONE, (cut){1, 1, 1}, 1 << 20);
    assert_int_equal(m.reductions, 1 + 1 + 1); /* one bucket of all layers */
}

/* Cut into chunks and frames, a step sends what it sends in one piece. */
static void test_cut_counts(void **state) {
    (void)state;
    machine m = check(MODELS[0], 0, RECOMPUTE_NONE, (cut){3, 3, 2}, 1);
    assert_int_equal(m.reductions, 1 + 1 + 5);
    assert_true(m.overlapped > 5);
    m = check(MODELS[0], 2, RECOMPUTE_NONE, (cut){3, 1, 2}, 1);
    assert_int_equal(m.reductions, 1 + 1 + 3 * 5); /* layers leave their slots */
    for (int chunks = 1; chunks <= 2; chunks++) {
        m = check(MODELS[0], 3, RECOMPUTE_NONE, (cut){1, 1, chunks}, 1);
        assert_int_equal(m.gathers, 1 + 5 + 5 - 2);
        m = check(MODELS[0], 3, RECOMPUTE_NONE, (cut){3, 1, chunks}, 1);
        assert_int_equal(m.gathers, 3 * (1 + 5 + 5 - 2) - 3 * 2); /* nor from one to the next */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_cut_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
