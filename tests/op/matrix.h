/* The op matrix: every op x dtype x odd and boundary sizes x optional inputs x strided or not x
 * accumulated or not, on one backend, against the double reference. cases.h has the sizes, harness.h
 * the buffers and tolerances. */
#ifndef TESTS_OP_MATRIX_H
#define TESTS_OP_MATRIX_H

#include "op/cases.h"
#include "sanitizer.h"

enum { DEVS = 2 };

/* Strided or not, accumulated or not, in every dtype; in those that models do not train in, half of
 * the four by turns. Under the address sanitizer, where each trial takes ten times as long and
 * memory is what is looked at: both or neither by turns, in the dtypes that models train in. */
#if UNDER_ASAN
static const dtype DTYPES[] = {DT_F32, DT_BF16};
#else
static const dtype DTYPES[] = {DT_F32, DT_BF16, DT_F16, DT_F64};
#endif

/* One backend: devices with 1 and 2 threads and the same instruction set. */
typedef struct backend {
    char name[32];
    bool reference;
    bool slow; /* each access of memory is watched: heavy cases run in one way, and once */
    dev *devs[DEVS];
    dev *host; /* for the truth */
} backend;

static inline const op_impl *impl_of(const backend *b, op_kind kind, dtype dt) {
    return b->reference ? op_find_reference(kind, dt) : op_find(b->devs[0], kind, dt);
}

/* One way to run a case. */
typedef struct trial {
    const op_case *cs;
    const backend *b;
    const op_impl *impl;
    dtype dt;
    bool strided, accumulate;
    char label[192];
    side given; /* what each run gets: inputs, and the gradient of the output */
} trial;

static inline void open_given(const trial *tr, side *s, dev *d) {
    side_open_like(s, &tr->given, tr->cs, tr->dt, tr->strided, d);
}

static inline op_run run_on(dev *d, bool accumulate) {
    static bool overflow;
    return (op_run){.dev = d,
                    .seed = 11,
                    .step = 5,
                    .micro_batch = 3,
                    .first_micro = !accumulate,
                    .grad_scale = 0.5f,
                    .fixed_unscale = 0.5f,
                    .fixed_limit = 1000,
                    .fixed_overflow = &overflow};
}

static inline bool grad_in_fwd(op_kind kind) {
    return op_classes[kind].flags & OPF_GRAD_IN_FWD;
}

static inline bool has_backward(op_kind kind) {
    return !grad_in_fwd(kind) && (op_classes[kind].diff | op_classes[kind].weights);
}

/* ---- truth: the double reference on the values that the tested program has ---- */

/* Both go on to backward from the same saved outputs: the true ones, rounded once. */
static inline void share_outputs(side *s, side *truth) {
    for (int o = 0; o < OP_MAX_OUT; o++) {
        copy_values(&s->out[o].t, &truth->out[o].t);
        copy_values(&truth->out[o].t, &s->out[o].t);
    }
}

/* ---- checks ---- */

static inline void check_guards(const trial *tr, const side *s, const char *when) {
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (s->din[i].mem && !buf_guards_hold(&s->din[i]))
            fail_msg("%s: %s writes around the gradient of input %d", tr->label, when, i);
    }
    for (int o = 0; o < OP_MAX_OUT; o++)
        if (s->out[o].mem && !buf_guards_hold(&s->out[o]))
            fail_msg("%s: %s writes around output %d", tr->label, when, o);
}

static inline void check_inputs_untouched(const trial *tr, const side *s) {
    for (int i = 0; i < OP_MAX_IN; i++)
        if (s->in[i].mem && memcmp(s->in[i].mem, tr->given.in[i].mem, s->in[i].bytes))
            fail_msg("%s: writes its input %d", tr->label, i);
    if (memcmp(s->dout[0].mem, tr->given.dout[0].mem, s->dout[0].bytes))
        fail_msg("%s: writes the gradient of its output", tr->label);
}

