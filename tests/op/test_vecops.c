/* Whole-array operations on every instruction set of this machine against plain loops over the
 * definitions: draws, digests and copies bit for bit, the rest closely; with the same bits for 1, 2
 * and 3 threads, and for any cutting of a tensor into spans. Then on the CPU's twin and on the emulated
 * CUDA device. */
#include "test.h"

#include "base/arena.h"
#include "base/dtype.h"
#include "op/clip.h"
#include "op/vecops.h"

static const char *const ISAS[] = {"base", "avx2", "avx512", "avx512_bf16"};

static dev *open_dev(const char *isa, int threads) {
    dev *d;
    err e = {0};
    setenv("ATHANOR_ISA", isa, 1);
    assert_int_equal(dev_open(&d, DEV_CPU, threads, &e), ST_OK);
    return d;
}

/* Tensors of odd lengths at odd offsets, with gaps between them, an empty one and several blocks.
 */
enum { SPANS = 9, LEN = 90000 };
static const int64_t LENGTHS[SPANS] = {1, 7, VEC_BLOCK, 33, 0, 3 * VEC_BLOCK + 5, 64, 16391, 31};

static vec_spans make_spans(arena *a) {
    vec_spans s = {.item = ARENA_ARRAY(a, vec_span, SPANS), .n = SPANS};
    int64_t at = 3;
    for (int i = 0; i < SPANS; i++) {
        s.item[i] = (vec_span){at,
                               LENGTHS[i],
                               .owner = i,
                               .name = mix64((uint64_t)i),
                               .copy_dt = (dtype[]){DT_BF16, DT_F32, DT_F16}[i % 3],
                               .counted = true};
        at += LENGTHS[i] + i;
    }
    assert_true(at <= LEN);
    vec_spans_index(&s);
    return s;
}

/* The span of element i of the flat array, or -1 in a gap. */
static int span_at(const vec_spans *s, int64_t i) {
    for (int k = 0; k < s->n; k++)
        if (i >= s->item[k].at && i < s->item[k].at + s->item[k].n) return k;
    return -1;
}

static float *make(arena *a, uint32_t seed) {
    float *x = ARENA_ARRAY(a, float, LEN);
    for (int i = 0; i < LEN; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return x;
}

static uint64_t digest(const vec_spans *s, const float *x) {
    uint64_t sum = 0;
    for (int k = 0; k < s->n; k++)
        for (int64_t i = 0; i < s->item[k].n; i++) {
            uint32_t bits;
            memcpy(&bits, &x[s->item[k].at + i], 4);
            sum += mix64(s->item[k].name ^ mix64((uint64_t)i ^ (uint64_t)bits << 32));
        }
    return sum;
}

static void check_copies(const vec_spans *s, const float *x, const uint16_t *copy) {
    for (int i = 0; i < LEN; i++) {
        int k = span_at(s, i);
        dtype dt = k >= 0 ? s->item[k].copy_dt : DT_F32;
        assert_int_equal(copy[i], dt == DT_BF16  ? f32_to_bf16(x[i])
                                  : dt == DT_F16 ? f32_to_f16(x[i])
                                                 : 0);
    }
}

static void test_index(void **state) {
    (void)state;
    arena *a = arena_new("test");
    vec_spans s = make_spans(a);
    static const int64_t first[SPANS] = {0, 1, 2, 3, 4, 4, 8, 9, 11};
    for (int i = 0; i < SPANS; i++) assert_int_equal(s.item[i].first_block, first[i]);
    assert_int_equal(s.blocks, 12);
    int64_t elems = 0;
    for (int i = 0; i < SPANS; i++) elems += LENGTHS[i];
    assert_int_equal(s.elems, elems);
    arena_free(a);
}

/* ---- AdamW ---- */

static vec_update_args make_step(arena *a) {
    static const bool decay[SPANS] = {true, false, true, true, true, true, false, true, false};
    vec_update_args s = {.kind = VEC_ADAMW,
                         .param = make(a, 1),
                         .state = {make(a, 2), make(a, 3)},
                         .grad = make(a, 4)};
    for (int i = 0; i < LEN; i++) s.state[1][i] = fabsf(s.state[1][i]);
    s.param_copy = ARENA_ARRAY(a, uint16_t, LEN);
    s.decay = decay;
    s.lr = 0.01f, s.beta1 = 0.9f, s.beta2 = 0.95f, s.eps = 1e-8f, s.weight_decay = 0.1f;
    s.correction1 = 1.0f - 0.9f * 0.9f, s.correction2 = 1.0f - 0.95f * 0.95f, s.grad_scale = 0.5f;
    return s;
}

static void check_step(const vec_update_args *old, const vec_update_args *now, int i, bool decay) {
    double g = (double)old->grad[i] * 0.5, p = (double)old->param[i];
    double m = 0.9 * (double)old->state[0][i] + 0.1 * g,
           v = 0.95 * (double)old->state[1][i] + 0.05 * g * g;
    double root = sqrt(v / (double)old->correction2);
    double want = p - (decay ? 0.01 * 0.1 * p : 0.0);
    want -= 0.01 * (m / (double)old->correction1) / (root + 1e-8);
    assert_true(fabs((double)now->state[0][i] - m) < 1e-6);
    assert_true(fabs((double)now->state[1][i] - v) < 1e-6);
    assert_true(fabs((double)now->param[i] - want) < 1e-6 + 1e-5 * fabs(want - p));
}

static void check_unchanged(const vec_update_args *old, const vec_update_args *now, int i) {
    assert_true(now->param[i] == old->param[i] && now->state[0][i] == old->state[0][i] &&
                now->state[1][i] == old->state[1][i]);
}

static void test_adamw(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        vec_spans s = make_spans(a);
        vec_update_args old = make_step(a), one = make_step(a);
        dev *d = open_dev(ISAS[isa], 1);
        vec_update(d, &s, &one, NULL);
        dev_close(d);
        for (int i = 0; i < LEN; i++) {
            int k = span_at(&s, i);
            if (k < 0)
                check_unchanged(&old, &one, i);
            else
                check_step(&old, &one, i, old.decay[k]);
        }
        check_copies(&s, one.param, one.param_copy);
        for (int threads = 1; threads <= 3; threads++) {
            vec_update_args many = make_step(a);
            uint64_t sum = 0;
            d = open_dev(ISAS[isa], threads);
            vec_update(d, &s, &many, &sum);
            dev_close(d);
            assert_memory_equal(one.param, many.param, LEN * sizeof(float));
            assert_memory_equal(one.state[0], many.state[0], LEN * sizeof(float));
            assert_memory_equal(one.state[1], many.state[1], LEN * sizeof(float));
            assert_memory_equal(one.param_copy, many.param_copy, LEN * sizeof(uint16_t));
            assert_true(sum == digest(&s, one.param));
        }
        arena_free(a);
    }
}

