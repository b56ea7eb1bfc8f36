/* The op matrix on the CPU's instruction sets and the portable reference; the gradients of the double
 * reference against central finite differences. */
#include "dev/dev_int.h"
#include "op/amx_emulator.h"
#include "op/cpu/tables.h"
#include "op/matrix.h"

/* ---- finite differences of the double reference ---- */

/* The scalar whose gradient backward makes. */
static double objective(side *s, const op_run *run) {
    double sum = 0;
    side_forward(s, op_find_reference(s->cs->kind, DT_F64), run, false);
    const tensor *y = &s->out[0].t;
    if (!grad_in_fwd(s->cs->kind)) {
        for (int64_t n = 0; n < y->rows * y->cols; n++)
            sum += tensor_get(y, n) * tensor_get(&s->dout[0].t, n);
        return sum;
    }
    for (int64_t n = 0; n < y->rows; n++) {
        double lse = tensor_get(&s->out[1].t, n);
        if (tensor_get(&s->in[2].t, n) < 0) continue;
        sum += tensor_get(y, n) + (double)s->cs->attr.head.z_loss * lse * lse;
    }
    return sum * (double)run->grad_scale * (double)s->cs->attr.head.weight;
}

static void check_slope(side *s, const op_run *run, int i, int64_t n, double gradient) {
    const double h = 1e-5;
    double x = tensor_get(&s->in[i].t, n);
    tensor_set(&s->in[i].t, n, x + h);
    double up = objective(s, run);
    tensor_set(&s->in[i].t, n, x - h);
    double slope = (up - objective(s, run)) / (2 * h);
    tensor_set(&s->in[i].t, n, x);
    if (fabs(slope - gradient) > 1e-6 * (1 + fabs(gradient)))
        fail_msg("%s: d(input %d)[%lld] is %.10g but the slope is %.10g", s->cs->label, i,
                 (long long)n, gradient, slope);
}

/* Two forwards for each probe; what they look at is not memory. */
static void check_finite_differences(const op_case *cs, dev *d) {
    enum { PROBES = UNDER_ASAN ? 1 : 12 };
    const op_impl *ref = op_find_reference(cs->kind, DT_F64);
    op_run run = run_on(d, false);
    side s, at;
    side_open(&s, cs, DT_F64, false, d);
    side_open(&at, cs, DT_F64, false, d);
    side_forward(&s, ref, &run, false);
    if (has_backward(cs->kind)) side_backward(&s, ref, &run, false, ~0u);
    for (int i = 0; i < op_inputs(cs->kind); i++) {
        if (!((s.io.want_grad >> i) & 1u)) continue;
        bool dx_is_output = grad_in_fwd(cs->kind) && !((op_classes[cs->kind].weights >> i) & 1u);
        const tensor *g = dx_is_output ? &s.out[2].t : &s.din[i].t;
        int64_t size = g->rows * g->cols, step = size / PROBES + 1;
        for (int64_t n = 0; n < size; n += step) {
            int64_t no_grad = cs->attr.embed.no_grad_id - cs->attr.embed.first;
            bool is_count = cs->kind == OP_ROUTER_BALANCE && n < g->rows / 2 * g->cols;
            if ((cs->kind == OP_EMBED && n / g->cols == no_grad) || is_count)
                assert_true(tensor_get(g, n) == 0);
            else
                check_slope(&at, &run, i, n, tensor_get(g, n));
        }
    }
    side_close(&s);
    side_close(&at);
}

/* ---- backends ---- */

static void backend_open(backend *b, const char *isa) {
    err e;
    *b = (backend){.reference = isa == NULL};
    if (isa) setenv("ATHANOR_ISA", isa, 1);
    for (int k = 0; k < DEVS; k++)
        if (dev_open(&b->devs[k], DEV_CPU, k + 1, &e) != ST_OK) fail_msg("%s", e.message);
    unsetenv("ATHANOR_ISA");
    b->host = b->devs[0];
    snprintf(b->name, sizeof b->name, "%s", isa ? isa : "reference");
}

static void check_backend(const char *isa) {
    backend b;
    backend_open(&b, isa);
    bool available = !isa || strcmp(cpu_isa_name(dev_isa(b.devs[0])), isa) == 0;
    for (int kind = 0; kind < OP_COUNT && available; kind++)
        for (int k = 0; k < ARRAY_LEN(DTYPES); k++) check_op(&b, (op_kind)kind, DTYPES[k]);
    backend_close(&b);
    if (!available) skip();
}

static void test_reference(void **state) {
    (void)state, check_backend(NULL);
}
static void test_base(void **state) {
    (void)state, check_backend("base");
}
static void test_avx2(void **state) {
    (void)state, check_backend("avx2");
}
static void test_avx512(void **state) {
    (void)state, check_backend("avx512");
}
static void test_avx512_bf16(void **state) {
    (void)state, check_backend("avx512_bf16");
}

#if defined(__x86_64__)
/* What has products of tiles: on AMX, in bf16. Where there is none, its instructions are emulated. */
static void check_with_tiles(op_kind kind, const backend *b) {
    case_list l = cases_of(kind);
    for (int i = 0; i < l.n; i++) {
        const op_attention *at = &l.items[i].attr.attention;
        bool tiles = kind != OP_ATTENTION || at->Tq > 1 || at->Tk < 1000; /* others have few */
        if (tiles) check_trial(&l.items[i], b, DT_BF16, i & 1, i & 2);
    }
    free(l.items);
}

static void test_amx(void **state) {
    (void)state;
    backend b;
    backend_open(&b, "amx");
    bool possible = dev_isa(b.devs[0]) >= ISA_AVX512_BF16;
    bool emulated = dev_isa(b.devs[0]) == ISA_AVX512_BF16;
    static const op_kind kinds[] = {OP_ATTENTION, OP_LINEAR, OP_HEAD_CE, OP_EXPERT_LINEAR};
    if (emulated) {
        amx_emulator_start();
        for (int k = 0; k < DEVS; k++) b.devs[k]->isa = ISA_AMX;
    }
    for (int k = 0; k < ARRAY_LEN(kinds) && possible; k++) {
        long before = amx_products;
        check_with_tiles(kinds[k], &b);
        assert_true(!emulated || amx_products > before);
    }
    long before = amx_products;
    double flops = possible ? cpu_kernels_of(ISA_AMX, DT_BF16)->dot_loop(1, 3) : 0; /* the limit */
    assert_true(!possible || flops == 3 * 4 * 2.0 * 16 * 16 * 32);
    assert_true(!emulated || amx_products == before + 3 * 4);
    backend_close(&b);
    if (!possible) skip();
}
#else
static void test_amx(void **state) {
    (void)state;
    skip();
}
#endif

static void test_gradients_of_reference(void **state) {
    (void)state;
    backend b;
    backend_open(&b, NULL);
    for (int kind = 0; kind < OP_COUNT; kind++) {
        case_list l = cases_of((op_kind)kind);
        for (int i = 0; i < l.n; i++) {
            bool no_gradient = grad_in_fwd((op_kind)kind) && !l.items[i].attr.head.with_grad;
            if (!no_gradient && !l.items[i].forward_only)
                check_finite_differences(&l.items[i], b.devs[1]);
        }
        free(l.items);
    }
    backend_close(&b);
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_reference),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_base),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_avx512_bf16),
        cmocka_unit_test(test_amx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
