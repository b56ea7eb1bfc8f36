/* Which kernel runs an op, and how it is given to the device: a backend for each kind of device.
 * On a CPU it is the tuned kernel for the instruction set, else the reference.
 *
 * The reference is a complete implementation, so taking it is a choice of speed, never of result
 * type: there is no fallback to another dtype or device. */
#include "op/op.h"

#include "base/text.h"
#include "op/cpu/tables.h"
#include "op/cuda/tables.h"
#include "op/ref/ref_tables.h"

static void do_nothing(const op_call *c) {
    (void)c;
}

static const op_impl meta_impl = {do_nothing, do_nothing, do_nothing, NULL};

static status read_kernels(bool *reference, err *e) {
    static const char *const words[] = {"reference"};
    int which = -1;
    status st = env_word("ATHANOR_KERNELS", words, ARRAY_LEN(words), &which, e);
    *reference = which == 0;
    return st;
}

static bool reference_forced(void) {
    bool forced;
    return read_kernels(&forced, NULL) == ST_OK && forced;
}

status op_check_environment(err *e) {
    bool forced;
    gemm_policy policy;
    TRY(read_kernels(&forced, e));
    return gemm_asked(&policy, e);
}

const op_impl *op_find_reference(op_kind kind, dtype dt) {
    switch (dt) {
        case DT_F32: return op_ref_table_f32[kind];
        case DT_BF16: return op_ref_table_bf16[kind];
        case DT_F16: return op_ref_table_f16[kind];
        case DT_F64: return op_ref_table_f64[kind];
        default: return NULL;
    }
}

/* ---- the CPU and its twin ---- */

const cpu_kernels *cpu_kernels_of(cpu_isa isa, dtype dt) {
#if defined(__x86_64__)
    switch (isa) {
        case ISA_AMX:
            if (dt == DT_BF16) return &cpu_kernels_amx;
            /* fall through */
        case ISA_AVX512_BF16: return dt == DT_BF16 ? &cpu_kernels_avx512_bf16 : &cpu_kernels_avx512;
        case ISA_AVX512_VNNI:
        case ISA_AVX512: return &cpu_kernels_avx512;
        case ISA_AVX2: return &cpu_kernels_avx2;
        case ISA_BASE: break;
    }
#else
    (void)isa;
    (void)dt;
#endif
    return &cpu_kernels_base;
}

const stored_dot_kernels *cpu_stored_dot_of(cpu_isa isa) {
#if defined(__x86_64__)
    if (isa >= ISA_AVX512_VNNI) return &stored_dot_avx512_vnni;
    if (isa == ISA_AVX512) return &stored_dot_avx512;
    if (isa == ISA_AVX2) return &stored_dot_avx2;
#else
    (void)isa;
#endif
    return NULL;
}

/* What is found here is complete: it has every entry that the reference has for this op, and the
 * workspace that these kernels need. */
static const op_impl *find_tuned(cpu_isa isa, op_kind kind, dtype dt) {
    if (dt != DT_F32 && dt != DT_BF16 && dt != DT_F16) return NULL;
    const op_impl *own = cpu_kernels_of(isa, dt)->ops[kind];
    if (!own && isa == ISA_AMX) own = cpu_kernels_of(ISA_AVX512_BF16, dt)->ops[kind];
    return own ? own : cpu_kernels_of(isa, DT_F32)->ops[kind];
}

static const op_impl *find_on_cpu(const dev *d, op_kind kind, dtype dt) {
    const op_impl *tuned = reference_forced() ? NULL : find_tuned(dev_isa(d), kind, dt);
    return tuned ? tuned : op_find_reference(kind, dt);
}

static void launch_at_once(dev *d, op_fn fn, const op_call *c) {
    (void)d;
    fn(c);
}

typedef struct launched {
    op_fn fn;
    op_call call;
    op_run run;
} launched;

static void run_launched(dev *d, const void *args) {
    (void)d;
    const launched *l = args;
    op_call call = l->call;
    call.run = &l->run;
    l->fn(&call);
}