static void test_adamw_without_copies(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        vec_spans s = make_spans(a);
        vec_update_args with = make_step(a), without = make_step(a);
        without.param_copy = NULL;
        dev *d = open_dev(ISAS[isa], 2);
        vec_update(d, &s, &with, NULL);
        vec_update(d, &s, &without, NULL);
        assert_memory_equal(with.param, without.param, LEN * sizeof(float));
        dev_close(d), arena_free(a);
    }
}

/* ---- sums ---- */

/* One block after the other in every thread count; NaN outside of the spans does not count. */
static void test_sum_squares(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        vec_spans s = make_spans(a);
        float *x = make(a, 7);
        double want = 0.0, one = 0.0;
        for (int i = 0; i < LEN; i++) {
            if (span_at(&s, i) < 0)
                x[i] = NAN;
            else
                want += (double)x[i] * (double)x[i];
        }
        for (int threads = 1; threads <= 3; threads++) {
            dev *d = open_dev(ISAS[isa], threads);
            double got = vec_sum_squares(d, &s, x);
            if (threads == 1) one = got;
            assert_true(got == one);
            dev_close(d);
        }
        assert_true(fabs(one - want) <= 1e-12 * want);
        arena_free(a);
    }
}

/* More blocks than are summed at a time: many tensors of one element. */
static void test_sum_of_many_tensors(void **state) {
    (void)state;
    enum { N = 10001 };
    arena *a = arena_new("test");
    float *x = make(a, 11);
    vec_spans s = {.item = ARENA_ARRAY(a, vec_span, N), .n = N};
    double want = 0.0;
    for (int i = 0; i < N; i++) {
        s.item[i] = (vec_span){.at = i, .n = 1, .counted = true};
        want += (double)x[i] * (double)x[i];
    }
    vec_spans_index(&s);
    dev *d = open_dev("avx2", 2);
    assert_true(vec_sum_squares(d, &s, x) == want); /* added one by one, in order */
    s.n = 0;
    vec_spans_index(&s);
    assert_true(vec_sum_squares(d, &s, x) == 0.0);
    dev_close(d), arena_free(a);
}

/* ---- fixed point ---- */

/* Any magnitude up to the largest, both signs. */
static int64_t *make_fixed(arena *a, uint64_t seed) {
    int64_t *x = ARENA_ARRAY(a, int64_t, LEN);
    for (int i = 0; i < LEN; i++) x[i] = (int64_t)mix64(seed + (uint64_t)i) >> (i % 64);
    x[3] = INT64_MIN, x[4] = INT64_MAX;
    return x;
}

