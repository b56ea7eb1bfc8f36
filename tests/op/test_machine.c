/* What is chosen by what was measured, with planted times; what is remembered of machines: written, read
 * back, kept apart, refused when damaged, obeyed by products; and the probe, alone and beside a busy
 * neighbour. */
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "op/probe.h"

static const char PATH[] = "machine_test/cache/machine.json";
static const machine_layer LAYER = {.rows = 512, .in = 512, .width = 512};

static dev *open_dev(int threads) {
    dev *d;
    assert_int_equal(dev_open(&d, DEV_CPU, threads, NULL), ST_OK);
    return d;
}

/* ---- choosing ---- */

/* Milliseconds of each arithmetic by our own products and by oneDNN's, in every layout. */
typedef struct planted {
    const char *name;
    cpu_isa isa;
    double own[ARITHS], onednn[ARITHS];
    machine_arith how;
    gemm_impl impl;
} planted;

static const planted MACHINES[] = {
    {"Zen: dots twice as fast",
     ISA_AVX512_BF16,
     {2.1, 1.07, 2.1},
     {2.1, 1.05},
     ARITH_DOTS,
     GEMM_OWN},
    {"Intel: dots half as fast",
     ISA_AVX512_BF16,
     {2.0, 3.6, 1.98},
     {1.95, 3.5},
     ARITH_WIDE,
     GEMM_OWN},
    {"Intel where widening wins",
     ISA_AVX512_BF16,
     {2.2, 3.6, 2.0},
     {2.2, 3.6},
     ARITH_WIDE,
     GEMM_OWN},
    {"AMX through oneDNN", ISA_AVX512_BF16, {2.0, 3.6, 2.1}, {2.0, 0.3}, ARITH_DOTS, GEMM_ONEDNN},
    {"equal: the default stands",
     ISA_AVX512_BF16,
     {2.0, 1.98, 1.97},
     {2.0, 1.9},
     ARITH_DOTS,
     GEMM_OWN},
    {"AVX2", ISA_AVX2, {4.0, 0, 4.05}, {4.1, 0}, ARITH_WIDE, GEMM_OWN},
    {"oneDNN much faster in fp32", ISA_AVX2, {4.0, 0, 4.05}, {2.5, 0}, ARITH_F32, GEMM_ONEDNN},
    {"Intel where widening costs",
     ISA_AVX512_BF16,
     {2.0, 3.6, 2.16},
     {1.95, 3.5},
     ARITH_F32,
     GEMM_OWN},
};

/* noise: each time is longer by at most that share. */
static machine_facts plant(const planted *m, double noise, uint64_t seed) {
    machine_facts f = {.isa = m->isa, .threads = 2, .fma_gflops = 1, .n_layers = 1};
    rng_key key = rng_key_named(seed, "noise");
    f.layer[0] = LAYER;
    for (int i = 0; i < ARITHS * GEMM_LAYOUTS * GEMM_IMPLS; i++) {
        int a = i / (GEMM_LAYOUTS * GEMM_IMPLS), p = i / GEMM_IMPLS % GEMM_LAYOUTS,
            k = i % GEMM_IMPLS;
        double ms = k == GEMM_OWN ? m->own[a] : m->onednn[a];
        double by = noise * (double)rng_u32(key, (uint64_t)i) / UINT32_MAX;
        f.layer[0].ms[a][p][k] = ms * (1 + by);
    }
    return f;
}

static machine_choice choose(const machine_facts *f, unsigned allowed) {
    return machine_choose(f, &LAYER, 1, allowed);
}

static void test_planted_machines(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(MACHINES); i++)
        for (uint64_t seed = 0; seed < 200; seed++) {
            const planted *m = &MACHINES[i];
            machine_facts f = plant(m, seed ? 0.015 : 0, seed);
            machine_choice c = choose(&f, MACHINE_ANY);
            if (c.how != m->how) fail_msg("%s: %s", m->name, machine_arith_name(c.how));
            assert_true(c.measured);
            for (int p = 0; p < GEMM_LAYOUTS; p++)
                assert_int_equal(c.rule.of[c.how != ARITH_F32][p], m->impl);
        }
}

