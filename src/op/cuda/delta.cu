/* DELTA and DELTA_STATE: the gated delta rule (Yang et al. 2024). With S' = e^g S of the row before, and 0 where a document begins:
 *
 *   miss = v - S'^T k;  u = beta miss;  S = S' + k u^T;  o = S^T q
 *
 * Columns of a state do not know each other. So forward a warp walks through time with four columns of a head, whose
 * numbers lie in shared memory, eight lanes a column: 6 Dk Dv FLOPs for each row and head.
 *
 * Backward, with E the gradient of S from later rows, and dv = beta du:
 *
 *   du = (E + q do^T)^T k;  E of the row before = e^g (E + q do^T - k dv^T)
 *
 * which needs no S, and is a walk back through time like the one forward. Both walks leave du, miss, and S and E at the
 * borders of chunks of rows. The other gradients are then sums within each chunk, of all chunks at once. With S_0 before
 * the chunk, E behind it, G the sum of g up to a row, c_t = e^G_t, D_ts = e^(G_t - G_s), e_t = e^(G_last - G_t), these 0
 * across the beginning of a document, and X_ts = D_ts u_s . do_t for s <= t, Y_ts = D_ts u_s . dv_t for s < t:
 *
 *   dq_t = c_t S_0 do_t + sum_s X_ts k_s
 *   dk_t = b_t - a_t,  a_t = c_t S_0 dv_t + sum_s Y_ts k_s,  b_t = e_t E u_t + sum_r X_rt q_r - sum_r Y_rt k_r
 *   dbeta_t = du_t . miss_t;  dg_t = dg_(t+1) + q_t . dq_t - k_t . (a_t + b_t), begun with <E, S> behind the chunk
 *
 * 3 Dk Dv + 4 C Dk + 2 C Dv multiply-adds for each row and head, C rows a chunk; each block of a chunk reads S_0 and E once.
 * The workspace has 2 Dv (1 + Dk / C) floats for each row and head, of so many key heads at a time as fit DELTA_ROOM. */
#include "op/cuda/store.h"

typedef struct delta_args {
    mat qk, v, gates, start, span, o; /* start, span absent: whole sequences */
    mat state, state_out;
    mat d_o, dqk, dv, dgates;
    float *miss, *du;      /* [heads, T, Dv]; the heads are those of the launch */
    float *before, *after; /* [heads, chunks, Dv, Dk]: S before each chunk, E behind it */
    float *sums; /* [units, T, 2 Dk]: gradients of queries and keys, of the value heads so far */
    int32_t B, T, Hk, Hv, Dk, Dv;
    int32_t group, rows, chunks; /* value heads of a key head; rows of a chunk */
    int32_t by_row;              /* the sequences share T rows; span says which */
    int32_t unit0, heads;        /* a unit is a key head of a sequence: number b Hk + hk */
    int32_t add_qk, add_v, add_gates;
    float q_scale, k_scale;
} delta_args;

enum {
    DELTA_COLS = 4,
    DELTA_LANES = 8,
    DELTA_WARPS = 4,
    CHUNK_THREADS = 256,
    CHUNK_ROWS = 32,
    CHUNK_EACH = 8
};

/* A value head and its key head; x: among those of the launch. */
typedef struct delta_head {
    int32_t x, h, hk;
    int64_t b, row0; /* the sequence's first row */
} delta_head;

GPU_FN delta_head head_number(const delta_args *a, int32_t x) {
    delta_head d;
    int32_t unit = a->unit0 + x / a->group;
    d.x = x, d.b = unit / a->Hk, d.hk = unit % a->Hk, d.h = d.hk * a->group + x % a->group;
    d.row0 = d.b * a->T;
    return d;
}

