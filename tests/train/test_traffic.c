/* What a plan says that a rank sends in a step, or reads from a file and writes to it, is what its comms and its file count. */
#include "test.h"

#include "comm/comm_test.h"
#include "train/layouts/trial.h"

enum { AGREED_BYTES = 1024 };

/* Vocabularies and key heads that do not divide are in it. */
static const char LLAMA[] =
    "model: {model_type: llama, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 4,"
    " num_key_value_heads: 2, intermediate_size: 48, vocab_size: 67, max_position_embeddings: 64,"
    " tie_word_embeddings: true}\n";
/* Norms of whole rows of heads. */
static const char OLMO2[] =
    "model: {model_type: olmo2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4,"
    " num_key_value_heads: 2, intermediate_size: 48, vocab_size: 67, max_position_embeddings: 64}"
    "\n";

/* Each token picks all experts, so all loads are even, as plans have them. */
static const char EXPERTS[] =
    "model: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4,"
    " num_key_value_heads: 2, intermediate_size: 16, num_experts: 4, num_experts_per_tok: 4,"
    " num_shared_experts: 1, vocab_size: 67, max_position_embeddings: 64}\n";

static void write_config(char path[], const char *model) {
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fprintf(f,
            "%strain: {steps: 1, seq_len: 64, global_batch_size: 8, micro_batch_size: 1,"
            " threads: 1, precision: fp32}\nparallel: {bucket_mb: 0.001}\n",
            model);
    fclose(f);
}

static const char LAYERS4[] =
    "model: {model_type: llama, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4,"
    " num_key_value_heads: 2, intermediate_size: 48, vocab_size: 67, max_position_embeddings: 64,"
    " tie_word_embeddings: true}\n";

typedef struct rank_job {
    const char *path, *const *keys;
    int n_keys;
    comm_counts planned, counted;
    offload_counts file_planned, file_counted;
    int64_t peak_bytes;
    status st;
    err why;
} rank_job;

/* When what a stage passed on last is there, too: a step does not wait for that. */
static comm_counts count_all(comm_world *world, const session *s) {
    comm *all = s->setup.peers.m.axis[MESH_WORLD];
    comm_wait(world, comm_start(all, &(comm_call){.kind = COMM_BARRIER, .dt = DT_U8}));
    return comm_counted(world);
}

static status measure(rank_job *j, comm_world *world, session *s) {
    step_result r;
    TRY(trial_step(s, NULL, NULL, NULL, &r, &j->why));
    comm_counts before = count_all(world, s);
    offload *file = s->setup.offload;
    offload_counts moved = file ? offload_counted(file) : (offload_counts){0};
    TRY(trial_step(s, NULL, NULL, NULL, &r, &j->why));
    j->counted = count_all(world, s);
    for (int k = 0; k < COMM_KINDS; k++) {
        j->counted.calls[k] -= before.calls[k];
        j->counted.sent_bytes[k] -= before.sent_bytes[k];
    }
    j->planned = plan_traffic(s->setup.plan);
    j->file_planned = plan_file_traffic(s->setup.plan);
    if (file) j->file_counted = offload_counted(file);
    j->file_counted.read_bytes -= moved.read_bytes;
    j->file_counted.written_bytes -= moved.written_bytes;
    j->peak_bytes = s->setup.plan->peak_bytes;
    return ST_OK;
}

static void rank_main(comm_world *world, void *jobs) {
    rank_job *j = (rank_job *)jobs + comm_world_rank(world);
    config *c = NULL;
    session s = {0};
    arena *a = arena_new("rank");
    j->st = config_load(&c, j->path, j->keys, j->n_keys, &j->why);
    if (j->st == ST_OK) j->st = trial_open(&s, a, c, world, false, &j->why);
    if (j->st == ST_OK) j->st = measure(j, world, &s);
    if (j->st != ST_OK) comm_fail(world, &j->why);
    session_close(&s);
    config_free(c);
}

static int64_t total(const comm_counts *c) {
    int64_t sum = 0;
    for (int k = 0; k < COMM_KINDS; k++) sum += c->sent_bytes[k];
    return sum;
}

