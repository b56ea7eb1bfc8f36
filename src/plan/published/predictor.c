/* nanotron's predictor (see published.h): weights in bf16, masters and summed gradients in fp32, Adam's states from the first
 * update on. ZeRO divides masters and states; with ZeRO-3 all of it, and two layers' worth of buffers are there besides. */
#include "plan/published/published.h"

#include <math.h>

/* Products of a layer as nanotron weighs blocks when it cuts a model into stages. */
static double block_cost(const published_model *m) {
    return 4 * m->hidden * m->hidden + 3 * m->ffn * m->hidden;
}

/* The embedding weighs nothing and the head v h. Blocks go to the first stage until it has its share, or only as many are left as there
 * are further stages. */
static double first_layers(const published_run *r) {
    double layers = r->m.layers, head = r->m.vocab * r->m.hidden, taken = 0;
    double want = (layers * block_cost(&r->m) + head) / r->pp;
    if (r->pp <= 1) return layers;
    int n = 0;
    while (n < layers && taken < want && layers + 1 - n > r->pp - 1) {
        taken += block_cost(&r->m);
        n++;
    }
    return n;
}

static double weights(const published_run *r, double layers) {
    const published_model *m = &r->m;
    double h = m->hidden, kv = m->kv_heads / m->heads;
    double layer = h * h * (1 + 2 * kv) + h * h + 3 * h * m->ffn;
    return 2 / r->tp * (m->vocab * h * (!m->tied && r->pp == 1 ? 2 : 1) + layers * layer);
}

/* One stage alone keeps logits, and again in fp32, too. */
static double activations(const published_run *r, double layers) {
    const published_model *m = &r->m;
    double h = m->hidden, tokens = r->seq * r->micro_batch;
    double layer = tokens * h / r->tp * 2 * (4 * m->ffn / h + 6 + 2 * m->kv_heads / m->heads + 2);
    if (r->pp > 1) return fmin(r->pp, r->micro_batches) * layers * layer;
    return m->layers * layer + 2 * (tokens * m->vocab * 2 * 2 / r->tp);
}

double published_predictor_overhead(const published_run *r) {
    return (72 + 32 * r->micro_batch) * 1048576;
}

/* W: weights in two bytes. */
published_memory published_predictor_components(const published_run *r) {
    double layers = first_layers(r), W = weights(r, layers), dp = r->dp;
    double states = r->zero ? dp : 1, rest = r->zero == 3 ? dp : 1;
    published_memory m = {.n = 0};
    published_add(&m, "weights in bf16", W / rest);
    published_add(&m, "two layers' buffers", r->zero == 3 ? 2 * W / dp : 0);
    published_add(&m, "masters in fp32", 2 * W / states);
    published_add(&m, "gradients in fp32", 2 * W / rest);
    published_add(&m, "buckets of gradients", r->zero == 0 && dp > 1 ? W : 0);
    published_add(&m, "Adam's states in fp32", 4 * W / states);
    published_add(&m, "activations", activations(r, layers));
    return m;
}

published_memory published_predictor(const published_run *r) {
    published_memory all = published_predictor_components(r);
    const published_part *is = all.part;
    double kept = is[6].bytes, after = all.total - kept, sums = after - is[5].bytes;
    published_memory m = {{{"model init", is[0].bytes + is[1].bytes},
                           {"gradient accumulator init", sums},
                           {"forward and backward", sums + kept},
                           {"optimizer step", after},
                           {"second forward and backward", all.total},
                           {"second optimizer step", after}},
                          6,
                          all.total};
    return m;
}