GPU_FN float query_at(const delta_args *a, const delta_head *d, int32_t t, int32_t i) {
    return a->q_scale * load(row_of(a->qk, d->row0 + t)[d->hk * a->Dk + i]);
}
GPU_FN float key_at(const delta_args *a, const delta_head *d, int32_t t, int32_t i) {
    return a->k_scale * load(row_of(a->qk, d->row0 + t)[(a->Hk + d->hk) * a->Dk + i]);
}
GPU_FN float beta_at(const delta_args *a, const delta_head *d, int32_t t) {
    return f32_row_of(a->gates, d->row0 + t)[d->h];
}
GPU_FN float decay_at(const delta_args *a, const delta_head *d, int32_t t) {
    return f32_row_of(a->gates, d->row0 + t)[a->Hv + d->h];
}
GPU_FN bool begins(const delta_args *a, const delta_head *d, int32_t t) {
    return a->start.p && *i32_row_of(a->start, d->row0 + t) >= t;
}
GPU_FN float keep_at(const delta_args *a, const delta_head *d, int32_t t) {
    return begins(a, d, t) ? 0 : expf(decay_at(a, d, t));
}

/* ---- walks through time ---- */

/* What a lane works on: column j of a head, and of that the numbers i0, i0 + 8 ... */
typedef struct delta_column {
    delta_head head;
    int32_t j, i0;
    bool exists;
    float *S; /* number i at S[4 i] */
} delta_column;

/* False: the warp has nothing to do. */
GPU_FN bool my_column(const delta_args *a, float *room, delta_column *x) {
    int64_t w = (int64_t)block_x() * (threads_x() / GPU_WARP) + warp();
    int64_t across = (a->Dv + DELTA_COLS - 1) / DELTA_COLS;
    if (w >= a->heads * across) return false;
    x->head = head_number(a, (int32_t)(w / across));
    x->j = (int32_t)(w % across) * DELTA_COLS + (int32_t)lane() % DELTA_COLS;
    x->i0 = (int32_t)lane() / DELTA_COLS, x->exists = x->j < a->Dv;
    x->S = room + warp() * DELTA_COLS * (uint32_t)a->Dk + lane() % DELTA_COLS;
    return true;
}

GPU_FN float column_sum(float v) {
    v += shuffle_xor(v, 4);
    v += shuffle_xor(v, 8);
    return v + shuffle_xor(v, 16);
}

/* The column's state at a border of chunks. */
GPU_FN void leave_state(const delta_args *a, const delta_column *x, float *borders, int32_t chunk) {
    float *to = borders + (((int64_t)x->head.x * a->chunks + chunk) * a->Dv + x->j) * a->Dk;
    for (int32_t i = x->i0; i < a->Dk && x->exists; i += DELTA_LANES) to[i] = x->S[DELTA_COLS * i];
}

GPU_FN float *state_row(const delta_args *a, mat state, const delta_head *d, int32_t i) {
    return f32_row_of(state, (d->b * a->Hv + d->h) * a->Dk + i);
}

/* One row: S becomes the state behind it; returns o, *miss. */
GPU_FN float delta_step(const delta_args *a, const delta_column *x, int32_t t, float *miss) {
    float keep = keep_at(a, &x->head, t), sum = 0;
    float v = x->exists ? load(row_of(a->v, x->head.row0 + t)[x->head.h * a->Dv + x->j]) : 0;
    for (int32_t i = x->i0; i < a->Dk; i += DELTA_LANES) {
        x->S[DELTA_COLS * i] *= keep;
        sum += x->S[DELTA_COLS * i] * key_at(a, &x->head, t, i);
    }
    *miss = v - column_sum(sum);
    float u = *miss * beta_at(a, &x->head, t);
    sum = 0;
    for (int32_t i = x->i0; i < a->Dk; i += DELTA_LANES) {
        x->S[DELTA_COLS * i] += u * key_at(a, &x->head, t, i);
        sum += x->S[DELTA_COLS * i] * query_at(a, &x->head, t, i);
    }
    return column_sum(sum);
}

