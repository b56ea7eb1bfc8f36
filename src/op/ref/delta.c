/* The gated delta rule, row by row; a head's state is walked through time.
 *
 *   S' = e^g S;  u = beta (v - S'^T k);  S = S' + k u^T;  o = S^T q
 *
 * Backward, with dS the gradient of S from all later rows:
 *   dS += q do^T;  dq = S do;  du = dS^T k;  dk = dS u;  dbeta = du . (v - S'^T k);  dv = beta du;
 *   dS' = dS - k dv^T;  dk -= S' dv;  dg = <dS', S'>;  dS of the row before = e^g dS'
 *
 * Backward needs the states of all rows. Those before every SEGMENT-th row are kept, those between are made again. A task
 * is one key head of a sequence with its value heads, so that each sum has one order. */
#include <omp.h>
#include <string.h>

#include "op/ref/ref.h"
#include "op/span.h"

enum { SEGMENT = 64 };

/* One head of values and its key head, of a call of DELTA or of DELTA_STATE. */
typedef struct head {
    const op_call *c;
    const tensor *qk, *v, *gates, *start; /* start NULL: none */
    int64_t row0, h, hk;                  /* first row of the sequence */
} head;

static head head_of(const op_call *c, int first, int64_t b, int64_t h) {
    const op_delta *d = &c->attr->delta;
    head x = {.c = c, .qk = &c->in[first], .v = &c->in[first + 1], .gates = &c->in[first + 2]};
    if (c->kind == OP_DELTA && c->in[3].data) x.start = &c->in[3];
    x.row0 = b * d->T, x.h = h, x.hk = h / (d->Hv / d->Hk);
    return x;
}

static ACC query_at(const head *x, int64_t t, int64_t i) {
    const op_delta *d = &x->c->attr->delta;
    return (ACC)d->q_scale * (ACC)load(row_of(x->qk, x->row0 + t)[x->hk * d->Dk + i]);
}
static ACC key_at(const head *x, int64_t t, int64_t i) {
    const op_delta *d = &x->c->attr->delta;
    int64_t at = ((int64_t)d->Hk + x->hk) * d->Dk + i;
    return (ACC)d->k_scale * (ACC)load(row_of(x->qk, x->row0 + t)[at]);
}
static ACC value_at(const head *x, int64_t t, int64_t i) {
    return (ACC)load(row_of(x->v, x->row0 + t)[x->h * x->c->attr->delta.Dv + i]);
}
static ACC beta_at(const head *x, int64_t t) {
    return (ACC)real_row_of(x->gates, x->row0 + t)[x->h];
}
static ACC decay_at(const head *x, int64_t t) {
    return exp((ACC)real_row_of(x->gates, x->row0 + t)[x->c->attr->delta.Hv + x->h]);
}
static bool begins(const head *x, int64_t t) {
    return x->start && int_at(x->start, x->row0 + t) >= t;
}

/* S becomes S' of row t; miss [Dv] = v - S'^T k. */
static void look_up(const head *x, int64_t t, ACC *S, ACC *miss) {
    int64_t Dk = x->c->attr->delta.Dk, Dv = x->c->attr->delta.Dv;
    ACC keep = begins(x, t) ? 0 : decay_at(x, t);
    for (int64_t j = 0; j < Dv; j++) miss[j] = value_at(x, t, j);
    for (int64_t i = 0; i < Dk; i++) {
        ACC k = key_at(x, t, i);
        for (int64_t j = 0; j < Dv; j++) {
            S[i * Dv + j] *= keep;
            miss[j] -= S[i * Dv + j] * k;
        }
    }
}

/* S of row t from that of the row before; miss has room for Dv numbers. */
static void step(const head *x, int64_t t, ACC *S, ACC *miss) {
    int64_t Dk = x->c->attr->delta.Dk, Dv = x->c->attr->delta.Dv;
    look_up(x, t, S, miss);
    for (int64_t i = 0; i < Dk; i++)
        for (int64_t j = 0; j < Dv; j++) S[i * Dv + j] += key_at(x, t, i) * beta_at(x, t) * miss[j];
}

