/* Attention over pages (PAGE_ATTENTION), for rows of many sequences.
 *
 *   tile    rows that follow each other in one sequence, up to LINES queries of a kv head's group;
 *           most rows of a prompt are in tiles, a row that writes a token is one by itself
 *   piece   keys [i PIECE, (i + 1) PIECE) of a sequence
 *   task    a tile, a kv head and a piece: scores, weights exp(score - max), mixed values, with max
 *           and sum of the weights behind them
 *   join    of the pieces of a query, rising (Dao et al. 2023, Flash-Decoding)
 *
 * What a query comes to is one chain of additions for each number (page_product.h), in an order
 * that follows from positions alone. So its bits do not depend on the tile it is in, on other rows,
 * on pages or threads. Values that a query does not see are not touched for it: they may be
 * anything. Keys that it does not see may be multiplied, and their scores are dropped.
 *
 * Where there are many tiles, a thread takes whole ones. Else tasks are shared out, in waves: as
 * many as the room for their results holds. Workspace in floats: max(LINES pieces, SLOTS threads)
 * (Dv + 2), where `pieces` are those of the longest sequence, and a block's operands and scores for
 * each thread; and the tiles. FLOPs 2 (D + Dv) per visible key and query head.
 *
 * Reading order: page_tile, page_task, attend_task and what it calls, join_line, then who shares
 * out the work: run_wave, run_heads. */
#include <omp.h>

#include "op/cpu/attention.h"
#include "op/cpu/ops.h"
#include "op/cpu/page_product.h"

enum {
    PIECE = PAGE_KEYS,
    LINES = 64,      /* queries of a tile, unless a group has more */
    SLOTS = 4096,    /* results of a piece and a query that a thread has room for, at least */
    SHARES = 4,      /* of a wave's tasks for a thread */
    LEAST_WORKS = 8, /* for a thread, where they are shared out whole */
    LINE = PAGE_LINE
};

typedef struct page_tile {
    int32_t row, rows;     /* of q */
    int32_t first, pieces; /* that its rows see */
    int64_t tasks, slots;  /* before it */
} page_tile;

/* A call, as all threads see it. */
typedef struct page_job {
    const op_call *c;
    page_tile *tiles; /* n_tiles, and one behind them */
    int64_t n_tiles, room;
    float *parts, *max, *sum; /* [room, Dv rounded], and behind each other for a query: [room] */
    float *rooms;             /* of threads: scores and queries of a block */
} page_job;

V_INLINE int64_t group_of(const op_attr *at) {
    return at->paged.H / at->paged.K;
}
V_INLINE int64_t part_floats(const op_attr *at) {
    return att_round(at->paged.Dv, VW);
}
V_INLINE int64_t query_floats(const op_attr *at) {
    return att_round(page_units(at->paged.D), VW) + VW;
}
V_INLINE int64_t block_floats(const op_attr *at) {
    return LINES * (LINE + query_floats(at));
}
/* Floats of a thread: a block, and the values of a piece where they are but a part of the keys. */
V_INLINE int64_t thread_floats(const op_attr *at, bool in_keys) {
    return block_floats(at) + (in_keys ? PIECE * part_floats(at) : 0);
}
V_INLINE int64_t tile_rows(const op_attr *at) {
    return att_max(LINES / group_of(at), 1);
}

/* ---- rows and tiles ---- */

/* The keys that a row sees. */
typedef struct page_view {
    int64_t low, high;
} page_view;

V_INLINE const int32_t *place_of(const op_call *c, int64_t n) {
    return (const int32_t *)c->in[4].data + n * c->in[4].ld;
}

V_INLINE page_view look(const op_call *c, int64_t n) {
    int64_t pos = place_of(c, n)[1], window = c->attr->paged.window;
    int64_t chunk = c->attr->paged.chunk, low = 0;
    if (pos < 0) return (page_view){0, 0};
    if (chunk > 0) low = pos / chunk * chunk;
    if (window > 0) low = att_max(pos - window + 1, low);
    return (page_view){low, pos + 1};
}