/* A second layer is too small for oneDNN: who computes the first one does not depend on it, and its time counts. */
static void test_small_layer_beside(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(MACHINES); i++) {
        const planted *m = &MACHINES[i];
        machine_facts f = plant(m, 0, 0);
        double alone = choose(&f, MACHINE_ANY).ms[m->how], own = 0;
        f.layer[f.n_layers++] = (machine_layer){.rows = 512, .in = 512, .width = 100};
        for (int a = 0; a < ARITHS; a++)
            for (int p = 0; p < GEMM_LAYOUTS; p++) {
                f.layer[1].ms[a][p][GEMM_OWN] = 0.9 * m->own[a];
                own += a == (int)m->how ? 0.9 * m->own[a] : 0;
            }
        machine_choice c = machine_choose(&f, f.layer, f.n_layers, 1u << m->how);
        for (int p = 0; p < GEMM_LAYOUTS; p++)
            assert_int_equal(c.rule.of[m->how != ARITH_F32][p], m->impl);
        assert_true(fabs(c.ms[m->how] - alone - own) < 1e-9);
    }
}

static void test_what_is_asked_for(void **state) {
    (void)state;
    machine_facts zen = plant(&MACHINES[0], 0, 0), intel = plant(&MACHINES[1], 0, 0);
    machine_facts amx = plant(&MACHINES[3], 0, 0);
    const unsigned f32 = 1 << ARITH_F32, dots = 1 << ARITH_DOTS, wide = 1 << ARITH_WIDE;
    assert_int_equal(choose(&zen, f32).how, ARITH_F32);
    assert_int_equal(choose(&zen, wide | f32).how, ARITH_WIDE);
    assert_int_equal(choose(&zen, wide).how, ARITH_WIDE);
    assert_int_equal(choose(&intel, dots).how, ARITH_DOTS);
    assert_int_equal(choose(&intel, dots | wide).how, ARITH_WIDE);
    assert_int_equal(choose(&amx, MACHINE_ANY | MACHINE_OWN).how, ARITH_F32);
    assert_int_equal(choose(&amx, dots | MACHINE_OWN).rule.of[1][GEMM_FORWARD], GEMM_OWN);
}

/* Leaves on the stack what is no implementation. */
__attribute__((noinline)) static void scribble(void) {
    volatile unsigned char garbage[4096];
    for (size_t i = 0; i < sizeof garbage; i++) garbage[i] = 7;
}

/* Nothing is said of products that the machine does not have: the rule of a run in fp32 has own ones there. */
static void test_no_dots(void **state) {
    (void)state;
    machine_facts f = {.isa = ISA_AVX2, .threads = 2, .n_layers = 1};
    f.layer[0] = LAYER;
    for (int p = 0; p < GEMM_LAYOUTS; p++) f.layer[0].ms[ARITH_F32][p][GEMM_OWN] = 1;
    scribble();
    machine_choice c = choose(&f, 1 << ARITH_F32);
    assert_true(c.measured);
    for (int p = 0; p < GEMM_LAYOUTS; p++) assert_int_equal(c.rule.of[1][p], GEMM_OWN);
}

/* One layout that oneDNN does not have, as its 2.6 with some bf16 weight gradients. */
static void test_a_layout_of_its_own(void **state) {
    (void)state;
    machine_facts f = plant(&MACHINES[3], 0, 0);
    f.layer[0].ms[ARITH_DOTS][GEMM_BACKWARD_WEIGHT][GEMM_ONEDNN] = 0;
    machine_choice c = choose(&f, MACHINE_ANY);
    assert_int_equal(c.rule.of[1][GEMM_FORWARD], GEMM_ONEDNN);
    assert_int_equal(c.rule.of[1][GEMM_BACKWARD_WEIGHT], GEMM_OWN);
    char text[128];
    machine_describe_rule(&c.rule, true, text);
    assert_string_equal(text, "forward: onednn, backward input: onednn, backward weight: own");
}

static void test_unmeasured(void **state) {
    (void)state;
    machine_facts f = {.isa = ISA_AVX512_BF16};
    assert_int_equal(choose(&f, MACHINE_ANY).how, ARITH_DOTS);
    assert_false(choose(&f, MACHINE_ANY).measured);
    f.isa = ISA_AVX512;
    assert_int_equal(choose(&f, MACHINE_ANY).how, ARITH_F32);
    assert_int_equal(choose(&f, 1 << ARITH_WIDE).how, ARITH_WIDE);
    assert_true(machine_fewer_threads(2.2, 2.0));
    assert_false(machine_fewer_threads(2.0, 2.0));
    assert_false(machine_fewer_threads(2.0, 0)); /* no slice was left alone */
    assert_false(machine_fewer_threads(0, 2.0));
}