static void put_output(const head *x, const tensor *o, int64_t t, const ACC *S) {
    int64_t Dk = x->c->attr->delta.Dk, Dv = x->c->attr->delta.Dv;
    for (int64_t j = 0; j < Dv; j++) {
        ACC sum = 0;
        for (int64_t i = 0; i < Dk; i++) sum += S[i * Dv + j] * query_at(x, t, i);
        row_of(o, x->row0 + t)[x->h * Dv + j] = store(sum);
    }
}

static int64_t state_numbers(const op_attr *at) {
    return (int64_t)at->delta.Dk * at->delta.Dv;
}

static void delta_fwd(const op_call *c) {
    const op_delta *d = &c->attr->delta;
    int64_t n = state_numbers(c->attr);
    PARALLEL_FOR_2
    for (int64_t b = 0; b < d->B; b++)
        for (int64_t h = 0; h < d->Hv; h++) {
            head x = head_of(c, 0, b, h);
            ACC *S = (ACC *)c->ws + omp_get_thread_num() * (n + d->Dv);
            memset(S, 0, (size_t)n * sizeof *S);
            for (int64_t t = 0; t < d->T; t++) {
                step(&x, t, S, S + n);
                put_output(&x, &c->out[0], t, S);
            }
        }
}

/* ---- sequences that go on ---- */

static void take_state(const op_call *c, const tensor *from, int64_t first, ACC *S) {
    int64_t Dv = c->attr->delta.Dv;
    for (int64_t i = 0; i < state_numbers(c->attr); i++)
        S[i] = from ? (ACC)real_row_of(from, first + i / Dv)[i % Dv] : 0;
}

static void put_state(const op_call *c, int64_t first, const ACC *S) {
    int64_t Dv = c->attr->delta.Dv;
    for (int64_t i = 0; i < state_numbers(c->attr); i++)
        real_row_of(&c->out[0], first + i / Dv)[i % Dv] = (REAL)S[i];
}

static void delta_state_fwd(const op_call *c) {
    const op_delta *d = &c->attr->delta;
    int64_t n = state_numbers(c->attr);
    PARALLEL_FOR_2
    for (int64_t b = 0; b < d->B; b++)
        for (int64_t h = 0; h < d->Hv; h++) {
            op_span span = span_at(&c->in[4], d->by_row, b, d->B, d->T);
            head x = head_of(c, 1, b, h);
            x.row0 = span.first;
            ACC *S = (ACC *)c->ws + omp_get_thread_num() * (n + d->Dv);
            int64_t first = (b * d->Hv + h) * d->Dk, end = span_end(&span, d->by_row, d->T);
            take_state(c, span.pos > 0 || span.rows == 0 ? &c->in[0] : NULL, first, S);
            for (int64_t t = 0; t < span.rows; t++) {
                step(&x, t, S, S + n);
                put_output(&x, &c->out[1], t, S);
            }
            put_state(c, first, S);
            for (int64_t t = 0; t < span.pad; t++)
                for (int64_t j = 0; j < d->Dv; j++)
                    row_of(&c->out[1], end + t)[h * d->Dv + j] = store(0);
        }
}

/* ---- backward ---- */

/* Room of a thread: states before the rows of a segment, and one more; S' of a row; states before segments; dS; gradients of
 * queries and keys of all rows; three vectors. */
typedef struct room {
    ACC *states, *decayed, *before, *dS, *dqk, *miss, *dv, *du;
} room;

static int64_t segments_of(const op_attr *at) {
    return (at->delta.T + SEGMENT - 1) / SEGMENT;
}

static int64_t room_numbers(const op_attr *at) {
    return (SEGMENT + 3 + segments_of(at)) * state_numbers(at) + 2 * at->delta.T * at->delta.Dk +
           3 * at->delta.Dv;
}

static room room_of(const op_attr *at, ACC *p) {
    int64_t n = state_numbers(at);
    room r = {.states = p};
    r.decayed = r.states + (SEGMENT + 1) * n, r.before = r.decayed + n;
    r.dS = r.before + segments_of(at) * n;
    r.dqk = r.dS + n, r.miss = r.dqk + 2 * at->delta.T * at->delta.Dk;
    r.dv = r.miss + at->delta.Dv, r.du = r.dv + at->delta.Dv;
    return r;
}

