/* DELTA, backward, a chunk at a time (delta_chunk.h has the names). A task is a key head of a sequence with its value heads, one after the other.
 * A head is walked forward once more, to keep S, Y and U of each chunk, and then back with dS, the gradient of the state behind the chunk:
 *
 *   dU = P^T dO + diag(e) K dS         dQ = diag(c) dO S^T + N K              N = dP D,  dP = dO U^T
 *   (I + A)^T dR = dU                  dK = N^T Q + diag(e) U dS^T - diag(c) dV S^T + (M + M^T) K
 *   dV = diag(beta) dR                 M_ij = - beta_i D_ij dR_i . u_j for j < i
 *   dbeta_i = dR_i . y_i - sum_j D_ij (k_i . k_j) (dR_i . u_j)
 *   dS of the chunk before = keep dS + (diag(c) Q)^T dO - (diag(c) K)^T dV
 *
 * and dG_i is what each factor e^G_i, e^-G_i gives; dg_i is the sum of dG from row i to the end of the chunk.
 *
 * FLOPs of a row and head: 12 Dk Dv, 4 Dk Dv again, and what is within chunks. Workspace of a thread: a state, Y and U for each chunk, and dQ, dK. */
#include <omp.h>

#include "op/cpu/delta_chunk.h"
#include "op/cpu/ops.h"
#include "op/cpu/parts.h"

typedef struct bwd_room {
    delta_chunk x;
    float *states, *Y, *U;    /* of all chunks */
    float *dqk;               /* [T, 2 Dkp] of the key head */
    float *S, *dS, *St, *dSt; /* [Dkp, Dvp]; turned [Dvp, Dkp] */
    float *go, *dU, *Ut;      /* [M, Dvp]; U turned [Dvp, DELTA_ROWS] */
    float *by_k, *scaled;     /* [M, Dkp] */
    float *N, *M;             /* [M, DELTA_ROWS] */
} bwd_room;

static int64_t chunks_of(const op_delta *d) {
    return (d->T + DELTA_ROWS - 1) / DELTA_ROWS;
}

/* Sizes in floats; with base NULL only counts. */
static int64_t bwd_layout(const op_delta *d, float *base, bwd_room *r) {
    int64_t Dkp = delta_round(d->Dk, VW), Dvp = delta_round(d->Dv, VW), n = chunks_of(d);
    int64_t state = Dkp * Dvp, values = DELTA_ROWS * Dvp, keys = DELTA_ROWS * Dkp;
    int64_t square = DELTA_ROWS * DELTA_ROWS;
    int64_t sizes[] = {delta_chunk_floats(d),
                       n * state,
                       n * values,
                       n * values,
                       2 * n * keys,
                       state,
                       state,
                       state,
                       state,
                       values,
                       values,
                       values,
                       keys,
                       keys,
                       square,
                       square};
    enum { PARTS = sizeof sizes / sizeof *sizes };
    float *part[PARTS];
    int64_t total = 0;
    for (int i = 0; i < PARTS; i++) {
        part[i] = base ? base + total : NULL;
        total += delta_round(sizes[i], 16);
    }
    if (r)
        *r = (bwd_room){delta_chunk_at(d, part[0]),
                        part[1],
                        part[2],
                        part[3],
                        part[4],
                        part[5],
                        part[6],
                        part[7],
                        part[8],
                        part[9],
                        part[10],
                        part[11],
                        part[12],
                        part[13],
                        part[14],
                        part[15]};
    return total;
}

V_INLINE void open_chunk(const op_call *c, bwd_room *r, int64_t b, int64_t h, int64_t chunk,
                         dtype dt) {
    const op_delta *d = &c->attr->delta;
    int64_t t0 = chunk * DELTA_ROWS, row = b * d->T + t0;
    r->x.rows = d->T - t0 < DELTA_ROWS ? d->T - t0 : DELTA_ROWS;
    r->x.M = delta_round(r->x.rows, TILE_ROWS);
    delta_decays(&r->x, d, &c->in[2], row, h, c->in[3].data ? &c->in[3] : NULL, t0);
    delta_open(&r->x, d, &c->in[0], row, h / (d->Hv / d->Hk), dt);
}

