/* Choosing tokens from rows of logits (op/pick.h): a block takes a row.
 *
 * What must be found is where a sum of counts or masses over tokens in some order comes to a number: in
 * falling likelihood for top-k and top-p, by id for the draw. A token's place in the order is a key, and the
 * key of that token is found digit by digit, the highest first, by a histogram over the tokens whose
 * higher digits are known. No sort, and nothing but the row is read.
 *
 * Reading: the row once for its best, once more for each digit: six for top-k and six for top-p, two for the
 * draw, and once for each sum of masses. After the first digit of an order few tokens are left. */
#include "gpu/kernel.h"
#include "op/pick.h"

enum { PICK_THREADS = 512, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
enum { ORDER_BITS = DIGIT_BITS + 32 + PICK_ID_BITS }; /* of keys of an order: 64 */

typedef struct pick_args {
    const float *logits;
    const pick_rule *rule;
    int32_t *id;
    int64_t ld;
    int32_t n;
} pick_args;

typedef struct pick_row {
    const float *logits;
    int32_t n;
    float best, reach, per_t, per_bin, min_p;
    uint64_t last; /* key of the last token that is kept */
} pick_row;

typedef struct token {
    uint64_t key, mass;
} token;

/* Where a sum is reached: the key, and what of count and mass is left there. */
typedef struct target {
    uint64_t key, count, mass;
} target;

typedef struct histogram {
    uint64_t *count, *mass; /* [DIGITS] */
    target *at;
} histogram;

/* Falls as the likelihood rises. The bin spreads logits, most of whose first bits are the same, evenly. */
GPU_FN uint64_t order_of(const pick_row *r, int32_t i, float below) {
    uint32_t bits = f32_bits(r->logits[i] + 0.0f); /* -0 is 0 */
    uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    uint64_t bin = (uint64_t)(uint32_t)mul_rounded(below, r->per_bin);
    return bin << (ORDER_BITS - DIGIT_BITS) | (uint64_t)~rising << PICK_ID_BITS | (uint64_t)i;
}

/* False: the token is not kept. */
GPU_FN bool token_of(const pick_row *r, int32_t i, bool by_id, token *t) {
    float below = r->best - r->logits[i];
    if (!(below <= r->reach)) return false; /* nor is a NaN */
    float weight = exp_below(mul_rounded(-below, r->per_t));
    uint64_t order = order_of(r, i, below);
    t->key = by_id ? (uint64_t)i : order;
    t->mass = pick_mass(weight);
    return weight >= r->min_p && order <= r->last;
}

GPU_FN uint64_t from_lane_u64(uint64_t v, int from) {
    uint32_t low = shuffle_from_u32((uint32_t)v, from);
    return (uint64_t)shuffle_from_u32((uint32_t)(v >> 32), from) << 32 | low;
}

/* The lane with which one of the sums over lanes is reached; t has then what is left of both. */
GPU_FN int reach_lane(uint64_t count, uint64_t mass, target *t) {
    for (int k = 0; k < GPU_WARP - 1; k++) {
        uint64_t c = from_lane_u64(count, k), m = from_lane_u64(mass, k);
        if (c >= t->count || m >= t->mass) return k;
        t->count -= c;
        t->mass -= m;
    }
    return GPU_WARP - 1;
}

/* The digit with which one of the sums is reached, by one warp; the last one, where none is. */
GPU_FN uint64_t reach_digit(const histogram *h, target *t) {
    for (uint32_t first = 0;; first += GPU_WARP) {
        uint64_t count = h->count[first + lane()], mass = h->mass[first + lane()];
        uint64_t counts = warp_sum_u64(count), masses = warp_sum_u64(mass);
        bool here = counts >= t->count || masses >= t->mass;
        if (here || first + GPU_WARP == DIGITS) return first + (uint32_t)reach_lane(count, mass, t);
        t->count -= counts;
        t->mass -= masses;
    }
}

GPU_FN void clear_histogram(const histogram *h) {
    for (uint32_t k = thread_x(); k < DIGITS; k += threads_x()) h->count[k] = h->mass[k] = 0;
    sync_block();
}

/* The key with which, of the tokens that are kept, `count` tokens or `mass` are reached. */
GPU_FN uint64_t reach_key(const pick_row *r, const histogram *h, bool by_id, uint64_t count,
                          uint64_t mass) {
    int bits = by_id ? PICK_ID_BITS : ORDER_BITS;
    target t = {0, count, mass};
    for (int known = 0, width; known < bits; known += width) {
        width = bits - known < DIGIT_BITS ? bits - known : DIGIT_BITS;
        int shift = bits - known - width;
        clear_histogram(h);
        for (int32_t i = (int32_t)thread_x(); i < r->n; i += (int32_t)threads_x()) {
            token k;
            if (!token_of(r, i, by_id, &k)) continue;
            if (known && k.key >> (shift + width) != t.key) continue;
            uint64_t digit = k.key >> shift & (((uint64_t)1 << width) - 1);
            atomic_add_u64(&h->count[digit], 1);
            atomic_add_u64(&h->mass[digit], k.mass);
        }
        sync_block();
        if (warp() == 0) {
            uint64_t digit = reach_digit(h, &t);
            t.key = t.key << width | digit;
            if (lane() == 0) *h->at = t;
        }
        sync_block();
        t = *h->at;
    }
    return t.key;
}

/* The mass of all that is kept. */
GPU_FN uint64_t mass_of(const pick_row *r, uint64_t *room) {
    uint64_t sum = 0;
    for (int32_t i = (int32_t)thread_x(); i < r->n; i += (int32_t)threads_x()) {
        token t;
        if (token_of(r, i, true, &t)) sum += t.mass;
    }
    sum = warp_sum_u64(sum);
    sync_block();
    if (lane() == 0) room[warp()] = sum;
    sync_block();
    sum = 0;
    for (uint32_t w = 0; w < threads_x() / GPU_WARP; w++) sum += room[w];
    return sum;
}

/* For all threads of the block; a NaN is no number. */
GPU_FN float best_of(const float *logits, int32_t n, float *room) {
    float best = -INFINITY;
    for (int32_t i = (int32_t)thread_x(); i < n; i += (int32_t)threads_x())
        best = logits[i] > best ? logits[i] : best;
    return block_max(best, room);
}

/* With a temperature of 0 only tokens as likely as the best are in reach, of which the first is drawn. */
GPU_FN pick_row open_row(const pick_args *a, const pick_rule *rule, float *room) {
    pick_row r;
    r.logits = a->logits + (int64_t)block_x() * a->ld;
    r.n = a->n;
    r.best = best_of(r.logits, r.n, room);
    r.reach = mul_rounded(PICK_REACH, rule->temperature);
    r.per_t = rule->temperature > 0 ? 1 / rule->temperature : 1;
    r.per_bin = r.reach > 0 ? (DIGITS - 1) / r.reach : 0;
    r.min_p = 0;
    r.last = ~(uint64_t)0;
    return r;
}

GPU_FN void cut_row(pick_row *r, const pick_rule *rule, const histogram *h, uint64_t *room) {
    const uint64_t any = ~(uint64_t)0;
    if (rule->top_k > 0 && rule->top_k < r->n)
        r->last = reach_key(r, h, false, (uint64_t)rule->top_k, any);
    if (rule->top_p < 1)
        r->last = reach_key(r, h, false, any, pick_share(rule->top_p, mass_of(r, room)));
    r->min_p = rule->min_p;
}

KERNEL(pick_token, pick_args, PICK_THREADS) {
    SHARED(uint64_t, count, DIGITS);
    SHARED(uint64_t, mass, DIGITS);
    SHARED(uint64_t, sums, GPU_WARP);
    SHARED(float, room, GPU_WARP);
    SHARED(target, at, 1);
    histogram h;
    h.count = count, h.mass = mass, h.at = at;
    const pick_rule *rule = &a->rule[block_x()];
    pick_row r = open_row(a, rule, room);
    int32_t id = -1;
    if (r.best - r.best == 0.0f) {
        uint64_t draw = rule->temperature > 0 ? rule->draw : 0;
        if (rule->temperature > 0) cut_row(&r, rule, &h, sums);
        uint64_t drawn = pick_at(draw, mass_of(&r, sums)) + 1;
        id = (int32_t)reach_key(&r, &h, true, ~(uint64_t)0, drawn);
    }
    if (thread_x() == 0) a->id[block_x()] = id;
}

#ifndef __CUDACC__
#include "base/status.h"
#include "op/cuda/host.h"

bool pick_is_on_device(const dev *d) {
    return dev_get_kind(d) == DEV_CUDA && !dev_is_meta(d);
}

/* Scratch memory holds the rules, and behind them the ids. */
void pick_rows(dev *d, const float *logits, int64_t ld, int n, int32_t n_ids, const pick_rule *rule,
               int32_t *ids) {
    size_t rules = (size_t)n * sizeof *rule;
    char *room = cuda_scratch(d, rules + (size_t)n * sizeof *ids);
    pick_args a = {logits, (const pick_rule *)(void *)room, (int32_t *)(void *)(room + rules), ld,
                   n_ids};
    CHECK(n_ids < 1 << PICK_ID_BITS, "%d tokens to choose from", n_ids);
    gpu_range may[] = {{"logits", logits, n, ld * (int64_t)sizeof *logits,
                        ld * (int64_t)sizeof *logits, GPU_READ, 4},
                       range_of("rules", a.rule, n * (int64_t)sizeof *rule / 4, 4, GPU_READ),
                       range_of("tokens", a.id, n, sizeof *ids, GPU_WRITE)};
    if (room) {
        dev_write(d, room, rule, rules);
        cuda_scope_begin(d, "a choice", may, 3);
        cuda_launch(d, &pick_token,
                    (gpu_grid){(uint32_t)n, 1, 1, threads_for(n_ids, PICK_THREADS), 0}, &a);
        cuda_scope_end(d);
        dev_read(d, ids, a.id, (size_t)n * sizeof *ids);
    }
    for (int i = 0; i < n; i++) /* of a device that has failed, which dev_check tells */
        if (!room || ids[i] < 0 || ids[i] >= n_ids) ids[i] = -1;
}
#endif