/* States after the rows of a segment, behind the one before it. */
static void make_states(const head *x, const room *r, int64_t segment, int64_t rows) {
    int64_t n = state_numbers(x->c->attr);
    memcpy(r->states, r->before + segment * n, (size_t)n * sizeof *r->states);
    for (int64_t i = 0; i < rows; i++) {
        memcpy(r->states + (i + 1) * n, r->states + i * n, (size_t)n * sizeof *r->states);
        step(x, segment * SEGMENT + i, r->states + (i + 1) * n, r->miss);
    }
}

/* du, dv and dbeta of row t, once dS has what the row's output says. */
static void row_values(const head *x, const room *r, int64_t t) {
    const op_call *c = x->c;
    int64_t Dk = c->attr->delta.Dk, Dv = c->attr->delta.Dv;
    ACC beta = beta_at(x, t), dbeta = 0;
    for (int64_t j = 0; j < Dv; j++) {
        ACC du = 0;
        for (int64_t i = 0; i < Dk; i++) du += r->dS[i * Dv + j] * key_at(x, t, i);
        r->du[j] = du, r->dv[j] = beta * du;
        dbeta += du * r->miss[j];
        STORE *dv = c->din[1].data ? row_of(&c->din[1], x->row0 + t) + x->h * Dv : NULL;
        if (dv) put(dv + j, r->dv[j], op_accumulates(c, 1));
    }
    if (c->din[2].data)
        put_real(real_row_of(&c->din[2], x->row0 + t) + x->h, dbeta, op_accumulates(c, 2));
}

/* Row t, with S after it and before it. */
static void row_grad(const head *x, const room *r, int64_t t, const ACC *S, const ACC *before) {
    const op_call *c = x->c;
    const op_delta *d = &c->attr->delta;
    int64_t Dk = d->Dk, Dv = d->Dv;
    const STORE *go = row_of(&c->dout[0], x->row0 + t) + x->h * Dv;
    ACC *dq = r->dqk + 2 * t * Dk, *dk = dq + Dk, dg = 0, beta = beta_at(x, t);
    ACC keep = begins(x, t) ? 0 : decay_at(x, t);
    ACC *P = r->decayed;
    memcpy(P, before, (size_t)(Dk * Dv) * sizeof *P);
    look_up(x, t, P, r->miss);
    for (int64_t i = 0; i < Dk; i++)
        for (int64_t j = 0; j < Dv; j++) {
            dq[i] += S[i * Dv + j] * (ACC)load(go[j]);
            r->dS[i * Dv + j] += query_at(x, t, i) * (ACC)load(go[j]);
        }
    row_values(x, r, t);
    for (int64_t i = 0; i < Dk; i++)
        for (int64_t j = 0; j < Dv; j++) {
            ACC *dS = r->dS + i * Dv + j;
            dk[i] += *dS * beta * r->miss[j] - P[i * Dv + j] * r->dv[j];
            *dS -= key_at(x, t, i) * r->dv[j];
            dg += *dS * P[i * Dv + j];
            *dS *= keep;
        }
    if (c->din[2].data)
        put_real(real_row_of(&c->din[2], x->row0 + t) + d->Hv + x->h, dg, op_accumulates(c, 2));
}

static void head_grad(const head *x, const room *r) {
    int64_t T = x->c->attr->delta.T, n = state_numbers(x->c->attr);
    memset(r->states, 0, (size_t)n * sizeof *r->states);
    for (int64_t t = 0; t < T; t++) {
        if (t % SEGMENT == 0)
            memcpy(r->before + t / SEGMENT * n, r->states, (size_t)n * sizeof *r->states);
        step(x, t, r->states, r->miss);
    }
    memset(r->dS, 0, (size_t)n * sizeof *r->dS);
    for (int64_t s = segments_of(x->c->attr) - 1; s >= 0; s--) {
        int64_t rows = T - s * SEGMENT < SEGMENT ? T - s * SEGMENT : SEGMENT;
        make_states(x, r, s, rows);
        for (int64_t i = rows - 1; i >= 0; i--)
            row_grad(x, r, s * SEGMENT + i, r->states + (i + 1) * n, r->states + i * n);
    }
}

