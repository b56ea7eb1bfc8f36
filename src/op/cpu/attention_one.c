/* Attention of a single query per sequence, as generation asks for it: keys and values are read
 * once, as they lie in the cache, f16 or as the queries, without packing. FLOPs 2 (D + Dv) per
 * visible key and query head, bound by memory.
 *
 * A task is a piece of CHUNK keys with all query heads that share them; a second pass joins the
 * pieces of a head (Dao et al. 2023, Flash-Decoding). Pieces begin at multiples of CHUNK, whatever
 * the number of threads, so sums have one order. Workspace: of each head and piece, the values
 * mixed with weights exp(score - max), then max and sum. */
#include "op/cpu/attention.h"
#include "op/cpu/parts.h"

enum {
    CHUNK = 64, /* keys */
    GROUP = 4,  /* query heads at a time */
    KEYS = 4,   /* keys at a time: their sums over the lanes are made together */
    WIDE = V_AVX512 ? 4 : 2,
    LINE_BYTES = 64
};

/* Where a piece finds its operands: elements into q, k, v, o. */
typedef struct one_piece {
    const op_call *c;
    int64_t q_at, k_at, v_at; /* of the first head, of the first key */
    int64_t n, next;          /* keys, and those of the piece behind it */
    int64_t bias_at;          /* column of the first head in the bias */
    int64_t distance;         /* its row for the first key, before limits */
    float *part;              /* of the first head */
    int64_t part_ld;          /* between heads */
} one_piece;

static int64_t pieces_of(const op_attr *at) {
    return (at->attention.Tk + CHUNK - 1) / CHUNK;
}
static int64_t part_floats(const op_attr *at) {
    return (at->attention.Dv + 2 + VW - 1) / VW * VW;
}

int64_t CPU_FN(attention_one_floats)(const op_attr *at) {
    return at->attention.B * at->attention.H * pieces_of(at) * part_floats(at);
}

V_INLINE void fetch(const tensor *t, int64_t at, int64_t n, dtype dt) {
    const char *from = (const char *)t->data + at * v_element_bytes(dt);
    for (int64_t i = 0; i < n * v_element_bytes(dt); i += LINE_BYTES)
        __builtin_prefetch(from + i, 0, 2);
}

/* s[g][j + i] = scale q_g . k_(j+i) for KEYS keys and G heads, G a constant. The last key stands in
 * for those that do not exist. */
V_INLINE void score_keys(const one_piece *p, int64_t head, int64_t j, float scale, float s[][CHUNK],
                         int G, dtype dt, dtype kv) {
    const op_call *c = p->c;
    int64_t D = c->attr->attention.D, q_at = p->q_at + head * D, at[KEYS];
    const void *q = c->in[0].data, *k = c->in[1].data;
    vf acc[GROUP][KEYS] = {{{0}}};
#pragma GCC unroll 4
    for (int i = 0; i < KEYS; i++) at[i] = p->k_at + att_min(j + i, p->n - 1) * c->in[1].ld;
    FOR_VECTORS(D, d, left) {
        vf key[KEYS];
#pragma GCC unroll 4
        for (int i = 0; i < KEYS; i++) key[i] = v_keep(get_upto(k, at[i] + d, left, kv));
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) {
            vf query = get_upto(q, q_at + g * D + d, left, dt);
#pragma GCC unroll 4
            for (int i = 0; i < KEYS; i++) acc[g][i] = v_fma(query, key[i], acc[g][i]);
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; g++) {
        v4f sums = scale * v_sum_each(acc[g]);
        memcpy(&s[g][j], &sums, sizeof(sums));
    }
}

/* s[g][j] += bias of head + g, in units of the scores: `per` of them are 1. */
V_INLINE void add_bias(const one_piece *p, int64_t head, float s[][CHUNK], int G, float per) {
    const tensor *t = &p->c->in[BIAS];
    int64_t last = t->rows - 1;
    for (int64_t j = 0; j < p->n; j++) {
        int64_t row = att_max(0, att_min(p->distance - j, last));
        for (int g = 0; g < G; g++)
            s[g][j] += per * row_get(t, row, p->bias_at + head + g, 1, t->dt)[0];
    }
}

/* Scores of a piece; asks for the values that come next. */
V_INLINE void score_heads(const one_piece *p, int64_t head, float scale, float s[][CHUNK], int G,
                          dtype dt, dtype kv) {
    const tensor *v = &p->c->in[2];
    int64_t Dv = p->c->attr->attention.Dv;
    for (int64_t j = 0; j < p->n; j += KEYS) {
        for (int64_t i = j; head == 0 && i < j + KEYS && i < p->n; i++)
            fetch(v, p->v_at + i * v->ld, Dv, kv);
        score_keys(p, head, j, scale, s, G, dt, kv);
    }
}