static void test_sum_squares_fixed(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        vec_spans s = make_spans(a);
        s.item[7].counted = false;
        int64_t *x = make_fixed(a, 5);
        uint64_t want[VEC_LIMBS] = {0};
        for (int i = 0; i < LEN; i++) {
            int k = span_at(&s, i);
            if (k < 0 || !s.item[k].counted) continue;
            uint64_t m = x[i] < 0 ? 0 - (uint64_t)x[i] : (uint64_t)x[i];
            unsigned __int128 square = (unsigned __int128)m * m;
            for (int w = 0; w < 4; w++) want[w] += (uint32_t)(square >> (32 * w));
        }
        for (int w = 0; w + 1 < VEC_LIMBS; w++) {
            want[w + 1] += want[w] >> 32;
            want[w] &= 0xffffffffu;
        }
        for (int threads = 1; threads <= 3; threads++) {
            int64_t got[VEC_LIMBS];
            dev *d = open_dev(ISAS[isa], threads);
            vec_sum_squares_fixed(d, &s, x, got);
            assert_memory_equal(got, want, sizeof want);
            dev_close(d);
        }
        arena_free(a);
    }
}

/* The value does not depend on where carries stand, as in sums of limbs over ranks. */
static void test_limbs_value(void **state) {
    (void)state;
    int64_t plain[VEC_LIMBS] = {0, 0, 0, 16}, carried[VEC_LIMBS] = {0, 0, INT64_C(15) << 32, 1};
    assert_true(vec_limbs_value(plain) == ldexp(16, 96 - 2 * FIXED_GRAD_BITS));
    assert_true(vec_limbs_value(carried) == vec_limbs_value(plain));
    int64_t x[1] = {INT64_C(3) << FIXED_GRAD_BITS}, limb[VEC_LIMBS];
    vec_span span = {.n = 1, .counted = true};
    vec_spans s = {.item = &span, .n = 1};
    vec_spans_index(&s);
    dev *d = open_dev("avx2", 1);
    vec_sum_squares_fixed(d, &s, x, limb);
    assert_true(vec_limbs_value(limb) == 9.0);
    dev_close(d);
}

/* An update from fixed point is the one from those gradients rounded once. */
static void test_adamw_fixed(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        vec_spans s = make_spans(a);
        dev *d = open_dev(ISAS[isa], 2);
        for (uint64_t seed = 0; seed < 8; seed++) {
            int64_t *fixed = make_fixed(a, seed);
            float *grad = ARENA_ARRAY(a, float, LEN);
            for (int i = 0; i < LEN; i++) { /* halfway between two floats, or just beside */
                if (i % 3 == 0) fixed[i] = (int64_t)((uint64_t)(fixed[i] | 1) << 30) | (i % 5 - 2);
                grad[i] = (float)((long double)fixed[i] * 0x1p-50L);
            }
            vec_update_args want = make_step(a), got = make_step(a);
            want.grad = grad;
            got.grad = NULL, got.grad_fixed = fixed;
            vec_update(d, &s, &want, NULL);
            vec_update(d, &s, &got, NULL);
            assert_memory_equal(want.param, got.param, LEN * sizeof(float));
            assert_memory_equal(want.state[0], got.state[0], LEN * sizeof(float));
            assert_memory_equal(want.state[1], got.state[1], LEN * sizeof(float));
        }
        dev_close(d), arena_free(a);
    }
}

static void test_digest(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        vec_spans s = make_spans(a);
        float *x = make(a, 5);
        x[s.item[5].at + 4] = NAN, x[s.item[5].at + 5] = -0.0f;
        for (int threads = 1; threads <= 3; threads++) {
            dev *d = open_dev(ISAS[isa], threads);
            assert_true(vec_digest(d, &s, x) == digest(&s, x));
            dev_close(d);
        }
        arena_free(a);
    }
}

/* ---- initial values ---- */

static vec_rule *make_rules(arena *a) {
    vec_rule *r = ARENA_ARRAY(a, vec_rule, SPANS);
    for (int i = 0; i < SPANS; i++)
        r[i] = (vec_rule){.normal = i != 3 && i != 6,
                          .value = i == 3 ? 1.0f : 0.0f,
                          .std = 0.02 * (i + 1) * (i == 2 ? 1e30 : 1.0), /* also beyond float */
                          .cut = i == 5 || i == 7 ? 1.0 + i / 8.0 : 0,
                          .key = rng_key_numbered(17, (uint64_t)i)};
    return r;
}