/* ---- the file ---- */

static gemm_choice product(int64_t m, gemm_impl impl) {
    gemm_choice c = {.m = m, .n = 40, .k = 50, .b_trans = true, .ab_dt = DT_BF16, .c_dt = DT_F32};
    c.impl = impl;
    c.gflops[GEMM_OWN] = 10, c.gflops[GEMM_ONEDNN] = impl == GEMM_ONEDNN ? 20 : 0;
    return c;
}

static gemm_args args_of(const gemm_choice *c) {
    return (gemm_args){.m = c->m, .n = c->n, .k = c->k, .b_trans = c->b_trans, .ab_dt = c->ab_dt};
}

static void write_two(const dev *d) {
    machine_facts f;
    gemm_choice a = product(7, GEMM_OWN), b = product(8, GEMM_OWN), again = product(8, GEMM_ONEDNN);
    assert_int_equal(machine_read(&f, d, NULL), ST_OK);
    f.fma_gflops = 100, f.n_layers = 1;
    f.layer[0] = LAYER;
    f.layer[0].ms[ARITH_F32][GEMM_FORWARD][GEMM_OWN] = 2.5;
    gemm_choices_put(&f.products, &a);
    gemm_choices_put(&f.products, &b);
    gemm_choices_put(&f.products, &again); /* replaces b */
    assert_int_equal(f.products.n, 2);
    assert_int_equal(machine_write(&f, NULL), ST_OK);
    machine_free(&f);
}

static void test_round_trip(void **state) {
    (void)state;
    dev *d = open_dev(2), *other = open_dev(3);
    write_two(d);
    machine_facts f;
    assert_int_equal(machine_read(&f, other, NULL), ST_OK);
    assert_int_equal(f.n_layers, 1); /* layers are measured on one thread, products are not */
    assert_int_equal(f.products.n + f.best_threads, 0);
    f.fma_gflops = 7, f.n_layers = 2;
    f.layer[1] = (machine_layer){.rows = 3, .in = 4, .width = 5};
    assert_int_equal(machine_write(&f, NULL), ST_OK); /* beside the other's */
    assert_int_equal(machine_read(&f, d, NULL), ST_OK);
    assert_int_equal(f.products.n, 2);
    assert_int_equal(f.n_layers, 2); /* with what was measured since */
    assert_true(f.fma_gflops == 100.0);
    assert_true(machine_find(&f, &LAYER)->ms[ARITH_F32][GEMM_FORWARD][GEMM_OWN] == 2.5);
    assert_true(f.products.item[1].gflops[GEMM_ONEDNN] == 20.0);
    gemm_choice wanted = product(8, GEMM_ONEDNN);
    gemm_args g = args_of(&wanted);
    assert_int_equal(gemm_choices_find(&f.products, &g)->impl, GEMM_ONEDNN);
    g.a_trans = true;
    assert_null(gemm_choices_find(&f.products, &g));
    f.n_layers = 0;
    assert_int_equal(machine_write_anew(&f, NULL), ST_OK);
    machine_free(&f);
    assert_int_equal(machine_read(&f, d, NULL), ST_OK);
    assert_int_equal(f.n_layers, 0);
    assert_int_equal(f.products.n, 2);
    machine_free(&f);
    dev_close(d);
    dev_close(other);
    assert_int_equal(file_remove_tree(PATH, NULL), ST_OK);
}

/* Facts of the same machine by a device of other threads (an entry of its own), and layers and products of the same
 * threads (one entry that both processes change). f is read once, as a process does that measures for a while. */
static void write_many(const dev *d, int process, int n) {
    machine_facts f, other;
    if (machine_read(&f, d, NULL) != ST_OK) _exit(1);
    other = f;
    for (int i = 0; i < n; i++) {
        int number = 1 + process * n + i;
        gemm_choice p = product(number, GEMM_OWN);
        gemm_choices_put(&f.products, &p);
        f.layer[f.n_layers++] = (machine_layer){.rows = number, .in = 1, .width = 1};
        other.threads = 1000 + number;
        if (machine_write(&f, NULL) != ST_OK || machine_write(&other, NULL) != ST_OK) _exit(1);
    }
    _exit(0);
}

