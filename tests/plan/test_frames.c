/* Where the frames of a plan lie: those of a step beside each other, behind the scratch of all passes and other models, whatever
 * the phases of a run are. */
#include "test.h"

#include "plan/plan_int.h"

static const char LLAMA[] =
    "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":40,"
    "\"max_position_embeddings\":64}";

typedef struct part {
    int64_t at, end;
} part;

static part frames_of(const plan_program *g) {
    int64_t bytes = g->frames * prog_get_stats(g->prog)->frame_bytes;
    return (part){g->frame_offset, g->frame_offset + bytes};
}

/* Of a phase in which micro-batches are under way together. */
static void check_apart(const plan *p, int chunks) {
    part all[8];
    int n = 0;
    int64_t scratch = 0;
    for (int c = 0; c < chunks; c++) {
        const plan_program *g = plan_find(p, USE_TRAIN, c);
        int64_t bytes = prog_get_stats(g->prog)->scratch_bytes;
        if (bytes > scratch) scratch = bytes;
        all[n++] = frames_of(g);
    }
    assert_true(scratch > 0);
    for (int c = 0; c < chunks; c++) assert_true(all[c].at >= scratch);
    all[n++] = frames_of(plan_find(p, USE_LOOK, 0));
    for (int i = 0; i < n; i++) {
        int64_t room = p->region[REGION_FRAME].bytes;
        assert_in_range(all[i].end, 1, room);
        for (int k = 0; k < i; k++) assert_true(all[i].at >= all[k].end || all[k].at >= all[i].end);
    }
}

static void check(int chunks, recompute_policy second, int64_t micro_batches, bool fixed) {
    arena *a = arena_new("frames");
    dev *d;
    plan *p;
    err e = {0};
    json_t *o = json_loads(LLAMA, 0, NULL);
    plan_spec spec[3] = {{.compute = DT_F32,
                          .T = 16,
                          .train_B = 2,
                          .valid_B = 2,
                          .micro_batches = 4,
                          .chunks = chunks,
                          .frames = PLAN_ALL_FRAMES,
                          .deferred_loss = true,
                          .fixed_grads = fixed,
                          .n_others = 1}};
    assert_int_equal(model_config_read(a, o, 0, &spec[0].model, &e), ST_OK);
    json_decref(o);
    plan_other other = {"reference", spec[0].model};
    spec[0].others = &other;
    spec[0].optim = optim_find("adamw");
    spec[1] = spec[2] = spec[0];
    spec[1].recompute = second;
    spec[1].micro_batches = micro_batches;
    spec[2].T = 32;
    spec[2].micro_batches = 1;
    assert_int_equal(dev_open_meta(&d, DEV_CPU, 1, &e), ST_OK);
    if (plan_new_phases(&p, d, spec, 3, &e) != ST_OK) fail_msg("%s", e.message);
    for (int i = 0; i < 3; i++) {
        plan_select(p, i);
        assert_int_equal(plan_frames(p), spec[i].micro_batches);
        if (plan_frames(p) > 1) check_apart(p, chunks);
    }
    plan_free(p);
    dev_close(d);
    arena_free(a);
}

static void test_phases(void **state) {
    (void)state;
    for (int chunks = 1; chunks <= 3; chunks++)
        for (recompute_policy r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++)
            for (int micro_batches = 1; micro_batches <= 4; micro_batches += 3)
                for (int fixed = 0; fixed < 2; fixed++) check(chunks, r, micro_batches, fixed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_phases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
