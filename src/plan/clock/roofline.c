#include "plan/clock/roofline.h"

#include <math.h>
#include <string.h>

dtype roofline_format(const prog_op *o) {
    dtype dt = o->kind == OP_EMBED ? o->attr->embed.dt : o->in[0].dt;
    return dt == DT_BF16 || dt == DT_F16 ? dt : DT_F32;
}

int roofline_pass(const prog_op *o) {
    return o->entry == ENTRY_BWD_WEIGHT ? 2 : o->entry == ENTRY_BWD_INPUT ? 1 : 0;
}

static bool is_product(const prog_op *o) {
    op_profile p = op_classes[o->kind].profile;
    return p == OPP_MATMUL || p == OPP_HEAD || p == OPP_ATTENTION;
}

double roofline_ideal(const cluster *c, const prog_op *o) {
    double compute = is_product(o) ? o->flops / c->peak_flops[roofline_format(o)] : 0;
    double memory = o->bytes / c->memory_bytes_per_s;
    return compute > memory ? compute : memory;
}

static double elements(const tensor *t) {
    return (double)t->rows * (double)t->cols;
}

/* The share of what was touched so many bytes ago that a cache of that size has lost: nothing an octave below, all of it an octave
 * beyond. */
static double lost(double cache, double since) {
    double part = cache > 0 && since > 0 ? (log2(since / cache) + 1) / 2 : 0;
    return part < 0 ? 0 : part < 1 ? part : 1;
}

static void add_far(const cluster *c, double bytes, double since, double count[CLUSTER_TERMS]) {
    count[TERM_FAR] += bytes * lost(c->near_bytes, since);
    count[TERM_FARTHER] += bytes * lost(c->cache_bytes, since);
}

bool roofline_terms(const cluster *c, const prog_op *o, double update_bytes,
                    double count[CLUSTER_TERMS]) {
    const tensor *first = &o->in[0], *second = &o->in[1];
    bool products = o->kind == OP_LINEAR || o->kind == OP_HEAD_CE || o->kind == OP_ATTENTION;
    memset(count, 0, CLUSTER_TERMS * sizeof *count);
    if (is_product(o) && !products) return false;
    count[TERM_CALL] = 1;
    if (products) {
        count[TERM_FLOP] = o->flops;
        count[TERM_FIRST] = elements(first);
        count[TERM_SECOND] = elements(second);
        count[TERM_RESULT] = o->kind == OP_ATTENTION ? o->flops / o->attr->attention.D
                                                     : (double)first->rows * (double)second->rows;
    } else {
        count[TERM_FIRST] = o->bytes / (double)dtype_bytes(roofline_format(o));
        count[TERM_RESULT] = (double)o->in[0].rows;
    }
    for (int i = 0; i < o->touches; i++)
        add_far(c, o->touch[i].bytes, o->touch[i].since + (o->touch[i].before ? update_bytes : 0),
                count);
    return true;
}

void roofline_update_terms(const cluster *c, double bytes, double frame_bytes,
                           double count[CLUSTER_TERMS]) {
    memset(count, 0, CLUSTER_TERMS * sizeof *count);
    count[TERM_CALL] = 1;
    count[TERM_FIRST] = bytes / sizeof(float);
    add_far(c, bytes, bytes / 2 + frame_bytes, count); /* nearly all is read and written */
}

double roofline_sum(const double term[CLUSTER_TERMS], const double count[CLUSTER_TERMS]) {
    double sum = 0;
    for (int i = 0; i < CLUSTER_TERMS; i++) sum += term[i] * count[i];
    return sum;
}

double roofline_limit(const double term[CLUSTER_TERMS], const double count[CLUSTER_TERMS],
                      double ideal) {
    double sum = roofline_sum(term, count);
    return sum > 0 ? sum : ideal;
}

double roofline_products(const prog_op *o) {
    if (o->kind == OP_EXPERT_LINEAR) return o->attr->experts.n;
    if (o->kind != OP_EXPERT_RANKS) return 0;
    const op_expert_ranks *a = &o->attr->expert_ranks;
    return (o->entry == ENTRY_FWD ? 2.0 : 4.0) * a->experts / a->ranks;
}

static const cluster_rate *rate_of(const cluster *c, const prog_op *o, op_kind kind) {
    int i = c->best[kind][roofline_pass(o)][roofline_format(o)];
    return i < 0 ? NULL : &c->rate[i];
}

static double reached(const cluster_rate *r, double ideal) {
    return r ? cluster_curve_at(&r->share, ideal * 1e6, 1) : 1;
}

/* Rows are packed before they are sent, and results before they go back; the activation reads what the first product gives and writes
 * what the second reads. The backward does it with rows and gradients, and with the activation once more. */
static double beside_products(const cluster *c, const prog_op *o) {
    const op_expert_ranks *a = &o->attr->expert_ranks;
    bool back = o->entry != ENTRY_FWD;
    const tensor *x = &o->in[0], *w_out = &o->in[2];
    double C = (double)x->cols, F = (double)w_out->cols, H = a->gated ? 2 * F : F;
    double numbers = (double)x->rows * (back ? 6 * C + 3 * H + 2 * F : 4 * C + H + F);
    double ideal = numbers * (double)dtype_bytes(x->dt) / c->memory_bytes_per_s;
    return ideal / reached(rate_of(c, o, OP_TAKE_ROWS), ideal);
}

static double experts_seconds(const cluster *c, const prog_op *o, const cluster_rate *r) {
    double ideal = roofline_ideal(c, o), products = roofline_products(o);
    double t = ideal / reached(r, ideal / products);
    return o->kind == OP_EXPERT_RANKS ? t + beside_products(c, o) : t;
}

double roofline_seconds(const cluster *c, const prog_op *o, double update_bytes) {
    const cluster_rate *r = rate_of(c, o, o->kind);
    double count[CLUSTER_TERMS], ideal = roofline_ideal(c, o);
    if (r && roofline_terms(c, o, update_bytes, count))
        ideal = roofline_limit(r->term, count, ideal);
    double t = ideal / reached(r, ideal);
    if (roofline_products(o) > 0 && r && strcmp(r->of, op_classes[o->kind].name) != 0)
        t = experts_seconds(c, o, r);
    return t > c->call_s ? t : c->call_s;
}

double roofline_update(const cluster *c, double bytes, double frame_bytes) {
    const cluster_rate *r = c->update < 0 ? NULL : &c->rate[c->update];
    double count[CLUSTER_TERMS], ideal = bytes / c->memory_bytes_per_s;
    roofline_update_terms(c, bytes, frame_bytes, count);
    if (r) ideal = roofline_limit(r->term, count, ideal);
    return ideal / reached(r, ideal);
}

double roofline_stream(const cluster *c, double bytes) {
    return roofline_update(c, bytes, 0);
}