/* Columns [d, d + W VW) of part = sum over keys of s v, W and G constants. `left`: columns from d
 * on, of which a single vector may have fewer than VW. Asks for the keys that come next. */
V_INLINE void mix_columns(const one_piece *p, int64_t head, int64_t d, int64_t left,
                          float s[][CHUNK], int G, int W, dtype kv) {
    const op_call *c = p->c;
    vf acc[GROUP][WIDE] = {{{0}}};
    int64_t fetches = head == 0 && d == 0 ? p->next : 0;
    for (int64_t j = 0; j < p->n; j++) {
        vf value[WIDE];
        if (j < fetches)
            fetch(&c->in[1], p->k_at + (p->n + j) * c->in[1].ld, c->attr->attention.D, kv);
        int64_t at = p->v_at + j * c->in[2].ld + d;
#pragma GCC unroll 4
        for (int w = 0; w < W; w++) value[w] = get_upto(c->in[2].data, at + w * VW, left, kv);
#pragma GCC unroll 4
        for (int g = 0; g < G; g++)
#pragma GCC unroll 4
            for (int w = 0; w < W; w++) acc[g][w] = v_fma(v_set1(s[g][j]), value[w], acc[g][w]);
    }
    for (int g = 0; g < G; g++)
        for (int w = 0; w < W; w++)
            put_upto(p->part + (head + g) * p->part_ld, d + w * VW, acc[g][w], left, DT_F32);
}

V_INLINE void mix_heads(const one_piece *p, int64_t head, float s[][CHUNK], int G, dtype kv) {
    int64_t Dv = p->c->attr->attention.Dv, d = 0;
    for (; d + WIDE * VW <= Dv; d += WIDE * VW) mix_columns(p, head, d, WIDE * VW, s, G, WIDE, kv);
    for (; d < Dv; d += VW) mix_columns(p, head, d, Dv - d, s, G, 1, kv);
}

/* Scores become weights exp(s - max); max and sum go behind the mixed values. */
V_INLINE void soften(const op_attr *at, float *s, int64_t n, float *part) {
    float cap = at->attention.softcap;
    for (int64_t j = n; j < CHUNK; j++) s[j] = 0.0f;
    if (cap > 0.0f)
        for (int64_t j = 0; j < n; j += VW) v_store(s + j, cap * v_tanh(v_load(s + j)));
    for (int64_t j = n; j < CHUNK; j++) s[j] = -INFINITY; /* weight 0 */
    vf most = v_load(s), sum = v_zero();
    for (int64_t j = VW; j < CHUNK; j += VW) most = v_max(v_load(s + j), most);
    float max = v_hmax(most);
    for (int64_t j = 0; j < n; j += VW) {
        vf e = v_exp(v_load(s + j) - max);
        v_store(s + j, e);
        sum += e;
    }
    part[at->attention.Dv] = max;
    part[at->attention.Dv + 1] = v_sum(sum);
}

V_INLINE void attend_heads(const one_piece *p, int64_t head, float scale, int G, dtype dt,
                           dtype kv) {
    const op_attr *at = p->c->attr;
    _Alignas(V_BYTES) float s[GROUP][CHUNK];
    score_heads(p, head, scale, s, G, dt, kv);
    float cap = at->attention.softcap;
    if (p->c->in[BIAS].data) add_bias(p, head, s, G, cap > 0.0f ? 1.0f / cap : 1.0f);
    for (int g = 0; g < G; g++) soften(at, s[g], p->n, p->part + (head + g) * p->part_ld);
    mix_heads(p, head, s, G, kv);
}

V_INLINE void attend_piece(const one_piece *p, dtype dt, dtype kv) {
    const op_attr *at = p->c->attr;
    int64_t heads = at->attention.H / at->attention.K, head = 0;
    float cap = at->attention.softcap;
    float scale = cap > 0.0f ? at->attention.scale / cap : at->attention.scale;
    for (; head + GROUP <= heads; head += GROUP) attend_heads(p, head, scale, GROUP, dt, kv);
    switch (heads - head) {
        case 1: attend_heads(p, head, scale, 1, dt, kv); break;
        case 2: attend_heads(p, head, scale, 2, dt, kv); break;
        case 3: attend_heads(p, head, scale, 3, dt, kv); break;
        default: break;
    }
}

/* The keys that the query of sequence b sees, and the pieces that they lie in. */
typedef struct one_view {
    int64_t low, high, first, end;
} one_view;

V_INLINE one_view look(const op_call *c, int64_t b) {
    att_span s = att_seen(c, b, 0);
    one_view o = {.low = s.low, .high = s.high};
    o.first = o.low / CHUNK;
    o.end = o.low < o.high ? (o.high + CHUNK - 1) / CHUNK : o.first;
    return o;
}