/* Keeps the state before each chunk, and its Y and U. */
V_INLINE void walk_forward(const op_call *c, bwd_room *r, int64_t b, int64_t h, dtype dt) {
    const op_delta *d = &c->attr->delta;
    delta_chunk *x = &r->x;
    int64_t state = x->Dkp * x->Dvp;
    memset(r->S, 0, (size_t)state * sizeof(float));
    for (int64_t n = 0; n < chunks_of(d); n++) {
        float *Y = r->Y + n * DELTA_ROWS * x->Dvp, *U = r->U + n * DELTA_ROWS * x->Dvp;
        open_chunk(c, r, b, h, n, dt);
        delta_load(Y, &c->in[1], b * d->T + n * DELTA_ROWS, x->rows, x->M, h * d->Dv, d->Dv, 1.0f,
                   dt);
        memcpy(r->states + n * state, r->S, (size_t)state * sizeof(float));
        delta_values(x, d, r->S, n == 0, Y, U);
        delta_advance(x, U, r->S, r->scaled);
    }
}

V_INLINE float dot(const float *a, const float *b, int64_t n) {
    vf s = v_zero();
    for (int64_t i = 0; i < n; i += VW) s = v_fma(v_load(a + i), v_load(b + i), s);
    return v_sum(s);
}

/* to_i += by_i x_i, and dG_i += sign by_i x_i . with_i: the gradient of by_i = e^G_i. */
V_INLINE void add_scaled(float *to, const float *x, const float *by, const float *with, float sign,
                         int64_t M, int64_t cols, float *dG) {
    for (int64_t i = 0; i < M; i++) {
        dG[i] += sign * by[i] * dot(x + i * cols, with + i * cols, cols);
        for (int64_t j = i * cols; j < (i + 1) * cols; j += VW)
            v_store(to + j, v_fma(v_set1(sign * by[i]), v_load(x + j), v_load(to + j)));
    }
}

/* E [M, DELTA_ROWS] are gradients times values of something with the factor D_ij. */
V_INLINE void add_decays(const float *dX, const float *X, int64_t M, float *dG) {
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < i; j++) {
            float e = dX[i * DELTA_ROWS + j] * X[i * DELTA_ROWS + j];
            dG[i] += e, dG[j] -= e;
        }
}

/* What the outputs say of queries, keys and dU. */
V_INLINE void through_output(bwd_room *r, const op_delta *d, const float *U, float *dq, float *dk,
                             float *dG) {
    delta_chunk *x = &r->x;
    int64_t M = x->M, C = DELTA_ROWS, Dkp = x->Dkp, Dvp = x->Dvp;
    delta_product((left){x->P, 1, C}, UPPER, r->go, Dvp, r->dU, Dvp, M, Dvp, M, 0.0f);
    pack_transposed(r->Ut, DELTA_ROWS, U, Dvp, M, Dvp, DT_F32);
    delta_product((left){r->go, Dvp, 1}, FULL, r->Ut, C, r->N, C, M, C, d->Dv, 0.0f);
    add_decays(r->N, x->P, M, dG);
    for (int64_t i = 0; i < M * C; i += VW) v_store(r->N + i, v_load(x->D + i) * v_load(r->N + i));
    delta_product((left){r->go, Dvp, 1}, FULL, r->St, Dkp, r->by_k, Dkp, M, Dkp, d->Dv, 0.0f);
    add_scaled(dq, r->by_k, x->c, x->q, 1.0f, M, Dkp, dG);
    delta_product((left){r->N, C, 1}, LOWER, x->k, Dkp, dq, Dkp, M, Dkp, M, 1.0f);
    delta_product((left){r->N, 1, C}, UPPER, x->q, Dkp, dk, Dkp, M, Dkp, M, 1.0f);
}