/* The rows of the call that pad, which have o = 0; where sequences share the rows, they are the last one's work. */
GPU_FN void delta_pads(const delta_args *a, const delta_column *x, int32_t rows) {
    int64_t first = x->head.row0 + rows, end = x->head.row0 + a->T;
    if (x->i0 > 0 || !x->exists || (a->by_row && x->head.b + 1 < a->B)) return;
    if (a->by_row) {
        first = 0, end = a->T;
        for (int32_t b = 0; b < a->B; b++) first += i32_row_of(a->span, b)[1];
    }
    for (int64_t n = first; n < end; n++) row_of(a->o, n)[x->head.h * a->Dv + x->j] = store(0);
}

KERNEL(delta_walk, delta_args, DELTA_WARPS *GPU_WARP) {
    SHARED_DYNAMIC(float, room);
    delta_column x;
    if (!my_column(a, room, &x)) return;
    const int32_t *span = a->span.p ? i32_row_of(a->span, x.head.b) : NULL;
    int32_t rows = span ? span[1] : a->T;
    bool goes_on = span && (span[0] > 0 || rows == 0) && x.exists;
    if (span) delta_pads(a, &x, rows);
    if (a->by_row) x.head.row0 = span[2];
    for (int32_t i = x.i0; i < a->Dk; i += DELTA_LANES)
        x.S[DELTA_COLS * i] = goes_on ? state_row(a, a->state, &x.head, i)[x.j] : 0;
    for (int32_t t = 0; t < rows; t++) {
        float miss;
        if (a->before && t % a->rows == 0) leave_state(a, &x, a->before, t / a->rows);
        float o = delta_step(a, &x, t, &miss);
        if (x.i0 > 0 || !x.exists) continue;
        if (a->o.p) row_of(a->o, x.head.row0 + t)[x.head.h * a->Dv + x.j] = store(o);
        if (a->miss) a->miss[((int64_t)x.head.x * a->T + t) * a->Dv + x.j] = miss;
    }
    for (int32_t i = x.i0; i < a->Dk && a->state_out.p && x.exists; i += DELTA_LANES)
        state_row(a, a->state_out, &x.head, i)[x.j] = x.S[DELTA_COLS * i];
}

KERNEL(delta_walk_back, delta_args, DELTA_WARPS *GPU_WARP) {
    SHARED_DYNAMIC(float, room);
    delta_column x;
    if (!my_column(a, room, &x)) return;
    int32_t column = x.head.h * a->Dv + x.j;
    for (int32_t i = x.i0; i < a->Dk; i += DELTA_LANES) x.S[DELTA_COLS * i] = 0;
    for (int32_t t = a->T - 1; t >= 0; t--) {
        float g = x.exists ? load(row_of(a->d_o, x.head.row0 + t)[column]) : 0, du = 0;
        float keep = keep_at(a, &x.head, t), beta = beta_at(a, &x.head, t);
        if ((t + 1) % a->rows == 0 || t == a->T - 1) leave_state(a, &x, a->after, t / a->rows);
        for (int32_t i = x.i0; i < a->Dk; i += DELTA_LANES) {
            x.S[DELTA_COLS * i] += g * query_at(a, &x.head, t, i);
            du += x.S[DELTA_COLS * i] * key_at(a, &x.head, t, i);
        }
        du = column_sum(du);
        for (int32_t i = x.i0; i < a->Dk; i += DELTA_LANES)
            x.S[DELTA_COLS * i] =
                keep * (x.S[DELTA_COLS * i] - beta * du * key_at(a, &x.head, t, i));
        if (x.i0 > 0 || !x.exists) continue;
        a->du[((int64_t)x.head.x * a->T + t) * a->Dv + x.j] = du;
        if (a->dv.p) put(row_of(a->dv, x.head.row0 + t) + column, beta * du, a->add_v);
    }
}

/* ---- sums within a chunk ---- */

/* Shared memory of a block: rows of u, do, dv (one number apart, for the banks), X and Y, and q dq - k (a + b). */
typedef struct chunk_room {
    float *u, *d_o, *dv, *X, *Y, *flow;
    int32_t ld;
} chunk_room;

