/* How often the host waits for the device in a step, on the emulated GPU: once, however many micro-batches there are, since losses and
 * what routers did come to the host behind the passes. Its driver's functions that wait are counted; the linker lets this file in between
 * (--wrap). */
#include "test.h"

#include "gpu/driver.h"
#include "train/layouts/trial.h"

static cu_driver real; /* before this file's functions came into it */
static int waits;

void __real_emu_driver_fill(cu_driver *d);
void __wrap_emu_driver_fill(cu_driver *d);

static cu_result counted_stream_sync(cu_stream s) {
    waits++;
    return real.stream_sync(s);
}

static cu_result counted_event_sync(cu_event e) {
    waits++;
    return real.event_sync(e);
}

void __wrap_emu_driver_fill(cu_driver *d) {
    __real_emu_driver_fill(d);
    real = *d;
    d->stream_sync = counted_stream_sync;
    d->event_sync = counted_event_sync;
}

static config *config_of(int micro_batches, const char *model, const char *train) {
    char path[] = "/tmp/athanor-waits-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    fprintf(
        f,
        "model: {model_type: llama, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,"
        " num_key_value_heads: 2, intermediate_size: 32, vocab_size: 37, max_position_embeddings: "
        "16%s}\n"
        "train: {steps: 8, seq_len: 16, global_batch_size: %d, micro_batch_size: 2, precision: "
        "fp32%s}\n",
        model, 2 * micro_batches, train);
    fclose(f);
    config *c;
    err e = {0};
    if (config_load(&c, path, NULL, 0, &e) != ST_OK) fail_msg("%s", e.message);
    remove(path);
    return c;
}

/* What the last of several steps comes to; the first ones choose algorithms and make CUDA graphs. */
typedef struct outcome {
    int waits;
    double loss, norm;
    int64_t picks; /* of experts, in all layers */
} outcome;

static outcome run(const char *device, int micro_batches, const char *model, const char *train) {
    config *c = config_of(micro_batches, model, train);
    session s;
    step_result r = {0};
    err e = {0};
    setenv("ATHANOR_DEVICE", device, 1);
    if (trial_open(&s, arena_new("waits"), c, NULL, false, &e) != ST_OK) fail_msg("%s", e.message);
    outcome o = {0};
    for (int i = 0; i < 5; i++) {
        waits = 0;
        if (trial_step(&s, NULL, NULL, NULL, &r, &e) != ST_OK) fail_msg("%s", e.message);
        o = (outcome){waits, execute_mean_loss(&r), r.norm, 0};
    }
    for (int l = 0; l < s.routers.n; l++)
        for (int x = 0; x < s.routers.E; x++)
            o.picks += s.routers.sum[(l * ROUTERS_SUMS + ROUTERS_PICKS) * s.routers.E + x];
    trial_close(&s, NULL, ST_OK, &e);
    config_free(c);
    return o;
}

/* How often it waits, when it comes to what the CPU comes to; the twin to the same bits. */
static int waits_of(int micro_batches, const char *model, const char *train) {
    outcome cpu = run("cpu", micro_batches, model, train);
    outcome twin = run("twin", micro_batches, model, train);
    outcome gpu = run("cuda", micro_batches, model, train);
    int64_t tokens = 2 * 16 * micro_batches, picks = strstr(model, "experts") ? 2 * 2 * tokens : 0;
    assert_true(cpu.picks == picks && twin.picks == picks && gpu.picks == picks);
    assert_true(cpu.loss > 0 && twin.loss == cpu.loss && twin.norm == cpu.norm);
    assert_true(fabs(gpu.loss - cpu.loss) < 1e-5 * cpu.loss);
    assert_true(fabs(gpu.norm - cpu.norm) < 1e-4 * cpu.norm);
    return gpu.waits;
}

static void test_dense(void **state) {
    (void)state;
    assert_int_equal(waits_of(4, "", ""), 1);
    assert_int_equal(waits_of(4, ", num_nextn_predict_layers: 1", ""), 1);
}

/* Where something may leave the update out, or chunks have frames of their own. */
static void test_other_steps(void **state) {
    (void)state;
    assert_int_equal(waits_of(4, "", "}\nguard: {action: skip"), 1);
    assert_int_equal(waits_of(4, "", ", deterministic: true"), 1);
    assert_int_equal(waits_of(4, "", "}\nparallel: {virtual: 2, pp_schedule: afab"), 1);
}

/* The loads of experts are summed before the update, which may move by them; and when 32 micro-batches have told theirs. */
static void test_experts(void **state) {
    (void)state;
    const char *experts = ", num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16";
    assert_int_equal(waits_of(4, experts, ""), 2);
    assert_int_equal(waits_of(33, experts, ""), 3);
}

int main(void) {
    setenv("ATHANOR_CUDA", "emulated", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_other_steps),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
