/* Frequencies and the table (see rope.h); the keys are in rope_json.c.
 *
 * Frequencies are a function of the length of a pass only for ROPE_DYNAMIC, ROPE_DOUBLING and ROPE_LONGROPE. A
 * table serves one program, and its rows are that length: in training the sequence, in cached
 * generation the whole cache, from the first token on. So tokens written one at a time get the
 * values of one forward pass over the full length. transformers instead starts with the short
 * frequencies and changes them under the keys already cached: no forward pass computes that. */
#include "model/rope.h"

#include <math.h>
#include <string.h>

enum { HALF_MAX = 512 };

/* Blend of a frequency and its scaled value: wavelengths longer than the original context are
 * divided by factor, short ones kept, between them a linear ramp. */
static double llama3_frequency(const rope_scaling *s, double freq, double original) {
    double wavelength = 2.0 * M_PI / freq;
    if (wavelength < original / s->high_freq_factor) return freq;
    if (wavelength > original / s->low_freq_factor) return freq / s->factor;
    double smooth =
        (original / wavelength - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1.0 - smooth) * freq / s->factor + smooth * freq;
}

/* Which frequency turns `turns` times in the original context, as a fractional index. */
static double yarn_index(const rope_spec *s, double turns, double original) {
    return s->rotary_dim * log(original / (turns * 2.0 * M_PI)) / (2.0 * log(s->theta));
}

/* Fast frequencies are kept, slow ones divided by factor, between the two indices a ramp. */
static void yarn_frequencies(const rope_spec *s, double factor, double original, double *out) {
    const rope_scaling *c = &s->scaling;
    double low = yarn_index(s, c->beta_fast > 0 ? c->beta_fast : 32, original);
    double high = yarn_index(s, c->beta_slow > 0 ? c->beta_slow : 1, original);
    if (!c->keep_fractions) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, s->rotary_dim - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < s->rotary_dim / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        out[i] = out[i] / factor * ramp + out[i] * (1 - ramp);
    }
}

static double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn_amplitude(const rope_scaling *c, double factor) {
    if (c->attention_factor > 0) return c->attention_factor;
    if (c->mscale == 0 || c->mscale_all_dim == 0) return yarn_mscale(factor, 1);
    return yarn_mscale(factor, c->mscale) / yarn_mscale(factor, c->mscale_all_dim);
}

static double longrope_amplitude(const rope_scaling *c, double factor, double original) {
    if (c->attention_factor > 0) return c->attention_factor;
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
}

static double original_length(const rope_spec *s) {
    int64_t given = s->scaling.original_max_position_embeddings;
    return (double)(given > 0 ? given : s->max_positions);
}

/* NTK: the base grows so that the slowest frequency reaches the length. */
static double dynamic_theta(const rope_spec *s, int64_t length) {
    double max = (double)s->max_positions, n = fmax((double)length, max), f = s->scaling.factor;
    return s->theta * pow(f * n / max - (f - 1), s->rotary_dim / (s->rotary_dim - 2.0));
}

/* The same in steps: for up to 2, 4, 8 ... times the trained length. */
static double doubling_theta(const rope_spec *s, int64_t length) {
    double times = (double)length / original_length(s);
    double alpha = times > 1 ? exp2(ceil(log2(times)) + 1) - 1 : 1;
    return s->theta * pow(alpha, s->rotary_dim / (s->rotary_dim - 2.0));
}

static double scaling_factor(const rope_spec *s) {
    double given = s->scaling.factor;
    return given > 0 ? given : (double)s->max_positions / original_length(s);
}

double rope_amplitude(const rope_spec *s) {
    const rope_scaling *c = &s->scaling;
    if (c->kind == ROPE_YARN) return yarn_amplitude(c, scaling_factor(s));
    if (c->kind != ROPE_LONGROPE) return 1;
    return longrope_amplitude(c, scaling_factor(s), original_length(s));
}

double rope_score_factor(const rope_spec *s) {
    bool scaled = s->scaling.kind == ROPE_YARN && s->scaling.mscale_all_dim > 0;
    return scaled ? yarn_mscale(scaling_factor(s), s->scaling.mscale_all_dim) : 1;
}

double rope_frequencies(const rope_spec *s, int64_t length, double *out) {
    const rope_scaling *c = &s->scaling;
    int half = s->rotary_dim / 2;
    double original = original_length(s), factor = scaling_factor(s);
    double theta = c->kind == ROPE_DYNAMIC    ? dynamic_theta(s, length)
                   : c->kind == ROPE_DOUBLING ? doubling_theta(s, length)
                                              : s->theta;
    for (int i = 0; i < half; i++) out[i] = pow(theta, -2.0 * i / s->rotary_dim);
    switch (c->kind) {
        case ROPE_PLAIN:
        case ROPE_DYNAMIC:
        case ROPE_DOUBLING: break;
        case ROPE_LINEAR:
            for (int i = 0; i < half; i++) out[i] /= factor;
            break;
        case ROPE_LLAMA3:
            for (int i = 0; i < half; i++) out[i] = llama3_frequency(c, out[i], original);
            break;
        case ROPE_YARN: yarn_frequencies(s, factor, original, out); break;
        case ROPE_LONGROPE: {
            const double *divisor = (double)length > original ? c->long_factor : c->short_factor;
            for (int i = 0; i < half; i++) out[i] /= divisor[i];
        }
    }
    return rope_amplitude(s);
}

/* What a query at this position, 0 for the first, is multiplied by: log(position + 1) / log(logn_length) beyond
 * that length, so that attention over more keys stays as sharp as over so many (Su 2021; Qwen 1). */
static double query_factor(int64_t logn_length, int64_t position) {
    bool beyond = logn_length > 0 && position >= logn_length;
    return beyond ? log((double)position + 1) / log((double)logn_length) : 1;
}

typedef struct rope_fill {
    int64_t logn_length;
    bool queries;
    int64_t rows;
    int rotary_dim;
    dtype dt;
    double amplitude, freq[HALF_MAX];
} rope_fill;

static void fill_table(void *dst, const void *ctx) {
    const rope_fill *f = ctx;
    int half = f->rotary_dim / 2;
    for (int64_t p = 0; p < f->rows; p++) {
        double amplitude = f->amplitude * (f->queries ? query_factor(f->logn_length, p) : 1);
        for (int i = 0; i < half; i++) {
            double angle = (double)p * f->freq[i];
            double c = amplitude * cos(angle), s = amplitude * sin(angle);
            int64_t at = p * f->rotary_dim + i;
            if (f->dt == DT_F64) {
                ((double *)dst)[at] = c;
                ((double *)dst)[at + half] = s;
            } else {
                ((float *)dst)[at] = (float)c;
                ((float *)dst)[at + half] = (float)s;
            }
        }
    }
}

val rope_table(graph *g, const char *name, const rope_spec *s, int64_t rows, bool queries) {
    dtype dt = graph_get_options(g)->dt == DT_F64 ? DT_F64 : DT_F32;
    CHECK(s->rotary_dim % 2 == 0 && s->rotary_dim / 2 <= HALF_MAX, "%d rotary columns",
          s->rotary_dim);
    rope_fill f;
    memset(&f, 0, sizeof f); /* what is between members as well: programs compare all bytes */
    f.logn_length = s->logn_length;
    f.queries = queries;
    f.rows = rows;
    f.rotary_dim = s->rotary_dim;
    f.dt = dt;
    f.amplitude = rope_frequencies(s, rows, f.freq);
    return graph_const(g, name, dt, rows, f.rotary_dim, fill_table, &f, sizeof f);
}
