/* DELTA, DELTA_STATE: the gated delta rule (delta_chunk.h), forward; a task is a head of a sequence. DELTA_GATES.
 *
 * FLOPs of a row and head: 6 Dk Dv, and 2 DELTA_ROWS (Dk + Dv) within chunks. The state stays in the cache of a core. Of sequences of
 * one row, as generation asks for them, the state is read twice and written once. Gates are bound by their exponentials. */
#include <math.h>
#include <omp.h>

#include "op/cpu/delta_chunk.h"
#include "op/cpu/ops.h"
#include "op/cpu/parts.h"
#include "op/span.h"

/* Threads for so many heads. */
static int delta_threads(const op_call *c) {
    const op_delta *d = &c->attr->delta;
    int64_t rows = d->by_row ? d->T : (int64_t)d->B * d->T;
    return rows * d->Hv * d->Dk * d->Dv < SMALL_PRODUCT / 8 ? 1 : call_threads(c);
}

/* Floats of a thread: a chunk, Y and U, O, K scaled, the state. */
static int64_t fwd_floats(const op_delta *d) {
    int64_t Dkp = delta_round(d->Dk, VW), Dvp = delta_round(d->Dv, VW);
    return delta_chunk_floats(d) + DELTA_ROWS * (3 * Dvp + Dkp) + Dkp * Dvp;
}

/* Where the rows of a head are. first: of qk, v and gates among the inputs; out: of o among the outputs. */
typedef struct head {
    const op_call *c;
    int first, out;
    int64_t b, h, rows; /* rows of the sequence that count */
    const tensor *starts;
} head;

/* One chunk from row t0 on: O goes out, S becomes the state behind it. */
V_INLINE void attend_chunk(const head *p, delta_chunk *x, float *room, float *S, bool zero,
                           int64_t t0, dtype dt) {
    const op_call *c = p->c;
    const op_delta *d = &c->attr->delta;
    int64_t row = p->b * d->T + t0;
    float *Y = room, *U = Y + DELTA_ROWS * x->Dvp, *O = U + DELTA_ROWS * x->Dvp,
          *ke = O + DELTA_ROWS * x->Dvp;
    x->rows = p->rows - t0 < DELTA_ROWS ? p->rows - t0 : DELTA_ROWS;
    x->M = delta_round(x->rows, TILE_ROWS);
    delta_decays(x, d, &c->in[p->first + 2], row, p->h, p->starts, t0);
    delta_open(x, d, &c->in[p->first], row, p->h / (d->Hv / d->Hk), dt);
    delta_load(Y, &c->in[p->first + 1], row, x->rows, x->M, p->h * d->Dv, d->Dv, 1.0f, dt);
    delta_values(x, d, S, zero, Y, U);
    if (!zero) {
        delta_product((left){x->q, x->Dkp, 1}, FULL, S, x->Dvp, O, x->Dvp, x->M, x->Dvp, d->Dk,
                      0.0f);
        delta_scale_rows(O, O, x->c, x->M, x->Dvp);
    }
    delta_product((left){x->P, DELTA_ROWS, 1}, LOWER, U, x->Dvp, O, x->Dvp, x->M, x->Dvp, x->M,
                  zero ? 0.0f : 1.0f);
    delta_store(&c->out[p->out], row, x->rows, p->h * d->Dv, d->Dv, O, false, dt);
    delta_advance(x, U, S, ke);
}

V_INLINE void attend_head(const op_call *c, float *ws, int64_t b, int64_t h, dtype dt) {
    const op_delta *d = &c->attr->delta;
    delta_chunk x = delta_chunk_at(d, ws);
    float *S = ws + delta_chunk_floats(d), *room = S + x.Dkp * x.Dvp;
    head p = {.c = c, .out = 0, .b = b, .h = h, .rows = d->T};
    p.starts = c->in[3].data ? &c->in[3] : NULL;
    memset(S, 0, (size_t)(x.Dkp * x.Dvp) * sizeof *S);
    for (int64_t t = 0; t < d->T; t += DELTA_ROWS) attend_chunk(&p, &x, room, S, t == 0, t, dt);
}

static void delta_fwd(const op_call *c) {
    const op_delta *d = &c->attr->delta;
    int64_t floats = fwd_floats(d);
#pragma omp parallel for num_threads(delta_threads(c)) schedule(static)
    for (int64_t n = 0; n < (int64_t)d->B * d->Hv; n++) {
        float *ws = (float *)c->ws + omp_get_thread_num() * floats;
        WITH_DTYPE(c->out[0].dt, attend_head, c, ws, n / d->Hv, n % d->Hv);
    }
}