/* Magnitude of the terms that an op subtracts from each other: when its result is near 0, rounding
 * errors are measured against those terms. Activations: 1 + tanh near 0, times the input; head:
 * softmax minus 1, times w. */
static inline double cancelled_forward(const side *s) {
    op_kind kind = s->cs->kind;
    if (kind == OP_ACT) return max_abs(&s->in[0].t);
    if (kind == OP_HEAD_CE || kind == OP_HEAD_DISTILL || kind == OP_HEAD_NLL)
        return 0.5 * max_abs(&s->in[1].t);
    return kind == OP_GATED ? max_abs(&s->in[0].t) * max_abs(&s->in[1].t) : 1e-30;
}

/* Norms: |dy||w| rstd; attention: |dp|; the head in its second mode: |dlogits| of rows whose dnll
 * have either sign; activations: as forward. */
static inline double cancelled_backward(const side *s) {
    op_kind kind = s->cs->kind;
    if (kind == OP_ATTENTION) return 1;
    if (kind == OP_HEAD_NLL) return max_abs(&s->dout[0].t);
    if (kind == OP_RMSNORM || kind == OP_LAYERNORM || kind == OP_NORM_ROPE)
        return max_abs(&s->out[kind == OP_LAYERNORM ? 2 : 1].t) * max_abs(&s->dout[0].t);
    return cancelled_forward(s) * max_abs(&s->dout[0].t);
}

static inline void compare_outputs(const trial *tr, const side *s, const side *truth) {
    char name[16];
    double floor = cancelled_forward(s);
    for (int o = 0; o < op_outputs(tr->cs->kind); o++)
        if (s->out[o].mem)
            compare(tr->label, op_output_name(tr->cs->kind, o, name), tr->dt, &s->out[o].t,
                    &truth->out[o].t, floor);
}

static inline void compare_gradients(const trial *tr, const side *s, const side *truth,
                                     unsigned want) {
    char name[16], what[24];
    double floor = cancelled_backward(s);
    for (int i = 0; i < op_inputs(tr->cs->kind); i++) {
        if (!s->din[i].mem || !((want >> i) & 1u)) continue;
        snprintf(what, sizeof what, "d%s", op_input_name(tr->cs->kind, i, name));
        compare(tr->label, what, tr->dt, &s->din[i].t, &truth->din[i].t, floor);
    }
}

static inline void compare_bits(const trial *tr, const side *a, const side *b, const char *why) {
    for (int o = 0; o < OP_MAX_OUT; o++)
        if (a->out[o].mem && memcmp(a->out[o].mem, b->out[o].mem, a->out[o].bytes))
            fail_msg("%s: output %d has other bits %s", tr->label, o, why);
    for (int i = 0; i < OP_MAX_IN; i++)
        if (a->din[i].mem && memcmp(a->din[i].mem, b->din[i].mem, a->din[i].bytes))
            fail_msg("%s: gradient of input %d has other bits %s", tr->label, i, why);
}

/* What was run with one thread gives the same bits again, and with 2 threads. */
static inline void check_repeats(const trial *tr, side *s, bool backward) {
    static const char *const why[DEVS] = {"when run again", "with 2 threads"};
    for (int k = tr->b->slow && tr->cs->heavy; k < DEVS; k++) {
        side again;
        op_run run = run_on(tr->b->devs[k], tr->accumulate);
        open_given(tr, &again, tr->b->devs[k]);
        if (backward) {
            for (int o = 0; o < OP_MAX_OUT; o++)
                if (s->out[o].mem) memcpy(again.out[o].mem, s->out[o].mem, s->out[o].bytes);
            side_backward(&again, tr->impl, &run, tr->accumulate, ~0u);
        } else {
            side_forward(&again, tr->impl, &run, tr->accumulate);
        }
        compare_bits(tr, s, &again, why[k]);
        side_close(&again);
    }
}

