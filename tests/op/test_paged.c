/* PAGE_STORE and PAGE_ATTENTION together: what a row comes to is that of the plain formula, and has
 * the same bits alone and among others, wherever its pages lie, with any number of threads. What a
 * row does not see is NaN. */
#include "op/harness.h"

enum { SEQS = 4, LONGEST = 330, MOST_ROWS = 90 };

typedef struct shape {
    int page, H, K, D, Dv, window;
    float softcap;
    int spare;    /* pages that a sequence has room for beyond those it needs */
    bool in_keys; /* a value is the first columns of its key */
} shape;

/* Odd sizes, and what models have: heads of 64 to 256, up to 16 and 24 queries for a key. */
static const shape SHAPES[] = {
    {32, 9, 3, 64, 64, 0, 0, 0, false},     {16, 4, 4, 80, 80, 50, 0, 0, false},
    {8, 6, 1, 96, 96, 0, 1.5f, 0, false},   {32, 16, 1, 128, 128, 0, 0, 0, false},
    {5, 3, 1, 33, 33, 37, 0, 0, false},     {32, 2, 2, 256, 256, 0, 0, 0, false},
    {64, 8, 2, 64, 48, 200, 0, 0, false},   {1, 2, 1, 20, 12, 131, 0, 0, false},
    {256, 12, 4, 8, 40, 0, 0.5f, 0, false}, {7, 24, 1, 16, 16, 129, 0, 0, false},
    {32, 65, 1, 32, 32, 0, 0, 0, false},    {16, 40, 8, 32, 32, 90, 0, 0, false},
    {32, 2, 1, 8, 8, 0, 0, 19000, false},   {32, 16, 1, 144, 128, 0, 0, 0, true},
    {5, 7, 1, 33, 20, 37, 0, 0, true},      {16, 6, 2, 24, 24, 0, 1.5f, 0, true},
};

/* A cache with the beginnings of some sequences. */
typedef struct world {
    const shape *sh;
    dev *d;
    dtype dt;
    bool narrow; /* the cache is f16 */
    int64_t of_seq;
    buf k, v, pages;
} world;

typedef struct place {
    int32_t seq, pos;
} place;

/* What token `pos` of a sequence has in column i of its queries (0), keys (1) or values (2). */
static double number(int which, place p, int64_t i) {
    return uniform((uint64_t)(which * SEQS + p.seq + 7), p.pos * 20000 + i, which ? 1.0 : 1.4);
}

static op_attr attr_of(const shape *s) {
    return (op_attr){.paged = {.page = s->page,
                               .H = s->H,
                               .K = s->K,
                               .D = s->D,
                               .Dv = s->Dv,
                               .window = s->window,
                               .scale = 1.0f / sqrtf((float)s->D),
                               .softcap = s->softcap}};
}

/* Infers and runs a call whose inputs, and output where it is in place, are there. */
static void run_call(op_call *c, dev *d, op_kind kind, dtype dt, bool in_place, buf *out) {
    op_infer io = {.kind = kind, .attr = c->attr, .dev = d};
    op_run run = {.dev = d, .first_micro = true};
    err e;
    for (int i = 0; i < OP_MAX_IN; i++) io.in[i] = c->in[i];
    if (op_infer_call(&io, &e) != ST_OK) fail_msg("%s", e.message);
    if (!in_place) *out = buf_new(io.out[0].dt, io.out[0].rows, io.out[0].cols, 3, 0);
    buf ws = buf_new(DT_U8, 1, io.fwd.ws_bytes, 0, 0);
    c->kind = kind, c->run = &run, c->ws = ws.t.data, c->ws_bytes = io.fwd.ws_bytes;
    c->out[0] = in_place ? c->in[0] : out->t;
    side_run(c, op_find(d, kind, dt)->fwd);
    assert_true(buf_guards_hold(&ws) && (in_place || buf_guards_hold(out)));
    buf_free(&ws);
}

static buf rows_of(const world *w, int which, const place *at, int64_t n, int64_t cols) {
    buf b = buf_new(w->dt, n, cols, 0, 0);
    for (int64_t i = 0; i < n * cols; i++)
        tensor_set(&b.t, i, number(which, at[i / cols], i % cols));
    return b;
}

/* Keys or values of a sequence's first n tokens, some at a time. */
static void store(world *w, int which, int32_t seq, int32_t n) {
    const shape *s = w->sh;
    op_attr attr = {.paged = {.page = s->page, .K = s->K, .turned = which == 1}};
    for (int32_t first = 0, rows; first < n; first += rows) {
        place at[50];
        rows = n - first < 50 ? n - first : 50;
        for (int32_t i = 0; i < rows; i++) at[i] = (place){seq, first + i};
        buf src = rows_of(w, which, at, rows, s->K * (which == 1 ? s->D : s->Dv));
        buf to = buf_new(DT_I32, rows, 1, 0, 0);
        for (int32_t i = 0; i < rows; i++) {
            double page = tensor_get(&w->pages.t, seq * w->of_seq + at[i].pos / s->page);
            tensor_set(&to.t, i, page * s->page + at[i].pos % s->page);
        }
        op_call c = {.attr = &attr, .in = {which == 1 ? w->k.t : w->v.t, src.t, to.t}};
        run_call(&c, w->d, OP_PAGE_STORE, w->dt, true, NULL);
        buf_free(&src), buf_free(&to);
    }
}