static void test_two_writers(void **state) {
    (void)state;
    enum { PROCESSES = 2, EACH = 12 };
    dev *d = open_dev(2);
    machine_facts f;
    pid_t pid[PROCESSES];
    for (int p = 0; p < PROCESSES; p++)
        if ((pid[p] = fork()) == 0) write_many(d, p, EACH);
    for (int p = 0; p < PROCESSES; p++) {
        int how;
        assert_int_equal(waitpid(pid[p], &how, 0), pid[p]);
        assert_int_equal(how, 0);
    }
    assert_int_equal(machine_read(&f, d, NULL), ST_OK);
    assert_int_equal(f.n_layers, PROCESSES * EACH);
    assert_int_equal(f.products.n, PROCESSES * EACH);
    machine_free(&f);
    json_t *root;
    assert_int_equal(json_read_file(&root, PATH, 1 << 20, NULL), ST_OK);
    assert_int_equal(json_array_size(json_object_get(root, "machines")), 1 + PROCESSES * EACH);
    json_decref(root);
    dev_close(d);
    assert_int_equal(file_remove_tree(PATH, NULL), ST_OK);
}

/* Where there can be no lock, and where another process holds it and has stopped, it is written all the same. */
static void test_without_lock(void **state) {
    (void)state;
    static const char LOCK[] = "machine_test/cache/machine.json.lock";
    dev *d = open_dev(2);
    assert_int_equal(file_remove_tree(LOCK, NULL), ST_OK);
    assert_int_equal(file_make_dirs(LOCK, NULL), ST_OK);
    write_two(d);
    assert_int_equal(file_remove_tree(LOCK, NULL), ST_OK);
    int fd = open(LOCK, O_RDWR | O_CREAT, 0666);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    write_two(d);
    close(fd);
    dev_close(d);
    assert_int_equal(file_remove_tree(PATH, NULL), ST_OK);
}

static void read_file(char **text, size_t *len) {
    assert_int_equal(file_read_all(PATH, text, len, NULL), ST_OK);
}