/* ---- sequences that go on ---- */

/* Row `row` of sequence b: S' = e^g S; u = beta (v - S'^T k); S = S' + k u^T; o = S^T q, a vector of columns at a time. q, k: scaled, in room. */
V_INLINE void attend_row(const op_call *c, int64_t b, int64_t h, int64_t row, bool zero,
                         const tensor *from, float *room, dtype dt) {
    const op_delta *d = &c->attr->delta;
    const float *g = (const float *)c->in[3].data + row * c->in[3].ld;
    const tensor *to = &c->out[0];
    float keep = zero ? 0.0f : expf(g[d->Hv + h]), beta = g[h];
    int64_t hk = h / (d->Hv / d->Hk), at = (b * d->Hv + h) * d->Dk;
    float *q = room, *k = q + delta_round(d->Dk, VW);
    delta_load(q, &c->in[1], row, 1, 1, hk * d->Dk, d->Dk, d->q_scale, dt);
    delta_load(k, &c->in[1], row, 1, 1, ((int64_t)d->Hk + hk) * d->Dk, d->Dk, d->k_scale, dt);
    FOR_VECTORS(d->Dv, j, n) {
        vf seen = v_zero(), o = v_zero();
        for (int64_t i = 0; i < d->Dk && !zero; i++)
            seen = v_fma(v_set1(k[i]), row_get(from, at + i, j, n, DT_F32), seen);
        vf u = beta * (row_get(&c->in[2], row, h * d->Dv + j, n, dt) - keep * seen);
        for (int64_t i = 0; i < d->Dk; i++) {
            vf s = zero ? v_zero() : keep * row_get(from, at + i, j, n, DT_F32);
            s = v_fma(v_set1(k[i]), u, s);
            o = v_fma(v_set1(q[i]), s, o);
            row_put(to, at + i, j, s, n, false, DT_F32);
        }
        row_put(&c->out[1], row, h * d->Dv + j, o, n, false, dt);
    }
}

/* A state stays where it is, in place or not. */
static void copy_state(const op_call *c, int64_t at) {
    const op_delta *d = &c->attr->delta;
    if (c->in[0].data == c->out[0].data) return;
    for (int64_t i = 0; i < d->Dk; i++)
        memcpy((float *)c->out[0].data + (at + i) * c->out[0].ld,
               (const float *)c->in[0].data + (at + i) * c->in[0].ld,
               (size_t)d->Dv * sizeof(float));
}

/* All rows of the sequence in one form; with by_row one by one. The first reads the state that comes in, the others what
 * the row before has made. */
V_INLINE void continue_head(const op_call *c, float *ws, int64_t b, int64_t h, dtype dt) {
    const op_delta *d = &c->attr->delta;
    op_span span = span_at(&c->in[4], d->by_row, b, d->B, d->T);
    int64_t at = (b * d->Hv + h) * d->Dk, end = span_end(&span, d->by_row, d->T);
    bool zero = span.pos == 0;
    for (int64_t t = end; t < end + span.pad; t++) FOR_VECTORS(d->Dv, j, n)
    row_put(&c->out[1], t, h * d->Dv + j, v_zero(), n, false, dt);
    if (d->by_row && span.rows == 0) copy_state(c, at);
    if (d->by_row || (d->T == 1 && span.rows == 1)) {
        for (int64_t t = 0; t < span.rows; t++)
            attend_row(c, b, h, span.first + t, zero && t == 0, t ? &c->out[0] : &c->in[0], ws, dt);
        return;
    }
    delta_chunk x = delta_chunk_at(d, ws);
    float *S = ws + delta_chunk_floats(d), *room = S + x.Dkp * x.Dvp;
    head p = {.c = c, .first = 1, .out = 1, .b = b, .h = h, .rows = span.rows};
    memset(S, 0, (size_t)(x.Dkp * x.Dvp) * sizeof *S);
    if (!zero) delta_load(S, &c->in[0], at, d->Dk, d->Dk, 0, d->Dv, 1.0f, DT_F32);
    for (int64_t t = 0; t < p.rows; t += DELTA_ROWS)
        attend_chunk(&p, &x, room, S, zero && t == 0, t, dt);
    delta_store(&c->out[0], at, d->Dk, 0, d->Dv, S, false, DT_F32);
}

