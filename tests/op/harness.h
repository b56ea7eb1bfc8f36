/* Runs one op on buffers with guards, in any dtype, and compares it with the double reference.
 *
 * Reading order: op_case (what is run), buf (memory that notices stray writes), side (one program's
 * buffers), side_forward and side_backward, compare. Everything that the op may not write, and
 * everything that it must write, is NaN (all bits set) before it runs. */
#ifndef TESTS_OP_HARNESS_H
#define TESTS_OP_HARNESS_H
#include "test.h"

#include "base/arena.h"
#include "base/rng.h"
#include "op/op.h"

/* How an input is filled; the first four say which storage it has. */
typedef enum fill {
    ABSENT,
    ACTIVATION, /* program dtype, may be strided */
    MATRIX,     /* program dtype, rows contiguous */
    CACHE,      /* f16 in programs of f32, else the program's; may be strided */
    VECTOR,     /* f32, or f64 in f64 programs */
    INTEGERS,   /* i32 in [0, limit) */
    TARGETS,    /* i32 in [0, limit), every third one -1 */
    STARTS,     /* bounds of documents of uneven length: start <= position, limit = Tq */
    BLIND,      /* like STARTS, but some rows start behind the last key and see nothing */
    LATEST,     /* i32 = limit for every row */
    DISTINCT,   /* i32 in [0, limit), no two alike; limit is no multiple of 7 */
    SOME,       /* the same, every fourth one -1 */
    FIRST,      /* i32 rising from 0, every fourth one -1 */
    GATES, /* f32 or f64: the first half of a row between 0.05 and 1, the rest between -1.5 and 0 */
    PIECES, /* [B,3]: a position, 0 in every third row; how many of `limit` rows, none in row 1; the first, the last row's before */
    SPANS,  /* pairs: a position, which is 0 in every third row, and a number up to limit */
    SHARES, /* f32 or f64 between 0.05 and 1 */
    BORDERS,    /* i32 rising from 0 in the first column to limit in the last, unevenly */
    SEQ_PLACES, /* pairs (sequence below 3, position below limit), every fifth position -1 */
    ANGLES,     /* cos | sin table, f32 or f64 */
    LIKE_STATS, /* rows of a maximum, a sum of exponentials and a logit, f32 or f64 */
} fill;

typedef struct slot {
    fill fill;
    int64_t rows, cols, limit;
    double scale; /* values are uniform in +-scale; 0 = 1.5 */
} slot;

typedef struct op_case {
    char label[128];
    op_kind kind;
    op_attr attr;
    slot in[OP_MAX_IN];
    bool forward_only; /* this call has no gradient, though the op has */
    bool heavy;        /* many multiplications: tried in fewer ways where these take long */
} op_case;

/* Thousands of tiny parallel loops: waiting threads must sleep, not spin. OpenMP reads this only
 * when a process starts, so the test starts itself again. */
