/* NORM_ROPE: a norm of each head, whose pairs then turn by the angle of the position; backward turns dy back
 * before it is that of RMSNORM. A head lies in a buffer of floats in between, so that there is one rounding, and one
 * pass over memory where the two ops have two. Weight gradients are summed as in norm.c. */
#include "op/cpu/norm_parts.h"

typedef struct turned_view {
    norm_view norm;
    tensor pos, table;
    int64_t half, first;
    bool interleaved;
} turned_view;

static turned_view turned_open(const op_call *c) {
    turned_view v = {.pos = c->in[2], .table = c->in[3]};
    v.norm = (norm_view){.x = c->in[0], .y = c->out[0], .w = c->in[1], .rstd = c->out[1]};
    v.norm.dy = c->dout[0], v.norm.dx = c->din[0], v.norm.add = op_accumulates(c, 0);
    v.norm.width = c->attr->norm_rope.head_dim, v.norm.groups = v.norm.x.cols / v.norm.width;
    v.norm.eps = c->attr->norm_rope.eps;
    v.norm.offset = c->attr->norm_rope.unit_offset ? 1.0f : 0.0f;
    v.half = c->attr->norm_rope.rotary_dim / 2, v.first = c->attr->norm_rope.first;
    v.interleaved = c->attr->norm_rope.interleaved;
    return v;
}

/* The cosines of row i; the sines lie behind them. */
V_INLINE const float *angles_of(const turned_view *v, int64_t i) {
    int32_t p = ((const int32_t *)v->pos.data)[i * v->pos.ld];
    return (const float *)v->table.data + p * v->table.ld;
}

V_INLINE void turn_head(const turned_view *v, float *head, const float *cosine, float sign) {
    const float *sine = cosine + v->half;
    float *a = head + v->first, *b = a + v->half;
    if (v->interleaved) {
        for (int64_t j = 0; j < v->half; j++) {
            float x = a[2 * j], y = a[2 * j + 1], si = sign * sine[j];
            a[2 * j] = x * cosine[j] - y * si;
            a[2 * j + 1] = y * cosine[j] + x * si;
        }
        return;
    }
    FOR_VECTORS(v->half, j, n) {
        vf co = get_upto(cosine, j, n, DT_F32), si = sign * get_upto(sine, j, n, DT_F32);
        vf x = get_upto(a, j, n, DT_F32), y = get_upto(b, j, n, DT_F32);
        put_upto(a, j, x * co - y * si, n, DT_F32);
        put_upto(b, j, y * co + x * si, n, DT_F32);
    }
}

V_INLINE void forward_row(turned_view v, int64_t i, dtype dt) {
    float head[OP_MAX_HEAD_DIM];
    const norm_view *m = &v.norm;
    for (int64_t g = 0; g < m->groups; g++) {
        int64_t from = g * m->width, at = i * m->x.ld + from;
        float mean = moment(m->x.data, at, m->width, 0.0f, true, dt) * (1.0f / (float)m->width);
        float rstd = 1.0f / __builtin_sqrtf(mean + m->eps);
        *stat(&m->rstd, i, g) = rstd;
        FOR_VECTORS(m->width, j, n)
        put_upto(head, j, row_get(&m->x, i, from + j, n, dt) * rstd * weight_at(m, j, n), n,
                 DT_F32);
        turn_head(&v, head, angles_of(&v, i), 1.0f);
        FOR_VECTORS(m->width, j, n)
        row_put(&m->y, i, from + j, get_upto(head, j, n, DT_F32), n, false, dt);
    }
}

static void norm_rope_fwd(const op_call *c) {
    turned_view v = turned_open(c);
    dtype dt = v.norm.y.dt;
#pragma omp parallel for num_threads(loop_threads(c, c->in[0].rows * c->in[0].cols))               \
    schedule(static)
    for (int64_t i = 0; i < c->in[0].rows; i++) {
        row_prefetch(&v.norm.x, i + ROWS_AHEAD);
        row_prefetch(&v.norm.y, i + ROWS_AHEAD);
        WITH_DTYPE(dt, forward_row, v, i);
    }
}

V_INLINE void backward_row(turned_view v, int64_t i, float *sum_w, dtype dt) {
    float head[OP_MAX_HEAD_DIM];
    const norm_view *m = &v.norm;
    for (int64_t g = 0; g < m->groups; g++) {
        int64_t from = g * m->width;
        float rstd = *stat(&m->rstd, i, g);
        FOR_VECTORS(m->width, j, n)
        put_upto(head, j, row_get(&m->dy, i, from + j, n, dt), n, DT_F32);
        turn_head(&v, head, angles_of(&v, i), -1.0f);
        vf sum = v_zero();
        FOR_VECTORS(m->width, j, n) {
            vf d = get_upto(head, j, n, DT_F32), xn = row_get(&m->x, i, from + j, n, dt) * rstd;
            sum = v_fma(d * weight_at(m, j, n), xn, sum);
            if (sum_w) put_upto(sum_w, j, v_fma(d, xn, get_upto(sum_w, j, n, DT_F32)), n, DT_F32);
        }
        float mean = v_sum(sum) / (float)m->width;
        FOR_VECTORS(m->dx.data ? m->width : 0, j, n) {
            vf d = get_upto(head, j, n, DT_F32), xn = row_get(&m->x, i, from + j, n, dt) * rstd;
            row_put(&m->dx, i, from + j, rstd * (d * weight_at(m, j, n) - xn * mean), n, m->add,
                    dt);
        }
    }
}

static void norm_rope_bwd(const op_call *c) {
    turned_view v = turned_open(c);
    norm_sums sums = norm_sums_open(c, &v.norm, false, c->ws);
    dtype dt = v.norm.dy.dt;
#pragma omp parallel for num_threads(loop_threads(c, c->in[0].rows * c->in[0].cols))               \
    schedule(static)
    for (int64_t s = 0; s < sums.slices; s++) {
        norm_slice k = norm_slice_open(&sums, s);
        for (int64_t i = k.first; i < k.end; i++) {
            norm_fetch_back(&v.norm, i);
            WITH_DTYPE(dt, backward_row, v, i, k.sum_w);
        }
    }
    norm_sums_join(c, &sums);
}

static void norm_rope_workspace(const op_infer *io, int64_t ws[3]) {
    ws[1] = norm_sums_bytes(io->in[0].rows, io->attr->norm_rope.head_dim);
}

const op_impl CPU_FN(cpu_norm_rope) = {norm_rope_fwd, norm_rope_bwd, NULL, norm_rope_workspace};