/* Element i by the definition: try t has the bits of counter (i / 2, t). */
static float draw_one(const vec_rule *r, uint64_t i) {
    if (!r->normal) return r->value;
    for (uint64_t try = 0;; try++) {
        uint32_t bits[4];
        rng_block(r->key, i >> 1, try, bits);
        uint64_t word =
            i & 1 ? (uint64_t)bits[3] << 32 | bits[2] : (uint64_t)bits[1] << 32 | bits[0];
        float x = (float)(r->std * (rng_normal_from_bits(word) * 0x1p-24));
        if (r->cut == 0 || fabsf(x) <= (float)(r->cut * r->std)) return x;
    }
}

static void draw_plainly(const vec_spans *s, const vec_rule *r, float *x) {
    for (int k = 0; k < s->n; k++)
        for (int64_t i = 0; i < s->item[k].n; i++)
            x[s->item[k].at + i] = draw_one(&r[k], (uint64_t)i);
}

static void test_draw(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        vec_spans s = make_spans(a);
        vec_rule *rule = make_rules(a);
        float *want = ARENA_ARRAY(a, float, LEN);
        draw_plainly(&s, rule, want);
        for (int threads = 1; threads <= 3; threads++) {
            float *x = ARENA_ARRAY(a, float, LEN);
            uint16_t *copy = ARENA_ARRAY(a, uint16_t, LEN), *again = ARENA_ARRAY(a, uint16_t, LEN);
            dev *d = open_dev(ISAS[isa], threads);
            vec_draw(d, &s, rule, x, copy);
            assert_memory_equal(x, want, LEN * sizeof(float));
            check_copies(&s, x, copy);
            vec_round(d, &s, x, again);
            assert_memory_equal(copy, again, LEN * sizeof(uint16_t));
            memset(x, 0, LEN * sizeof(float));
            vec_draw(d, &s, rule, x, NULL);
            assert_memory_equal(x, want, LEN * sizeof(float));
            dev_close(d);
        }
        arena_free(a);
    }
}

/* Many more draws, from several keys: rare tails and every part of the table's centre. */
static void test_draw_many(void **state) {
    (void)state;
    enum { N = 1 << 19 };
    float *want = malloc(N * sizeof *want), *x = malloc(N * sizeof *x);
    for (uint64_t seed = 0; seed < 4; seed++) {
        vec_rule rule = {.normal = true, .std = 0.02, .key = rng_key_named(seed, "many")};
        vec_span span = {.at = 0, .n = N, .counted = true};
        vec_spans s = {.item = &span, .n = 1};
        vec_spans_index(&s);
        rng_fill_normal(rule.key, 0, want, N, rule.std);
        for (int isa = 0; isa < 4; isa++) {
            dev *d = open_dev(ISAS[isa], 2);
            vec_draw(d, &s, &rule, x, NULL);
            assert_memory_equal(x, want, N * sizeof *x);
            dev_close(d);
        }
    }
    free(want), free(x);
}

/* ---- parts of tensors ---- */

enum { ROWS = 131, COLS = 517, WHOLE = ROWS * COLS }; /* odd: pairs of normals straddle rows */

/* What a whole tensor becomes: drawn, updated once. */
typedef struct made {
    float *x, *m;
    uint16_t *copy;
    uint64_t digest, digest_of_update;
    double squares;
} made;

/* grad[i] and v[i] belong to element i of the flat array. */
static made make_tensor(arena *a, dev *d, vec_spans *s, double cut, const float *grad) {
    vec_rule *rule = ARENA_ARRAY(a, vec_rule, s->n);
    bool *decay = ARENA_ARRAY(a, bool, s->n);
    for (int i = 0; i < s->n; i++) {
        rule[i] = (vec_rule){.normal = true, .std = 0.5, .cut = cut, .key = rng_key_named(3, "w")};
        decay[i] = true;
    }
    vec_spans_index(s);
    made w = {.x = ARENA_ARRAY(a, float, LEN),
              .m = ARENA_ARRAY(a, float, LEN),
              .copy = ARENA_ARRAY(a, uint16_t, LEN)};
    vec_draw(d, s, rule, w.x, w.copy);
    w.digest = vec_digest(d, s, w.x);
    w.squares = vec_sum_squares(d, s, w.x);
    vec_update_args step = make_step(a);
    step.param = w.x, step.state[0] = w.m, step.state[1] = ARENA_ARRAY(a, float, LEN);
    step.param_copy = w.copy, step.decay = decay, step.grad = grad;
    vec_update(d, s, &step, &w.digest_of_update);
    return w;
}

/* Cuts a span at odd places into `cuts` + 1 spans, with an empty one among them. */
static void cut_span(vec_spans *out, const vec_span *whole, int cuts, uint64_t seed) {
    int64_t from = 0;
    for (int i = 0; i <= cuts; i++) {
        int64_t left = whole->n - from, n = left;
        if (i < cuts) n = i == 1 ? 0 : (int64_t)(mix64(seed + i) % (uint64_t)(2 * left / 3 + 1));
        vec_span s = *whole;
        s.at += from, s.skip += from, s.n = n;
        out->item[out->n++] = s;
        from += n;
    }
}