/* The same within a piece, from its beginning; nothing: low >= high. */
V_INLINE page_view look_at_piece(const op_call *c, int64_t n, int64_t piece) {
    page_view v = look(c, n);
    return (page_view){att_max(v.low - piece * PIECE, 0), att_min(v.high - piece * PIECE, PIECE)};
}

V_INLINE bool follows(const op_call *c, int64_t n) {
    const int32_t *p = place_of(c, n - 1), *next = place_of(c, n);
    return p[1] >= 0 && next[0] == p[0] && next[1] == p[1] + 1;
}

static void make_tiles(page_job *job) {
    const op_call *c = job->c;
    int64_t n = 0, N = c->in[0].rows, K = c->attr->paged.K, most = tile_rows(c->attr);
    page_tile *t = job->tiles;
    *t = (page_tile){0};
    for (; n < N; t++) {
        int64_t row = n++;
        while (n < N && n - row < most && follows(c, n)) n++;
        int64_t end = (look(c, n - 1).high + PIECE - 1) / PIECE;
        t->rows = (int32_t)(n - row);
        t->first = (int32_t)(look(c, row).low / PIECE);
        t->pieces = (int32_t)att_max(end - t->first, 0);
        int64_t tasks = K * t->pieces;
        t[1] = (page_tile){.row = (int32_t)n,
                           .tasks = t->tasks + tasks,
                           .slots = t->slots + tasks * t->rows * group_of(c->attr)};
    }
    job->n_tiles = t - job->tiles;
}

/* ---- a task ---- */

/* One piece of one kv head of a tile. */
typedef struct page_task {
    const op_call *c;
    const page_tile *t;
    int64_t kv, piece, lines;     /* lines: queries of the tile, a row's after another's */
    int64_t kv_first, kv_end;     /* of the wave */
    float *parts, *max, *sum;     /* of the first line */
    int64_t n_vectors, n_runs;    /* of the keys; of the values */
    int64_t key_at[PIECE];        /* elements into the cache */
    int16_t key[PIECE], n[PIECE]; /* number of the first key, and keys, of a vector */
    page_rows runs[PIECE];        /* values of a page */
    int64_t run_key[PIECE];       /* number of the first */
} page_task;

/* Where the keys of the page with position j lie for the kv head that the next task takes: the next
 * one of the same page, or the first of a page in the next piece. */
static const char *next_keys(const page_task *k, const int32_t *pages, int64_t j) {
    const op_attr *at = k->c->attr;
    const tensor *keys = &k->c->in[1];
    int64_t kv = k->kv + 1;
    if (kv == k->kv_end) kv = k->kv_first, j += PIECE;
    bool read = j < look(k->c, k->t->row + k->t->rows - 1).high;
    int64_t block = read ? pages[j / at->paged.page] * (int64_t)at->paged.K + kv : 0;
    return (const char *)keys->data + block * at->paged.D * keys->ld * v_element_bytes(keys->dt);
}

/* Makes rows of the values of n keys that are the first elements of these, from `from` on. Many lines read
 * them then, so that it costs little. */
static void turn_values(const page_task *k, int64_t from, int64_t n, char *to) {
    const tensor *t = &k->c->in[1];
    int64_t Dv = k->c->attr->paged.Dv;
    for (int64_t d = 0; d < Dv; d++, from += t->ld)
        for (int64_t i = 0; i < n; i++)
            if (t->dt == DT_F32)
                ((float *)(void *)to)[i * Dv + d] = ((const float *)t->data)[from + i];
            else
                ((uint16_t *)(void *)to)[i * Dv + d] = ((const uint16_t *)t->data)[from + i];
}