/* Asked for one gradient alone, an op gives the same gradient. */
static inline void check_each_alone(const trial *tr, side *s, const side *truth) {
    op_run run = run_on(tr->b->devs[0], tr->accumulate);
    for (int i = 0; i < op_inputs(tr->cs->kind); i++) {
        if (!((s->io.want_grad >> i) & 1u)) continue;
        side_backward(s, tr->impl, &run, tr->accumulate, 1u << i);
        compare_gradients(tr, s, truth, 1u << i);
        check_guards(tr, s, "backward for one input");
    }
}

static inline void check_equal(const trial *tr, const tensor *a, const tensor *b,
                               const char *what) {
    for (int64_t n = 0; n < a->rows * a->cols; n++)
        if (tensor_get(a, n) != tensor_get(b, n))
            fail_msg("%s: %s, element %lld differs", tr->label, what, (long long)n);
}

/* out 0 in the memory of input `which`: the same result. `s` holds the result of forward. Elements
 * may become narrower; rows stay where they are. */
static inline void check_in_place(const trial *tr, const side *s, int which) {
    if (!s->out[0].mem) return;
    op_run run = run_on(tr->b->devs[0], false);
    side p;
    open_given(tr, &p, tr->b->devs[0]);
    side_fresh_ws(&p, p.io.fwd.ws_bytes);
    op_call c = side_call(&p, &run, false);
    for (int i = 0; i < OP_MAX_IN; i++) c.in[i] = p.in[i].t;
    for (int o = 1; o < OP_MAX_OUT; o++) c.out[o] = p.out[o].t;
    c.out[0] = c.in[which];
    c.out[0].dt = s->out[0].t.dt;
    c.out[0].ld *= (int64_t)(dtype_bytes(c.in[which].dt) / dtype_bytes(c.out[0].dt));
    side_run(&c, tr->impl->fwd);
    check_equal(tr, &c.out[0], &s->out[0].t, "in place");
    assert_true(buf_guards_hold(&p.in[which]));
    side_close(&p);
}

/* din 0 in the memory of dout 0. `s` holds the result of backward. */
static inline void check_gradient_in_place(const trial *tr, const side *s) {
    op_run run = run_on(tr->b->devs[0], false);
    side p;
    open_given(tr, &p, tr->b->devs[0]);
    side_fresh_ws(&p, p.io.bwd_input.ws_bytes);
    op_call c = side_call(&p, &run, false);
    for (int i = 0; i < OP_MAX_IN; i++) c.in[i] = p.in[i].t;
    c.dout[0] = c.din[0] = p.dout[0].t;
    side_run(&c, tr->impl->bwd_input);
    check_equal(tr, &c.din[0], &s->din[0].t, "gradient in place");
    assert_true(buf_guards_hold(&p.dout[0]));
    side_close(&p);
}

static inline void check_forward(const trial *tr, side *s, side *truth) {
    op_run run = run_on(tr->b->devs[0], tr->accumulate);
    uint32_t flags = op_classes[tr->cs->kind].flags;
    op_run host = run_on(tr->b->host, tr->accumulate);
    side_forward(truth, op_find_reference(tr->cs->kind, DT_F64), &host, tr->accumulate);
    side_forward(s, tr->impl, &run, tr->accumulate);
    compare_outputs(tr, s, truth);
    bool made_gradients = grad_in_fwd(tr->cs->kind) && tr->cs->attr.head.with_grad;
    if (made_gradients) compare_gradients(tr, s, truth, op_classes[tr->cs->kind].weights);
    check_guards(tr, s, "forward");
    check_repeats(tr, s, false);
    if (flags & OPF_INPLACE_0) check_in_place(tr, s, 0);
    if (flags & OPF_INPLACE_1) check_in_place(tr, s, 1);
}