/* Parts of the matrix behind each other, each cut into ranges: two parts of columns, then, when
 * by_rows, two of rows; of each range every third is held a second time, not counted. */
static vec_spans cut_matrix(arena *a, int64_t border, bool by_rows, int cuts) {
    vec_spans s = {.item = ARENA_ARRAY(a, vec_span, 4 * (cuts + 1))};
    vec_span part = {.name = 99, .copy_dt = DT_BF16, .counted = true, .at = 5};
    for (int i = 0; i < 2; i++) {
        int64_t first = i ? border : 0, size = (i ? (by_rows ? ROWS : COLS) : border) - first;
        part.n = size * (by_rows ? COLS : ROWS);
        part.index = by_rows ? first * COLS : first;
        part.run = by_rows ? (i ? 0 : part.n) : size;
        part.stride = COLS;
        cut_span(&s, &part, cuts, (uint64_t)(border + i));
        part.at += part.n + 3;
    }
    int n = s.n;
    for (int i = 0; i < n; i += 3) {
        if (part.at + s.item[i].n > LEN) continue;
        vec_span again = s.item[i];
        again.at = part.at, again.counted = false;
        s.item[s.n++] = again;
        part.at += again.n;
    }
    return s;
}

static void check_cut(const made *whole, const made *cut, const vec_spans *s) {
    int64_t seen = 0;
    for (int k = 0; k < s->n; k++) {
        const vec_span *p = &s->item[k];
        for (int64_t i = 0; i < p->n; i++) {
            int64_t w = vec_whole_index(p, i);
            assert_true(w >= 0 && w < WHOLE);
            assert_true(cut->x[p->at + i] == whole->x[w] && cut->m[p->at + i] == whole->m[w]);
            assert_int_equal(cut->copy[p->at + i], whole->copy[w]);
        }
        if (p->counted) seen += p->n;
    }
    assert_int_equal(seen, WHOLE);
    assert_true(cut->digest == whole->digest);
    assert_true(cut->digest_of_update == whole->digest_of_update);
    assert_true(fabs(cut->squares - whole->squares) < 1e-12 * whole->squares);
}

static void test_parts(void **state) {
    (void)state;
    for (int isa = 0; isa < 4; isa++) {
        arena *a = arena_new("test");
        dev *d = open_dev(ISAS[isa], 2);
        float *grad = make(a, 21), *grad_cut = ARENA_ARRAY(a, float, LEN);
        vec_span all = {.n = WHOLE, .name = 99, .copy_dt = DT_BF16, .counted = true};
        vec_spans one = {.item = &all, .n = 1};
        for (int round = 0; round < 4; round++) {
            double cut = round % 2 ? 1.25 : 0;
            made whole = make_tensor(a, d, &one, cut, grad);
            static const int64_t borders[] = {1, 100, 33, 130};
            vec_spans s = cut_matrix(a, borders[round], round > 1, 3 * round);
            for (int k = 0; k < s.n; k++)
                for (int64_t i = 0; i < s.item[k].n; i++)
                    grad_cut[s.item[k].at + i] = grad[vec_whole_index(&s.item[k], i)];
            made parts = make_tensor(a, d, &s, cut, grad_cut);
            check_cut(&whole, &parts, &s);
        }
        dev_close(d), arena_free(a);
    }
}

/* ---- on the twin ---- */

static void *to_device(dev *d, const void *host, size_t bytes) {
    void *p;
    assert_int_equal(dev_reserve(d, &p, bytes, "an array", NULL), ST_OK);
    dev_write(d, p, host, bytes);
    return p;
}

/* What is there is as it is on the host. */
static void check_back(dev *d, void *at, const void *want, size_t bytes) {
    dev_room room = {0};
    assert_memory_equal(dev_look(d, at, bytes, &room), want, bytes);
    dev_room_free(&room);
    dev_release(d, at, bytes);
}

static vec_update_args step_to_device(dev *d, const vec_update_args *host) {
    vec_update_args s = *host;
    s.param = to_device(d, host->param, LEN * sizeof(float));
    s.state[0] = to_device(d, host->state[0], LEN * sizeof(float));
    s.state[1] = to_device(d, host->state[1], LEN * sizeof(float));
    s.grad = to_device(d, host->grad, LEN * sizeof(float));
    s.param_copy = to_device(d, host->param_copy, LEN * sizeof(uint16_t));
    return s;
}

