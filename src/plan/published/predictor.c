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

published_memory published_predictor(const published_run *r) {
    double layers = first_layers(r), W = weights(r, layers), dp = r->dp;
    bool all = r->zero == 3;
    double states = r->zero ? dp : 1, rest = all ? dp : 1;
    double model = W / rest + (all ? 2 * W / dp : 0);
    double sums = model + 2 * W / states + 2 * W / rest + (r->zero == 0 && dp > 1 ? W : 0);
    double after = sums + 4 * W / states, kept = activations(r, layers);
    published_memory m = {{{"model init", model},
                           {"gradient accumulator init", sums},
                           {"forward and backward", sums + kept},
                           {"optimizer step", after},
                           {"second forward and backward", after + kept},
                           {"second optimizer step", after}},
                          6,
                          after + kept};
    return m;
}