/* Sequences of these lengths, whose pages are `turn` apart in the cache. */
static void world_open(world *w, const shape *s, dev *d, dtype dt, bool narrow, const int32_t *n,
                       int64_t turn) {
    int64_t need = (LONGEST + s->page - 1) / s->page, pages = SEQS * need + 1, given = 0;
    *w = (world){s, d, dt, narrow, need + s->spare, {0}, {0}, {0}};
    dtype cache = narrow ? DT_F16 : dt;
    w->k = buf_new(cache, pages * s->K * s->D, s->page, 0, 0);
    w->v = buf_new(cache, pages * s->K * s->page, s->Dv, 0, 0);
    w->pages = buf_new(DT_I32, SEQS, w->of_seq, 0, 0);
    for (int64_t i = 0; i < SEQS * w->of_seq; i++) {
        bool used = i % w->of_seq * s->page < n[i / w->of_seq];
        tensor_set(&w->pages.t, i, used ? (double)((given++ * turn + 3) % pages) : -1);
    }
    for (int32_t q = 0; q < SEQS; q++) store(w, 1, q, n[q]), store(w, 2, q, n[q]);
}

static void world_close(world *w) {
    buf_free(&w->k), buf_free(&w->v), buf_free(&w->pages);
}

static buf attend(const world *w, const place *at, int64_t n) {
    op_attr attr = attr_of(w->sh);
    buf q = rows_of(w, 0, at, n, w->sh->H * w->sh->D), to = buf_new(DT_I32, n, 2, 0, 0), o;
    for (int64_t i = 0; i < n; i++)
        tensor_set(&to.t, 2 * i, at[i].seq), tensor_set(&to.t, 2 * i + 1, at[i].pos);
    op_call c = {.attr = &attr, .in = {q.t, w->k.t, w->v.t, w->pages.t, to.t}};
    if (w->sh->in_keys) c.in[2] = (tensor){0};
    run_call(&c, w->d, OP_PAGE_ATTENTION, w->dt, false, &o);
    buf_free(&q), buf_free(&to);
    return o;
}

/* ---- the plain formula ---- */

static double rounded(dtype dt, double x) {
    uint8_t room[8];
    tensor t = {room, dt, 1, 1, 1};
    tensor_set(&t, 0, x);
    return tensor_get(&t, 0);
}

static double stored(const world *w, int which, place p, int64_t i) {
    double x = rounded(w->dt, number(which, p, i));
    return which && w->narrow ? rounded(DT_F16, x) : x;
}

static void formula(const world *w, place p, int64_t h, double *o) {
    const shape *s = w->sh;
    op_attr at = attr_of(s);
    double weight[LONGEST], max = -INFINITY, sum = 0, cap = (double)s->softcap;
    int32_t low = s->window && p.pos >= s->window ? p.pos - s->window + 1 : 0;
    int64_t kv = h * s->K / s->H;
    for (int32_t j = low; j <= p.pos; j++) {
        weight[j] = 0;
        for (int64_t d = 0; d < s->D; d++)
            weight[j] +=
                stored(w, 0, p, h * s->D + d) * stored(w, 1, (place){p.seq, j}, kv * s->D + d);
        weight[j] *= (double)at.paged.scale;
        if (cap > 0) weight[j] = cap * tanh(weight[j] / cap);
        max = fmax(max, weight[j]);
    }
    for (int64_t d = 0; d < s->Dv; d++) o[d] = 0;
    for (int32_t j = low; j <= p.pos; j++) {
        sum += weight[j] = exp(weight[j] - max);
        for (int64_t d = 0; d < s->Dv; d++)
            o[d] += weight[j] * stored(w, s->in_keys ? 1 : 2, (place){p.seq, j},
                                       kv * (s->in_keys ? s->D : s->Dv) + d);
    }
    for (int64_t d = 0; d < s->Dv; d++) o[d] /= sum;
}

static void check_formula(const world *w, place p, const tensor *o, int64_t row) {
    double want[OP_MAX_HEAD_DIM];
    int64_t Dv = w->sh->Dv, h = (p.pos * 5 + p.seq) % w->sh->H; /* one head of each row */
    formula(w, p, h, want);
    for (int64_t d = 0; d < Dv; d++) {
        double got = tensor_get(o, row * o->cols + h * Dv + d);
        if (!(fabs(got - want[d]) <= tolerance(w->dt, w->dt, want[d], 1)))
            fail_msg("position %d, head %d of %d, column %d: %.9g but must be %.9g", p.pos, (int)h,
                     w->sh->H, (int)d, got, want[d]);
    }
}

/* ---- rows among others ---- */