/* Everything that is done to arrays, on memory that the host does not reach. */
static void test_twin(void **state) {
    (void)state;
    arena *a = arena_new("test");
    vec_spans s = make_spans(a);
    vec_rule rule[SPANS] = {{.value = 0.25f}};
    for (int i = 1; i < SPANS; i++)
        rule[i] = (vec_rule){.normal = true, .std = 0.5, .key = rng_key_numbered(3, (uint64_t)i)};
    int64_t *fixed = make_fixed(a, 4);
    dev *cpu = open_dev("base", 2), *twin;
    assert_int_equal(dev_open(&twin, DEV_TWIN, 2, NULL), ST_OK);
    vec_update_args here = make_step(a), there = step_to_device(twin, &here);
    int64_t *fixed_there = to_device(twin, fixed, LEN * sizeof *fixed);
    dev *const devs[2] = {cpu, twin};
    uint64_t digest[2], updated[2];
    double squares[2];
    int64_t limbs[2][VEC_LIMBS];
    for (int k = 0; k < 2; k++) {
        dev *d = devs[k];
        const vec_update_args *x = k ? &there : &here;
        int64_t *f = k ? fixed_there : fixed;
        vec_draw(d, &s, rule, x->param, NULL);
        vec_round(d, &s, x->param, x->param_copy);
        vec_update(d, &s, x, NULL);
        digest[k] = vec_digest(d, &s, x->param);
        uint64_t now = 0;
        vec_update(d, &s, x, &now);
        updated[k] = now; /* it was waited for */
        squares[k] = vec_sum_squares(d, &s, x->state[0]);
        vec_sum_squares_fixed(d, &s, f, limbs[k]);
        vec_add(d, x->state[0], x->grad, LEN, DT_F32);
        vec_add(d, f + LEN / 2, f, LEN / 2, DT_I64);
    }
    assert_true(digest[0] == digest[1] && updated[0] == updated[1] && digest[0] != updated[0]);
    assert_true(squares[0] == squares[1]);
    assert_memory_equal(limbs[0], limbs[1], sizeof limbs[0]);
    check_back(twin, there.param, here.param, LEN * sizeof(float));
    check_back(twin, there.state[0], here.state[0], LEN * sizeof(float));
    check_back(twin, there.state[1], here.state[1], LEN * sizeof(float));
    check_back(twin, (void *)(uintptr_t)there.grad, here.grad, LEN * sizeof(float));
    check_back(twin, there.param_copy, here.param_copy, LEN * sizeof(uint16_t));
    check_back(twin, fixed_there, fixed, LEN * sizeof *fixed);
    dev_close(cpu), dev_close(twin), arena_free(a);
}

/* ---- on the emulated CUDA device, where every access of a kernel is watched ---- */

static dev *open_cuda(const char *seed) {
    dev *d;
    err e;
    setenv("ATHANOR_CUDA", "emulated", 1);
    setenv("ATHANOR_CUDA_SEED", seed, 1);
    if (dev_open(&d, DEV_CUDA, 2, &e) != ST_OK) fail_msg("%s", e.message);
    unsetenv("ATHANOR_CUDA");
    unsetenv("ATHANOR_CUDA_SEED");
    return d;
}

/* All work went well. */
static void close_cuda(dev *d) {
    err e;
    dev_sync(d);
    if (dev_check(d, &e) != ST_OK) fail_msg("%s", e.message);
    dev_close(d);
}

static void take_back(dev *d, void *host, const void *at, size_t bytes) {
    dev_read(d, host, at, bytes);
    dev_release(d, (void *)(uintptr_t)at, bytes);
}

static void check_updates_on_cuda(bool fixed, const char *seed) {
    arena *a = arena_new("test");
    vec_spans s = make_spans(a);
    dev *cpu = open_dev("base", 1), *d = open_cuda(seed);
    vec_update_args old = make_step(a), here = make_step(a), got = make_step(a);
    int64_t *grad = make_fixed(a, 3);
    for (int i = 0; i < LEN; i++) grad[i] >>= 16;
    if (fixed) here.grad_fixed = grad;
    vec_update_args there = step_to_device(d, &here);
    if (fixed) there.grad_fixed = to_device(d, grad, LEN * sizeof *grad);
    uint64_t digests[2] = {0};
    vec_update(cpu, &s, &here, NULL);
    vec_update(d, &s, &there, &digests[0]);
    digests[1] = vec_digest(d, &s, there.param);
    take_back(d, got.param, there.param, LEN * sizeof(float));
    take_back(d, got.state[0], there.state[0], LEN * sizeof(float));
    take_back(d, got.state[1], there.state[1], LEN * sizeof(float));
    take_back(d, got.param_copy, there.param_copy, LEN * sizeof(uint16_t));
    dev_release(d, (void *)(uintptr_t)there.grad, LEN * sizeof(float));
    if (fixed) dev_release(d, (void *)(uintptr_t)there.grad_fixed, LEN * sizeof *grad);
    for (int i = 0; i < LEN; i++) {
        if (span_at(&s, i) < 0) check_unchanged(&old, &got, i);
        assert_true(fabsf(got.state[0][i] - here.state[0][i]) <= 1e-7f);
        assert_true(fabsf(got.state[1][i] - here.state[1][i]) <= 1e-7f);
        assert_true(fabsf(got.param[i] - here.param[i]) <= 1e-6f);
    }
    check_copies(&s, got.param, got.param_copy);
    assert_true(digests[0] == digest(&s, got.param) && digests[1] == digests[0]);
    dev_close(cpu), close_cuda(d), arena_free(a);
}