/* Not synced, as file_write_atomic does: that takes milliseconds. */
static void write_file(const char *text, size_t len) {
    FILE *f = fopen(PATH, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* The valid file with `from` replaced. */
static void damage(const dev *d, const char *from, const char *to, err *e) {
    char *text;
    size_t len;
    write_two(d);
    read_file(&text, &len);
    char *at = strstr(text, from), *changed = malloc(len + strlen(to) + 1);
    assert_non_null(at);
    size_t head = (size_t)(at - text), n = strlen(from);
    memcpy(changed, text, head);
    memcpy(changed + head, to, strlen(to));
    memcpy(changed + head + strlen(to), at + n, len - head - n);
    write_file(changed, len - n + strlen(to));
    machine_facts f;
    assert_int_equal(machine_read(&f, d, e), ST_FORMAT);
    assert_int_equal(f.n_layers + f.products.n, 0);
    free(changed);
    free(text);
    assert_int_equal(file_remove_tree(PATH, NULL), ST_OK);
}

static void test_damaged_files(void **state) {
    (void)state;
    dev *d = open_dev(2);
    static const char *const damages[][2] = {{"{", "["},
                                             {"\"own\"", "\"theirs\""},
                                             {"\"bf16\"", "\"f8\""},
                                             {"\"m\": 7", "\"m\": true"},
                                             {"\"products\"", "\"product\""},
                                             {"\"n\": 40,", ""},
                                             {"2.5", "\"fast\""},
                                             {"[2.5,", "["},
                                             {"\"layers\"", "\"layer\""},
                                             {"\"best_threads\": 0", "\"best_threads\": -3"},
                                             {"\"best_threads\": 0", "\"best_threads\": 3"},
                                             {"2.5", "-2.5"}};
    for (int i = 0; i < ARRAY_LEN(damages); i++) {
        err e = {0};
        damage(d, damages[i][0], damages[i][1], &e);
        assert_non_null(strstr(e.message, PATH));
        assert_non_null(strstr(e.hint, "delete it"));
    }
    dev_close(d);
}

/* A folder in its place is nothing to delete. */
static void test_no_file(void **state) {
    (void)state;
    dev *d = open_dev(2);
    machine_facts f;
    err e = {0};
    assert_int_equal(file_make_dirs(PATH, NULL), ST_OK);
    assert_int_equal(machine_read(&f, d, &e), ST_FORMAT);
    assert_non_null(strstr(e.hint, "ATHANOR_MACHINE_FILE"));
    assert_int_equal(machine_write(&f, &e), ST_FORMAT);
    assert_non_null(strstr(e.hint, "ATHANOR_MACHINE_FILE"));
    machine_free(&f);
    assert_int_equal(file_remove_tree(PATH, NULL), ST_OK);
    dev_close(d);
}

/* Any byte may be another: the file is read, or refused. What cannot be read is not written over. */
static void test_any_damage(void **state) {
    (void)state;
    dev *d = open_dev(2);
    char *text;
    size_t len;
    write_two(d);
    read_file(&text, &len);
    rng_key key = rng_key_named(1, "damage");
    for (uint64_t i = 0; i < 3000; i++) {
        char *changed = malloc(len);
        memcpy(changed, text, len);
        changed[rng_u32(key, 3 * i) % len] = (char)rng_u32(key, 3 * i + 1);
        size_t kept = i % 4 ? len : rng_u32(key, 3 * i + 2) % len;
        write_file(changed, kept);
        machine_facts f;
        err e = {0};
        status st = machine_read(&f, d, &e);
        if (st != ST_OK && st != ST_FORMAT) fail_msg("%s", e.message);
        assert_true(st == ST_OK || f.n_layers + f.products.n == 0);
        machine_free(&f);
        free(changed);
    }
    machine_facts f = {.isa = ISA_BASE, .threads = 1};
    write_file("[]", 2);
    assert_int_equal(machine_write(&f, NULL), ST_FORMAT);
    assert_int_equal(file_remove_tree(PATH, NULL), ST_OK);
    free(text);
    dev_close(d);
}

static void test_threshold(void **state) {
    (void)state;
    assert_int_equal(gemm_choice_faster((double[]){100, 102}), GEMM_OWN);
    assert_int_equal(gemm_choice_faster((double[]){100, 104}), GEMM_ONEDNN);
    assert_int_equal(gemm_choice_faster((double[]){100, 0}), GEMM_OWN);
}

/* More than a file may have: the oldest go, and the list stays one that can be read. */
static void test_many_products(void **state) {
    (void)state;
    enum { MOST = 4096 };
    err e = {0};
    gemm_choices c = {0}, again = {0};
    for (int i = 1; i <= MOST + 2; i++) {
        gemm_choice item = product(i, GEMM_OWN);
        gemm_choices_put(&c, &item);
    }
    assert_int_equal(c.n, MOST);
    assert_int_equal(c.item[0].m, 3);
    assert_int_equal(c.item[MOST - 1].m, MOST + 2);
    json_t *list = gemm_choices_json(&c);
    assert_int_equal(gemm_choices_from_json(&again, list, "list", &e), ST_OK);
    assert_int_equal(again.n, MOST);
    json_decref(list);
    gemm_choices_free(&c);
    gemm_choices_free(&again);
}

static void test_device_obeys(void **state) {
    (void)state;
    dev *d = open_dev(2);
    write_two(d);
    gemm_setting s = gemm_get_setting(d);
    assert_int_equal(s.policy, GEMM_REMEMBERED);
    assert_int_equal(s.by_onednn, 1);
    gemm_rule rule = {.of = {{GEMM_OWN, GEMM_ONEDNN, GEMM_OWN}}};
    gemm_use(d, GEMM_REMEMBERED, &rule, &(gemm_choices){0});
    s = gemm_get_setting(d);
    assert_int_equal(s.by_onednn, 0);
    assert_int_equal(s.rule.of[0][GEMM_BACKWARD_INPUT], GEMM_ONEDNN);
    gemm_use(d, GEMM_ALL_ONEDNN, &rule, &(gemm_choices){0}); /* as a run began */
    assert_int_equal(gemm_get_setting(d).policy, GEMM_ALL_ONEDNN);
    gemm_use_own(d);
    gemm_use(d, GEMM_REMEMBERED, &rule, &(gemm_choices){0}); /* own stays own */
    assert_int_equal(gemm_get_setting(d).policy, GEMM_ALL_OWN);
    assert_int_equal(gemm_get_setting(d).rule.of[0][GEMM_BACKWARD_INPUT], GEMM_OWN);
    dev_close(d);
    d = open_dev(2);
    assert_int_equal(setenv("ATHANOR_GEMM", "own", 1), 0);
    assert_int_equal(gemm_get_setting(d).policy, GEMM_ALL_OWN);
    assert_int_equal(gemm_get_setting(d).by_onednn, 0);
    unsetenv("ATHANOR_GEMM");
    dev_close(d);
    assert_int_equal(file_remove_tree(PATH, NULL), ST_OK);
}

/* ---- the probe ---- */

static machine_layer sized(int64_t rows, int64_t in, int64_t width) {
    return (machine_layer){.rows = rows, .in = in, .width = width};
}

static void test_pick(void **state) {
    (void)state;
    machine_layer out[PROBE_LAYERS];
    const machine_layer large[] = {sized(8192, 768, 2304), sized(8192, 768, 768),
                                   sized(8192, 3072, 768)};
    assert_int_equal(probe_pick(large, 3, out), 1);
    machine_layer usual = probe_usual_layer();
    assert_memory_equal(&out[0], &usual, sizeof usual);
    const machine_layer small[] = {sized(64, 32, 8),  sized(64, 32, 32), sized(64, 32, 80),
                                   sized(64, 80, 32), sized(64, 80, 32), sized(64, 32, 8)};
    assert_int_equal(probe_pick(small, 6, out), 2);
    assert_int_equal(out[0].in, 80); /* most work: it is there twice */
    assert_int_equal(out[1].width, 80);
    assert_int_equal(probe_pick(small, 0, out), 0);
}

static machine_facts facts_of(const dev *d, const machine_layer *l) {
    machine_facts f;
    assert_int_equal(machine_read(&f, d, NULL), ST_OK);
    assert_true(probe_is_needed(&f, l, 1));
    assert_int_equal(probe_run(&f, l, 1, 0.2, NULL), ST_OK);
    assert_false(probe_is_needed(&f, l, 1));
    return f;
}

/* Whether times are so far from each other that noise cannot decide. */
static bool is_clear(const machine_choice *c) {
    for (int a = 0; a < ARITHS; a++)
        if (c->ms[a] > 0 && a != (int)c->how && c->ms[a] < 1.15 * c->ms[c->how]) return false;
    return true;
}

static pid_t start_neighbour(void) {
    pid_t pid = fork();
    volatile unsigned spun = 0;
    while (pid == 0) spun++;
    return pid;
}

static void test_probe_beside_neighbours(void **state) {
    (void)state;
    dev *d = open_dev(2);
    machine_layer l = {.rows = 256, .in = 192, .width = 192};
    machine_facts quiet = facts_of(d, &l);
    machine_choice want = machine_choose(&quiet, &l, 1, MACHINE_ANY);
    for (int p = 0; p < GEMM_LAYOUTS; p++)
        assert_true(quiet.layer[0].ms[ARITH_F32][p][GEMM_OWN] > 0);
    assert_true(want.measured && quiet.best_threads >= 1 && quiet.best_threads <= 2);
    pid_t pid[1] = {start_neighbour()};
    for (int i = 0; i < 3; i++) {
        machine_facts f = facts_of(d, &l);
        if (is_clear(&want)) assert_int_equal(machine_choose(&f, &l, 1, MACHINE_ANY).how, want.how);
    }
    for (int i = 0; i < ARRAY_LEN(pid); i++) {
        assert_int_equal(kill(pid[i], SIGKILL), 0);
        assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
    }
    dev_close(d);
}

int main(void) {
    unsetenv("ATHANOR_GEMM");
    setenv("ATHANOR_MACHINE_FILE", PATH, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted_machines),
                                       cmocka_unit_test(test_small_layer_beside),
                                       cmocka_unit_test(test_what_is_asked_for),
                                       cmocka_unit_test(test_no_dots),
                                       cmocka_unit_test(test_a_layout_of_its_own),
                                       cmocka_unit_test(test_unmeasured),
                                       cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_two_writers),
                                       cmocka_unit_test(test_without_lock),
                                       cmocka_unit_test(test_damaged_files),
                                       cmocka_unit_test(test_no_file),
                                       cmocka_unit_test(test_any_damage),
                                       cmocka_unit_test(test_threshold),
                                       cmocka_unit_test(test_many_products),
                                       cmocka_unit_test(test_device_obeys),
                                       cmocka_unit_test(test_pick),
                                       cmocka_unit_test(test_probe_beside_neighbours)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    err e = {0};
    return file_remove_tree("machine_test", &e) == ST_OK ? failed : 1;
}