static void compare(const rank_job *j, int rank, const char *what) {
    static const comm_kind kinds[] = {COMM_REDUCE_SCATTER, COMM_ALL_GATHER, COMM_SEND,
                                      COMM_ALL_TO_ALL, COMM_SHIFT};
    for (int i = 0; i < ARRAY_LEN(kinds); i++) {
        comm_kind k = kinds[i];
        if (j->planned.sent_bytes[k] != j->counted.sent_bytes[k] ||
            j->planned.calls[k] != j->counted.calls[k])
            fail_msg("%s, rank %d, kind %d: planned %ld in %ld calls, counted %ld in %ld", what,
                     rank, (int)k, (long)j->planned.sent_bytes[k], (long)j->planned.calls[k],
                     (long)j->counted.sent_bytes[k], (long)j->counted.calls[k]);
    }
    int64_t more = total(&j->counted) - total(&j->planned);
    if (more < 0 || more > AGREED_BYTES)
        fail_msg("%s, rank %d: planned %ld, counted %ld", what, rank, (long)total(&j->planned),
                 (long)total(&j->counted));
}

static void compare_files(const rank_job *j, int rank, const char *what) {
    const offload_counts *p = &j->file_planned, *c = &j->file_counted;
    if (p->read_bytes != c->read_bytes || p->written_bytes != c->written_bytes)
        fail_msg("%s, rank %d: planned to read %ld and write %ld, counted %ld and %ld", what, rank,
                 (long)p->read_bytes, (long)p->written_bytes, (long)c->read_bytes,
                 (long)c->written_bytes);
    assert_int_equal(p->written_bytes > 0, strstr(what, "offload") != NULL);
}

/* The plan that is made without ranks: of the largest of them. */
static void compare_plan(const char *path, const char *const *keys, int n_keys,
                         const rank_job *jobs, int ranks) {
    config *c;
    dev *meta;
    plan *p = NULL;
    err e = {0};
    assert_int_equal(config_load(&c, path, keys, n_keys, &e), ST_OK);
    trial_trim_config(c);
    assert_int_equal(dev_open_meta(&meta, DEV_CPU, 1, &e), ST_OK);
    if (train_plan(c, meta, &p, &e) != ST_OK) fail_msg("%s", e.message);
    for (int k = 0; k < p->n_classes; k++) {
        int seen = 0;
        for (int r = 0; r < ranks; r++) seen += jobs[r].peak_bytes == p->classes[k].peak_bytes;
        assert_int_equal(seen, p->classes[k].ranks);
        assert_true(p->classes[k].peak_bytes <= p->peak_bytes);
    }
    plan_free(p);
    dev_close(meta);
    config_free(c);
}

static void check(const char *model, int ranks, const char *layout) {
    char path[] = "/tmp/athanor-traffic-XXXXXX", text[256];
    const char *keys[8];
    int n = 0;
    snprintf(text, sizeof text, "%s", layout);
    for (char *k = strtok(text, " "); k; k = strtok(NULL, " ")) keys[n++] = k;
    write_config(path, model);
    rank_job jobs[MOST_RANKS] = {0};
    for (int r = 0; r < ranks; r++) jobs[r] = (rank_job){.path = path, .keys = keys, .n_keys = n};
    run_threads(ranks, rank_main, jobs);
    for (int r = 0; r < ranks; r++) {
        if (jobs[r].st != ST_OK) fail_msg("%s: %s", layout, jobs[r].why.message);
        assert_true(total(&jobs[r].planned) > 0);
        compare(&jobs[r], r, layout);
        compare_files(&jobs[r], r, layout);
    }
    compare_plan(path, keys, n, jobs, ranks);
    remove(path);
}

static void test_data_parallel(void **state) {
    (void)state;
    check(LLAMA, 4, "parallel.dp=4");
    check(LLAMA, 3, "parallel.dp=3 train.global_batch_size=6");
    check(LLAMA, 2, "parallel.dp=2 train.deterministic=true");
    check(LLAMA, 2, "parallel.dp=2 train.deterministic=true parallel.reduce_dtype=bf16");
    check(LLAMA, 2, "parallel.dp=2 parallel.reduce_dtype=bf16");
}