static inline void restart_with_sleeping_threads(char **argv) {
    if (getenv("OMP_WAIT_POLICY")) return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

/* ---- buffers ---- */

enum { GUARD_BYTES = 192, POISON = 0xFF };

typedef struct buf {
    uint8_t *mem;
    size_t bytes;
    tensor t;
} buf;

static inline buf buf_new(dtype dt, int64_t rows, int64_t cols, int64_t gap, int64_t lead) {
    buf b = {0};
    size_t es = dtype_bytes(dt);
    b.bytes = 2 * GUARD_BYTES + ((size_t)(rows * (cols + gap)) + (size_t)lead) * es;
    b.bytes = (b.bytes + 63) / 64 * 64;
    b.mem = aligned_alloc(64, b.bytes);
    assert_non_null(b.mem);
    memset(b.mem, POISON, b.bytes);
    b.t = (tensor){b.mem + GUARD_BYTES + (size_t)lead * es, dt, rows, cols, cols + gap};
    return b;
}

/* Divisions are most of the time of a look at many elements. */
static inline void *element(const tensor *t, int64_t i) {
    int64_t at = t->ld == t->cols ? i : i / t->cols * t->ld + i % t->cols;
    return (uint8_t *)t->data + (size_t)at * dtype_bytes(t->dt);
}

static inline double tensor_get(const tensor *t, int64_t i) {
    const void *p = element(t, i);
    switch (t->dt) {
        case DT_F32: return (double)*(const float *)p;
        case DT_F64: return *(const double *)p;
        case DT_BF16: return (double)bf16_to_f32(*(const uint16_t *)p);
        case DT_F16: return (double)f16_to_f32(*(const uint16_t *)p);
        case DT_I32: return *(const int32_t *)p;
        case DT_I64: return (double)*(const int64_t *)p * 0x1p-50; /* sums of fixed point */
        default: fail_msg("dtype %s", dtype_name(t->dt)); return 0;
    }
}

static inline void tensor_set(const tensor *t, int64_t i, double v) {
    void *p = element(t, i);
    switch (t->dt) {
        case DT_F32: *(float *)p = (float)v; break;
        case DT_F64: *(double *)p = v; break;
        case DT_BF16: *(uint16_t *)p = f32_to_bf16((float)v); break;
        case DT_F16: *(uint16_t *)p = f32_to_f16((float)v); break;
        case DT_I32: *(int32_t *)p = (int32_t)v; break;
        case DT_I64: *(int64_t *)p = (int64_t)(v * 0x1p50); break;
        default: fail_msg("dtype %s", dtype_name(t->dt));
    }
}

static inline void tensor_set_all(const tensor *t, const double *v) {
    for (int64_t i = 0; i < t->rows * t->cols; i++) tensor_set(t, i, v[i]);
}

/* True if every byte outside the elements still has the poison. */
static inline bool buf_guards_hold(const buf *b) {
    const uint8_t *p = b->mem, *data = b->t.data;
    size_t row = (size_t)b->t.cols * dtype_bytes(b->t.dt);
    for (int64_t n = 0; n < b->t.rows; n++) {
        const uint8_t *start = data + (size_t)(n * b->t.ld) * dtype_bytes(b->t.dt);
        for (; p < start; p++)
            if (*p != POISON) return false;
        p = start + row;
    }
    for (; p < b->mem + b->bytes; p++)
        if (*p != POISON) return false;
    return true;
}

/* ---- one program's buffers ---- */

typedef struct side {
    const op_case *cs;
    op_attr attr; /* of the case, in this dtype */
    dtype dt;
    bool strided;
    op_infer io;
    buf in[OP_MAX_IN], out[OP_MAX_OUT], dout[OP_MAX_OUT], din[OP_MAX_IN], ws;
} side;

static inline dtype real_dtype(dtype dt) {
    return dt == DT_F64 ? DT_F64 : DT_F32;
}

static inline dtype slot_dtype(fill f, dtype dt) {
    if (f == CACHE) return dt == DT_F32 ? DT_F16 : dt;
    if (f == ACTIVATION || f == MATRIX) return dt;
    return f == VECTOR || f == SHARES || f == GATES || f == ANGLES || f == LIKE_STATS
               ? real_dtype(dt)
               : DT_I32;
}

static inline double draw_new(uint64_t stream, int64_t i) {
    return 2.0 * (double)rng_uniform(rng_key_numbered(42, stream), (uint64_t)i) - 1.0;
}

/* Between -1 and 1. Many are kept: thousands of trials are filled with the same. */
static inline double draw(uint64_t stream, int64_t i) {
    enum { STREAMS_KEPT = 72, KEPT = 1 << 16 };
    static double *kept[STREAMS_KEPT];
    if (stream >= STREAMS_KEPT || (uint64_t)i >= KEPT) return draw_new(stream, i);
    if (!kept[stream]) {
        kept[stream] = xcalloc(KEPT, sizeof(double));
        for (int k = 0; k < KEPT; k++) kept[stream][k] = draw_new(stream, k);
    }
    return kept[stream][i];
}

static inline double uniform(uint64_t stream, int64_t i, double scale) {
    return scale * draw(stream, i);
}

static inline double slot_value(const slot *s, int which, int64_t i) {
    double u = uniform((uint64_t)which, i, 1.0);
    double below = floor((u + 1.0) / 2.0 * (double)s->limit);
    int64_t doc = (i % (s->limit ? s->limit : 1)) / 5 * 5;
    switch (s->fill) {
        case INTEGERS: return below;
        case TARGETS: return i % 3 == 1 ? -1 : below;
        case STARTS: return (double)doc;
        case BLIND: return i % 4 == 2 ? (double)s->limit + 1 : (double)doc;
        case LATEST: return (double)s->limit;
        case SOME:
            if (i % 4 == 3) return -1;
            /* fall through */
        case DISTINCT: return (double)((i * 7 + 2) % s->limit);
        case FIRST: return i % 4 == 3 ? -1 : (double)(i - (i + 1) / 4);
        case GATES: return i % s->cols < s->cols / 2 ? 0.525 + 0.475 * u : 0.75 * (u - 1.0);
        case PIECES: {
            int64_t b = i / 3, share = (s->limit - 1) / s->rows, behind = s->rows - 1 - b;
            if (i % 3 == 0) return b % 3 ? 7.0 : 0.0;
            if (i % 3 == 1) return b == 1 ? 0 : (double)share;
            return (double)(share * (behind - (b == 0 && s->rows > 1)));
        }
        case SPANS: return i % 2 ? (double)(s->limit - i / 2 % 2) : i / 2 % 3 ? 7.0 : 0.0;
        case SHARES: return 0.525 + 0.475 * u;
        case BORDERS: {
            int64_t last = s->cols - 1;
            return (double)((i == last ? i : i - i % 2) * s->limit / last);
        }
        case SEQ_PLACES:
            if (i % 2 == 0) return (double)(i / 2 % 3);
            return i / 2 % 5 == 4 ? -1 : below;
        case LIKE_STATS: return i % 3 == 1 ? 2.0 + 3.0 * u * u : u;
        case ANGLES: {
            int64_t half = s->cols / 2, pos = i / s->cols, k = i % s->cols;
            double angle = (double)pos * pow(100.0, -(double)(k % half) / (double)half);
            return k < half ? cos(angle) : sin(angle);
        }
        default: return uniform((uint64_t)which, i, s->scale > 0 ? s->scale : 1.5);
    }
}

static inline buf new_like(const side *s, const tensor *shape, dtype dt, int which) {
    if (!s->strided) return buf_new(dt, shape->rows, shape->cols, 0, 0);
    return buf_new(dt, shape->rows, shape->cols, 3 + which, 5 + which);
}

static inline void copy_values(const tensor *to, const tensor *from) {
    for (int64_t n = 0; n < to->rows * to->cols; n++) tensor_set(to, n, tensor_get(from, n));
}

static inline void buf_copy(const buf *to, const buf *from) {
    bool same_place = (uint8_t *)to->t.data - to->mem == (uint8_t *)from->t.data - from->mem;
    if (same_place && to->t.dt == from->t.dt && to->t.ld == from->t.ld && to->bytes == from->bytes)
        memcpy(to->mem, from->mem, to->bytes);
    else
        copy_values(&to->t, &from->t);
}

/* Buffers of a case in one dtype; the op is inferred for `d`. Inputs are those of `like`, or filled when that is NULL. */
static inline void side_open_like(side *s, const side *like, const op_case *cs, dtype dt,
                                  bool strided, dev *d) {
    *s = (side){.cs = cs, .attr = cs->attr, .dt = dt, .strided = strided};
    if (cs->kind == OP_EMBED) s->attr.embed.dt = dt;
    if (cs->kind == OP_HEAD_GRAD) s->attr.head.dt = dt;
    const op_class *k = &op_classes[cs->kind];
    s->io = (op_infer){.kind = cs->kind, .attr = &s->attr, .dev = d};
    for (int i = 0; i < op_inputs(cs->kind); i++) {
        const slot *sl = &cs->in[i];
        if (sl->fill == ABSENT) continue;
        tensor shape = {.rows = sl->rows, .cols = sl->cols};
        dtype slot_dt = slot_dtype(sl->fill, dt);
        bool gaps = sl->fill == ACTIVATION || sl->fill == CACHE;
        s->in[i] =
            gaps ? new_like(s, &shape, slot_dt, i) : buf_new(slot_dt, sl->rows, sl->cols, 0, 0);
        if (like) buf_copy(&s->in[i], &like->in[i]);
        for (int64_t n = 0; !like && n < sl->rows * sl->cols; n++)
            tensor_set(&s->in[i].t, n, slot_value(sl, i, n));
        s->io.in[i] = s->in[i].t;
        if (cs->forward_only) continue;
        s->io.want_grad |= (uint8_t)((k->diff | k->weights) & (1u << i));
    }
    err e;
    if (op_infer_call(&s->io, &e) != ST_OK) fail_msg("%s: %s", cs->label, e.message);
    for (int o = 0; o < op_outputs(cs->kind); o++) {
        const tensor *t = &s->io.out[o];
        if (t->rows == 0) continue;
        bool gaps = t->dt == dt && t->cols > 1 && o != 1;
        s->out[o] = gaps ? new_like(s, t, t->dt, o + 2) : buf_new(t->dt, t->rows, t->cols, 0, 0);
    }
    s->dout[0] = new_like(s, &s->io.out[0], s->out[0].t.dt, 4);
    if (like) buf_copy(&s->dout[0], &like->dout[0]);
    tensor *dy = &s->dout[0].t;
    for (int64_t n = 0; !like && n < dy->rows * dy->cols; n++)
        tensor_set(dy, n, uniform(50, n, 1.5));
}

static inline void side_open(side *s, const op_case *cs, dtype dt, bool strided, dev *d) {
    side_open_like(s, NULL, cs, dt, strided, d);
}

static inline void buf_free(buf *b) {
    free(b->mem);
    *b = (buf){0};
}

static inline void side_close(side *s) {
    for (int i = 0; i < OP_MAX_IN; i++) buf_free(&s->in[i]), buf_free(&s->din[i]);
    for (int o = 0; o < OP_MAX_OUT; o++) buf_free(&s->out[o]), buf_free(&s->dout[o]);
    buf_free(&s->ws);
}

/* Workspace of the kernels that run, which may not be those that op_infer_call finds. */
static inline int64_t side_ws(const side *s, const op_impl *impl, int which) {
    int64_t ws[3] = {0};
    if (impl->workspace) impl->workspace(&s->io, ws);
    return ws[which];
}

static inline void side_fresh_ws(side *s, int64_t bytes) {
    buf_free(&s->ws);
    s->ws = buf_new(DT_U8, 1, bytes, 0, 0);
}

/* New gradient buffers: `first` in every element (NaN: must be written). */
static inline void side_fresh_din(side *s, bool accumulate) {
    const op_class *k = &op_classes[s->cs->kind];
    for (int i = 0; i < op_inputs(s->cs->kind); i++) {
        buf_free(&s->din[i]);
        if (!((s->io.want_grad >> i) & 1u)) continue;
        bool weight = (k->weights >> i) & 1u;
        s->din[i] = weight ? buf_new(real_dtype(s->dt), s->in[i].t.rows, s->in[i].t.cols, 0, 0)
                           : new_like(s, &s->in[i].t, s->in[i].t.dt, i + 1);
        for (int64_t n = 0; accumulate && n < s->in[i].t.rows * s->in[i].t.cols; n++)
            tensor_set(&s->din[i].t, n, (double)bf16_to_f32(f32_to_bf16((float)uniform(70, n, 1))));
    }
}

/* Runs a kernel and waits for it. */
static inline void side_run(const op_call *c, op_fn fn) {
    err e;
    op_launch(c->run->dev, fn, c);
    dev_sync(c->run->dev);
    if (dev_check(c->run->dev, &e) != ST_OK) fail_msg("%s", e.message);
}

static inline op_call side_call(side *s, const op_run *run, bool accumulate) {
    const op_class *k = &op_classes[s->cs->kind];
    op_call c = {.kind = s->cs->kind,
                 .attr = &s->attr,
                 .run = run,
                 .ws = s->ws.t.data,
                 .ws_bytes = s->ws.t.cols};
    if (accumulate) c.acc = k->diff;
    c.acc_param = k->flags & OPF_SUMS_GRAD ? 1 : k->weights;
    return c;
}

static inline void side_forward(side *s, const op_impl *impl, const op_run *run, bool accumulate) {
    side_fresh_ws(s, side_ws(s, impl, 0));
    op_call c = side_call(s, run, accumulate);
    for (int i = 0; i < OP_MAX_IN; i++) {
        c.in[i] = s->in[i].t;
        if ((op_classes[s->cs->kind].shape_only >> i) & 1u) c.in[i].data = NULL;
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        c.out[o] = s->out[o].t;
        if (s->out[o].mem) memset(s->out[o].mem, POISON, s->out[o].bytes);
    }
    if (op_classes[s->cs->kind].flags & OPF_GRAD_IN_FWD) {
        side_fresh_din(s, accumulate);
        for (int i = 0; i < OP_MAX_IN; i++)
            if ((op_classes[s->cs->kind].weights >> i) & 1u) c.din[i] = s->din[i].t;
    }
    side_run(&c, impl->fwd);
    if (!buf_guards_hold(&s->ws)) fail_msg("%s: writes beside its workspace", s->cs->label);
}

/* Only what ops.def says the backward reads is given; `want` masks the gradients asked for. */
static inline void side_backward(side *s, const op_impl *impl, const op_run *run, bool accumulate,
                                 unsigned want) {
    const op_class *k = &op_classes[s->cs->kind];
    side_fresh_din(s, accumulate);
    op_call c = side_call(s, run, accumulate);
    for (int i = 0; i < OP_MAX_IN; i++) {
        c.in[i] = s->in[i].t, c.din[i] = s->din[i].t;
        if (!((k->bwd_in >> i) & 1u)) c.in[i].data = NULL;
        if (!((want >> i) & 1u)) c.din[i].data = NULL;
    }
    c.dout[0] = s->dout[0].t;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        c.out[o] = s->out[o].t;
        if (!((k->bwd_out >> o) & 1u)) c.out[o].data = NULL;
    }
    op_call only = c;
    for (int i = 0; i < OP_MAX_IN; i++) /* a phase sees its own gradients only, unless fused */
        if (!(k->flags & OPF_FUSED_BWD) && !((k->diff >> i) & 1u)) only.din[i].data = NULL;
    if (impl->bwd_input) {
        side_fresh_ws(s, side_ws(s, impl, 1));
        only.ws = s->ws.t.data;
        only.ws_bytes = s->ws.t.cols;
        side_run(&only, impl->bwd_input);
        if (!buf_guards_hold(&s->ws)) fail_msg("%s: writes beside its workspace", s->cs->label);
    }
    if (!impl->bwd_weight) return;
    side_fresh_ws(s, side_ws(s, impl, 2));
    only = c;
    for (int i = 0; i < OP_MAX_IN; i++)
        if (!((k->weights >> i) & 1u)) only.din[i].data = NULL;
    only.ws = s->ws.t.data;
    only.ws_bytes = s->ws.t.cols;
    side_run(&only, impl->bwd_weight);
    if (!buf_guards_hold(&s->ws)) fail_msg("%s: writes beside its workspace", s->cs->label);
}

