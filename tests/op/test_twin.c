/* Ops that are launched on the twin: the bits of the CPU, from memory that the host does not reach;
 * later than they are given, unless they communicate. */
#include "comm/comm_test.h"
#include "op/cases.h"
#include "sanitizer.h"

/* The run of calls that are made on a host's buffers, but carried out on a twin: kernels find it by
 * their op_run. */
typedef struct guest {
    op_run run; /* first */
    dev *twin;
    const op_impl *impl;
    side *s;
    char *at; /* on the twin: the buffers of s, one behind the other */
    size_t bytes;
} guest;

static int buffers_of(side *s, buf *out[]) {
    int n = 0;
    for (int i = 0; i < OP_MAX_IN; i++) out[n++] = &s->in[i], out[n++] = &s->din[i];
    for (int o = 0; o < OP_MAX_OUT; o++) out[n++] = &s->out[o], out[n++] = &s->dout[o];
    out[n++] = &s->ws;
    return n;
}

enum { MOST_BUFFERS = 2 * OP_MAX_IN + 2 * OP_MAX_OUT + 1 };

/* Bytes up to buffer n, and of all of them for n = MOST_BUFFERS. */
static size_t place_of(buf *const b[], int n) {
    size_t at = 0;
    for (int i = 0; i < n; i++) at += b[i]->bytes;
    return at;
}

static void *moved(const guest *g, buf *const b[], void *p) {
    for (int i = 0; p && i < MOST_BUFFERS; i++) {
        uint8_t *x = p;
        if (b[i]->mem && x >= b[i]->mem && x < b[i]->mem + b[i]->bytes)
            return g->at + place_of(b, i) + (x - b[i]->mem);
    }
    return NULL;
}

static void move_call(const guest *g, buf *const b[], op_call *c) {
    for (int i = 0; i < OP_MAX_IN; i++) {
        c->in[i].data = moved(g, b, c->in[i].data);
        c->din[i].data = moved(g, b, c->din[i].data);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        c->out[o].data = moved(g, b, c->out[o].data);
        c->dout[o].data = moved(g, b, c->dout[o].data);
    }
    c->ws = moved(g, b, c->ws);
}

/* Everything to the twin, the call there, everything back. */
static void call_on_twin(const op_call *given, op_fn fn) {
    guest *g = (guest *)(uintptr_t)given->run;
    op_call c = *given;
    buf *b[MOST_BUFFERS];
    err e;
    void *p;
    assert_int_equal(buffers_of(g->s, b), MOST_BUFFERS);
    size_t bytes = place_of(b, MOST_BUFFERS);
    if (dev_reserve(g->twin, &p, bytes, "a case", &e) != ST_OK) fail_msg("%s", e.message);
    g->at = p;
    for (int i = 0; i < MOST_BUFFERS; i++)
        if (b[i]->mem) dev_write(g->twin, g->at + place_of(b, i), b[i]->mem, b[i]->bytes);
    op_run run = g->run;
    run.dev = g->twin;
    c.kind = g->s->cs->kind;
    c.run = &run;
    move_call(g, b, &c);
    op_launch(g->twin, fn, &c);
    memset(&run, 0, sizeof run); /* the call was copied, and its run */
    memset(&c, 0, sizeof c);
    for (int i = 0; i < MOST_BUFFERS; i++)
        if (b[i]->mem) dev_read(g->twin, b[i]->mem, g->at + place_of(b, i), b[i]->bytes);
    dev_release(g->twin, p, bytes);
}

static const op_impl *impl_of(const op_call *c) {
    return ((const guest *)(const void *)c->run)->impl;
}

static void fwd_on_twin(const op_call *c) {
    call_on_twin(c, impl_of(c)->fwd);
}
static void bwd_input_on_twin(const op_call *c) {
    call_on_twin(c, impl_of(c)->bwd_input);
}
static void bwd_weight_on_twin(const op_call *c) {
    call_on_twin(c, impl_of(c)->bwd_weight);
}

static void run_case(side *s, const op_impl *impl, const op_run *run) {
    const op_class *k = &op_classes[s->cs->kind];
    side_forward(s, impl, run, true);
    if (s->cs->forward_only || k->flags & OPF_GRAD_IN_FWD || !(k->diff | k->weights)) return;
    side_backward(s, impl, run, true, ~0u);
}