/* Finds the keys and values that any row of the tile sees. room: for values that are in keys. */
static void find_pages(page_task *k, char *room) {
    const op_call *c = k->c;
    const op_attr *at = c->attr;
    const tensor *keys = &c->in[1], *values = &c->in[2], *table = &c->in[3];
    int64_t page = at->paged.page, base = k->piece * PIECE;
    const int32_t *place = place_of(c, k->t->row);
    const int32_t *pages = (const int32_t *)table->data + place[0] * table->ld;
    int64_t j = att_max(look(c, k->t->row).low, base);
    int64_t end = att_min(look(c, k->t->row + k->t->rows - 1).high, base + PIECE);
    while (j < end) {
        int64_t slot = j % page, n = att_min(page - slot, end - j);
        int64_t block = pages[j / page] * (int64_t)at->paged.K + k->kv;
        for (int64_t i = 0; i < n; i += VW, k->n_vectors++) {
            k->key_at[k->n_vectors] = block * at->paged.D * keys->ld + slot + i;
            k->key[k->n_vectors] = (int16_t)(j - base + i);
            k->n[k->n_vectors] = (int16_t)att_min(VW, page - slot - i);
        }
        const char *first = room;
        int64_t step = values->data ? values->ld : at->paged.Dv;
        if (values->data) {
            first = (const char *)values->data +
                    (block * page + slot) * step * v_element_bytes(values->dt);
        } else {
            turn_values(k, block * at->paged.D * keys->ld + slot, n, room);
            room += n * step * v_element_bytes(keys->dt);
        }
        k->run_key[k->n_runs] = j - base;
        k->runs[k->n_runs++] =
            (page_rows){.data = first, .step = step, .rows = n, .next = next_keys(k, pages, j)};
        j += n;
    }
}

/* Lines [line, line + n) of q as floats, or pairs of bf16: [n, query_floats]. */
V_INLINE void pack_lines(const page_task *k, int64_t line, int64_t n, float *q, dtype dt) {
    const tensor *from = &k->c->in[0];
    int64_t D = k->c->attr->paged.D, G = group_of(k->c->attr), row = line / G, head = line % G;
    for (int64_t i = 0; i < n; i++, q += query_floats(k->c->attr)) {
        int64_t at = (k->t->row + row) * from->ld + (k->kv * G + head) * D;
        if (++head == G) head = 0, row++;
#if V_DOT_BF16
        (void)dt;
        q[page_units(D) - 1] = 0.0f;
        memcpy(q, (const uint16_t *)from->data + at, (size_t)D * sizeof(uint16_t));
#else
        FOR_VECTORS(D, d, left)
        put_upto(q, d, get_upto(from->data, at + d, left, dt), left, DT_F32);
#endif
    }
}

/* Lines that a thread computes together: operands and scores, and what each sees of the piece. */
typedef struct page_block {
    int64_t first, n; /* lines */
    float *q, *s, *o; /* [n, query_floats], [n, LINE], [n, Dv rounded] */
    page_view seen[LINES];
    int64_t from, to, n_rows; /* the keys whose values are in `rows` */
    page_rows rows[PIECE];
} page_block;

/* s = keys times q, not scaled, for L lines and the keys that they see. */
static void score_lines(const page_task *k, const page_block *b, int64_t line, int L) {
    const op_attr *at = k->c->attr;
    const tensor *t = &k->c->in[1];
    int64_t ld = query_floats(at), W = page_vectors(b->n), v = 0, end = k->n_vectors;
    page_product p = {.a = b->q + line * ld, .c = b->s + line * LINE, .ld = ld, .dt = t->dt};
    page_rows keys = {.data = t->data, .step = t->ld, .rows = at->paged.D};
    keys.next = at->paged.D == at->paged.Dv && k->c->in[2].data ? k->c->in[2].data : t->data;
    while (end > 0 && k->key[end - 1] >= b->seen[line + L - 1].high) end--;
    while (v < end) {
        int64_t whole = v;
        while (whole < end && k->n[whole] == VW) whole++;
        int64_t n = (whole - v) / W * W;
        p.n = k->n[v];
        page_scores(&p, &keys, k->key_at + v, k->key + v, n > 0 ? n : 1, L, n > 0 ? (int)W : 1);
        v += n > 0 ? n : 1;
    }
}