static void test_cuda_updates(void **state) {
    (void)state;
    check_updates_on_cuda(false, "1");
    check_updates_on_cuda(true, "2");
}

/* Sums of floats are close to the CPU's and have the same bits in every order of blocks; the rest has the bits of
 * the CPU. */
static void test_cuda_sums(void **state) {
    (void)state;
    arena *a = arena_new("test");
    vec_spans s = make_spans(a), parts = cut_matrix(a, 100, false, 3);
    vec_spans_index(&parts);
    s.item[7].counted = false;
    float *x = make(a, 7);
    int64_t *fixed = make_fixed(a, 5), limbs[2][VEC_LIMBS];
    double squares[2];
    dev *cpu = open_dev("base", 1);
    for (int k = 0; k < 2; k++) {
        dev *d = open_cuda(k ? "1" : "2");
        float *there = to_device(d, x, LEN * sizeof *x);
        int64_t *fixed_there = to_device(d, fixed, LEN * sizeof *fixed);
        squares[k] = vec_sum_squares(d, &s, there);
        vec_sum_squares_fixed(d, &s, fixed_there, limbs[k]);
        assert_true(vec_digest(d, &s, there) == vec_digest(cpu, &s, x));
        assert_true(vec_digest(d, &parts, there) == vec_digest(cpu, &parts, x));
        dev_release(d, there, LEN * sizeof *x);
        dev_release(d, fixed_there, LEN * sizeof *fixed);
        close_cuda(d);
    }
    double want = vec_sum_squares(cpu, &s, x);
    assert_true(squares[0] == squares[1] && fabs(squares[0] - want) <= 1e-13 * want);
    int64_t want_limbs[VEC_LIMBS];
    vec_sum_squares_fixed(cpu, &s, fixed, want_limbs);
    assert_memory_equal(limbs[0], want_limbs, sizeof want_limbs);
    assert_memory_equal(limbs[1], want_limbs, sizeof want_limbs);
    dev_close(cpu), arena_free(a);
}

static void test_cuda_values(void **state) {
    (void)state;
    arena *a = arena_new("test");
    vec_spans s = make_spans(a);
    vec_rule *rule = make_rules(a);
    dev *cpu = open_dev("base", 1), *d = open_cuda("3");
    float *x = ARENA_ARRAY(a, float, LEN), *y = make(a, 9);
    int64_t *fixed = make_fixed(a, 6);
    uint16_t *copy = ARENA_ARRAY(a, uint16_t, LEN), *none = ARENA_ARRAY(a, uint16_t, LEN);
    float *x_there = to_device(d, x, LEN * sizeof *x), *y_there = to_device(d, y, LEN * sizeof *y);
    int64_t *fixed_there = to_device(d, fixed, LEN * sizeof *fixed);
    uint16_t *copy_there = to_device(d, none, LEN * sizeof *copy);
    uint16_t *again_there = to_device(d, none, LEN * sizeof *copy);
    vec_draw(cpu, &s, rule, x, copy);
    vec_draw(d, &s, rule, x_there, copy_there);
    vec_round(d, &s, x_there, again_there);
    check_back(d, copy_there, copy, LEN * sizeof *copy);
    check_back(d, again_there, copy, LEN * sizeof *copy);
    vec_add(cpu, x, y, LEN, DT_F32);
    vec_add(d, x_there, y_there, LEN, DT_F32);
    vec_add(cpu, x + 1, y, 7, DT_F32); /* not aligned */
    vec_add(d, x_there + 1, y_there, 7, DT_F32);
    vec_add(cpu, fixed + LEN / 2, fixed, LEN / 2, DT_I64);
    vec_add(d, fixed_there + LEN / 2, fixed_there, LEN / 2, DT_I64);
    check_back(d, x_there, x, LEN * sizeof *x);
    check_back(d, y_there, y, LEN * sizeof *y);
    check_back(d, fixed_there, fixed, LEN * sizeof *fixed);
    vec_spans empty = {.n = 0};
    vec_spans_index(&empty);
    assert_true(vec_sum_squares(d, &empty, NULL) == 0 && vec_digest(d, &empty, NULL) == 0);
    dev_close(cpu), close_cuda(d), arena_free(a);
}