/* What the state behind the chunk says of keys, dU and its decay. */
V_INLINE void through_state(bwd_room *r, const op_delta *d, const float *U, float *dk, float *dG) {
    delta_chunk *x = &r->x;
    int64_t M = x->M, Dkp = x->Dkp, Dvp = x->Dvp;
    float of_e[DELTA_ROWS] = {0}, *last = &dG[x->rows - 1];
    delta_scale_rows(r->scaled, x->k, x->e, M, Dkp);
    delta_product((left){r->scaled, Dkp, 1}, FULL, r->dS, Dvp, r->dU, Dvp, M, Dvp, d->Dk, 1.0f);
    delta_product((left){U, Dvp, 1}, FULL, r->dSt, Dkp, r->by_k, Dkp, M, Dkp, d->Dv, 0.0f);
    add_scaled(dk, r->by_k, x->e, x->k, 1.0f, M, Dkp, of_e);
    for (int64_t i = 0; i < M; i++) dG[i] -= of_e[i], *last += of_e[i];
    *last += x->keep * dot(r->dS, r->S, Dkp * Dvp);
}

/* From dU, which becomes dV: the triangular system, its right side and its matrix. dbeta [M]. */
V_INLINE void through_system(bwd_room *r, const op_delta *d, const float *Y, float *dk, float *dG,
                             float *dbeta) {
    delta_chunk *x = &r->x;
    int64_t M = x->M, C = DELTA_ROWS, Dkp = x->Dkp, Dvp = x->Dvp;
    delta_solve_turned(x, r->dU);
    delta_product((left){r->dU, Dvp, 1}, FULL, r->Ut, C, r->M, C, M, C, d->Dv, 0.0f);
    add_decays(r->M, x->A, M, dG); /* both are negative */
    for (int64_t i = 0; i < M; i++) {
        dbeta[i] = dot(r->dU + i * Dvp, Y + i * Dvp, Dvp) - dot(r->M + i * C, x->KD + i * C, C);
        for (int64_t j = i * C; j < (i + 1) * C; j += VW)
            v_store(r->M + j, -x->beta[i] * v_load(x->D + j) * v_load(r->M + j));
        r->M[i * C + i] = 0.0f;
    }
    delta_product((left){r->M, C, 1}, LOWER, x->k, Dkp, dk, Dkp, M, Dkp, M, 1.0f);
    delta_product((left){r->M, 1, C}, UPPER, x->k, Dkp, dk, Dkp, M, Dkp, M, 1.0f);
    delta_scale_rows(r->dU, r->dU, x->beta, M, Dvp);
    delta_product((left){r->dU, Dvp, 1}, FULL, r->St, Dkp, r->by_k, Dkp, M, Dkp, d->Dv, 0.0f);
    add_scaled(dk, r->by_k, x->c, x->k, -1.0f, M, Dkp, dG);
}

/* dS of the state before the chunk; dU is dV. */
V_INLINE void step_back(bwd_room *r) {
    delta_chunk *x = &r->x;
    int64_t M = x->M, Dkp = x->Dkp, Dvp = x->Dvp;
    float minus[DELTA_ROWS];
    for (int64_t i = 0; i < M; i++) minus[i] = -x->c[i];
    delta_scale_rows(r->scaled, x->q, x->c, M, Dkp);
    delta_product((left){r->scaled, 1, Dkp}, FULL, r->go, Dvp, r->dS, Dvp, Dkp, Dvp, M, x->keep);
    delta_scale_rows(r->scaled, x->k, minus, M, Dkp);
    delta_product((left){r->scaled, 1, Dkp}, FULL, r->dU, Dvp, r->dS, Dvp, Dkp, Dvp, M, 1.0f);
}

V_INLINE void put_gates(const op_call *c, const delta_chunk *x, int64_t row, int64_t h,
                        const float *dbeta, const float *dG) {
    const tensor *to = &c->din[2];
    bool add = op_accumulates(c, 2);
    float sum = 0.0f;
    for (int64_t i = x->rows - 1; i >= 0 && to->data; i--) {
        float *at = (float *)to->data + (row + i) * to->ld + h;
        sum = x->cut[i] > (i ? x->cut[i - 1] : 0) ? 0.0f : sum + dG[i]; /* a document begins */
        at[0] = add ? at[0] + dbeta[i] : dbeta[i];
        at[c->attr->delta.Hv] = add ? at[c->attr->delta.Hv] + sum : sum;
    }
}