/* One piece of keys, for the heads that read them. */
V_INLINE void attend(const op_call *c, int64_t b, int64_t kv, int64_t piece, dtype dt) {
    const op_attr *at = c->attr;
    int64_t K = at->attention.K, G = at->attention.H / K, stride = part_floats(at);
    one_view v = look(c, b);
    int64_t low = att_max(v.low, piece * CHUNK), high = att_min(v.high, (piece + 1) * CHUNK);
    if (low >= high) return;
    int64_t pieces = pieces_of(at);
    att_place place = att_place_of(at, b, kv);
    one_piece p = {.c = c,
                   .q_at = b * c->in[0].ld + kv * G * at->attention.D,
                   .k_at = (place.row + low) * c->in[1].ld + place.head * at->attention.D,
                   .v_at = (place.row + low) * c->in[2].ld + place.head * at->attention.Dv,
                   .n = high - low,
                   .bias_at = kv * G,
                   .distance = att_query_position(c, b, 0) - low + at->attention.bias_zero,
                   .next = att_max(0, att_min(v.high - high, CHUNK)),
                   .part = (float *)c->ws + ((b * K + kv) * G * pieces + piece) * stride,
                   .part_ld = pieces * stride};
    if (dt == DT_F32 && c->in[1].dt == DT_F16)
        attend_piece(&p, dt, DT_F16);
    else
        attend_piece(&p, dt, dt);
}

/* The maximum of each piece becomes its weight exp(max_i - max); returns log(sum of exp(score)), in which `sink` is one
 * more score; -inf: none. */
V_INLINE float weigh(float *part, int64_t stride, int64_t Dv, const one_view *v, float sink,
                     float *sum) {
    float max = sink;
    for (int64_t i = v->first; i < v->end; i++)
        max = part[i * stride + Dv] > max ? part[i * stride + Dv] : max;
    *sum = sink > -INFINITY ? expf(sink - max) : 0.0f;
    for (int64_t i = v->first; i < v->end; i++) {
        part[i * stride + Dv] = expf(part[i * stride + Dv] - max);
        *sum += part[i * stride + Dv] * part[i * stride + Dv + 1];
    }
    return v->first < v->end ? max + logf(*sum) : sink;
}

/* o = sum over pieces of weight part, over the sum of weights. */
V_INLINE void join(const op_call *c, int64_t head, dtype dt) {
    const op_attr *at = c->attr;
    int64_t H = at->attention.H, Dv = at->attention.Dv, stride = part_floats(at), b = head / H;
    one_view v = look(c, b);
    float *part = (float *)c->ws + head * pieces_of(at) * stride, sum;
    float sink = c->in[ATTENTION_SINKS].data
                     ? ((const float *)c->in[ATTENTION_SINKS].data)[head % H]
                     : -INFINITY;
    ((float *)c->out[1].data)[head * c->out[1].ld] = weigh(part, stride, Dv, &v, sink, &sum);
    float inv = v.first < v.end ? 1.0f / sum : 0.0f;
    FOR_VECTORS(Dv, d, left) {
        vf acc = v_zero();
        for (int64_t i = v.first; i < v.end; i++)
            acc = v_fma(v_set1(part[i * stride + Dv]), get_upto(part, i * stride + d, left, DT_F32),
                        acc);
        put_upto(c->out[0].data, b * c->out[0].ld + head % H * Dv + d, acc * inv, left, dt);
    }
}

/* Reading keys and values is what costs: below some 64 KiB of them one thread is done sooner. */
static int one_threads(const op_call *c, int64_t tasks) {
    const op_attr *at = c->attr;
    int64_t floats = tasks * CHUNK * (at->attention.D + at->attention.Dv);
    return floats < 1 << 14 ? 1 : call_threads(c);
}

void CPU_FN(attention_one)(const op_call *c) {
    dtype dt = c->out[0].dt;
    int64_t B = c->attr->attention.B, K = c->attr->attention.K, first = INT64_MAX, end = 0;
    for (int64_t b = 0; b < B; b++) {
        one_view v = look(c, b);
        first = att_min(first, v.first);
        end = att_max(end, v.end);
    }
    int64_t pieces = end > first ? end - first : 0;
#pragma omp parallel num_threads(one_threads(c, B *K *pieces))
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < B * K * pieces; t++)
            WITH_DTYPE(dt, attend, c, t / pieces / K, t / pieces % K, first + t % pieces);
#pragma omp for schedule(static)
        for (int64_t h = 0; h < B * c->attr->attention.H; h++) WITH_DTYPE(dt, join, c, h);
    }
}