/* An update by a norm that stays on the device has the bits of one whose factor the host made. A norm
 * that is not finite leaves everything as it was. */
static void check_update_by_norm(dev *d) {
    arena *a = arena_new("test");
    vec_spans s = make_spans(a);
    vec_update_args old = make_step(a), one = step_to_device(d, &old),
                    two = step_to_device(d, &old);
    double sum = vec_sum_squares(d, &s, one.grad), loss_scale = 8, most = 0.01;
    float infinite = INFINITY, *grad = (float *)(uintptr_t)two.grad;
    vec_update_args by_host = one, by_norm = two;
    by_host.grad_scale = clip_scale(sum + sum, most, loss_scale);
    vec_update(d, &s, &by_host, NULL);
    vec_norm_begin(d);
    vec_norm_add(d, &s, grad);
    vec_norm_add(d, &s, grad);
    by_norm.grad_scale_at = vec_norm_end(d, most, loss_scale);
    vec_update(d, &s, &by_norm, NULL);
    assert_true(vec_norm_squares(d) == sum + sum && by_host.grad_scale < 1 / (float)loss_scale);
    uint64_t now = vec_digest(d, &s, one.param);
    assert_true(vec_digest(d, &s, two.param) == now && now != digest(&s, old.param));
    dev_write(d, grad + s.item[2].at, &infinite, sizeof infinite);
    vec_norm_begin(d);
    vec_norm_add(d, &s, grad);
    by_norm.grad_scale_at = vec_norm_end(d, most, loss_scale);
    vec_update(d, &s, &by_norm, NULL);
    assert_true(isinf(vec_norm_squares(d)) && vec_digest(d, &s, two.param) == now);
    /* gradients that are fine, and a loss that is not, or is */
    float fine = 0, some[40] = {0}, *losses;
    dev_write(d, grad + s.item[2].at, &fine, sizeof fine);
    assert_int_equal(dev_reserve(d, (void **)&losses, sizeof some, "losses", NULL), ST_OK);
    for (int k = 0; k < 2; k++) {
        some[33] = k ? 1e30f : -INFINITY;
        dev_write(d, losses, some, sizeof some);
        vec_check_finite(d, losses, 40);
        vec_norm_begin(d);
        vec_norm_add(d, &s, grad);
        by_norm.grad_scale_at = vec_norm_end(d, most, loss_scale);
        vec_update(d, &s, &by_norm, NULL);
        assert_true(isfinite(vec_norm_squares(d)) && *dev_flag(d) == !k);
        assert_int_equal(vec_digest(d, &s, two.param) == now, !k);
        *dev_flag(d) = false;
    }
    dev_release(d, losses, sizeof some);
    for (int k = 0; k < 2; k++) {
        vec_update_args *x = k ? &two : &one;
        dev_release(d, x->param, LEN * sizeof(float));
        dev_release(d, x->state[0], LEN * sizeof(float));
        dev_release(d, x->state[1], LEN * sizeof(float));
        dev_release(d, (void *)(uintptr_t)x->grad, LEN * sizeof(float));
        dev_release(d, x->param_copy, LEN * sizeof(uint16_t));
    }
    arena_free(a);
}

static void test_update_by_norm(void **state) {
    (void)state;
    dev *cpu = open_dev("avx2", 2), *twin, *cuda = open_cuda("4");
    assert_int_equal(dev_open(&twin, DEV_TWIN, 2, NULL), ST_OK);
    check_update_by_norm(cpu);
    check_update_by_norm(twin);
    check_update_by_norm(cuda);
    dev_close(cpu), dev_close(twin), close_cuda(cuda);
}

static void test_add(void **state) {
    (void)state;
    dev *d = open_dev("base", 1);
    float x[3] = {1, 2, 3}, y[3] = {0.5f, -2, 1e8f};
    int64_t i[2] = {INT64_MAX, -5}, j[2] = {1, 2};
    vec_add(d, x, y, 3, DT_F32);
    assert_true(x[0] == 1.5f && x[1] == 0 && x[2] == 3 + 1e8f);
    vec_add(d, i, j, 2, DT_I64);
    assert_true(i[0] == INT64_MIN && i[1] == -3);
    dev_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_without_copies),
        cmocka_unit_test(test_sum_squares),
        cmocka_unit_test(test_sum_of_many_tensors),
        cmocka_unit_test(test_sum_squares_fixed),
        cmocka_unit_test(test_limbs_value),
        cmocka_unit_test(test_adamw_fixed),
        cmocka_unit_test(test_digest),
        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_draw_many),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_cuda_updates),
        cmocka_unit_test(test_cuda_sums),
        cmocka_unit_test(test_cuda_values),
        cmocka_unit_test(test_update_by_norm),
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