/* Prompts in pieces, rows that write a token, rows that nobody wants, in no order. */
static int64_t mixture(place *at, uint64_t seed, const int32_t *n) {
    int64_t rows = 0, i = 0;
    while (rows < MOST_ROWS) {
        int32_t seq = (int32_t)(uniform(seed, i++, 0.5) * SEQS + SEQS * 0.5);
        int32_t pos = (int32_t)((uniform(seed, i++, 0.5) + 0.5) * n[seq]);
        int64_t run = (int64_t)((uniform(seed, i++, 0.5) + 0.5) * 70), kind = i % 7;
        if (kind == 1) pos = -1;
        if (kind < 4) run = 1;
        for (; run > 0 && pos < n[seq] && rows < MOST_ROWS; run--, pos += pos >= 0)
            at[rows++] = (place){seq, pos};
    }
    return rows;
}

static const void *row_bytes(const tensor *t, int64_t row) {
    return (const char *)t->data + (size_t)(row * t->ld) * dtype_bytes(t->dt);
}

static void check_alone(const world *w, dev *alone, place p, const tensor *o, int64_t row) {
    world one;
    int32_t n[SEQS] = {0};
    size_t bytes = (size_t)o->cols * dtype_bytes(o->dt);
    n[p.seq] = p.pos + 1;
    world_open(&one, w->sh, alone, w->dt, w->narrow, n, 1);
    buf mine = attend(&one, &p, 1);
    if (memcmp(row_bytes(o, row), row_bytes(&mine.t, 0), bytes))
        fail_msg("%s, page %d, H %d, K %d, D %d: position %d alone has other bits",
                 dtype_name(w->dt), w->sh->page, w->sh->H, w->sh->K, w->sh->D, p.pos);
    buf_free(&mine), world_close(&one);
}

/* With one thread alone, and with several among others. */
static void check_shape(const shape *s, dev *alone, dev *among, dtype dt, bool narrow, int probes) {
    static const int32_t n[SEQS] = {LONGEST, 1, 200, 130};
    place at[MOST_ROWS];
    world w;
    world_open(&w, s, among, dt, narrow, n, 7);
    int64_t rows = mixture(at, (uint64_t)s->D, n);
    buf o = attend(&w, at, rows);
    for (int64_t i = 0; i < rows; i++) {
        if (at[i].pos < 0)
            for (int64_t d = 0; d < o.t.cols; d++)
                assert_true(tensor_get(&o.t, i * o.t.cols + d) == 0);
        else if (i * probes / rows != (i + 1) * probes / rows)
            check_formula(&w, at[i], &o.t, i), check_alone(&w, alone, at[i], &o.t, i);
    }
    buf_free(&o), world_close(&w);
}

static void check_isa(const char *isa) {
    dev *alone, *among;
    err e;
    setenv("ATHANOR_ISA", isa, 1);
    if (dev_open(&alone, DEV_CPU, 1, &e) != ST_OK || dev_open(&among, DEV_CPU, 2, &e) != ST_OK)
        fail_msg("%s", e.message);
    unsetenv("ATHANOR_ISA");
    bool available = strcmp(cpu_isa_name(dev_isa(alone)), isa) == 0;
    for (int i = 0; i < ARRAY_LEN(SHAPES) && available; i++) {
        check_shape(&SHAPES[i], alone, among, DT_F32, false, 6);
        check_shape(&SHAPES[i], alone, among, DT_F32, true, 3);
        check_shape(&SHAPES[i], alone, among, DT_BF16, false, 6);
        check_shape(&SHAPES[i], alone, among, DT_F16, false, 2);
    }
    dev_close(alone), dev_close(among);
    if (!available) skip();
}

static void test_base(void **state) {
    (void)state, check_isa("base");
}
static void test_avx2(void **state) {
    (void)state, check_isa("avx2");
}
static void test_avx512(void **state) {
    (void)state, check_isa("avx512");
}
static void test_avx512_bf16(void **state) {
    (void)state, check_isa("avx512_bf16");
}

/* Another order of the threads for the row alone. */
static void test_emulated_gpu(void **state) {
    (void)state;
    static const int some[] = {0, 4, 6, 8, ARRAY_LEN(SHAPES) - 1};
    dev *d[2];
    err e;
    setenv("ATHANOR_CUDA", "emulated", 1);
    for (int i = 0; i < 2; i++) {
        setenv("ATHANOR_CUDA_SEED", i ? "2" : "1", 1);
        if (dev_open(&d[i], DEV_CUDA, 2, &e) != ST_OK) fail_msg("%s", e.message);
    }
    unsetenv("ATHANOR_CUDA"), unsetenv("ATHANOR_CUDA_SEED");
    for (int i = 0; i < ARRAY_LEN(some); i++) {
        check_shape(&SHAPES[some[i]], d[0], d[1], DT_F32, i % 2, 2);
        check_shape(&SHAPES[some[i]], d[0], d[1], i % 2 ? DT_BF16 : DT_F16, false, 2);
    }
    dev_close(d[0]), dev_close(d[1]);
}

int main(int argc, char **argv) {
    (void)argc;
    restart_with_sleeping_threads(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base),         cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),       cmocka_unit_test(test_avx512_bf16),
        cmocka_unit_test(test_emulated_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
