/* Choosing by what was measured; see machine.h. */
#include "op/machine.h"

#include <stdio.h>
#include <string.h>

/* The probe takes the best of some slices of a thread's processor time, which repeats within 1 to 2 %.
 * Another implementation has to be clearly faster on the whole of a layout: its bits depend on the
 * number of threads, and the probe saw it on one thread only, with operands in its caches. With AMX, where oneDNN was
 * 1.16 times as fast there in one layout, a step with its products took 1.4 times as long; beside a busy neighbour it
 * seemed 1.25 times as fast once in 60 probes. */
static const double WORTH = 1.03, WORTH_ONEDNN = 1.5, WORTH_FEWER_THREADS = 1.05;

const char *machine_arith_name(machine_arith how) {
    static const char *const names[] = {"fp32", "bf16, by dot products",
                                        "bf16, multiplied in fp32"};
    return names[how];
}

cpu_isa machine_isa(cpu_isa isa, machine_arith how) {
    return how == ARITH_WIDE && isa > ISA_AVX512 ? ISA_AVX512 : isa;
}

const machine_layer *machine_find(const machine_facts *f, const machine_layer *l) {
    for (int i = 0; i < f->n_layers; i++) {
        const machine_layer *k = &f->layer[i];
        if (k->rows == l->rows && k->in == l->in && k->width == l->width) return k;
    }
    return NULL;
}

/* Sums over the layers, each counted once, however much of the work it is: layers of a model do not differ so much that
 * weights would change what is faster. Small products are always ours, so that oneDNN's sum has ours of these. */
typedef struct layer_sums {
    machine_layer all, common; /* common: of products that both have */
} layer_sums;

static void add_product(layer_sums *sum, int a, int p, const double ms[GEMM_IMPLS]) {
    double *all = sum->all.ms[a][p], *common = sum->common.ms[a][p];
    bool both = ms[GEMM_ONEDNN] > 0;
    for (int k = 0; k < GEMM_IMPLS; k++) {
        all[k] += ms[both ? k : GEMM_OWN];
        if (both) common[k] += ms[k];
    }
}

static layer_sums sum_of(const machine_facts *f, const machine_layer *layers, int n) {
    layer_sums sum = {0};
    for (int i = 0; i < n; i++) {
        const machine_layer *l = machine_find(f, &layers[i]);
        if (!l) continue;
        for (int a = 0; a < ARITHS; a++)
            for (int p = 0; p < GEMM_LAYOUTS; p++) add_product(&sum, a, p, l->ms[a][p]);
    }
    return sum;
}

static gemm_impl faster(const double ms[GEMM_IMPLS]) {
    bool other = ms[GEMM_ONEDNN] > 0 && ms[GEMM_OWN] > WORTH_ONEDNN * ms[GEMM_ONEDNN];
    return other ? GEMM_ONEDNN : GEMM_OWN;
}

/* Time of an arithmetic with the faster implementation of each layout; 0: the machine has no such. */
static double time_of(const layer_sums *sum, machine_arith a, bool own,
                      gemm_impl by[GEMM_LAYOUTS]) {
    double ms = 0;
    bool has = true;
    for (int p = 0; p < GEMM_LAYOUTS; p++) {
        by[p] = own ? GEMM_OWN : faster(sum->common.ms[a][p]);
        has = has && sum->all.ms[a][p][GEMM_OWN] > 0;
        ms += sum->all.ms[a][p][by[p]];
    }
    return has ? ms : 0;
}

/* Whether `other` is taken before `usual`. */
static bool wins(const double ms[ARITHS], unsigned allowed, machine_arith usual,
                 machine_arith other) {
    if (!(allowed >> other & 1) || ms[other] <= 0) return false;
    return !(allowed >> usual & 1) || ms[usual] <= 0 || ms[usual] > WORTH * ms[other];
}

/* By the instruction set alone. */
static machine_arith unmeasured(cpu_isa isa, unsigned allowed) {
    machine_arith usual[] = {isa >= ISA_AVX512_BF16 ? ARITH_DOTS : ARITH_F32, ARITH_F32,
                             ARITH_DOTS};
    for (int i = 0; i < ARRAY_LEN(usual); i++)
        if (allowed >> usual[i] & 1) return usual[i];
    return ARITH_WIDE;
}

machine_choice machine_choose(const machine_facts *f, const machine_layer *layers, int n,
                              unsigned allowed) {
    layer_sums sum = sum_of(f, layers, n);
    machine_choice c = {.how = unmeasured(f->isa, allowed)};
    gemm_impl by[ARITHS][GEMM_LAYOUTS];
    for (int a = 0; a < ARITHS; a++)
        c.ms[a] = time_of(&sum, (machine_arith)a, allowed & MACHINE_OWN, by[a]);
    c.measured = c.ms[ARITH_F32] > 0;
    if (!c.measured) return c;
    machine_arith half = wins(c.ms, allowed, ARITH_DOTS, ARITH_WIDE) ? ARITH_WIDE : ARITH_DOTS;
    c.how = wins(c.ms, allowed, half, ARITH_F32) ? ARITH_F32 : half;
    memcpy(c.rule.of[0], by[ARITH_F32], sizeof by[0]);
    memcpy(c.rule.of[1], by[half], sizeof by[0]);
    return c;
}

bool machine_fewer_threads(double all_ms, double fewer_ms) {
    return fewer_ms > 0 && all_ms > WORTH_FEWER_THREADS * fewer_ms;
}

void machine_describe(const machine_choice *c, char out[256]) {
    int n = 0;
    if (!c->measured) {
        snprintf(out, 256, "by the instruction set: nothing was measured");
        return;
    }
    for (int a = 0; a < ARITHS; a++)
        if (c->ms[a] > 0)
            n += snprintf(out + n, 256 - (size_t)n, "%s%s %.3g ms", n ? "; " : "",
                          machine_arith_name((machine_arith)a), c->ms[a]);
    snprintf(out + n, 256 - (size_t)n, " (products of this size on one thread)");
}

void machine_describe_rule(const gemm_rule *r, bool bf16, char out[128]) {
    const gemm_impl *by = r->of[bf16];
    int n = 0;
    bool same = true;
    for (int p = 1; p < GEMM_LAYOUTS; p++) same = same && by[p] == by[0];
    if (same) n = snprintf(out, 128, "%s", gemm_impl_name(by[0]));
    for (int p = 0; p < GEMM_LAYOUTS && !same; p++)
        n += snprintf(out + n, 128 - (size_t)n, "%s%s: %s", n ? ", " : "",
                      gemm_layout_name((gemm_layout)p), gemm_impl_name(by[p]));
}
