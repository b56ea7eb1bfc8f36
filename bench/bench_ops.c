/* Time and rate of every op at the shapes of a 10M-parameter Llama step (B 32, T 256, C 384, H 6,
 * K 2, D 64, F 1024, V 4096), in f32 and bf16:
 *
 *   bench_ops [threads [name [type]]]     only ops whose line begins with `name`; f32 or bf16
 *
 * GFLOP/s counts what op_infer_call states; GB/s its memory traffic. Best of several runs; with one
 * thread in processor time, so that a busy machine hardly disturbs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "op/op.h"
#include "op/vecops.h"

enum { B = 32, T = 256, N = B * T, C = 384, H = 6, K = 2, D = 64, F = 1024, V = 4096, RUNS = 7 };

typedef struct bench {
    dev *d;
    arena *a;
    dtype dt;
    const char *only;
} bench;

static tensor make(const bench *b, dtype dt, int64_t rows, int64_t cols, int64_t limit) {
    tensor t = {.dt = dt, .rows = rows, .cols = cols, .ld = cols};
    uint64_t state = (uint64_t)(rows * 31 + cols);
    t.data = arena_alloc(b->a, (size_t)(rows * cols) * dtype_bytes(dt));
    for (int64_t i = 0; i < rows * cols; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float v = (float)(state >> 40) * 0x1p-24f - 0.5f;
        if (dt == DT_F32) ((float *)t.data)[i] = v;
        if (dt == DT_BF16) ((uint16_t *)t.data)[i] = f32_to_bf16(v);
        if (dt == DT_I32) ((int32_t *)t.data)[i] = (int32_t)((state >> 33) % (uint64_t)limit);
    }
    return t;
}

static bool is_wanted(const bench *b, const char *label) {
    return strncmp(label, b->only, strlen(b->only)) == 0;
}

/* With one thread processor time, which other processes hardly disturb; else time. */
static double now_seconds(const bench *b) {
    struct timespec t;
    clock_gettime(dev_threads(b->d) == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double best_seconds(const bench *b, op_fn fn, const op_call *c) {
    double best = 1e30, spent = 0.0;
    for (int i = 0; i < RUNS && spent < 1.0; i++) {
        double t0 = now_seconds(b);
        fn(c);
        double s = now_seconds(b) - t0;
        best = s < best ? s : best;
        spent += s;
    }
    return best;
}

static void report(const char *name, const char *phase, const bench *b, double s, double flops,
                   double bytes) {
    if (!is_wanted(b, name)) return;
    printf("%-26s %-10s %-5s %9.3f ms %8.1f GFLOP/s %7.1f GB/s\n", name, phase, dtype_name(b->dt),
           s * 1e3, flops / s * 1e-9, bytes / s * 1e-9);
}

/* Runs the phases of one op; gradients of everything that can have one. */
static void run_op(bench *b, const char *label, op_kind kind, op_attr attr, const tensor *in,
                   int n_in) {
    if (!is_wanted(b, label)) {
        arena_reset(b->a);
        return;
    }
    const op_class *cls = &op_classes[kind];
    op_infer io = {.kind = kind, .attr = &attr, .dev = b->d};
    bool stored = kind == OP_LINEAR && in[1].dt != b->dt; /* without gradients */
    if (!stored) io.want_grad = (uint8_t)(cls->diff | cls->weights);
    op_run run = {.dev = b->d, .seed = 1, .grad_scale = 1.0f / N, .first_micro = true};
    op_call c = {.kind = kind, .attr = &attr, .run = &run};
    for (int i = 0; i < n_in; i++) io.in[i] = c.in[i] = in[i];
    err e = {0};
    if (op_infer_call(&io, &e) != ST_OK) {
        fprintf(stderr, "%s: cannot infer\n", label);
        exit(1);
    }
    for (int i = 0; i < OP_MAX_OUT; i++) {
        const tensor *o = &io.out[i];
        if (!o->rows) continue;
        c.out[i] = make(b, o->dt, o->rows, o->cols, 1);
        c.dout[i] = make(b, o->dt, o->rows, o->cols, 1);
    }
    for (int i = 0; i < n_in; i++) {
        bool weight = cls->weights >> i & 1;
        if (c.in[i].rows && (weight || (cls->diff >> i & 1)))
            c.din[i] = make(b, weight ? DT_F32 : c.in[i].dt, c.in[i].rows, c.in[i].cols, 1);
    }
    const op_impl *impl = op_find(b->d, kind, b->dt);
    int64_t ws = io.fwd.ws_bytes;
    if (io.bwd_input.ws_bytes > ws) ws = io.bwd_input.ws_bytes;
    if (io.bwd_weight.ws_bytes > ws) ws = io.bwd_weight.ws_bytes;
    c.ws = arena_alloc(b->a, (size_t)(ws > 4096 ? ws : 4096));
    report(label, "fwd", b, best_seconds(b, impl->fwd, &c), io.fwd.flops, io.fwd.bytes);
    if (impl->bwd_input && !stored)
        report(label, "bwd_input", b, best_seconds(b, impl->bwd_input, &c), io.bwd_input.flops,
               io.bwd_input.bytes);
    if (impl->bwd_weight && !stored)
        report(label, "bwd_weight", b, best_seconds(b, impl->bwd_weight, &c), io.bwd_weight.flops,
               io.bwd_weight.bytes);
    arena_reset(b->a);
}

static void bench_linear(bench *b, const char *label, int64_t rows, int64_t in, int64_t out) {
    tensor t[2] = {make(b, b->dt, rows, in, 0), make(b, b->dt, out, in, 0)};
    run_op(b, label, OP_LINEAR, (op_attr){0}, t, 2);
}

/* Weights as files store them, which a generated token reads once. Their bytes are 0: what they say
 * costs no time. */
static void bench_stored(bench *b) {
    static const dtype formats[] = {DT_F16,  DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1,
                                    DT_Q8_0, DT_Q4_K, DT_Q5_K, DT_Q6_K};
    enum { IN = 2048, OUT = 2048 };
    for (int i = 0; i < 2 * ARRAY_LEN(formats); i++) {
        dtype dt = formats[i / 2];
        int rows = i % 2 ? 4 : 1;
        char label[32];
        snprintf(label, sizeof label, "stored %s, %d row%s", dtype_name(dt), rows,
                 rows > 1 ? "s" : "");
        tensor w = {.dt = dt, .rows = OUT, .cols = IN, .ld = IN};
        w.data = arena_alloc(b->a, (size_t)OUT * (size_t)dtype_span_bytes(dt, IN));
        run_op(b, label, OP_LINEAR, (op_attr){0}, (tensor[]){make(b, b->dt, rows, IN, 0), w}, 2);
    }
}

/* The products of a pass: out, in, how many. Q4_1 is measured with the small model, the other formats of files with the large one,
 * of whose rows the first cache holds too few while they wait. */
enum { PASS_PRODUCTS = 5 };
typedef const int32_t pass_sizes[PASS_PRODUCTS][3];
static pass_sizes SMOLLM2_135M = {
    {960, 576, 30}, {576, 576, 30}, {3072, 576, 30}, {576, 1536, 30}, {49152, 576, 1}};
static pass_sizes QUARTER_OF_LLAMA_1B = {
    {3072, 2048, 4}, {2048, 2048, 4}, {16384, 2048, 4}, {2048, 8192, 4}, {32000, 2048, 1}};

static double pass_seconds(const bench *b, pass_sizes sizes, dtype w_dt, int64_t rows, bool by_row,
                           uint8_t *weights) {
    double total = 0;
    for (int i = 0; i < PASS_PRODUCTS; i++) {
        int64_t out = sizes[i][0], in = sizes[i][1];
        op_attr attr = {.linear = {.by_row = by_row, .rounds = by_row}};
        tensor w = {.dt = w_dt, .rows = out, .cols = in, .ld = in, .data = weights};
        op_infer io = {.kind = OP_LINEAR, .attr = &attr, .dev = b->d};
        io.in[0] = make(b, b->dt, rows, in, 0), io.in[1] = w;
        err e = {0};
        if (op_infer_call(&io, &e) != ST_OK) exit(1);
        op_run run = {.dev = b->d};
        op_call c = {.kind = OP_LINEAR, .attr = &attr, .run = &run, .in = {io.in[0], w}};
        c.out[0] = make(b, b->dt, rows, out, 0);
        c.ws = arena_alloc(b->a, (size_t)io.fwd.ws_bytes + 1);
        op_fn fwd = op_find(b->d, OP_LINEAR, b->dt)->fwd;
        fwd(&c);
        double t0 = now_seconds(b);
        for (int l = 0; l < sizes[i][2]; l++) {
            c.in[1].data = weights + (size_t)l * (size_t)(out * dtype_span_bytes(w_dt, in));
            fwd(&c);
        }
        total += now_seconds(b) - t0;
    }
    return total;
}

static void bench_pass(bench *b, pass_sizes sizes, dtype w_dt) {
    static const int rows[] = {1, 2, 4, 8, 16, 32, 64, 256};
    size_t bytes = 0;
    for (int i = 0; i < PASS_PRODUCTS; i++) {
        size_t all =
            (size_t)sizes[i][0] * (size_t)sizes[i][2] * (size_t)dtype_span_bytes(w_dt, sizes[i][1]);
        bytes = all > bytes ? all : bytes;
    }
    uint8_t *weights = arena_alloc(b->a, bytes);
    memset(weights, 1, bytes);
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        char label[48];
        snprintf(label, sizeof label, "pass %s, %d rows", dtype_name(w_dt), rows[i]);
        if (!is_wanted(b, label)) continue;
        double best[2] = {1e30, 1e30};
        for (int j = 0; j < 2 * RUNS; j++) {
            double s = pass_seconds(b, sizes, w_dt, rows[i], j % 2, weights);
            best[j % 2] = s < best[j % 2] ? s : best[j % 2];
        }
        printf("%-26s %-5s %9.3f ms, by row and rounded %9.3f ms\n", label, dtype_name(b->dt),
               best[0] * 1e3, best[1] * 1e3);
    }
    arena_reset(b->a);
}

static void bench_attention(bench *b, const char *label, int32_t batch, int32_t queries,
                            int32_t time, int32_t heads, int32_t kv_heads, float softcap) {
    op_attr at = {.attention = {.B = batch, .Tq = queries, .Tk = time, .D = D, .Dv = D}};
    at.attention.H = heads, at.attention.K = kv_heads;
    at.attention.softcap = softcap;
    at.attention.scale = 0.125f, at.attention.causal = queries > 1;
    int64_t q_rows = (int64_t)batch * queries, k_rows = (int64_t)batch * time;
    tensor t[3] = {make(b, b->dt, q_rows, heads * D, 0), make(b, b->dt, k_rows, kv_heads * D, 0),
                   make(b, b->dt, k_rows, kv_heads * D, 0)};
    run_op(b, label, OP_ATTENTION, at, t, 3);
}

static void bench_small_ops(bench *b) {
    op_attr norm = {.norm = {.eps = 1e-5f}}, silu = {.act = {.kind = ACT_SILU}};
    op_attr gelu = {.act = {.kind = ACT_GELU_TANH}};
    op_attr rope = {.rope = {.heads = H + K, .head_dim = D, .rotary_dim = D}};
    run_op(b, "rmsnorm", OP_RMSNORM, norm,
           (tensor[]){make(b, b->dt, N, C, 0), make(b, DT_F32, 1, C, 0)}, 2);
    /* One norm per head, where the queries lie in the rows of the packed product. */
    tensor heads = make(b, b->dt, N, (H + 2 * K) * D, 0);
    heads.cols = H * D;
    norm.norm.width = D;
    run_op(b, "rmsnorm of heads", OP_RMSNORM, norm, (tensor[]){heads, make(b, DT_F32, 1, D, 0)}, 2);
    norm.norm.width = 0;
    run_op(b, "layernorm", OP_LAYERNORM, norm,
           (tensor[]){make(b, b->dt, N, C, 0), make(b, DT_F32, 1, C, 0), make(b, DT_F32, 1, C, 0)},
           3);
    run_op(b, "rope", OP_ROPE, rope,
           (tensor[]){make(b, b->dt, N, (H + 2 * K) * D, 0), make(b, DT_I32, N, 1, T),
                      make(b, DT_F32, T, D, 0)},
           3);
    run_op(b, "gated silu", OP_GATED, silu,
           (tensor[]){make(b, b->dt, N, F, 0), make(b, b->dt, N, F, 0)}, 2);
    run_op(b, "gelu tanh", OP_ACT, gelu, (tensor[]){make(b, b->dt, N, F, 0)}, 1);
    op_attr drop = {.dropout = {.p = 0.1f}};
    run_op(b, "dropout", OP_DROPOUT, drop, (tensor[]){make(b, b->dt, N, C, 0)}, 1);
    run_op(b, "add", OP_ADD, (op_attr){0},
           (tensor[]){make(b, b->dt, N, C, 0), make(b, b->dt, N, C, 0)}, 2);
    op_attr lookup = {.embed = {.dt = b->dt, .no_grad_id = -1}};
    run_op(b, "embed", OP_EMBED, lookup,
           (tensor[]){make(b, b->dt, V, C, 0), make(b, DT_I32, N, 1, V)}, 2);
}

static void bench_adamw(bench *b) {
    enum { PARAMS = 10 << 20 };
    static const char update[] = "adamw 10.5M", norm_of[] = "sum of squares 10.5M";
    if (!is_wanted(b, update) && !is_wanted(b, norm_of)) return;
    tensor t[4];
    for (int i = 0; i < 4; i++) t[i] = make(b, DT_F32, 1, PARAMS, 0);
    for (int64_t i = 0; i < PARAMS; i++) ((float *)t[2].data)[i] += 0.5f;
    vec_update_args a = {
        .kind = VEC_ADAMW, .param = t[0].data, .state = {t[1].data, t[2].data}, .grad = t[3].data};
    bool decay = true;
    a.decay = &decay;
    vec_span span = {.n = PARAMS, .counted = true};
    vec_spans spans = {.item = &span, .n = 1};
    vec_spans_index(&spans);
    a.lr = 1e-3f, a.beta1 = 0.9f, a.beta2 = 0.95f, a.eps = 1e-8f, a.weight_decay = 0.1f;
    a.correction1 = 0.1f, a.correction2 = 0.05f, a.grad_scale = 1.0f;
    double adamw = 1e30, norm = 1e30, total = 0.0;
    for (int i = 0; i < RUNS; i++) {
        double t0 = now_seconds(b);
        vec_update(b->d, &spans, &a, NULL);
        double t1 = now_seconds(b);
        total += vec_sum_squares(b->d, &spans, a.grad);
        double t2 = now_seconds(b);
        adamw = t1 - t0 < adamw ? t1 - t0 : adamw;
        norm = t2 - t1 < norm ? t2 - t1 : norm;
    }
    if (!(total > 0.0)) exit(1);
    report(update, "update", b, adamw, 15.0 * PARAMS, 28.0 * PARAMS);
    report(norm_of, "norm", b, norm, 2.0 * PARAMS, 4.0 * PARAMS);
    arena_reset(b->a);
}

int main(int argc, char **argv) {
    err e = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench b = {.a = arena_new("bench"), .only = argc > 2 ? argv[2] : ""};
    if (dev_open(&b.d, DEV_CPU, argc > 1 ? atoi(argv[1]) : 0, &e) != ST_OK) return 1;
    printf("%s, %d threads\n", cpu_isa_name(dev_isa(b.d)), dev_threads(b.d));
    for (int i = 0; i < 2; i++) {
        b.dt = i ? DT_BF16 : DT_F32;
        if (argc > 3 && strcmp(argv[3], dtype_name(b.dt)) != 0) continue;
        bench_linear(&b, "linear qkv 384x640", N, C, (H + 2 * K) * D);
        bench_linear(&b, "linear o 384x384", N, C, C);
        bench_linear(&b, "linear gate|up 384x2048", N, C, 2 * F);
        bench_linear(&b, "linear down 1024x384", N, F, C);
        op_attr head = {.head = {.with_grad = true}};
        run_op(
            &b, "head_ce V 4096", OP_HEAD_CE, head,
            (tensor[]){make(&b, b.dt, N, C, 0), make(&b, b.dt, V, C, 0), make(&b, DT_I32, N, 1, V)},
            3);
        bench_attention(&b, "attention B32 T256", B, T, T, H, K, 0);
        bench_attention(&b, "attention softcap", B, T, T, H, K, 50);
        bench_attention(&b, "attention GPT-2 B4 T1024", 4, 1024, 1024, 12, 12, 0);
        bench_attention(&b, "attention SmolLM2 B2 T2048", 2, 2048, 2048, 9, 3, 0);
        bench_attention(&b, "attention B1 T4096", 1, 4096, 4096, H, K, 0);
        bench_attention(&b, "attention 1 of 4096", 1, 1, 4096, H, K, 0);
        bench_linear(&b, "linear 1 row 384x4096", 1, C, V);
        bench_small_ops(&b);
        if (b.dt == DT_F32) bench_stored(&b);
        bench_pass(&b, SMOLLM2_135M, b.dt);
        if (b.dt == DT_F32) bench_pass(&b, SMOLLM2_135M, DT_Q4_1);
        static const dtype formats[] = {DT_Q4_0, DT_Q5_0, DT_Q8_0, DT_Q4_K, DT_Q5_K, DT_Q6_K};
        for (int f = 0; b.dt == DT_F32 && f < ARRAY_LEN(formats); f++)
            bench_pass(&b, QUARTER_OF_LLAMA_1B, formats[f]);
        if (b.dt == DT_F32) bench_adamw(&b);
    }
    arena_free(b.a);
    dev_close(b.d);
    return 0;
}