/* The vector of keys from j on: those outside of [low, high) get the score -infinity. */
V_INLINE void hide_keys(float *s, int64_t j, page_view seen) {
    static const int32_t order[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vi key = v_load_i(order) + (int32_t)j;
    vi visible = (key >= (int32_t)seen.low) & (key < (int32_t)seen.high);
    v_store(s + j, v_select(visible, v_load(s + j), v_set1(-INFINITY)));
}

/* What scores are multiplied with when they are exponentiated, in units of log 2; positive, since
 * those that are hidden are -infinity. */
V_INLINE float score_scale(const op_attr *at) {
    bool scaled = at->paged.softcap > 0.0f || !(at->paged.scale > 0.0f);
    return scaled ? 1.0f : at->paged.scale * ATT_LOG2E;
}

/* The keys of a line, in whole pairs of vectors. */
V_INLINE page_view vectors_of(page_view seen) {
    return (page_view){seen.low / (2 * VW) * (2 * VW), att_round(seen.high, 2 * VW)};
}

/* Softcap, and the largest score times `scale`; keys that the line does not see get -infinity. */
V_INLINE float find_max(const op_attr *at, float *s, page_view seen, float scale) {
    page_view in = vectors_of(seen);
    float cap = at->paged.softcap, own = at->paged.scale;
    vf most = v_set1(-INFINITY), by = v_set1(scale);
    if (cap > 0.0f)
        for (int64_t j = in.low; j < in.high; j += VW)
            v_store(s + j, ATT_LOG2E * cap * v_tanh(own / cap * v_load(s + j)));
    else if (!(own > 0.0f))
        for (int64_t j = in.low; j < in.high; j += VW)
            v_store(s + j, ATT_LOG2E * own * v_load(s + j));
    for (int64_t j = in.low; j < in.high; j += VW) {
        if (j < seen.low || j + VW > seen.high) hide_keys(s, j, seen);
        most = v_max(v_load(s + j) * by, most);
    }
    return v_hmax(most);
}

/* Scores become weights 2^(scale score - max), bf16 where pairs are multiplied; returns their sum. */
V_INLINE float exponentiate(float *s, page_view seen, float scale, float max) {
    page_view in = vectors_of(seen);
    vf by = v_set1(scale), shift = v_set1(max == -INFINITY ? 0.0f : max), sum = v_zero();
    for (int64_t j = in.low; j < in.high; j += 2 * VW) {
        vf p = att_exp2(v_fma(v_load(s + j), by, -shift), V_DOT_BF16);
        vf next = att_exp2(v_fma(v_load(s + j + VW), by, -shift), V_DOT_BF16);
        sum += p + next;
#if V_DOT_BF16
        _mm512_storeu_si512(s + j / 2, att_round_two(p, next));
#else
        v_store(s + j, p);
        v_store(s + j + VW, next);
#endif
    }
    return v_sum(sum);
}

/* All maxima first: the lines do not wait for each other. */
static void soften_block(const page_task *k, const page_block *b) {
    const op_attr *at = k->c->attr;
    int64_t first = b->first * k->t->pieces, step = k->t->pieces;
    float scale = score_scale(at);
    for (int64_t l = 0; l < b->n; l++)
        k->max[first + l * step] = find_max(at, b->s + l * LINE, b->seen[l], scale);
    for (int64_t l = 0; l < b->n; l++)
        k->sum[first + l * step] =
            exponentiate(b->s + l * LINE, b->seen[l], scale, k->max[first + l * step]);
}

/* Finds the rows of values of keys [from, to): pieces of pages, or pairs. */
static void find_values(const page_task *k, page_block *b, int64_t from, int64_t to) {
    int64_t n = 0, i = 0, j = from, bytes = v_element_bytes(k->c->in[1].dt);
    if (b->from == from && b->to == to) return;
    while (j < to) {
        while (j >= k->run_key[i] + k->runs[i].rows) i++;
        page_rows r = k->runs[i];
        int64_t left = att_min(to, k->run_key[i] + r.rows) - j;
        r.data = (const char *)r.data + (j - k->run_key[i]) * r.step * bytes;
        r.unit = V_DOT_BF16 ? j / 2 : j;
        r.second = V_DOT_BF16 && j % 2 == 1;
        r.rows = r.second ? 1 : V_DOT_BF16 && left > 1 ? left / 2 * 2 : left;
        if (r.rows == 1 && V_DOT_BF16 && !r.second &&
            j + 1 < to) { /* its second is in the next page */
            r.step = ((const char *)k->runs[i + 1].data - (const char *)r.data) / bytes;
            r.rows = 2;
        }
        j += r.rows;
        b->rows[n++] = r;
    }
    b->from = from, b->to = to, b->n_rows = n;
}

/* o += weights times the values of keys [from, to), of L lines. */
static void mix_lines(const page_task *k, page_block *b, int64_t line, int L, int64_t from,
                      int64_t to) {
    int64_t ld = part_floats(k->c->attr), Dv = k->c->attr->paged.Dv, W = page_vectors(b->n);
    int64_t wide = Dv / (W * VW) * (W * VW);
    page_product p = {
        .a = b->s + line * LINE, .c = b->o + line * ld, .ld = ld, .n = VW, .dt = k->c->in[1].dt};
    if (from >= to) return;
    find_values(k, b, from, to);
    if (wide > 0) page_mix(&p, b->rows, b->n_rows, 0, wide, L, (int)W);
    if (wide < Dv / VW * VW) page_mix(&p, b->rows, b->n_rows, wide, Dv / VW * VW, L, 1);
    p.n = Dv % VW;
    if (p.n > 0) page_mix(&p, b->rows, b->n_rows, Dv - p.n, Dv, L, 1);
}

/* Keys that all of L lines see, in whole pairs; none: {0, 0}. */
V_INLINE page_view common_view(const page_view *seen, int L) {
    int64_t unit = V_DOT_BF16 ? 2 : 1, high = seen[0].high / unit * unit;
    int64_t low = att_round(seen[L - 1].low, unit);
    return low < high ? (page_view){low, high} : (page_view){0, 0};
}

/* Of lines [line, line + n), how many see what the first sees, and are multiplied together. */
static int alike(const page_block *b, int64_t line, int n) {
    const page_view *seen = b->seen + line;
    int same = 1;
    while (same < n && seen[same].low == seen[0].low && seen[same].high == seen[0].high) same++;
    return page_lines(same);
}

/* First the keys before those that all of a group see, then these, then what is behind them: each
 * number is added up in the order of the keys. */
static void mix_group(const page_task *k, page_block *b, int64_t line, int L) {
    const page_view *seen = b->seen + line;
    page_view all = common_view(seen, L);
    for (int l = 0, n; l < L; l += n) {
        n = alike(b, line + l, L - l);
        mix_lines(k, b, line + l, n, seen[l].low, all.high ? all.low : seen[l].high);
    }
    if (!all.high) return;
    mix_lines(k, b, line, L, all.low, all.high);
    for (int l = 0, n; l < L; l += n) {
        n = alike(b, line + l, L - l);
        mix_lines(k, b, line + l, n, all.high, seen[l].high);
    }
}

V_INLINE page_view view_of_line(const page_task *k, int64_t line) {
    return look_at_piece(k->c, k->t->row + line / group_of(k->c->attr), k->piece);
}

static void look_at_block(const page_task *k, page_block *b) {
    int64_t G = group_of(k->c->attr), row = b->first / G, head = b->first % G;
    for (int64_t l = 0; l < b->n; l++) {
        b->seen[l] =
            l > 0 && head > 0 ? b->seen[l - 1] : look_at_piece(k->c, k->t->row + row, k->piece);
        if (++head == G) head = 0, row++;
    }
}

/* Each line of the block sees some key of the piece. */
static void attend_block(const page_task *k, page_block *b) {
    int64_t Dvp = part_floats(k->c->attr);
    b->o = k->parts + b->first * Dvp;
    look_at_block(k, b);
    WITH_DTYPE(k->c->in[0].dt, pack_lines, k, b->first, b->n, b->q);
    for (int64_t l = 0; l < b->n; l += page_lines(b->n - l))
        score_lines(k, b, l, page_lines(b->n - l));
    soften_block(k, b);
    memset(b->o, 0, (size_t)(b->n * Dvp) * sizeof(float));
    for (int64_t l = 0; l < b->n; l += page_lines(b->n - l))
        mix_group(k, b, l, page_lines(b->n - l));
}

static void attend_task(page_task *k, float *room) {
    int64_t line = 0, end = k->lines;
    find_pages(k, (char *)(room + block_floats(k->c->attr)));
    while (line < end && view_of_line(k, line).high <= 0) line++;
    while (line < end && view_of_line(k, end - 1).low >= PIECE) end--;
    for (; line < end; line += LINES) {
        page_block b;
        b.first = line, b.n = att_min(end - line, LINES), b.from = b.to = 0;
        b.s = room, b.q = room + LINES * LINE;
        attend_block(k, &b);
    }
}

/* ---- waves ---- */

/* A kv head of a tile, by number: tile after tile. */
typedef struct page_unit {
    int64_t tile, kv;
} page_unit;

V_INLINE int64_t lines_of(const page_job *job, const page_tile *t) {
    return t->rows * group_of(job->c->attr);
}
V_INLINE int64_t tasks_before(const page_job *job, page_unit u) {
    return job->tiles[u.tile].tasks + u.kv * job->tiles[u.tile].pieces;
}
V_INLINE int64_t lines_before(const page_job *job, page_unit u) {
    const page_tile *t = &job->tiles[u.tile];
    return (int64_t)t->row * job->c->attr->paged.H + u.kv * lines_of(job, t);
}
V_INLINE int64_t slots_before(const page_job *job, page_unit u) {
    const page_tile *t = &job->tiles[u.tile];
    return t->slots + u.kv * t->pieces * lines_of(job, t);
}

static page_unit unit_after(const page_job *job, page_unit u) {
    return u.kv + 1 < job->c->attr->paged.K ? (page_unit){u.tile, u.kv + 1}
                                            : (page_unit){u.tile + 1, 0};
}

/* The end of the wave that begins with u. */
static page_unit end_of_wave(const page_job *job, page_unit u) {
    int64_t most = slots_before(job, u) + job->room;
    while (u.tile < job->n_tiles) {
        page_unit next = unit_after(job, u);
        if (slots_before(job, next) > most) break;
        u = next;
    }
    return u;
}

/* The tile of a task, by bisection. */
static int64_t tile_of_task(const page_job *job, int64_t number) {
    int64_t low = 0, high = job->n_tiles;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (job->tiles[middle].tasks <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A piece of a unit whose results begin with slot `slot`; kv heads [first, end) are taken beside
 * it. */
static void attend(const page_job *job, page_unit u, int64_t piece, int64_t slot, int64_t first,
                   int64_t end) {
    const op_call *c = job->c;
    const page_tile *t = &job->tiles[u.tile];
    page_task k; /* its lists are long, and are filled as far as they are used */
    k.c = c, k.t = t, k.lines = lines_of(job, t), k.n_vectors = k.n_runs = 0;
    k.kv = u.kv, k.kv_first = first, k.kv_end = end, k.piece = t->first + piece;
    k.parts = job->parts + (slot + piece * k.lines) * part_floats(c->attr);
    k.max = job->max + slot + piece, k.sum = job->sum + slot + piece;
    attend_task(&k, job->rooms + omp_get_thread_num() * thread_floats(c->attr, !c->in[2].data));
}

/* Task `number` of the wave from u to `end`. The kv heads of a piece follow each other: their keys
 * are neighbours. */
static void attend_number(const page_job *job, int64_t number, page_unit u, page_unit end) {
    int64_t tile = tile_of_task(job, number), first = tile == u.tile ? u.kv : 0;
    int64_t behind = tile == end.tile ? end.kv : job->c->attr->paged.K, heads = behind - first;
    number -= tasks_before(job, (page_unit){tile, first});
    page_unit mine = {tile, first + number % heads};
    attend(job, mine, number / heads, slots_before(job, mine) - slots_before(job, u), first,
           behind);
}

/* The maximum of each of n pieces becomes its weight 2^(max_i - max); returns the sum of weights, with
 * that of the sink, one more score in units of log 2; -inf: none. */
V_INLINE float weigh(float *max, const float *sum, int64_t n, float sink) {
    vf all = v_zero();
    float most = sink;
    for (int64_t i = 0; i < n; i++) most = max[i] > most ? max[i] : most;
    if (most == -INFINITY) most = 0.0f;
    FOR_VECTORS(n, i, left) {
        vf weight = att_exp2(get_upto(max, i, left, DT_F32) - most, false);
        put_upto(max, i, weight, left, DT_F32);
        all = v_fma(weight, get_upto(sum, i, left, DT_F32), all);
    }
    return v_sum(all) + exp2f(sink - most);
}

/* o = sum over the pieces of a query of weight part, over the sum of weights. slot: of the unit. */
V_INLINE void join_line(const page_job *job, const page_tile *t, int64_t kv, int64_t line,
                        int64_t slot, dtype dt) {
    const op_call *c = job->c;
    int64_t Dvp = part_floats(c->attr), Dv = c->attr->paged.Dv, G = group_of(c->attr);
    int64_t lines = lines_of(job, t), row = t->row + line / G;
    page_view seen = look(c, row);
    int64_t first = seen.low / PIECE - t->first;
    int64_t n = (seen.high + PIECE - 1) / PIECE - t->first - first;
    const float *part = job->parts + (slot + first * lines + line) * Dvp;
    float *max = job->max + slot + line * t->pieces + first;
    float sink =
        c->in[PAGE_ATTENTION_SINKS].data
            ? ((const float *)c->in[PAGE_ATTENTION_SINKS].data)[kv * G + line % G] * ATT_LOG2E
            : -INFINITY;
    float all = weigh(max, job->sum + (max - job->max), n, sink),
          inv = all == 0.0f ? 0.0f : 1.0f / all;
    int64_t to = row * c->out[0].ld + (kv * G + line % G) * Dv;
    FOR_VECTORS(Dv, d, left) {
        vf acc = v_zero();
        for (int64_t i = 0; i < n; i++)
            acc = v_fma(v_set1(max[i]), v_load(part + i * lines * Dvp + d), acc);
        put_upto(c->out[0].data, to + d, acc * inv, left, dt);
    }
}

/* Lines [from, to) of a wave, by number: unit after unit, from u on. */
V_INLINE void join(const page_job *job, page_unit u, int64_t from, int64_t to, int64_t base,
                   dtype dt) {
    while (from < to) {
        page_unit next = unit_after(job, u);
        for (; from < to && from < lines_before(job, next); from++)
            join_line(job, &job->tiles[u.tile], u.kv, from - lines_before(job, u),
                      slots_before(job, u) - base, dt);
        u = next;
    }
}

/* ---- the op ---- */

static int64_t room_for(const op_attr *at, int64_t columns, int threads) {
    int64_t pieces = (columns * at->paged.page + PIECE - 1) / PIECE;
    return att_max(tile_rows(at) * group_of(at) * (pieces + 1), (int64_t)SLOTS * threads);
}

static void page_attention_workspace(const op_infer *io, int64_t ws[3]) {
    int64_t room = room_for(io->attr, io->in[3].cols, dev_threads(io->dev));
    int64_t floats = room * (part_floats(io->attr) + 2) +
                     dev_threads(io->dev) * thread_floats(io->attr, io->in[2].rows == 0);
    ws[0] = floats * (int64_t)sizeof(float) + (io->in[0].rows + 1) * (int64_t)sizeof(page_tile);
}

static page_job make_job(const op_call *c) {
    page_job job = {.c = c, .room = room_for(c->attr, c->in[3].cols, call_threads(c))};
    job.tiles = c->ws;
    job.parts = (float *)(job.tiles + c->in[0].rows + 1);
    job.max = job.parts + job.room * part_floats(c->attr);
    job.sum = job.max + job.room;
    job.rooms = job.sum + job.room;
    make_tiles(&job);
    return job;
}

/* By all threads of a team. Neighbouring tasks read neighbouring keys: a thread takes some at a
 * time. */
static void run_wave(const page_job *job, page_unit u, page_unit end) {
    int64_t base = slots_before(job, u), team = omp_get_num_threads(), me = omp_get_thread_num();
    int64_t first = tasks_before(job, u), behind = tasks_before(job, end);
    int64_t lines = lines_before(job, u), n_lines = lines_before(job, end) - lines;
    int64_t share = att_max((behind - first) / (team * SHARES), 1);
#pragma omp for schedule(dynamic, share)
    for (int64_t i = first; i < behind; i++) attend_number(job, i, u, end);
    WITH_DTYPE(job->c->out[0].dt, join, job, u, lines + n_lines * me / team,
               lines + n_lines * (me + 1) / team, base);
#pragma omp barrier
}

/* Whether so many kv heads of any tile are but a small share of the work, and a thread has room for
 * their results: then each is done by one thread, and threads do not wait for each other. */
static bool heads_are_small(const page_job *job, int64_t heads, int threads) {
    int64_t K = job->c->attr->paged.K, all = job->tiles[job->n_tiles].slots;
    for (int64_t i = 0; i < job->n_tiles; i++) {
        int64_t slots = (job->tiles[i + 1].slots - job->tiles[i].slots) / K * heads;
        if (slots > SLOTS || slots * LEAST_WORKS * threads > all) return false;
    }
    return true;
}

/* The kv heads of a tile from number `work` times `heads` on. */
static void run_heads(const page_job *job, int64_t work, int64_t heads) {
    int64_t in_tile = job->c->attr->paged.K / heads, first = work % in_tile * heads;
    const page_tile *t = &job->tiles[work / in_tile];
    int64_t slot = omp_get_thread_num() * (int64_t)SLOTS, lines = lines_of(job, t);
    for (int64_t i = 0; i < t->pieces * heads; i++) {
        page_unit u = {work / in_tile, first + i % heads};
        attend(job, u, i / heads, slot + i % heads * t->pieces * lines, first, first + heads);
    }
    for (int64_t i = 0; i < lines * heads; i++)
        WITH_DTYPE(job->c->out[0].dt, join_line, job, t, first + i / lines, i % lines,
                   slot + i / lines * t->pieces * lines);
}

static void page_attention_fwd(const op_call *c) {
    page_job job = make_job(c);
    int64_t width = c->attr->paged.D + c->attr->paged.Dv, K = c->attr->paged.K;
    bool tiny = job.tiles[job.n_tiles].tasks * PIECE * width < 1 << 15;
    int threads = tiny ? 1 : call_threads(c);
    int64_t heads = heads_are_small(&job, K, threads) ? K : heads_are_small(&job, 1, threads);
#pragma omp parallel num_threads(threads)
    if (heads > 0) {
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < job.n_tiles * K / heads; i++) run_heads(&job, i, heads);
    } else {
        for (page_unit u = {0, 0}, end; u.tile < job.n_tiles; u = end) {
            end = end_of_wave(&job, u);
            run_wave(&job, u, end);
        }
    }
}

const op_impl CPU_FN(cpu_page_attention) = {page_attention_fwd, NULL, NULL,
                                            page_attention_workspace};