static void put_query_grads(const op_call *c, const room *r, int64_t b, int64_t hk) {
    const op_delta *d = &c->attr->delta;
    for (int64_t t = 0; t < d->T && c->din[0].data; t++)
        for (int64_t i = 0; i < 2 * d->Dk; i++) {
            bool key = i >= d->Dk;
            STORE *to = row_of(&c->din[0], b * d->T + t) + (key ? d->Hk - 1 : 0) * d->Dk;
            ACC scale = (ACC)(key ? d->k_scale : d->q_scale);
            put(to + hk * d->Dk + i, scale * r->dqk[2 * t * d->Dk + i], op_accumulates(c, 0));
        }
}

static void delta_bwd(const op_call *c) {
    const op_delta *d = &c->attr->delta;
    int64_t group = d->Hv / d->Hk;
    PARALLEL_FOR_2
    for (int64_t b = 0; b < d->B; b++)
        for (int64_t hk = 0; hk < d->Hk; hk++) {
            room r = room_of(c->attr, (ACC *)c->ws + omp_get_thread_num() * room_numbers(c->attr));
            memset(r.dqk, 0, (size_t)(2 * d->T * d->Dk) * sizeof *r.dqk);
            for (int64_t h = hk * group; h < (hk + 1) * group; h++) {
                head x = head_of(c, 0, b, h);
                head_grad(&x, &r);
            }
            put_query_grads(c, &r, b, hk);
        }
}

static void delta_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t threads = dev_threads(io->dev), one = (int64_t)sizeof(ACC);
    ws[0] = threads * (state_numbers(io->attr) + io->attr->delta.Dv) * one;
    if (io->kind == OP_DELTA) ws[1] = threads * room_numbers(io->attr) * one;
}

const op_impl REF_IMPL(DELTA) = {delta_fwd, delta_bwd, NULL, delta_workspace};
const op_impl REF_IMPL(DELTA_STATE) = {delta_state_fwd, NULL, NULL, delta_workspace};

/* ---- gates ---- */

static ACC softplus(ACC x) {
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static void gates_fwd(const op_call *c) {
    int64_t H = c->in[1].cols;
    PARALLEL_FOR
    for (int64_t n = 0; n < c->in[0].rows; n++)
        for (int64_t h = 0; h < H; h++) {
            ACC b = (ACC)load(row_of(&c->in[0], n)[h]), a = (ACC)load(row_of(&c->in[0], n)[H + h]);
            ACC rate = exp((ACC)real_row_of(&c->in[1], 0)[h]);
            real_row_of(&c->out[0], n)[h] = (REAL)(1 / (1 + exp(-b)));
            real_row_of(&c->out[0], n)[H + h] =
                (REAL)(-rate * softplus(a + (ACC)real_row_of(&c->in[2], 0)[h]));
        }
}

static void gates_bwd(const op_call *c) {
    int64_t H = c->in[1].cols;
    PARALLEL_FOR
    for (int64_t h = 0; h < H; h++) {
        ACC rate = exp((ACC)real_row_of(&c->in[1], 0)[h]), d_log = 0, d_bias = 0;
        for (int64_t n = 0; n < c->in[0].rows; n++) {
            const STORE *ba = row_of(&c->in[0], n);
            const REAL *dy = real_row_of(&c->dout[0], n);
            ACC beta = 1 / (1 + exp(-(ACC)load(ba[h])));
            ACC x = (ACC)load(ba[H + h]) + (ACC)real_row_of(&c->in[2], 0)[h];
            ACC da = -(ACC)dy[H + h] * rate / (1 + exp(-x));
            d_log -= (ACC)dy[H + h] * rate * softplus(x), d_bias += da;
            if (!c->din[0].data) continue;
            STORE *to = row_of(&c->din[0], n);
            put(to + h, (ACC)dy[h] * beta * (1 - beta), op_accumulates(c, 0));
            put(to + H + h, da, op_accumulates(c, 0));
        }
        if (c->din[1].data) put_real(real_row_of(&c->din[1], 0) + h, d_log, op_accumulates(c, 1));
        if (c->din[2].data) put_real(real_row_of(&c->din[2], 0) + h, d_bias, op_accumulates(c, 2));
    }
}

const op_impl REF_IMPL(DELTA_GATES) = {gates_fwd, gates_bwd, NULL, NULL};
