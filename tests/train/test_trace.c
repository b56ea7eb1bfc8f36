/* A trace: one file for all ranks, spans that nest, communication beside computation. Without one a
 * step allocates nothing.
 *
 * How long things take is up to the machine, which may be busy. So what happens beside what is held fast by
 * functions in between (the linker's --wrap): who starts a call of the side stream goes on when the call has begun, and
 * the call goes on when its rank has done the next thing: a stretch of ops, or what waits for others. */
#include "test.h"

#include "base/clock.h"
#include "base/file_fault.h"
#include "comm/comm_test.h"
#include "comm/world.h"
#include "train/layouts/trial.h"

enum { RANKS = 2, FIRST = 2, LAST = 5, MOST_NESTED = 8 };

static char path[] = "/tmp/athanor-trace-XXXXXX";

/* ---- what happens beside what ---- */

/* Of a rank: calls of its side stream that have begun, and things that its own thread has done. */
static struct {
    comm_ticket begun;
    int64_t done;
} progress[RANKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static _Thread_local int trainer = -1; /* the rank whose own thread this is */
static _Thread_local int sender = -1; /* the rank whose side stream is about to begin a call here */

comm_ticket __real_comm_start(comm *c, const comm_call *call);
void __real_comm_run(comm *c, const comm_call *call);
void __real_comm_wait(comm_world *w, comm_ticket t);
void __real_comm_run_on(comm *c, const comm_call *call, dev_event after, int stream);
void __real_trace_ops(trace *t, const prog *p, int64_t began, int first);
int64_t __real_clock_now_ns(void);
comm_ticket __wrap_comm_start(comm *c, const comm_call *call);
void __wrap_comm_run(comm *c, const comm_call *call);
void __wrap_comm_wait(comm_world *w, comm_ticket t);
void __wrap_comm_run_on(comm *c, const comm_call *call, dev_event after, int stream);
void __wrap_trace_ops(trace *t, const prog *p, int64_t began, int first);
int64_t __wrap_clock_now_ns(void);

static void has_done(void) {
    if (trainer < 0) return;
    pthread_mutex_lock(&lock);
    progress[trainer].done++;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&lock);
}

/* The call in this thread's hands has begun. It goes on when its rank has done something. */
static void has_begun(bool waits) {
    int rank = sender;
    sender = -1;
    pthread_mutex_lock(&lock);
    int64_t before = progress[rank].done;
    progress[rank].begun++;
    pthread_cond_broadcast(&moved);
    while (waits && progress[rank].done == before) pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
}

comm_ticket __wrap_comm_start(comm *c, const comm_call *call) {
    has_done();
    comm_ticket t = __real_comm_start(c, call); /* 0: it has run already, on this thread */
    pthread_mutex_lock(&lock);
    while (t > 0 && trainer >= 0 && progress[trainer].begun < t) pthread_cond_wait(&moved, &lock);
    pthread_mutex_unlock(&lock);
    return t;
}

void __wrap_comm_run(comm *c, const comm_call *call) {
    has_done();
    __real_comm_run(c, call);
}

void __wrap_comm_wait(comm_world *w, comm_ticket t) {
    has_done();
    __real_comm_wait(w, t);
}

void __wrap_trace_ops(trace *t, const prog *p, int64_t began, int first) {
    __real_trace_ops(t, p, began, first);
    has_done();
}

void __wrap_comm_run_on(comm *c, const comm_call *call, dev_event after, int stream) {
    sender = trainer < 0 && stream == STREAM_SIDE ? c->world->rank : -1;
    __real_comm_run_on(c, call, after, stream);
    if (sender >= 0) has_begun(false); /* nobody has asked for the time: it is not traced */
}

/* A call begins with its time. */
int64_t __wrap_clock_now_ns(void) {
    int64_t now = __real_clock_now_ns();
    if (sender >= 0) has_begun(true);
    return now;
}

/* ---- runs ---- */

typedef struct run {
    int ranks;
    const char *zero;
    bool cut; /* written before the last wanted step */
} run;