/* What a chunk's rows are to each other. */
typedef struct chunk_gates {
    double G[CHUNK_ROWS];
    int32_t cut[CHUNK_ROWS]; /* documents that have begun in the chunk up to this row */
} chunk_gates;

GPU_FN chunk_room room_of_chunk(const delta_args *a, float *room) {
    chunk_room r;
    r.ld = a->Dv + 1;
    r.u = room, r.d_o = r.u + a->rows * r.ld, r.dv = r.d_o + a->rows * r.ld;
    r.X = r.dv + a->rows * r.ld, r.Y = r.X + a->rows * a->rows, r.flow = r.Y + a->rows * a->rows;
    return r;
}

GPU_FN float decay_between(const chunk_gates *g, int32_t t, int32_t s) {
    return g->cut[t] == g->cut[s] ? expf((float)(g->G[t] - g->G[s])) : 0;
}

/* Fills u, do, dv and the gates; gives dbeta. n rows from t0 on. */
GPU_FN void chunk_open(const delta_args *a, const delta_head *d, const chunk_room *r,
                       chunk_gates *g, int32_t t0, int32_t n) {
    for (int32_t t = (int32_t)warp(); t < n; t += (int32_t)threads_x() / GPU_WARP) {
        int64_t at = ((int64_t)d->x * a->T + t0 + t) * a->Dv;
        const STORE *go = row_of(a->d_o, d->row0 + t0 + t) + d->h * a->Dv;
        float beta = beta_at(a, d, t0 + t), dbeta = 0;
        for (int32_t j = (int32_t)lane(); j < a->Dv; j += GPU_WARP) {
            r->u[t * r->ld + j] = beta * a->miss[at + j];
            r->dv[t * r->ld + j] = beta * a->du[at + j];
            r->d_o[t * r->ld + j] = load(go[j]);
            dbeta += a->du[at + j] * a->miss[at + j];
        }
        dbeta = warp_sum(dbeta);
        if (lane() == 0 && a->dgates.p)
            put_f32(f32_row_of(a->dgates, d->row0 + t0 + t) + d->h, dbeta, a->add_gates);
    }
    if (thread_x() != 0) return;
    double G = 0;
    int32_t cut = 0;
    for (int32_t t = 0; t < n; t++) {
        G += (double)decay_at(a, d, t0 + t), cut += begins(a, d, t0 + t);
        g->G[t] = G, g->cut[t] = cut;
    }
}

/* X and Y, n x n of them; 0 above the diagonal, Y on it, too. */
GPU_FN void chunk_pairs(const delta_args *a, const chunk_room *r, const chunk_gates *g, int32_t n) {
    for (int32_t p = (int32_t)thread_x(); p < n * n; p += (int32_t)threads_x()) {
        int32_t t = p / n, s = p % n;
        float x = 0, y = 0;
        for (int32_t j = 0; j < a->Dv && s <= t; j++) {
            x += r->u[s * r->ld + j] * r->d_o[t * r->ld + j];
            y += r->u[s * r->ld + j] * r->dv[t * r->ld + j];
        }
        float by = s <= t ? decay_between(g, t, s) : 0;
        r->X[t * a->rows + s] = by * x;
        r->Y[t * a->rows + s] = s < t ? by * y : 0;
    }
}

/* Rows t to t + 7 of the chunk, number i: sums[0] = dq, [1] = a, [2] = b. */
typedef struct chunk_sums {
    float v[3][CHUNK_EACH];
} chunk_sums;

