#include "plan/clock/roofline.h"

dtype roofline_format(const prog_op *o) {
    dtype dt = o->kind == OP_EMBED ? o->attr->embed.dt : o->in[0].dt;
    return dt == DT_BF16 || dt == DT_F16 ? dt : DT_F32;
}

int roofline_pass(const prog_op *o) {
    return o->entry == ENTRY_BWD_WEIGHT ? 2 : o->entry == ENTRY_BWD_INPUT ? 1 : 0;
}

double roofline_ideal(const cluster *c, const prog_op *o) {
    op_profile p = op_classes[o->kind].profile;
    bool products = p == OPP_MATMUL || p == OPP_HEAD || p == OPP_ATTENTION;
    double compute = products ? o->flops / c->peak_flops[roofline_format(o)] : 0;
    double memory = o->bytes / c->memory_bytes_per_s;
    return compute > memory ? compute : memory;
}

double roofline_seconds(const cluster *c, const prog_op *o) {
    double ideal = roofline_ideal(c, o);
    int i = c->best[o->kind][roofline_pass(o)][roofline_format(o)];
    double share = i < 0 ? 1 : cluster_curve_at(&c->rate[i].share, ideal * 1e6, 1);
    double t = ideal / share;
    return t > c->call_s ? t : c->call_s;
}

double roofline_stream(const cluster *c, double bytes) {
    double ideal = bytes / c->memory_bytes_per_s;
    return ideal /
           (c->update < 0 ? 1 : cluster_curve_at(&c->rate[c->update].share, ideal * 1e6, 1));
}
