/* The calculator on the playbook's page (see published.h), with what it gets wrong, for its figures are compared with ours:
 * parameters, gradients and optimizer are not divided by tp; neither is the square of the sequence where sequence parallelism is on;
 * there is no head of its own, no group of key heads, and a gated part changes nothing in the number of parameters. */
#include <strings.h>

#include "plan/published/published.h"

bool published_widget_preset(const char *name, published_run *out) {
    static const struct {
        const char *name;
        double heads, batch, hidden, ffn, layers, seq, tp, dp;
        bool gated;
    } all[] = {{"Tiny", 16, 3, 1024, 4096, 1, 7, 1, 1, false},
               {"8B", 32, 32, 4096, 16384, 32, 256, 1, 1, true},
               {"70B", 64, 32, 8192, 32768, 80, 256, 8, 8, false},
               {"405B", 128, 32, 16384, 65536, 126, 256, 8, 8, false}};
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        if (strcasecmp(name, all[i].name) != 0) continue;
        *out = (published_run){.m = {.layers = all[i].layers,
                                     .hidden = all[i].hidden,
                                     .heads = all[i].heads,
                                     .kv_heads = all[i].heads,
                                     .head_dim = all[i].hidden / all[i].heads,
                                     .ffn = all[i].ffn,
                                     .vocab = 30522,
                                     .tied = true,
                                     .gated = all[i].gated},
                               .seq = all[i].seq,
                               .micro_batch = all[i].batch,
                               .micro_batches = 1,
                               .dp = all[i].dp,
                               .tp = all[i].tp,
                               .cp = 1,
                               .pp = 1,
                               .chunks = 1,
                               .zero = 1,
                               .mixed = true,
                               .states = 2};
        return true;
    }
    return false;
}

static void add_layers(published_memory *m, const published_run *r) {
    double s = r->seq, b = r->micro_batch, h = r->m.hidden, f = r->m.ffn, t = r->tp;
    double P = r->mixed ? 2 : 4, L = r->m.layers, rows = s * b * h;
    double x = r->sequence_parallel ? 1 / t : 1, square = (2 * P + 1) * r->m.heads * s * s * b;
    if (r->recompute == RECOMPUTE_FULL) {
        published_add(m, "layers' inputs", L * rows * P);
        return;
    }
    double attention = r->sequence_parallel ? rows / t * (5 * P + 1) : rows * (4 * P / t + P + 1);
    if (r->recompute == RECOMPUTE_NONE) attention += r->sequence_parallel ? square : square / t;
    double more = r->m.gated ? 3 : r->m.relu ? 0 : 1; /* of the activation function */
    published_add(m, "attention", L * attention);
    published_add(m, "feedforward", L * (rows * P * x + (1 + more) * s * b * f * P / t + rows * x));
    published_add(m, "layernorm", L * 2 * rows * P * x);
}

published_memory published_widget(const published_run *r) {
    published_memory m = {.n = 0};
    double h = r->m.hidden, v = r->m.vocab, P = r->mixed ? 2 : 4;
    double rows = r->seq * r->micro_batch * h, x = r->sequence_parallel ? 1 / r->tp : 1;
    double n = h * (v + r->seq) + r->m.layers * (12 * h * h + 13 * h) + 2 * h;
    add_layers(&m, r);
    published_add(&m, "dropout", rows * x);
    published_add(&m, "output layernorm", rows * P * x);
    published_add(&m, "projection", rows * P * x);
    published_add(&m, "cross entropy", 4 * r->seq * r->micro_batch * v * x);
    published_add(&m, "parameters", P * n / (r->zero >= 3 ? r->dp : 1));
    published_add(&m, "gradients", P * n / (r->zero >= 2 ? r->dp : 1));
    published_add(&m, "optimizer",
                  (4 * r->states + (r->mixed ? 4 : 0)) * n / (r->zero >= 1 ? r->dp : 1));
    return m;
}
