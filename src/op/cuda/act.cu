/* ACT: y = act(x); dx = dy act'(x). GATED: y = act(gate) up; dgate = dy up act'(gate), dup = dy act(gate).
 * One body: x is the gate, and without `up` it is 1. Forward reads one number (GATED two) and writes
 * one; backward reads two (three) and writes one (two). About 5 to 30 FLOPs. */
#include "op/cuda/pieces.h"

/* The kinds of op.h, which nvcc does not see. */
enum { GELU_TANH, GELU_EXACT, SILU, RELU, RELU2, SIGMOID, SOFTCAP, CLAMP };

#define GELU_C 0.79788456080286535588f /* sqrt(2/pi) */
#define GELU_CUBIC 0.044715f
#define INV_SQRT2 0.70710678118654752440f
#define INV_SQRT_2PI 0.39894228040143267794f

/* c: the constant of SOFTCAP and CLAMP. */
GPU_FN float act_value(int kind, float x, float c) {
    switch (kind) {
        case GELU_TANH: return 0.5f * x * (1 + tanhf(GELU_C * (x + GELU_CUBIC * x * x * x)));
        case GELU_EXACT: return 0.5f * x * (1 + erff(x * INV_SQRT2));
        case SILU: return x / (1 + expf(-x));
        case RELU: return x < 0 ? 0 : x; /* NaN stays */
        case RELU2: return x < 0 ? 0 : x * x;
        case SIGMOID: return 1 / (1 + expf(-x));
        case SOFTCAP: return c * tanhf(x / c);
        default: return x < -c ? -c : x > c ? c : x;
    }
}

/* act and its derivative, which share most of the work. */
GPU_FN float act_slope(int kind, float x, float c, float *value) {
    float t;
    switch (kind) {
        case GELU_TANH:
            t = tanhf(GELU_C * (x + GELU_CUBIC * x * x * x));
            *value = 0.5f * x * (1 + t);
            return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * GELU_C * (1 + 3 * GELU_CUBIC * x * x);
        case GELU_EXACT:
            t = 0.5f * (1 + erff(x * INV_SQRT2));
            *value = x * t;
            return t + x * INV_SQRT_2PI * expf(-0.5f * x * x);
        case SILU:
            t = 1 / (1 + expf(-x));
            *value = x * t;
            return t * (1 + x * (1 - t));
        case RELU: *value = x < 0 ? 0 : x; return x > 0 ? 1.0f : 0.0f;
        case RELU2: *value = x < 0 ? 0 : x * x; return x > 0 ? 2 * x : 0;
        case SIGMOID: *value = 1 / (1 + expf(-x)); return *value * (1 - *value);
        case SOFTCAP:
            t = tanhf(x / c);
            *value = c * t;
            return 1 - t * t;
        default: *value = x < -c ? -c : x > c ? c : x; return x < -c || x > c ? 0.0f : 1.0f;
    }
}

typedef struct act_args {
    mat x, up, y, dy, dx, dup;
    pieces p;
    float c;
    int32_t kind, add_x, add_up;
} act_args;

GPU_FN void load_up(const act_args *a, int64_t n, int32_t c, float up[VEC]) {
    for (int k = 0; k < VEC; k++) up[k] = 1;
    if (a->up.p) piece_load(up, row_of(a->up, n) + c, a->p.wide);
}

KERNEL(act_fwd, act_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC], up[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    piece_load(v, row_of(a->x, n) + c, a->p.wide);
    load_up(a, n, c, up);
    for (int k = 0; k < VEC; k++) v[k] = act_value(a->kind, v[k], a->c) * up[k];
    piece_store(row_of(a->y, n) + c, v, a->p.wide);
}

KERNEL(act_bwd, act_args, PIECE_THREADS) {
    int64_t n;
    int32_t c;
    float v[VEC], up[VEC], dy[VEC];
    if (!my_piece(&a->p, &n, &c)) return;
    piece_load(v, row_of(a->x, n) + c, a->p.wide);
    piece_load(dy, row_of(a->dy, n) + c, a->p.wide);
    load_up(a, n, c, up);
    for (int k = 0; k < VEC; k++) {
        float value, slope = act_slope(a->kind, v[k], a->c, &value);
        up[k] *= dy[k] * slope;
        v[k] = dy[k] * value;
    }
    if (a->dx.p) piece_put(row_of(a->dx, n) + c, up, a->p.wide, a->add_x);
    if (a->dup.p) piece_put(row_of(a->dup, n) + c, v, a->p.wide, a->add_up);
}

#ifndef __CUDACC__

_Static_assert((int)GELU_TANH == (int)ACT_GELU_TANH && (int)GELU_EXACT == (int)ACT_GELU_EXACT &&
                   (int)SILU == (int)ACT_SILU && (int)RELU == (int)ACT_RELU &&
                   (int)RELU2 == (int)ACT_RELU2 && (int)SIGMOID == (int)ACT_SIGMOID &&
                   (int)SOFTCAP == (int)ACT_SOFTCAP && (int)CLAMP == (int)ACT_CLAMP,
               "the kinds of op.h");

static act_args act_open(const op_call *c) {
    act_args a = {.x = mat_of(&c->in[0]), .up = mat_of(&c->in[1]), .c = c->attr->act.c};
    a.kind = (int32_t)c->attr->act.kind;
    return a;
}

static void forward(const op_call *c) {
    const tensor *y = &c->out[0];
    act_args a = act_open(c);
    a.y = mat_of(y);
    a.p = pieces_of(y->rows, y->cols, is_wide(y) && is_wide(&c->in[0]) && is_wide(&c->in[1]));
    launch(c, &act_fwd, grid_of_pieces(&a.p), &a);
}

static void backward(const op_call *c) {
    const tensor *dy = &c->dout[0], *dx = &c->din[0], *dup = &c->din[1];
    if (!dx->data && !dup->data) return;
    act_args a = act_open(c);
    a.dy = mat_of(dy), a.dx = mat_of(dx), a.dup = mat_of(dup);
    a.add_x = op_accumulates(c, 0), a.add_up = op_accumulates(c, 1);
    bool wide =
        is_wide(dy) && is_wide(dx) && is_wide(dup) && is_wide(&c->in[0]) && is_wide(&c->in[1]);
    a.p = pieces_of(dy->rows, dy->cols, wide);
    launch(c, &act_bwd, grid_of_pieces(&a.p), &a);
}

const op_impl CUDA_IMPL(ACT) = {forward, backward, NULL, NULL};
const op_impl CUDA_IMPL(GATED) = {forward, backward, NULL, NULL};
#endif