static void test_files(void **state) {
    (void)state;
    check(LLAMA, 2, "parallel.dp=2 parallel.offload=optimizer");
    check(LLAMA, 2,
          "parallel.dp=2 parallel.zero=1 parallel.offload=optimizer train.precision=bf16");
    check(LLAMA, 2, "parallel.dp=2 parallel.zero=3 parallel.offload=weights train.recompute=full");
    check(LLAMA, 3,
          "parallel.dp=3 parallel.zero=3 train.global_batch_size=24 train.precision=bf16"
          " parallel.offload=all");
    check(OLMO2, 4, "parallel.dp=2 parallel.tp=2 parallel.zero=3 parallel.offload=all");
    check(LLAMA, 2, "parallel.pp=2 parallel.dp=1 parallel.zero=3 parallel.offload=all");
}

static void test_zero(void **state) {
    (void)state;
    check(LLAMA, 4, "parallel.dp=4 parallel.zero=1 train.precision=bf16");
    check(LLAMA, 2, "parallel.dp=2 parallel.zero=2");
    check(LLAMA, 2, "parallel.dp=2 parallel.zero=3 train.global_batch_size=20");
    check(LLAMA, 2,
          "parallel.dp=2 parallel.zero=1 train.global_batch_size=20"
          " parallel.pp_schedule=afab parallel.virtual=2");
    check(LLAMA, 4, "parallel.dp=4 parallel.zero=3 parallel.dp_replicate=2 train.recompute=full");
    check(LLAMA, 3, "parallel.dp=3 parallel.zero=3 train.global_batch_size=6 train.precision=bf16");
    check(LLAMA, 2, "parallel.dp=2 parallel.zero=3 parallel.reduce_dtype=bf16");
}

static void test_tensor_parallel(void **state) {
    (void)state;
    check(LLAMA, 4, "parallel.tp=4");
    check(LLAMA, 2, "parallel.tp=2 parallel.sp=true train.recompute=selective");
    check(LLAMA, 4,
          "parallel.dp=2 parallel.tp=2 parallel.sp=true parallel.zero=3 train.recompute=full");
    check(OLMO2, 2, "parallel.tp=2");
    check(OLMO2, 4, "parallel.tp=4 parallel.sp=true");
}

static void test_async_products(void **state) {
    (void)state;
    check(LLAMA, 2, "parallel.tp=2 parallel.tp_async=true");
    check(LLAMA, 4, "parallel.tp=4 parallel.tp_async=true parallel.sp=true train.recompute=full");
    check(LLAMA, 4,
          "parallel.dp=2 parallel.tp=2 parallel.tp_async=true parallel.sp=true parallel.zero=3");
    check(OLMO2, 4, "parallel.pp=2 parallel.tp=2 parallel.tp_async=true parallel.sp=true");
    check(LLAMA, 4,
          "parallel.cp=2 parallel.cp_kind=ring parallel.tp=2 parallel.tp_async=true "
          "train.precision=bf16");
}

static void test_kept_collectives(void **state) {
    (void)state;
    check(LLAMA, 2, "parallel.tp=2 parallel.sp=true train.keep_collectives=true");
    check(OLMO2, 2, "parallel.tp=2 train.keep_collectives=true train.recompute=full");
    check(LLAMA, 4,
          "parallel.cp=2 parallel.tp=2 parallel.sp=true train.keep_collectives=true "
          "train.recompute=full");
}

static void test_pipelines(void **state) {
    (void)state;
    check(LLAMA, 2, "parallel.pp=2");
    check(LLAMA, 3, "parallel.pp=3 parallel.pp_schedule=afab train.precision=bf16");
    check(LLAMA, 4, "parallel.dp=2 parallel.pp=2 parallel.zero=1 parallel.dp_replicate=2");
    check(LLAMA, 4, "parallel.dp=2 parallel.pp=2 parallel.zero=3 train.global_batch_size=96");
    check(LLAMA, 2, "parallel.pp=2 train.global_batch_size=50 train.recompute=full");
    check(OLMO2, 4, "parallel.pp=2 parallel.tp=2 parallel.sp=true");
}