static config *config_of(const run *r) {
    const char *keys[] = {
        "model={model_type: llama, hidden_size: 128, num_hidden_layers: 3, num_attention_heads: 4,"
        " num_key_value_heads: 2, intermediate_size: 384, vocab_size: 67,"
        " max_position_embeddings: 64}",
        "train={steps: 9, seq_len: 64, global_batch_size: 8, micro_batch_size: 2, threads: 1,"
        " precision: fp32}",
        "parallel.bucket_mb=0.001", r->zero};
    config *c;
    err e = {0};
    CHECK(config_load(&c, NULL, keys, ARRAY_LEN(keys), &e) == ST_OK, "%s", e.message);
    return c;
}

static void run_rank(comm_world *world, void *ctx) {
    const run *r = ctx;
    session s;
    err e = {0};
    step_result out;
    config *c = config_of(r);
    CHECK(trial_open(&s, arena_new("trace test"), c, world, false, &e) == ST_OK, "%s", e.message);
    if (r->ranks > 1) trainer = comm_world_rank(world);
    CHECK(trace_open(&s.trace, path, FIRST, LAST, &s.setup.peers, &e) == ST_OK, "%s", e.message);
    for (int i = 0; i < (r->cut ? LAST - 1 : LAST + 1); i++) {
        CHECK(trial_step(&s, NULL, NULL, NULL, &out, &e) == ST_OK, "%s", e.message);
        trace_write(s.trace, false);
    }
    trace_write(s.trace, true);
    session_close(&s);
    config_free(c);
}

static json_t *trace_of(const run *r) {
    memset(progress, 0, sizeof progress);
    run_threads(r->ranks, run_rank, (void *)(uintptr_t)r);
    json_error_t why;
    json_t *events = json_load_file(path, 0, &why);
    if (!events) fail_msg("line %d: %s", why.line, why.text);
    return events;
}

/* ---- reading it ---- */

typedef struct event {
    const char *name, *category;
    int pid, tid, step;
    double begin, end;
} event;

static bool read_event(const json_t *o, event *v) {
    const char *phase;
    double duration = 0;
    *v = (event){.category = "", .step = -1};
    json_t *args = NULL;
    assert_int_equal(json_unpack((json_t *)o, "{s:s,s:s,s:i,s?i,s?s,s?F,s?F,s:o}", "name", &v->name,
                                 "ph", &phase, "pid", &v->pid, "tid", &v->tid, "cat", &v->category,
                                 "ts", &v->begin, "dur", &duration, "args", &args),
                     0);
    if (strcmp(phase, "X") != 0) return false;
    v->end = v->begin + duration;
    assert_int_equal(json_unpack(args, "{s:i}", "step", &v->step), 0);
    return true;
}

/* Each lies within the ones before it that have not ended. */
static void check_nesting(const json_t *events, int pid, int tid) {
    const double ROUNDING = 0.002;
    double ends[MOST_NESTED];
    int depth = 0;
    size_t i;
    json_t *o;
    json_array_foreach(events, i, o) {
        event v;
        if (!read_event(o, &v) || v.pid != pid || v.tid != tid) continue;
        assert_true(v.begin >= 0 && v.end >= v.begin);
        while (depth > 0 && ends[depth - 1] <= v.begin + ROUNDING) depth--;
        if (depth > 0 && v.end > ends[depth - 1] + ROUNDING) fail_msg("%s crosses", v.name);
        assert_true(depth < MOST_NESTED);
        ends[depth++] = v.end;
    }
}

static int count(const json_t *events, int pid, const char *name) {
    int n = 0;
    size_t i;
    json_t *o;
    event v;
    json_array_foreach(events, i,
                       o) if (read_event(o, &v) && v.pid == pid && strcmp(v.name, name) == 0) n++;
    return n;
}

/* Calls of the side stream, in this step, during which a stretch of ops began and ended. */
static int beside(const json_t *events, int pid, int step) {
    int n = 0;
    size_t i, k;
    json_t *o, *p;
    event side, own;
    json_array_foreach(events, i, o) {
        if (!read_event(o, &side) || side.pid != pid || side.tid != 1 || side.step != step)
            continue;
        assert_string_equal(side.category, "communication");
        bool covers = false;
        json_array_foreach(events, k, p) {
            if (!read_event(p, &own) || own.pid != pid || own.tid != 0) continue;
            bool within = own.begin >= side.begin && own.end <= side.end;
            covers = covers || (within && strcmp(own.category, "compute") == 0);
        }
        n += covers;
    }
    return n;
}