static inline void check_backward(const trial *tr, side *s, side *truth) {
    op_run run = run_on(tr->b->devs[0], tr->accumulate);
    share_outputs(s, truth);
    op_run host = run_on(tr->b->host, tr->accumulate);
    side_backward(truth, op_find_reference(tr->cs->kind, DT_F64), &host, tr->accumulate, ~0u);
    side_backward(s, tr->impl, &run, tr->accumulate, ~0u);
    compare_gradients(tr, s, truth, ~0u);
    check_guards(tr, s, "backward");
    check_repeats(tr, s, true);
    const op_class *k = &op_classes[tr->cs->kind];
    if ((k->flags & OPF_INPLACE_0) && (k->diff & 1u) && !tr->accumulate)
        check_gradient_in_place(tr, s);
    if (!(tr->b->slow && tr->cs->heavy)) check_each_alone(tr, s, truth);
}

static inline void check_trial(const op_case *cs, const backend *b, dtype dt, bool strided,
                               bool accumulate) {
    trial tr = {cs, b, impl_of(b, cs->kind, dt), dt, strided, accumulate, .label = ""};
    snprintf(tr.label, sizeof tr.label, "%s, %s %s%s%s", cs->label, b->name, dtype_name(dt),
             strided ? ", strided" : "", accumulate ? ", accumulate" : "");
    if (!tr.impl) fail_msg("%s: no kernel", tr.label);
    side s, truth;
    side_open(&tr.given, cs, dt, strided, b->devs[0]);
    open_given(&tr, &s, b->devs[0]);
    side_open_like(&truth, &tr.given, cs, DT_F64, false, b->host);
    check_forward(&tr, &s, &truth);
    if (has_backward(cs->kind) && !cs->forward_only) check_backward(&tr, &s, &truth);
    check_inputs_untouched(&tr, &s);
    side_close(&s);
    side_close(&truth);
    side_close(&tr.given);
}

/* ---- the matrix ---- */

static inline void backend_close(backend *b) {
    for (int k = 0; k < DEVS; k++) dev_close(b->devs[k]);
}

static inline case_list cases_of(op_kind kind) {
    case_list l = {0};
    CASES[kind](&l);
    bool tested = l.n > 0 || (op_classes[kind].flags & OPF_COMMUNICATES);
    if (!tested) fail_msg("op %s has no cases", op_classes[kind].name);
    return l;
}

/* Way 0: neither strided nor accumulated, 1 and 2: one of these, 3: both. */
static inline bool is_tried(dtype dt, int item, int way) {
    if (UNDER_ASAN) return way == item % 2 * 3;
    bool in_half = (way == 0 || way == 3) == (item % 2 == 0);
    return dt == DT_F32 || dt == DT_BF16 || in_half;
}

/* The one way for a heavy case, of those that is_tried allows. bf16 is never strided: for rows at odd
 * addresses kernels are simpler. */
static inline int heavy_way(int item, dtype dt) {
    static const int ways[4] = {0, 1, 3, 2};
    return dt == DT_BF16 ? item / 2 % 2 * 2 : ways[item % 4];
}

/* Where that is slow, a heavy case runs in fp32 and in one of the formats of 16 bits, by turns. */
static inline bool heavy_in(int item, dtype dt) {
    return dt == DT_F32 || dt == (item % 2 ? DT_F16 : DT_BF16);
}

static inline void check_op(const backend *b, op_kind kind, dtype dt) {
    if (!b->reference && impl_of(b, kind, dt) == op_find_reference(kind, dt)) return;
    case_list l = cases_of(kind);
    for (int i = 0; i < l.n; i++)
        for (int way = 0; way < 4; way++) {
            bool left_out =
                b->slow && l.items[i].heavy && (way != heavy_way(i, dt) || !heavy_in(i, dt));
            if (is_tried(dt, i, way) && !left_out)
                check_trial(&l.items[i], b, dt, way & 1, way & 2);
        }
    free(l.items);
}

#endif