static bool communicates(op_kind kind) {
    return op_classes[kind].flags & OPF_COMMUNICATES;
}

/* A collective is not left to a later wait, which may come at another place on another rank, and on
 * another thread: all ranks must call theirs in one order. The host makes it. */
static void launch_on_host(dev *d, op_fn fn, const op_call *c) {
    dev_enter(d);
    fn(c);
    dev_leave(d);
}

static void launch_later(dev *d, op_fn fn, const op_call *c) {
    if (communicates(c->kind)) {
        launch_on_host(d, fn, c);
        return;
    }
    launched l = {.fn = fn, .call = *c, .run = *c->run};
    dev_launch(d, run_launched, &l, sizeof l);
}

/* ---- CUDA; what communicates is given by the host: a collective, or calls of other kernels with collectives in between ---- */

static const op_impl *find_on_cuda(const dev *d, op_kind kind, dtype dt) {
    if (communicates(kind) && !op_cuda_table_f32[kind]) return find_on_cpu(d, kind, dt);
    switch (dt) {
        case DT_F32: return op_cuda_table_f32[kind];
        case DT_BF16: return op_cuda_table_bf16[kind];
        case DT_F16: return op_cuda_table_f16[kind];
        default: return NULL;
    }
}

static void launch_on_cuda(dev *d, op_fn fn, const op_call *c) {
    if (communicates(c->kind))
        fn(c);
    else
        cuda_op_launch(d, fn, c);
}

/* ---- backends ---- */

/* What a kind of device brings. */
typedef struct op_backend {
    const op_impl *(*find)(const dev *d, op_kind kind, dtype dt); /* d may be meta */
    void (*launch)(dev *d, op_fn fn, const op_call *c);
} op_backend;

static const op_backend backends[DEV_KINDS] = {
    [DEV_CPU] = {find_on_cpu, launch_at_once},
    [DEV_CUDA] = {find_on_cuda, launch_on_cuda},
    [DEV_TWIN] = {find_on_cpu, launch_later},
};

const op_impl *op_find_of_kind(const dev *d, op_kind kind, dtype dt) {
    return backends[dev_get_kind(d)].find(d, kind, dt);
}

const op_impl *op_find(const dev *d, op_kind kind, dtype dt) {
    const op_impl *impl = op_find_of_kind(d, kind, dt);
    return impl && dev_is_meta(d) ? &meta_impl : impl;
}

/* The lowest instruction set that has these kernels: higher ones take them over. */
static const char *cpu_made_by(const dev *d, op_kind kind, dtype dt, const op_impl *impl) {
    if (impl == op_find_reference(kind, dt)) return "reference";
    for (cpu_isa isa = ISA_BASE; isa < dev_isa(d); isa++)
        if (cpu_kernels_of(isa, dt)->ops[kind] == impl ||
            cpu_kernels_of(isa, DT_F32)->ops[kind] == impl)
            return cpu_isa_name(isa);
    return cpu_isa_name(dev_isa(d));
}

const char *op_made_by(const dev *d, op_kind kind, dtype dt) {
    const op_impl *impl = op_find_of_kind(d, kind, dt);
    if (!impl) return NULL;
    if (dev_get_kind(d) != DEV_CUDA) return cpu_made_by(d, kind, dt, impl);
    if (communicates(kind) && !op_cuda_table_f32[kind]) return "host";
    return op_classes[kind].flags & OPF_PRODUCT ? "cublaslt" : "own";
}

/* In fp32 a program has the CPU's numbers to many digits, and NVIDIA does not say how exact the
 * tanh in cuBLASLt is. */
bool op_joins(const dev *d, dtype dt) {
    return dev_get_kind(d) == DEV_CUDA && (dt == DT_BF16 || dt == DT_F16);
}

void op_set_run(dev *d, const op_run *run) {
    if (dev_get_kind(d) == DEV_CUDA) cuda_set_run(d, run);
}

void op_launch(dev *d, op_fn fn, const op_call *c) {
    backends[dev_get_kind(d)].launch(d, fn, c);
}
