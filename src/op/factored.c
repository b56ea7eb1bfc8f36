/* Adafactor's update (factored.h). Reading order: factored_update, run, matrix, vector. A pass walks rows
 * in segments of SEG columns; its threads share rows, or segments. */
#include "op/factored.h"

#include <math.h>

#include "op/fixed.h"

enum { SEG = 256, CHUNKS = 64, LANES = 8 };

/* n scaled gradients from element `at` on. */
static void take(const factored_args *a, int64_t at, int64_t n, float *g) {
    if (a->grad_fixed) {
        const float unit = 0x1p-50f;
        _Static_assert(FIXED_GRAD_BITS == 50, "the unit of gradients in fixed point");
        for (int64_t j = 0; j < n; j++) g[j] = (float)a->grad_fixed[at + j] * unit * a->grad_scale;
    } else
        for (int64_t j = 0; j < n; j++) g[j] = a->grad[at + j] * a->grad_scale;
}

static int64_t segment(int64_t n, int64_t first) {
    return n - first < SEG ? n - first : SEG;
}

static double squares(const float *x, int64_t n) {
    double s[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) s[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i + j < n; j++) s[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; j < LANES; j++) sum += s[j];
    return sum;
}

static factored_moves moves_of(const factored_args *a, double params, double updates) {
    return factored_moves_of(&a->rule, (double)(a->rows * a->cols), params, updates);
}

/* Elements at .. at + n - 1 take their step along u. */
static void move(const factored_args *a, factored_moves m, int64_t at, int64_t n, const float *u) {
    float *p = a->param + at;
    for (int64_t j = 0; j < n; j++) p[j] = p[j] * m.decayed - m.rate * u[j];
    if (a->param_copy) dtype_convert(a->param_copy + at, a->copy_dt, p, DT_F32, n);
}

static void average(const factored_args *a, float *mean, double square) {
    *mean = factored_average(&a->rule, *mean, square);
}

/* ---- matrices ---- */

typedef struct rows_of_chunk {
    int64_t first, end;
} rows_of_chunk;

static rows_of_chunk chunk(const factored_args *a, int i) {
    return (rows_of_chunk){a->rows * i / CHUNKS, a->rows * (i + 1) / CHUNKS};
}

static double sum_chunks(const double sums[CHUNKS]) {
    double sum = 0;
    for (int i = 0; i < CHUNKS; i++) sum += sums[i];
    return sum;
}

/* Row means; returns the sum of squares of the parameters. */
static double average_rows(const factored_args *a, int threads) {
    double sums[CHUNKS];
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int i = 0; i < CHUNKS; i++) {
        sums[i] = 0;
        for (int64_t r = chunk(a, i).first; r < chunk(a, i).end; r++) {
            double sum = 0;
            for (int64_t c = 0; c < a->cols; c += SEG) {
                float g[SEG];
                int64_t n = segment(a->cols, c);
                take(a, r * a->cols + c, n, g);
                sum += squares(g, n);
            }
            average(a, &a->row[r], sum / (double)a->cols);
            sums[i] += squares(a->param + r * a->cols, a->cols);
        }
    }
    return sum_chunks(sums);
}

static void average_cols(const factored_args *a, int threads) {
    enum { STRIP = 64 };
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < a->cols; c += STRIP) {
        double sum[STRIP] = {0};
        float g[STRIP];
        int64_t n = a->cols - c < STRIP ? a->cols - c : STRIP;
        for (int64_t r = 0; r < a->rows; r++) {
            take(a, r * a->cols + c, n, g);
            for (int64_t j = 0; j < n; j++) sum[j] += (double)g[j] * (double)g[j];
        }
        for (int64_t j = 0; j < n; j++) average(a, &a->col[c + j], sum[j] / (double)a->rows);
    }
}

static double mean_row(const factored_args *a) {
    double sum = 0;
    for (int64_t r = 0; r < a->rows; r++) sum += (double)a->row[r];
    return sum / (double)a->rows;
}

/* Makes u of one chunk, segment by segment. m NULL: returns its sum of squares; otherwise the
 * parameters move along it. */
static double walk(const factored_args *a, rows_of_chunk k, double mean, const factored_moves *m) {
    float by_col[SEG], u[SEG];
    double sum = 0;
    for (int64_t c = 0; c < a->cols && k.first < k.end; c += SEG) {
        int64_t n = segment(a->cols, c);
        for (int64_t j = 0; j < n; j++) by_col[j] = 1.0f / sqrtf(a->col[c + j]);
        for (int64_t r = k.first; r < k.end; r++) {
            float by_row = (float)sqrt(mean / (double)a->row[r]);
            take(a, r * a->cols + c, n, u);
            for (int64_t j = 0; j < n; j++) u[j] *= by_row * by_col[j];
            if (m)
                move(a, *m, r * a->cols + c, n, u);
            else
                sum += squares(u, n);
        }
    }
    return sum;
}

static void matrix(const factored_args *a, int threads) {
    double sums[CHUNKS], param_squares = average_rows(a, threads), mean = mean_row(a);
    average_cols(a, threads);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int i = 0; i < CHUNKS; i++) sums[i] = walk(a, chunk(a, i), mean, NULL);
    factored_moves m = moves_of(a, param_squares, sum_chunks(sums));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int i = 0; i < CHUNKS; i++) walk(a, chunk(a, i), mean, &m);
}

/* ---- vectors ---- */

static void direction(const factored_args *a, int64_t at, int64_t n, float *u) {
    take(a, at, n, u);
    for (int64_t j = 0; j < n; j++) u[j] /= sqrtf(a->col[at + j]);
}

static void vector(const factored_args *a) {
    float u[SEG];
    double sum = 0;
    for (int64_t c = 0; c < a->cols; c += SEG) {
        int64_t n = segment(a->cols, c);
        take(a, c, n, u);
        for (int64_t j = 0; j < n; j++) average(a, &a->col[c + j], (double)u[j] * (double)u[j]);
        direction(a, c, n, u);
        sum += squares(u, n);
    }
    factored_moves m = moves_of(a, squares(a->param, a->cols), sum);
    for (int64_t c = 0; c < a->cols; c += SEG) {
        direction(a, c, segment(a->cols, c), u);
        move(a, m, c, segment(a->cols, c), u);
    }
}

static void run(dev *d, const void *args) {
    factored_args a = *(const factored_args *)args;
    if (a.grad_scale_at) a.grad_scale = *a.grad_scale_at;
    if (isnan(a.grad_scale)) return;
    if (a.row)
        matrix(&a, a.rows * a.cols < 1 << 16 ? 1 : dev_threads(d));
    else
        vector(&a);
}

void factored_update(dev *d, const factored_args *a) {
    if (dev_get_kind(d) == DEV_CUDA && !dev_is_meta(d))
        factored_update_cuda(d, a);
    else
        dev_launch(d, run, a, sizeof *a);
}