static void check_steps(const json_t *events, int pid, int steps, int micro_batches) {
    char name[32];
    int n = 0;
    for (int i = FIRST; i <= LAST; i++) {
        snprintf(name, sizeof name, "step %d", i);
        n += count(events, pid, name);
    }
    assert_int_equal(n, steps);
    assert_int_equal(count(events, pid, "step 1") + count(events, pid, "step 6"), 0);
    snprintf(name, sizeof name, "micro-batch %d", micro_batches - 1);
    assert_int_equal(count(events, pid, name), steps);
    assert_int_equal(count(events, pid, "optimizer"), steps);
    const char *const every[] = {"embedding", "layers.0", "layers.2", "head"};
    for (int i = 0; i < ARRAY_LEN(every); i++) {
        snprintf(name, sizeof name, "forward %s", every[i]);
        assert_true(count(events, pid, name) >= steps * micro_batches);
        snprintf(name, sizeof name, "backward %s", every[i]);
        assert_true(count(events, pid, name) >= steps * micro_batches);
    }
}

/* ---- tests ---- */

static void check_ranks(const char *zero) {
    const run r = {RANKS, zero, false};
    json_t *events = trace_of(&r);
    for (int pid = 0; pid < RANKS; pid++) {
        check_steps(events, pid, LAST - FIRST + 1, 2);
        check_nesting(events, pid, 0);
        check_nesting(events, pid, 1);
        for (int step = FIRST; step <= LAST; step++) assert_true(beside(events, pid, step) > 0);
        /* once a step, also where gradients of layers are reduced after each micro-batch */
        assert_int_equal(count(events, pid, "wait for gradients of model.embed_tokens.weight"),
                         LAST - FIRST + 1);
    }
    assert_int_equal(count(events, RANKS, "step 2"), 0);
    json_decref(events);
}

static void test_data_parallel(void **state) {
    (void)state;
    check_ranks("parallel.zero=0");
}

static void test_zero3(void **state) {
    (void)state;
    check_ranks("parallel.zero=3");
}

/* One rank has nobody to talk to; a run that ends early has the steps there were. */
static void test_alone(void **state) {
    (void)state;
    const run r = {1, "parallel.zero=0", true};
    json_t *events = trace_of(&r);
    check_steps(events, 0, LAST - FIRST, 4);
    check_nesting(events, 0, 0);
    size_t i;
    json_t *o;
    event v;
    json_array_foreach(events, i, o) if (read_event(o, &v))
        assert_string_not_equal(v.category, "communication");
    json_decref(events);
}

static void test_unwritable(void **state) {
    (void)state;
    peers p;
    trace *t;
    err e = {0};
    config *c;
    assert_int_equal(config_load(&c, NULL, NULL, 0, &e), ST_OK);
    assert_int_equal(peers_open(&p, c, NULL, &e), ST_OK);
    assert_int_equal(trace_open(&t, "/nonexistent/t.json", 2, 4, &p, &e), ST_FAILED);
    assert_non_null(strstr(e.message, "/nonexistent"));
    peers_close(&p);
    config_free(c);
}

/* Also where its tokens are looked through for runs that repeat. */
static void test_a_step_allocates_nothing(void **state) {
    (void)state;
    const run r = {1, "parallel.zero=0", false};
    config *c = config_of(&r);
    c->guard.repeated = 0.5;
    session s;
    step_result out;
    err e = {0};
    assert_int_equal(trial_open(&s, arena_new("step test"), c, NULL, false, &e), ST_OK);
    s.watches = true;
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            assert_true(file_fault_arm("alloc:1")); /* the first one makes caches of kernels */
        assert_int_equal(trial_step(&s, NULL, NULL, NULL, &out, &e), ST_OK);
        assert_false(file_fault_struck());
        file_fault_arm(NULL);
    }
    session_close(&s);
    config_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_zero3),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_unwritable),
        cmocka_unit_test(test_a_step_allocates_nothing),
    };
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    return failed;
}
