#include "op/peak.h"

#include "base/clock.h"
#include "op/cpu/tables.h"

double peak_flops(const dev *d, dtype dt) {
    const cpu_kernels *k = cpu_kernels_of(dev_isa(d));
    double (*loop)(int threads, int64_t rounds) = dt == DT_BF16 ? k->dot_loop : k->fma_loop;
    enum { ROUNDS = 1 << 14, RUNS = 16 };
    double best = 0;
    for (int i = 0; i < RUNS; i++) {
        int64_t began = clock_now_ns();
        double flops = loop(1, ROUNDS), rate = flops / clock_since_s(began);
        if (rate > best) best = rate;
    }
    return best * dev_threads(d);
}