GPU_FN void chunk_states(const delta_args *a, const delta_head *d, const chunk_room *r,
                         const chunk_gates *g, int32_t chunk, int32_t n, int32_t t, int32_t i,
                         chunk_sums *s) {
    int64_t at = ((int64_t)d->x * a->chunks + chunk) * a->Dv * a->Dk + i;
    for (int32_t j = 0; j < a->Dv; j++, at += a->Dk) {
        float S = a->before[at], E = a->after[at];
        UNROLL
        for (int x = 0; x < CHUNK_EACH; x++) {
            int32_t row = (t + x < n ? t + x : n - 1) * r->ld + j;
            s->v[0][x] += S * r->d_o[row];
            s->v[1][x] += S * r->dv[row];
            s->v[2][x] += E * r->u[row];
        }
    }
    UNROLL
    for (int x = 0; x < CHUNK_EACH; x++) {
        if (t + x >= n) break;
        float c = g->cut[t + x] == 0 ? expf((float)g->G[t + x]) : 0;
        s->v[0][x] *= c, s->v[1][x] *= c, s->v[2][x] *= decay_between(g, n - 1, t + x);
    }
}

GPU_FN void chunk_rows(const delta_args *a, const delta_head *d, const chunk_room *r, int32_t t0,
                       int32_t n, int32_t t, int32_t i, chunk_sums *s) {
    for (int32_t other = 0; other < n; other++) {
        float q = query_at(a, d, t0 + other, i), k = key_at(a, d, t0 + other, i);
        UNROLL
        for (int x = 0; x < CHUNK_EACH; x++) {
            int32_t row = t + x < n ? t + x : n - 1;
            int32_t here = row * a->rows + other, there = other * a->rows + row;
            s->v[0][x] += r->X[here] * k;
            s->v[1][x] += r->Y[here] * k;
            s->v[2][x] += r->X[there] * q - r->Y[there] * k;
        }
    }
}

/* Adds dq and dk to those of earlier value heads; those of the last go where they belong. */
GPU_FN void chunk_give(const delta_args *a, const delta_head *d, int32_t t, int32_t i, float dq,
                       float dk) {
    int32_t number = d->x % a->group;
    float *sum = a->sums + ((int64_t)(d->x / a->group) * a->T + t) * 2 * a->Dk;
    if (number > 0) dq += sum[i], dk += sum[a->Dk + i];
    if (number < a->group - 1) {
        sum[i] = dq, sum[a->Dk + i] = dk;
        return;
    }
    if (!a->dqk.p) return;
    STORE *to = row_of(a->dqk, d->row0 + t);
    put(to + d->hk * a->Dk + i, a->q_scale * dq, a->add_qk);
    put(to + (a->Hk + d->hk) * a->Dk + i, a->k_scale * dk, a->add_qk);
}

/* Gradients of queries and keys; a thread has 8 rows of one number. */
GPU_FN void chunk_keys(const delta_args *a, const delta_head *d, const chunk_room *r,
                       const chunk_gates *g, int32_t chunk, int32_t n) {
    int32_t t0 = chunk * a->rows, bands = (n + CHUNK_EACH - 1) / CHUNK_EACH;
    for (int32_t p = (int32_t)thread_x(); p < bands * a->Dk; p += (int32_t)threads_x()) {
        int32_t t = p / a->Dk * CHUNK_EACH, i = p % a->Dk;
        chunk_sums s;
        UNROLL
        for (int x = 0; x < 3 * CHUNK_EACH; x++) s.v[x / CHUNK_EACH][x % CHUNK_EACH] = 0;
        chunk_states(a, d, r, g, chunk, n, t, i, &s);
        chunk_rows(a, d, r, t0, n, t, i, &s);
        UNROLL
        for (int x = 0; x < CHUNK_EACH; x++) {
            if (t + x >= n) break;
            float q = query_at(a, d, t0 + t + x, i), k = key_at(a, d, t0 + t + x, i);
            r->flow[(t + x) * a->Dk + i] = q * s.v[0][x] - k * (s.v[1][x] + s.v[2][x]);
            chunk_give(a, d, t0 + t + x, i, s.v[0][x], s.v[2][x] - s.v[1][x]);
        }
    }
}

