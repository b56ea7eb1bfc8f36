/* Chooses the matrix product of the device's instruction set. */
#include "op/gemm.h"

#include "op/cpu/tables.h"

int64_t gemm_ws_bytes(cpu_isa isa, int threads, int64_t m, int64_t n, int64_t k, dtype ab_dt,
                      dtype c_dt) {
    return cpu_kernels_of(isa)->gemm_ws(threads, m, n, k, ab_dt, c_dt);
}

void gemm_run(const dev *d, const gemm_args *g, void *ws) {
    cpu_kernels_of(dev_isa(d))->gemm(dev_threads(d), g, ws);
}
