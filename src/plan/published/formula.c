/* The closed formulas (see published.h): Korthikanti et al. 2022, section 4 and 5; the playbook's chapters on memory. */
#include "plan/published/published.h"

#include <math.h>
#include <string.h>

const char published_convention_names[] = "mixed, mixed-fp32-grads, figures, fp32, megatron";

/* mixed: 16 bytes a parameter, with masters in the optimizer's 12; nanotron sums gradients in fp32 besides. The figures of
 * layouts have Adam's states alone, and flash attention; those of recompute are in fp32, and keep the mask of one dropout. All figures
 * take the feed-forward part for four times the model's width, whatever it is. */
static const published_convention conventions[] = {
    {"mixed", "the playbook's text", COUNT_ALL, 2, 2, 12, false, false, true},
    {"mixed-fp32-grads", "the playbook's text, nanotron", COUNT_ALL, 2, 6, 12, false, false, true},
    {"figures", "the playbook's figures of layouts", COUNT_MATRICES, 2, 2, 8, true, false, false},
    {"fp32", "the playbook's figures of activations", COUNT_CLOSED, 4, 4, 8, false, true, false},
    {"megatron", "Korthikanti et al. 2022", COUNT_BLOCKS, 2, 4, 12, false, false, false},
};

const published_convention *published_convention_find(const char *name) {
    for (int i = 0; i < ARRAY_LEN(conventions); i++)
        if (strcmp(name, conventions[i].name) == 0) return &conventions[i];
    return NULL;
}

/* ---- parameters ---- */

static double matrices_of_layer(const published_model *m) {
    return m->hidden * m->head_dim * (2 * m->heads + 2 * m->kv_heads) +
           (m->gated ? 3 : 2) * m->hidden * m->ffn;
}

/* The first stage has the most: an embedding, and as many layers as any. */
double published_params(const published_run *r, published_count count) {
    const published_model *m = &r->m;
    double h = m->hidden, L = ceil(m->layers / r->pp), table = m->vocab * h;
    if (count == COUNT_BLOCKS) return 12 * L * h * h / r->tp;
    if (count == COUNT_CLOSED)
        return (h * (m->vocab + r->seq) + L * (12 * h * h + 13 * h) + 2 * h) / r->tp;
    double n = L * matrices_of_layer(m) + table * (m->tied || r->pp > 1 ? 1 : 2);
    double norms = (2 * L + (r->pp > 1 ? 0 : 1)) * h;
    return n / r->tp + (count == COUNT_ALL ? norms : 0);
}

/* ---- activations ---- */

/* Bytes of a layer for each token and column: 11 of attention, 3 + 4 f / h of the feed-forward part, 4 of two norms; with
 * f = 4 h 34. Of these 8 and 4 f / h lie inside of the two parts, where tensor-parallel ranks share them, with sequence parallelism or not. */
static double layer_bytes(const published_run *r, const published_convention *c) {
    double t = r->tp, scores = 5 * r->m.heads * (r->seq / r->cp) / r->m.hidden;
    double inside = 8 + (c->own_width ? 4 * r->m.ffn / r->m.hidden : 16);
    if (r->recompute == RECOMPUTE_FULL) return 2 / (r->sequence_parallel ? t : 1);
    if (r->recompute == RECOMPUTE_SELECTIVE || c->flash) scores = 0;
    if (r->sequence_parallel) return (10 + inside + scores) / t;
    return 10 + inside / t + scores / t;
}

/* With stages the first holds p micro-batches of L / p layers: as much as without. */
static double activations(const published_run *r, const published_convention *c) {
    double rows = r->seq / r->cp * r->micro_batch * r->m.hidden;
    double ahead = r->chunks > 1 ? 1 + (r->pp - 1) / (r->pp * r->chunks) : 1;
    return r->m.layers * rows * layer_bytes(r, c) * ahead + (c->dropout ? rows : 0);
}

/* ---- the whole ---- */

void published_add(published_memory *to, const char *name, double bytes) {
    to->part[to->n++] = (published_part){name, bytes};
    to->total += bytes;
}

published_memory published_formula(const published_run *r, const published_convention *c) {
    published_memory m = {.n = 0};
    double n = published_params(r, c->count);
    published_add(&m, "parameters", c->weight * n / (r->zero >= 3 ? r->dp : 1));
    published_add(&m, "gradients", c->gradient * n / (r->zero >= 2 ? r->dp : 1));
    published_add(&m, "optimizer", c->optimizer * n / (r->zero >= 1 ? r->dp : 1));
    published_add(&m, "activations", activations(r, c));
    return m;
}

double published_bubble(const published_run *r) {
    double p = r->pp, m = r->micro_batches;
    switch (r->schedule) {
        case SCHEDULE_INTERLEAVED: return (p - 1) / (m * r->chunks);
        case SCHEDULE_ZB_H1: return (p - 1) / (3 * m); /* (p - 1)(F + B - 2 W) of m (F + B + W) */
        case SCHEDULE_ZB_V: return 0;
        default: return (p - 1) / m;
    }
}

double published_flops(const published_run *r) {
    published_run whole = *r;
    whole.pp = whole.tp = 1;
    double token =
        6 * published_params(&whole, COUNT_ALL) + 12 * r->m.layers * r->m.hidden * r->seq;
    return token * r->seq * r->micro_batch * r->micro_batches * r->dp;
}

/* Of a collective in which each of n ranks sends its part to all others. */
static double share_sent(double n) {
    return (n - 1) / n;
}

published_overlap published_overlap_of(const published_run *r, double flops_per_s,
                                       const published_links *by) {
    double tokens = r->seq / r->cp * r->micro_batch, h = r->m.hidden, t = r->tp;
    double data = r->dp * r->cp, F = flops_per_s;
    double layer = matrices_of_layer(&r->m) / (h * h); /* 16 in the playbook */
    double weights = r->zero == 3 ? 2 * share_sent(r->dp) : 0;
    return (published_overlap){
        .dp = 2 * 4 * share_sent(data) * F / by->data / (4 * tokens), /* beside 4 N tokens */
        .zero3 = weights * F / by->dp / (2 * tokens),
        .tp = 2 * (t - 1) * F / by->tp / (2 * h),
        .pp = r->pp > 1 ? 2 * F / by->pp / (2 * layer * h * ceil(r->m.layers / r->pp)) : 0};
}