/* <E, S> behind the chunk, for thread 0. */
GPU_FN float flow_behind(const delta_args *a, const delta_head *d, int32_t chunk, float *room) {
    int64_t each = (int64_t)a->Dk * a->Dv, at = ((int64_t)d->x * a->chunks + chunk) * each;
    float sum = 0;
    if (chunk + 1 == a->chunks) return 0;
    for (int64_t i = thread_x(); i < each; i += threads_x())
        sum += a->after[at + i] * a->before[at + each + i];
    return block_sum(sum, room);
}

/* Sums of rows of flow over their numbers, into its first column; then dg from the last row on. */
GPU_FN void chunk_decays(const delta_args *a, const delta_head *d, const chunk_room *r, int32_t t0,
                         int32_t n, float flow) {
    for (int32_t t = (int32_t)warp(); t < n; t += (int32_t)threads_x() / GPU_WARP) {
        float sum = 0;
        for (int32_t i = (int32_t)lane(); i < a->Dk; i += GPU_WARP) sum += r->flow[t * a->Dk + i];
        sum = warp_sum(sum);
        sync_warp();
        if (lane() == 0) r->flow[t * a->Dk] = sum;
    }
    sync_block();
    for (int32_t t = n - 1; t >= 0 && thread_x() == 0 && a->dgates.p; t--) {
        flow = begins(a, d, t0 + t) ? 0 : flow + r->flow[t * a->Dk];
        put_f32(f32_row_of(a->dgates, d->row0 + t0 + t) + a->Hv + d->h, flow, a->add_gates);
    }
}

/* A block: a chunk of a unit, its value heads one after the other. */
KERNEL(delta_chunk, delta_args, CHUNK_THREADS) {
    SHARED_DYNAMIC(float, room);
    SHARED(chunk_gates, gates, 1);
    SHARED(float, sums, 32);
    chunk_room r = room_of_chunk(a, room);
    int32_t unit = (int32_t)block_x() / a->chunks, chunk = (int32_t)block_x() % a->chunks;
    int32_t t0 = chunk * a->rows, n = a->T - t0 < a->rows ? a->T - t0 : a->rows;
    for (int32_t x = unit * a->group; x < (unit + 1) * a->group; x++) {
        delta_head d = head_number(a, x);
        chunk_open(a, &d, &r, gates, t0, n);
        sync_block();
        chunk_pairs(a, &r, gates, n);
        sync_block();
        chunk_keys(a, &d, &r, gates, chunk, n);
        float flow = flow_behind(a, &d, chunk, sums);
        sync_block();
        chunk_decays(a, &d, &r, t0, n, flow);
        sync_block();
    }
}

#ifndef __CUDACC__
#include "op/cuda/host.h"

enum { DELTA_ROOM = 256 << 20 };

static int64_t chunk_bytes(const delta_args *a, int64_t rows) {
    int64_t floats = rows * (3 * ((int64_t)a->Dv + 1) + a->Dk + 2 * rows);
    return floats * (int64_t)sizeof(float);
}

static delta_args delta_shape(const op_delta *d) {
    delta_args a = {.B = d->B, .T = d->T, .Hk = d->Hk, .Hv = d->Hv, .Dk = d->Dk, .Dv = d->Dv};
    a.q_scale = d->q_scale, a.k_scale = d->k_scale, a.group = d->Hv / d->Hk;
    for (a.rows = CHUNK_ROWS; chunk_bytes(&a, a.rows) > GPU_MOST_DYNAMIC_BYTES - 2048;) a.rows /= 2;
    a.chunks = (a.T + a.rows - 1) / a.rows;
    a.heads = a.B * a.Hv;
    return a;
}

/* first: which input qk is. */
static delta_args delta_open(const op_call *c, int first) {
    delta_args a = delta_shape(&c->attr->delta);
    a.qk = mat_of(&c->in[first]), a.v = mat_of(&c->in[first + 1]);
    a.gates = mat_of(&c->in[first + 2]);
    if (first == 0) a.start = mat_of(&c->in[3]);
    return a;
}