/* ---- comparison ---- */

/* Largest difference that a result of this storage may have. `scale`: largest magnitude in the
 * tensor. f32: 1e-5 of the scale (float rounding, and sums of up to a few hundred products).
 * bf16: one rounding is 2^-8 relative; one of the result, and one of the scale for intermediate
 * values that a kernel keeps in bf16 (the head rounds dlogits, attention its probabilities). f64:
 * only the order of sums. */
static inline double tolerance(dtype program, dtype stored, double ref, double scale) {
    if (program == DT_F64) return 1e-12 * scale;
    if (program == DT_F32) return 1e-5 * scale + (stored == DT_F16 ? fabs(ref) / 2048 : 0);
    double ulp = program == DT_BF16 ? 1.0 / 256 : 1.0 / 2048;
    double rounding = stored == program ? ulp * fabs(ref) : 0;
    return rounding + ulp * scale;
}

static inline double max_abs(const tensor *t) {
    double m = 0;
    for (int64_t i = 0; i < t->rows * t->cols; i++)
        if (isfinite(tensor_get(t, i))) m = fmax(m, fabs(tensor_get(t, i)));
    return m;
}

/* `floor`: magnitude of what was subtracted when the truth is near 0. */
static inline void compare(const char *label, const char *what, dtype program, const tensor *got,
                           const tensor *truth, double floor) {
    double scale = fmax(max_abs(truth), floor);
    for (int64_t i = 0; i < truth->rows * truth->cols; i++) {
        double g = tensor_get(got, i), t = tensor_get(truth, i);
        if (g == t || fabs(g - t) <= tolerance(program, got->dt, t, scale)) continue;
        fail_msg("%s (%s): %s[%lld,%lld] is %.9g but must be %.9g (scale %.3g)", label,
                 dtype_name(program), what, (long long)(i / truth->cols),
                 (long long)(i % truth->cols), g, t, scale);
    }
}

#endif
