/* See merge_math.h. Reading order: merge_compute; linear, slerp; the differences: trim, drop, mix. */
#include "interchange/merge/merge_math.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"

enum { BLOCK = 1 << 16 }; /* elements of one partial sum in double */

bool merge_uses_base(merge_method m) {
    return m >= MERGE_TASK_ARITHMETIC;
}

bool merge_draws(merge_method m) {
    return m == MERGE_DARE_LINEAR || m == MERGE_DARE_TIES;
}

bool merge_trims(merge_method m) {
    return m == MERGE_TIES;
}

bool merge_elects(merge_method m) {
    return m == MERGE_TIES || m == MERGE_DARE_TIES;
}

/* ---- sums ---- */

/* The sum of (a[i] - b[i])^2, or of a[i] * b[i] where `product`, of one block. */
static double block_sum(const float *a, const float *b, bool product, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = a[i], y = b ? b[i] : 0;
        sum += product ? x * y : (x - y) * (x - y);
    }
    return sum;
}

static double blocks_sum(const float *a, const float *b, bool product, int64_t n) {
    int64_t blocks = (n + BLOCK - 1) / BLOCK;
    double *part = xcalloc((size_t)blocks + 1, sizeof *part), sum = 0;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < blocks; k++) {
        int64_t first = k * BLOCK, count = n - first < BLOCK ? n - first : BLOCK;
        part[k] = block_sum(a + first, b ? b + first : NULL, product, count);
    }
    for (int64_t k = 0; k < blocks; k++) sum += part[k];
    free(part);
    return sum;
}

double merge_distance(const float *a, const float *b, int64_t n) {
    return sqrt(blocks_sum(a, b, false, n));
}

/* ---- means ---- */

static bool all_same(const merge_tensor *m, int64_t i) {
    for (int k = 1; k < m->n; k++)
        if (m->in[k].x[i] != m->in[0].x[i]) return false;
    return true;
}

static double total_weight(const merge_tensor *m) {
    double total = 0;
    for (int k = 0; k < m->n; k++) total += m->in[k].weight;
    return total;
}

static void linear(const merge_tensor *m) {
    float total = m->normalize ? (float)total_weight(m) : 1.0f;
    bool is_mean = m->normalize || (float)total_weight(m) == 1.0f;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < m->elems; i++) {
        if (is_mean && all_same(m, i)) {
            m->out[i] = m->in[0].x[i];
            continue;
        }
        float sum = (float)m->in[0].weight * m->in[0].x[i];
        for (int k = 1; k < m->n; k++) sum += (float)m->in[k].weight * m->in[k].x[i];
        m->out[i] = sum / total;
    }
}

/* ---- on the arc ---- */

/* Tensors that point almost the same way, or are almost zero, have no arc between them: a straight
 * line then, as mergekit does. */
static const double STRAIGHT_DOT = 0.9995, SMALLEST_NORM = 1e-8;

static void slerp(const merge_tensor *m) {
    const float *a = m->in[0].x, *b = m->in[1].x;
    double na = merge_distance(a, NULL, m->elems), nb = merge_distance(b, NULL, m->elems);
    double dot = blocks_sum(a, b, true, m->elems);
    dot /= (na > SMALLEST_NORM ? na : 1) * (nb > SMALLEST_NORM ? nb : 1);
    merge_input ends[2] = {m->in[0], m->in[1]};
    merge_tensor line = *m;
    line.in = ends;
    line.normalize = false;
    ends[0].weight = 1 - m->t;
    ends[1].weight = m->t;
    if (fabs(dot) <= STRAIGHT_DOT) {
        double theta = acos(dot);
        ends[0].weight = sin((1 - m->t) * theta) / sin(theta);
        ends[1].weight = sin(m->t * theta) / sin(theta);
    }
    linear(&line);
}

/* ---- differences ---- */

static uint32_t magnitude_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits & 0x7fffffffu;
}