/* A warp for four columns. */
static void walk(const op_call *c, const gpu_kernel *k, const delta_args *a) {
    int64_t warps = (int64_t)a->heads * blocks_for(a->Dv, DELTA_COLS);
    uint32_t room = (uint32_t)(DELTA_COLS * a->Dk * (int)sizeof(float)), of_block = DELTA_WARPS;
    while (of_block > 1 && (of_block > warps || of_block * room > GPU_MOST_DYNAMIC_BYTES))
        of_block /= 2;
    launch(c, k,
           (gpu_grid){blocks_for(warps, of_block), 1, 1, of_block * GPU_WARP, of_block * room}, a);
}

static void delta_fwd(const op_call *c) {
    delta_args a = delta_open(c, 0);
    a.o = mat_of(&c->out[0]);
    walk(c, &delta_walk, &a);
}

static void delta_state_fwd(const op_call *c) {
    delta_args a = delta_open(c, 1);
    a.o = mat_of(&c->out[1]), a.span = mat_of(&c->in[4]), a.by_row = c->attr->delta.by_row;
    a.state = mat_of(&c->in[0]), a.state_out = mat_of(&c->out[0]);
    walk(c, &delta_walk, &a);
}

/* ---- backward ---- */

/* Floats of the workspace for a unit, and how many units there are room for. */
static int64_t unit_floats(const delta_args *a) {
    int64_t borders = 2 * (int64_t)a->chunks * a->Dk * a->Dv, rows = 2 * (int64_t)a->T * a->Dv;
    return a->group * (borders + rows) + 2 * (int64_t)a->T * a->Dk;
}
static int32_t units_at_once(const delta_args *a) {
    int64_t n = DELTA_ROOM / (unit_floats(a) * (int64_t)sizeof(float)), all = (int64_t)a->B * a->Hk;
    return (int32_t)(n < 1 ? 1 : n < all ? n : all);
}

static void delta_bwd(const op_call *c) {
    delta_args a = delta_open(c, 0);
    int32_t all = a.B * a.Hk, most = units_at_once(&a);
    a.d_o = mat_of(&c->dout[0]), a.dqk = mat_of(&c->din[0]), a.dv = mat_of(&c->din[1]);
    a.dgates = mat_of(&c->din[2]);
    a.add_qk = op_accumulates(c, 0), a.add_v = op_accumulates(c, 1);
    a.add_gates = op_accumulates(c, 2);
    int64_t heads = (int64_t)most * a.group, borders = heads * a.chunks * a.Dk * a.Dv;
    a.before = c->ws, a.after = a.before + borders, a.miss = a.after + borders;
    a.du = a.miss + heads * a.T * a.Dv, a.sums = a.du + heads * a.T * a.Dv;
    uint32_t threads = threads_for((int64_t)a.Dk * a.rows / CHUNK_EACH, CHUNK_THREADS);
    for (a.unit0 = 0; a.unit0 < all; a.unit0 += most) {
        int32_t units = all - a.unit0 < most ? all - a.unit0 : most;
        a.heads = units * a.group;
        walk(c, &delta_walk, &a);
        walk(c, &delta_walk_back, &a);
        launch(c, &delta_chunk,
               (gpu_grid){(uint32_t)(units * a.chunks), 1, 1, threads,
                          (uint32_t)chunk_bytes(&a, a.rows)},
               &a);
    }
}

static void delta_workspace(const op_infer *io, int64_t ws[3]) {
    delta_args a = delta_shape(&io->attr->delta);
    if (io->kind == OP_DELTA) ws[1] = units_at_once(&a) * unit_floats(&a) * (int64_t)sizeof(float);
}

const op_impl CUDA_IMPL(DELTA) = {delta_fwd, delta_bwd, NULL, delta_workspace};
const op_impl CUDA_IMPL(DELTA_STATE) = {delta_state_fwd, NULL, NULL, NULL};
#endif