static void delta_state_fwd(const op_call *c) {
    const op_delta *d = &c->attr->delta;
    int64_t floats = fwd_floats(d);
#pragma omp parallel for num_threads(delta_threads(c)) schedule(static)
    for (int64_t n = 0; n < (int64_t)d->B * d->Hv; n++) {
        float *ws = (float *)c->ws + omp_get_thread_num() * floats;
        WITH_DTYPE(c->out[1].dt, continue_head, c, ws, n / d->Hv, n % d->Hv);
    }
}

static void delta_workspace(const op_infer *io, int64_t ws[3]) {
    int threads = dev_threads(io->dev);
    ws[0] = threads * fwd_floats(&io->attr->delta) * (int64_t)sizeof(float);
    if (io->kind == OP_DELTA)
        ws[1] = CPU_FN(delta_bwd_floats)(io->attr, threads) * (int64_t)sizeof(float);
}

const op_impl CPU_FN(cpu_delta) = {delta_fwd, CPU_FN(delta_bwd), NULL, delta_workspace};
const op_impl CPU_FN(cpu_delta_state) = {delta_state_fwd, NULL, NULL, delta_workspace};

/* ---- gates ---- */

/* log(1 + e^x) */
V_INLINE vf softplus(vf x) {
    return v_max(x, v_zero()) + v_log(1.0f + v_exp(-v_abs(x)));
}

V_INLINE void gates_row(const op_call *c, int64_t i, dtype dt) {
    int64_t H = c->in[1].cols;
    FOR_VECTORS(H, h, n) {
        vf b = row_get(&c->in[0], i, h, n, dt), a = row_get(&c->in[0], i, H + h, n, dt);
        vf rate = v_exp(row_get(&c->in[1], 0, h, n, DT_F32));
        vf g = rate * softplus(a + row_get(&c->in[2], 0, h, n, DT_F32));
        row_put(&c->out[0], i, h, v_logistic(b), n, false, DT_F32);
        row_put(&c->out[0], i, H + h, -g, n, false, DT_F32);
    }
}

static void gates_fwd(const op_call *c) {
    const tensor *y = &c->out[0];
#pragma omp parallel for num_threads(loop_threads(c, y->rows * y->cols)) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) WITH_DTYPE(c->in[0].dt, gates_row, c, i);
}

/* A vector of heads from h on, over all rows: each sum has one order. */
V_INLINE void gates_heads(const op_call *c, int64_t h, int64_t n, dtype dt) {
    const tensor *dy = &c->dout[0], *to = &c->din[0];
    int64_t H = c->in[1].cols;
    vf rate = v_exp(row_get(&c->in[1], 0, h, n, DT_F32)), d_log = v_zero(), d_bias = v_zero();
    for (int64_t i = 0; i < dy->rows; i++) {
        vf beta = v_logistic(row_get(&c->in[0], i, h, n, dt));
        vf x = row_get(&c->in[0], i, H + h, n, dt) + row_get(&c->in[2], 0, h, n, DT_F32);
        vf dg = row_get(dy, i, H + h, n, DT_F32), da = -rate * dg * v_logistic(x);
        d_log -= dg * rate * softplus(x), d_bias += da;
        if (!to->data) continue;
        vf db = row_get(dy, i, h, n, DT_F32) * beta * (1.0f - beta);
        row_put(to, i, h, db, n, op_accumulates(c, 0), dt);
        row_put(to, i, H + h, da, n, op_accumulates(c, 0), dt);
    }
    if (c->din[1].data) row_put(&c->din[1], 0, h, d_log, n, op_accumulates(c, 1), DT_F32);
    if (c->din[2].data) row_put(&c->din[2], 0, h, d_bias, n, op_accumulates(c, 2), DT_F32);
}

static void gates_bwd(const op_call *c) {
    int64_t H = c->in[1].cols;
#pragma omp parallel for num_threads(loop_threads(c, 2 * H * c->in[0].rows)) schedule(static)
    for (int64_t h = 0; h < H; h += VW)
        WITH_DTYPE(c->in[0].dt, gates_heads, c, h, H - h < VW ? H - h : VW);
}

const op_impl CPU_FN(cpu_delta_gates) = {gates_fwd, gates_bwd, NULL, NULL};