/* The smallest magnitude among the k largest, as bits, and how many of exactly it are among them: by
 * counting the upper 16 bits of all, then the lower 15 of those that have the right upper ones. */
static uint32_t find_threshold(const float *d, int64_t n, int64_t k, int64_t *of_it) {
    enum { LOW = 15, HIGH_COUNT = 1 << 16, LOW_COUNT = 1 << LOW };
    int64_t *count = xcalloc(HIGH_COUNT, sizeof *count);
    for (int64_t i = 0; i < n; i++) count[magnitude_bits(d[i]) >> LOW]++;
    int64_t left = k;
    uint32_t high = HIGH_COUNT - 1;
    for (; count[high] < left; high--) left -= count[high];
    memset(count, 0, LOW_COUNT * sizeof *count);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = magnitude_bits(d[i]);
        if (bits >> LOW == high) count[bits & (LOW_COUNT - 1)]++;
    }
    uint32_t low = LOW_COUNT - 1;
    for (; count[low] < left; low--) left -= count[low];
    free(count);
    *of_it = left;
    return high << LOW | low;
}

/* Keeps the largest; of equals the first. */
static void trim(float *d, int64_t n, double density) {
    if (density >= 1 || n == 0) return;
    int64_t k = (int64_t)(density * (double)n), of_it;
    if (k < 1) k = 1;
    uint32_t least = find_threshold(d, n, k, &of_it);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = magnitude_bits(d[i]);
        if (bits > least || (bits == least && of_it-- > 0)) continue;
        d[i] = 0;
    }
}

/* Keeps each number with probability `density`. */
static void drop(const merge_tensor *m, int k, float *d) {
    double density = m->in[k].density;
    char stream[512];
    if (density >= 1) return;
    snprintf(stream, sizeof stream, "merge.%d.%s", k, m->name);
    rng_key key = rng_key_named(m->seed, stream);
    float scale = m->rescale ? (float)density : 1.0f;
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < (m->elems + 3) / 4; block++) {
        uint32_t bits[4]; /* as rng_uniform draws them, four at a time */
        rng_block(key, (uint64_t)block, 0, bits);
        for (int64_t i = 4 * block; i < 4 * block + 4 && i < m->elems; i++) {
            float u = (float)(bits[i & 3] >> 8) * 0x1p-24f;
            d[i] = u < (float)density ? d[i] / scale : 0.0f;
        }
    }
}

static float sign_of(float x) {
    return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
}

/* base + lambda * the weighted sum of the differences, of those of the elected sign alone. */
static float mix_one(const merge_tensor *m, bool elects, int64_t i) {
    float sum = 0, elected = 0, weights = 0;
    for (int k = 0; elects && k < m->n; k++) elected += m->in[k].x[i];
    elected = elected >= 0 ? 1.0f : -1.0f;
    for (int k = 0; k < m->n; k++) {
        if (elects && sign_of(m->in[k].x[i]) != elected) continue;
        sum += m->in[k].x[i];
        weights += (float)m->in[k].weight;
    }
    if (m->normalize && fabsf(weights) >= 1e-8f) sum /= weights;
    sum *= (float)m->lambda;
    return sum == 0 ? m->base[i] : m->base[i] + sum;
}

static void differences(const merge_tensor *m) {
    for (int k = 0; k < m->n; k++) {
        float *d = m->in[k].x, weight = (float)m->in[k].weight;
        for (int64_t i = 0; i < m->elems; i++) d[i] -= m->base[i];
        if (merge_draws(m->method)) drop(m, k, d);
        if (merge_trims(m->method)) trim(d, m->elems, m->in[k].density);
        for (int64_t i = 0; i < m->elems; i++) d[i] *= weight;
    }
    bool elects = merge_elects(m->method);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < m->elems; i++) m->out[i] = mix_one(m, elects, i);
}

void merge_compute(const merge_tensor *m) {
    if (m->method == MERGE_SLERP)
        slerp(m);
    else if (merge_uses_base(m->method))
        differences(m);
    else
        linear(m);
}