V_INLINE void backward_chunk(const op_call *c, bwd_room *r, int64_t b, int64_t h, int64_t n,
                             dtype dt) {
    const op_delta *d = &c->attr->delta;
    delta_chunk *x = &r->x;
    int64_t row = b * d->T + n * DELTA_ROWS, keys = DELTA_ROWS * x->Dkp,
            values = DELTA_ROWS * x->Dvp;
    float dG[DELTA_ROWS] = {0}, dbeta[DELTA_ROWS];
    float *dq = r->dqk + 2 * n * keys, *dk = dq + keys;
    open_chunk(c, r, b, h, n, dt);
    r->S = r->states + n * x->Dkp * x->Dvp;
    delta_load(r->go, &c->dout[0], row, x->rows, x->M, h * d->Dv, d->Dv, 1.0f, dt);
    pack_transposed(r->St, (int)x->Dkp, r->S, x->Dvp, x->Dkp, x->Dvp, DT_F32);
    pack_transposed(r->dSt, (int)x->Dkp, r->dS, x->Dvp, x->Dkp, x->Dvp, DT_F32);
    through_output(r, d, r->U + n * values, dq, dk, dG);
    through_state(r, d, r->U + n * values, dk, dG);
    through_system(r, d, r->Y + n * values, dk, dG, dbeta);
    step_back(r);
    if (c->din[1].data)
        delta_store(&c->din[1], row, x->rows, h * d->Dv, d->Dv, r->dU, op_accumulates(c, 1), dt);
    put_gates(c, x, row, h, dbeta, dG);
}

/* Gradients of a key head, scaled. */
V_INLINE void put_keys(const op_call *c, bwd_room *r, int64_t b, int64_t hk, dtype dt) {
    const op_delta *d = &c->attr->delta;
    int64_t keys = DELTA_ROWS * r->x.Dkp;
    for (int64_t i = 0; i < 2 * chunks_of(d) * keys; i += VW)
        v_store(r->dqk + i, (i / keys % 2 ? d->k_scale : d->q_scale) * v_load(r->dqk + i));
    for (int64_t n = 0; n < chunks_of(d); n++) {
        int64_t t0 = n * DELTA_ROWS, rows = d->T - t0 < DELTA_ROWS ? d->T - t0 : DELTA_ROWS;
        for (int64_t key = 0; key < 2; key++)
            delta_store(&c->din[0], b * d->T + t0, rows, (key * d->Hk + hk) * d->Dk, d->Dk,
                        r->dqk + (2 * n + key) * keys, op_accumulates(c, 0), dt);
    }
}

V_INLINE void backward_head(const op_call *c, float *ws, int64_t b, int64_t hk, dtype dt) {
    const op_delta *d = &c->attr->delta;
    int64_t group = d->Hv / d->Hk;
    bwd_room r;
    bwd_layout(d, ws, &r);
    float *S = r.S;
    memset(r.dqk, 0, (size_t)(2 * chunks_of(d) * DELTA_ROWS * r.x.Dkp) * sizeof(float));
    for (int64_t h = hk * group; h < (hk + 1) * group; h++) {
        r.S = S;
        walk_forward(c, &r, b, h, dt);
        memset(r.dS, 0, (size_t)(r.x.Dkp * r.x.Dvp) * sizeof(float));
        for (int64_t n = chunks_of(d) - 1; n >= 0; n--) backward_chunk(c, &r, b, h, n, dt);
    }
    if (c->din[0].data) put_keys(c, &r, b, hk, dt);
}

void CPU_FN(delta_bwd)(const op_call *c) {
    const op_delta *d = &c->attr->delta;
    int64_t floats = bwd_layout(d, NULL, NULL);
    bool small = (int64_t)d->B * d->T * d->Hv * d->Dk * d->Dv < SMALL_PRODUCT / 16;
#pragma omp parallel for num_threads(small ? 1 : call_threads(c)) schedule(static)
    for (int64_t n = 0; n < (int64_t)d->B * d->Hk; n++) {
        float *ws = (float *)c->ws + omp_get_thread_num() * floats;
        WITH_DTYPE(c->out[0].dt, backward_head, c, ws, n / d->Hk, n % d->Hk);
    }
}

int64_t CPU_FN(delta_bwd_floats)(const op_attr *at, int threads) {
    return threads * bwd_layout(&at->delta, NULL, NULL);
}