static void check_same(const op_case *cs, side *got, side *want) {
    buf *g[MOST_BUFFERS], *w[MOST_BUFFERS];
    int n = buffers_of(got, g) - 1; /* a workspace may hold anything */
    buffers_of(want, w);
    for (int i = 0; i < n; i++)
        if (g[i]->bytes != w[i]->bytes ||
            (g[i]->mem && memcmp(g[i]->mem, w[i]->mem, g[i]->bytes) != 0))
            fail_msg("%s: buffer %d has other bits on the twin", cs->label, i);
}

static void check_case(dev *cpu, dev *twin, const op_case *cs, dtype dt) {
    const op_impl *impl = op_find(twin, cs->kind, dt);
    assert_non_null(impl);
    assert_ptr_equal(impl, op_find(cpu, cs->kind, dt));
    bool overflow = false;
    side here, there;
    side_open(&here, cs, dt, true, cpu);
    side_open(&there, cs, dt, true, twin);
    op_run run = {.seed = 11,
                  .step = 5,
                  .micro_batch = 3,
                  .grad_scale = 0.5f,
                  .fixed_unscale = 1,
                  .fixed_limit = 1000,
                  .fixed_overflow = &overflow};
    op_impl on_twin = {fwd_on_twin, impl->bwd_input ? bwd_input_on_twin : NULL,
                       impl->bwd_weight ? bwd_weight_on_twin : NULL, impl->workspace};
    run.dev = cpu; /* where the harness gives a call to call_on_twin, at once */
    guest g = {.run = run, .twin = twin, .impl = impl, .s = &there};
    run_case(&here, impl, &run);
    run_case(&there, &on_twin, &g.run);
    check_same(cs, &there, &here);
    side_close(&here);
    side_close(&there);
}

static void test_ops_have_the_bits_of_the_cpu(void **state) {
    (void)state;
    static const dtype dts[] = {DT_F32, DT_BF16};
    dev *cpu, *twin;
    assert_int_equal(dev_open(&cpu, DEV_CPU, 1, NULL), ST_OK);
    assert_int_equal(dev_open(&twin, DEV_TWIN, 1, NULL), ST_OK);
    for (int kind = 0; kind < OP_COUNT; kind++) {
        case_list l = {0};
        CASES[kind](&l);
        for (int i = 0; i < l.n; i += UNDER_ASAN ? 4 : 1)
            for (int k = 0; k < ARRAY_LEN(dts); k++) check_case(cpu, twin, &l.items[i], dts[k]);
        free(l.items);
    }
    dev_close(cpu);
    dev_close(twin);
}

/* ---- collectives ---- */

enum { RANKS = 3, N = 12 };

/* At once, after what was given before: all ranks must make them in one order, and the host may go
 * on with one of its own. */
static void rank_sums(comm_world *w, void *ctx) {
    (void)ctx;
    mesh m;
    mesh_shape shape = {.dp = 1, .dp_replicate = 1, .tp = RANKS, .cp = 1, .pp = 1};
    mesh_open(&m, &shape, w);
    dev *d;
    void *x;
    CHECK(dev_open(&d, DEV_TWIN, 1, NULL) == ST_OK, "no twin");
    CHECK(dev_reserve(d, &x, N * sizeof(float), "a vector", NULL) == ST_OK, "no memory");
    op_attr attr = {
        .comm = {.axis = MESH_TP, .ranks = RANKS, .rank = m.rank[MESH_TP], .what = "x"}};
    op_run run = {.dev = d, .mesh = &m};
    op_call c = {.kind = OP_ALL_REDUCE, .attr = &attr, .run = &run};
    c.in[0] = c.out[0] = (tensor){x, DT_F32, 1, N, N};
    float host[N];
    for (int i = 0; i < N; i++) host[i] = (float)(i + m.rank[MESH_TP]);
    dev_write(d, x, host, sizeof host);
    op_launch(d, op_find(d, OP_ALL_REDUCE, DT_F32)->fwd, &c);
    CHECK(comm_counted(w).calls[COMM_ALL_REDUCE] == 1, "a collective was put off");
    comm_barrier(m.axis[MESH_TP]);
    dev_read(d, host, x, sizeof host);
    for (int i = 0; i < N; i++) CHECK(host[i] == (float)(RANKS * i + 3), "element %d", i);
    dev_release(d, x, N * sizeof(float));
    dev_close(d);
}

static void test_collectives_run_at_once(void **state) {
    (void)state;
    run_threads(RANKS, rank_sums, NULL);
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_have_the_bits_of_the_cpu),
        cmocka_unit_test(test_collectives_run_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