/* Gradients leave after every micro-batch, and micro-batches of several chunks take turns. */
static void test_pipelines_with_slots(void **state) {
    (void)state;
    check(LLAMA, 4,
          "parallel.dp=2 parallel.pp=2 parallel.zero=2 parallel.pp_schedule=zb-h1 "
          "train.global_batch_size=96");
    check(LLAMA, 4, "parallel.dp=2 parallel.pp=2 parallel.zero=3 parallel.pp_schedule=zb-h1");
    check(LAYERS4, 4,
          "parallel.dp=2 parallel.pp=2 parallel.zero=2 parallel.pp_schedule=interleaved "
          "parallel.virtual=2 train.global_batch_size=64");
    check(LAYERS4, 4,
          "parallel.dp=2 parallel.pp=2 parallel.zero=3 parallel.pp_schedule=interleaved "
          "parallel.virtual=2 train.precision=bf16");
    check(LAYERS4, 4,
          "parallel.dp=2 parallel.pp=2 parallel.zero=2 parallel.pp_schedule=zb-v "
          "parallel.virtual=2 train.recompute=full train.global_batch_size=64");
    check(
        LAYERS4, 4,
        "parallel.dp=2 parallel.pp=2 parallel.zero=3 parallel.pp_schedule=zb-v parallel.virtual=2");
    check(LLAMA, 2, "parallel.dp=2 parallel.zero=3 parallel.pp_schedule=afab parallel.virtual=3");
}

static void test_contexts(void **state) {
    (void)state;
    check(LLAMA, 2, "parallel.cp=2");
    check(LLAMA, 2, "parallel.cp=2 parallel.cp_kind=ulysses train.recompute=full");
    check(LLAMA, 4, "parallel.cp=4 parallel.cp_kind=ring train.precision=bf16");
    check(LLAMA, 4,
          "parallel.dp=2 parallel.cp=2 parallel.cp_kind=ring parallel.zero=3 train.recompute=full");
    check(OLMO2, 4, "parallel.cp=2 parallel.tp=2 parallel.sp=true");
    check(LLAMA, 4, "parallel.cp=2 parallel.pp=2 parallel.cp_kind=ring parallel.zero=1");
}

/* In one round and in several, beside all other axes. */
static void test_experts(void **state) {
    (void)state;
    check(EXPERTS, 2, "parallel.dp=2 parallel.ep=2");
    check(EXPERTS, 4, "parallel.dp=4 parallel.ep=4 parallel.ep_load=4 train.recompute=selective");
    check(EXPERTS, 4,
          "parallel.dp=4 parallel.ep=2 parallel.ep_load=0.3 parallel.zero=1 train.precision=bf16");
    check(EXPERTS, 4, "parallel.dp=4 parallel.ep=2 parallel.zero=2 parallel.reduce_dtype=bf16");
    check(EXPERTS, 4, "parallel.dp=4 parallel.ep=4 parallel.zero=3 train.recompute=full");
    check(EXPERTS, 4, "parallel.dp=4 parallel.ep=2 parallel.zero=3 parallel.dp_replicate=2");
    check(EXPERTS, 4, "parallel.dp=2 parallel.ep=2 parallel.tp=2 parallel.sp=true");
    check(EXPERTS, 4, "parallel.dp=2 parallel.cp=2 parallel.ep=4 parallel.cp_kind=ring");
    check(EXPERTS, 4, "parallel.dp=2 parallel.pp=2 parallel.ep=2 parallel.zero=1");
    check(EXPERTS, 2,
          "parallel.dp=2 parallel.ep=2 train.keep_collectives=true train.recompute=full");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_data_parallel),
                                       cmocka_unit_test(test_zero),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_tensor_parallel),
                                       cmocka_unit_test(test_pipelines),
                                       cmocka_unit_test(test_pipelines_with_slots),
                                       cmocka_unit_test(test_contexts),
                                       cmocka_unit_test(test_async_products),
                                       cmocka_unit_test(test_kept_collectives),
                                       cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
