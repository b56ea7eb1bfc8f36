/* athanor doctor: what this machine is, whether its products are right, how fast they are, and what
 * `auto` makes of that. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/doctor.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "gpu/links.h"
#include "gpu/lt.h"
#include "gpu/nccl.h"
#include "op/gemm_bench.h"
#include "op/probe.h"

static const double PROBE_S = 0.4; /* as train takes for it */

typedef struct doctor {
    dev *dev;
    machine_facts f;
    machine_choice choice;
    machine_layer layer; /* by which auto is shown: that of models of usual width */
    double probe_s;      /* 0: products were remembered */
    bool changed, anew;  /* something was measured; all was, whatever was known */
    doctor_checks checks;
} doctor;

void doctor_check(doctor_checks *c, const char *name, bool ok, const char *fmt, ...) {
    char detail[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(detail, sizeof detail, fmt, args);
    va_end(args);
    json_array_append_new(c->list, json_pack("{s:s,s:b,s:o}", "name", name, "ok", (int)ok, "detail",
                                             json_cstr(detail)));
    c->failed += !ok;
}

/* ---- what it is ---- */

static void check_machine(doctor *x) {
    int threads = dev_threads(x->dev), cores = dev_cores();
    double quota = dev_quota();
    char granted[64] = "";
    if (quota > 0)
        snprintf(granted, sizeof granted, ", of whose time control groups grant %.3g", quota);
    doctor_check(&x->checks, "machine", true, "%s", x->f.name);
    doctor_check(&x->checks, "threads", true, "%d thread%s on %d core%s%s%s", threads,
                 text_s(threads), cores, text_s(cores),
                 cores < threads ? ", of which some are hyper-threads" : "", granted);
    doctor_check(&x->checks, "instructions", true, "%s%s", cpu_isa_name(x->f.isa),
                 x->f.isa >= ISA_AVX512_BF16 ? ", with bf16 dot products" : "");
}

static void check_memory(doctor *x) {
    double gib = 1 << 30, all = (double)dev_machine_total_bytes() / gib;
    double left = (double)dev_machine_available_bytes() / gib;
    doctor_check(&x->checks, "memory", left >= 1, "%.1f GiB, of which %.1f GiB are free%s", all,
                 left, left >= 1 ? "" : ": less than 1 GiB is too little for most models");
}

/* ---- whether it multiplies rightly ---- */

/* The largest error of all layouts; the sizes are no multiples of any tile. */
static status worst_error(doctor *x, dtype dt, gemm_impl impl, double *worst, err *e) {
    *worst = -1;
    for (int p = 0; p < GEMM_LAYOUTS; p++) {
        gemm_case c = {.m = 67, .n = 83, .k = 131, .layout = (gemm_layout)p, .dt = dt};
        double error;
        TRY(gemm_bench_error(x->dev, &c, impl, &error, e));
        if (!(error <= *worst)) *worst = error;
    }
    return ST_OK;
}

/* A sum of 131 terms in fp32; a result that is stored in bf16 has eight bits. */
static status check_products(doctor *x, err *e) {
    for (int dt = DT_F32; dt <= DT_BF16; dt++)
        for (int k = 0; k < GEMM_IMPLS; k++) {
            char name[64];
            double error, most = dt == DT_BF16 ? 4e-3 : 2e-6;
            TRY(worst_error(x, (dtype)dt, (gemm_impl)k, &error, e));
            snprintf(name, sizeof name, "products, %s, %s", dtype_name((dtype)dt),
                     gemm_impl_name((gemm_impl)k));
            if (error < 0)
                doctor_check(&x->checks, name, true,
                             "has no such product, or needs more workspace than ours");
            else
                doctor_check(&x->checks, name, error <= most,
                             "error %.1e of the terms, at most %.0e is right", error, most);
        }
    return ST_OK;
}

/* ---- how fast it is ---- */

static status measure(doctor *x, bool anew, err *e) {
    x->anew = anew;
    if (anew) x->f.memory_gb_per_s = 0, x->f.best_threads = x->f.n_layers = 0;
    int64_t began = clock_now_ns();
    if (probe_is_needed(&x->f, &x->layer, 1)) {
        TRY(probe_run(&x->f, &x->layer, 1, PROBE_S, e));
        x->probe_s = clock_since_s(began);
    }
    x->changed = x->probe_s > 0 || x->f.memory_gb_per_s <= 0;
    return x->f.memory_gb_per_s > 0 ? ST_OK : probe_memory(&x->f, PROBE_S, e);
}

static void remember(doctor *x) {
    char path[4096];
    err why = {0};
    status st = !x->changed ? ST_OK
                : x->anew   ? machine_write_anew(&x->f, &why)
                            : machine_write(&x->f, &why);
    if (st != ST_OK)
        doctor_check(&x->checks, "remembered", false, "%s", why.message);
    else if (machine_path(path, sizeof path))
        doctor_check(&x->checks, "remembered", true, "%s%.400s", x->changed ? "now, in " : "in ",
                     path);
}

static status check_speed(doctor *x, bool anew, err *e) {
    err why = {0};
    if (machine_is_off() && anew) return machine_no_place(e);
    if (machine_is_off()) {
        doctor_check(&x->checks, "measured", true, "nothing: ATHANOR_MACHINE_FILE is none");
        return ST_OK;
    }
    if (machine_read(&x->f, x->dev, &why) != ST_OK)
        doctor_check(&x->checks, "remembered", false, "%s; %s", why.message, why.hint);
    TRY(measure(x, anew, e));
    bool fast = x->f.fma_gflops > 0 && x->f.memory_gb_per_s > 0;
    doctor_check(
        &x->checks, "measured", fast,
        "one thread in registers: %.0f GFLOP/s in fp32, %.0f in bf16 dot products; memory: "
        "%.1f GB/s",
        x->f.fma_gflops, x->f.dot_gflops, x->f.memory_gb_per_s);
    if (why.code == ST_OK) remember(x);
    return ST_OK;
}

static void check_auto(doctor *x) {
    char why[256], rule[128];
    x->choice = machine_choose(&x->f, &x->layer, 1, MACHINE_ANY);
    machine_describe(&x->choice, why);
    machine_describe_rule(&x->choice.rule, x->choice.how != ARITH_F32, rule);
    int threads = x->f.best_threads > 0 ? x->f.best_threads : x->f.threads;
    doctor_check(&x->checks, "auto", true, "%s; products: %s; %d thread%s",
                 machine_arith_name(x->choice.how), rule, threads, text_s(threads));
    doctor_check(&x->checks, "why", true, "%s", why);
}

/* ---- its GPUs; device=cuda needs no more than what is checked here ---- */

/* Returns whether it is one to train on. */
static bool check_gpu(doctor *x, const cu_driver *api, int ordinal) {
    int device = 0, major = 0, minor = 0, processors = 0;
    size_t bytes = 0;
    char label[32], name[DEV_NAME_MAX] = "";
    api->device_get(&device, ordinal);
    api->device_name(name, sizeof name, device);
    api->device_attribute(&major, CU_COMPUTE_MAJOR, device);
    api->device_attribute(&minor, CU_COMPUTE_MINOR, device);
    api->device_attribute(&processors, CU_MULTIPROCESSORS, device);
    api->device_memory(&bytes, device);
    bool serves = major >= CU_LEAST_MAJOR;
    bool lacks =
        serves && !api->emulated && GPU_HAS_KERNELS && !gpu_arch_serves(GPU_ARCHS, major, minor);
    snprintf(label, sizeof label, "GPU %d", ordinal);
    doctor_check(
        &x->checks, label, !lacks, "%s, compute capability %d.%d, %.1f GiB, %d multiprocessors%s%s",
        name, major, minor, (double)bytes / (1 << 30), processors,
        serves ? "" : "; too old: 8.0 is the least for device=cuda",
        lacks ? "; this program has no kernels for it: name it in make cuda CUDA_ARCHS=..." : "");
    return serves;
}

/* What ranks can send depends on both: by PCIe to the host, and to each other. */
static void show_slot(doctor *x, const cu_driver *api, int ordinal) {
    char label[32];
    int device = 0;
    api->device_get(&device, ordinal);
    gpu_pcie p = gpu_pcie_of(api, device, "/sys/bus/pci/devices");
    if (!p.lanes || !p.generation) return;
    snprintf(label, sizeof label, "GPU %d slot", ordinal);
    doctor_check(&x->checks, label, true, "PCIe %d x%d now, %d x%d at most%s", p.generation,
                 p.lanes, p.most_generation, p.most_lanes,
                 p.lanes < p.most_lanes ? ": the slot has fewer lanes than the GPU" : "");
}

static void show_link(doctor *x, const cu_driver *api, int i, int j) {
    static const char *const words[] = {
        [GPU_LINK_NONE] = "no peer access: what they send goes through the host's memory",
        [GPU_LINK_PEER] = "peer access, without atomics: over PCIe",
        [GPU_LINK_ATOMIC] = "peer access with atomics: over NVLink"};
    char label[32];
    int a = 0, b = 0;
    api->device_get(&a, i);
    api->device_get(&b, j);
    snprintf(label, sizeof label, "GPU %d to %d", i, j);
    doctor_check(&x->checks, label, true, "%s", words[gpu_link_of(api, a, b)]);
}

static void show_links(doctor *x, const cu_driver *api, int count) {
    for (int i = 0; i < count; i++) show_slot(x, api, i);
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++) show_link(x, api, i, j);
}

static void check_kernels(doctor *x, bool emulated) {
    if (emulated)
        doctor_check(&x->checks, "GPU kernels", true, "compiled for the emulated GPU");
    else if (GPU_HAS_KERNELS)
        doctor_check(&x->checks, "GPU kernels", true, "for sm_%s", GPU_ARCHS);
    else
        doctor_check(
            &x->checks, "GPU kernels", true,
            "none, so that training takes the CPU: make cuda builds the program with them");
}

static void check_cublaslt(doctor *x, bool emulated) {
    lt_library lt;
    err why = {0};
    if (lt_open(&lt, emulated, &why) != ST_OK) {
        doctor_check(&x->checks, "cuBLASLt", !GPU_HAS_KERNELS, "%s: make deps-cuda brings it; %s",
                     why.message, why.hint);
        return;
    }
    if (emulated)
        doctor_check(&x->checks, "cuBLASLt", true, "emulated");
    else
        doctor_check(&x->checks, "cuBLASLt", true, "%zu.%zu.%zu", lt.version() / 10000,
                     lt.version() / 100 % 100, lt.version() % 100);
    lt_close(&lt);
}

/* Ranks on several GPUs do without it, more slowly. */
static void check_nccl(doctor *x, bool emulated) {
    nccl_library n;
    err why = {0};
    int version = 0;
    if (nccl_open(&n, emulated, &why) != ST_OK) {
        doctor_check(&x->checks, "NCCL", true, "none: %s; ranks send through the host's memory. %s",
                     why.message, why.hint);
        return;
    }
    n.get_version(&version);
    doctor_check(&x->checks, "NCCL", true, "%s%d.%d.%d", emulated ? "emulated, " : "",
                 version / 10000, version / 100 % 100, version % 100);
    nccl_close(&n);
}

/* A machine without a GPU is well; a driver that does not start is not. */
static void check_gpus(doctor *x) {
    cu_driver api;
    err why = {0};
    int count = 0, version = 0, serving = 0;
    if (!cu_driver_is_there()) {
        doctor_check(&x->checks, "GPU", true, "none: there is no NVIDIA driver here");
        return;
    }
    if (cu_driver_open(&api, &why) != ST_OK) {
        doctor_check(&x->checks, "GPU driver", false, "%s; %s", why.message, why.hint);
        return;
    }
    api.driver_version(&version);
    doctor_check(&x->checks, "GPU driver", true, "%sCUDA %d.%d", api.emulated ? "emulated, " : "",
                 version / 1000, version % 1000 / 10);
    if (api.device_count(&count) != 0 || count == 0) doctor_check(&x->checks, "GPU", true, "none");
    for (int i = 0; i < count; i++) serving += check_gpu(x, &api, i);
    show_links(x, &api, count);
    if (serving > 0) {
        check_kernels(x, api.emulated);
        check_cublaslt(x, api.emulated);
        check_nccl(x, api.emulated);
    }
    cu_driver_close(&api);
}

/* ---- showing it ---- */

static double rate_of(const machine_layer *l, double ms) {
    return ms > 0 ? 2e-6 * (double)l->rows * (double)l->in * (double)l->width / ms : 0;
}

/* GFLOP/s of each way, in the layouts of a linear layer. */
static void print_rates(const doctor *x) {
    const machine_layer *l = machine_find(&x->f, &x->layer);
    if (!l) return;
    printf("\nGFLOP/s of one thread, a layer of %ld rows, %ld to %ld:\n%-36s", (long)l->rows,
           (long)l->in, (long)l->width, "");
    for (int p = 0; p < GEMM_LAYOUTS; p++) printf(" %15s", gemm_layout_name((gemm_layout)p));
    printf("\n");
    for (int a = 0; a < ARITHS; a++)
        for (int k = 0; k < GEMM_IMPLS; k++) {
            char name[64];
            if (l->ms[a][0][k] <= 0) continue;
            snprintf(name, sizeof name, "%s, %s", machine_arith_name((machine_arith)a),
                     gemm_impl_name((gemm_impl)k));
            printf("  %-34s", name);
            for (int p = 0; p < GEMM_LAYOUTS; p++) printf(" %15.1f", rate_of(l, l->ms[a][p][k]));
            printf("\n");
        }
}

void doctor_print(const doctor_checks *c) {
    json_t *o;
    size_t i;
    json_array_foreach(c->list, i, o) {
        printf("%-6s %-22s %s\n", json_is_true(json_object_get(o, "ok")) ? "ok" : "FAILED",
               json_string_value(json_object_get(o, "name")),
               json_string_value(json_object_get(o, "detail")));
    }
}

status doctor_result(const doctor_checks *c, bool json, err *e) {
    if (c->failed == 0) return ST_OK;
    err_set(e, ST_FAILED, "%d check%s failed", c->failed, text_s(c->failed));
    if (json) e->message[0] = '\0'; /* `ok: false` has said it */
    return ST_FAILED;
}

static void print_all(const doctor *x) {
    doctor_print(&x->checks);
    print_rates(x);
    if (x->probe_s > 0) printf("\nproducts were measured now, in %.2f s\n", x->probe_s);
}

static json_t *result_json(doctor *x) {
    bool half = x->choice.how != ARITH_F32;
    json_t *products = json_array();
    for (int p = 0; p < GEMM_LAYOUTS; p++)
        json_array_append_new(products, json_string(gemm_impl_name(x->choice.rule.of[half][p])));
    json_t *o = json_pack("{s:O,s:{s:s,s:s,s:o,s:b}}", "checks", x->checks.list, "auto",
                          "precision", half ? "bf16" : "fp32", "arithmetic",
                          x->choice.how == ARITH_DOTS ? "bf16" : "fp32", "products", products,
                          "measured", (int)x->choice.measured);
    if (x->probe_s > 0) json_object_set_new(o, "probe_s", json_f32(x->probe_s));
    return o;
}

/* ---- the command ---- */

typedef enum doctor_word { WHAT_MACHINE, WHAT_CALIBRATE, WHAT_BURNIN } doctor_word;

static status read_word(const cli_args *args, doctor_word *what, err *e) {
    const char *word = args->n_inputs ? args->inputs[0] : "";
    *what = strcmp(word, "calibrate") == 0 ? WHAT_CALIBRATE
            : strcmp(word, "burnin") == 0  ? WHAT_BURNIN
                                           : WHAT_MACHINE;
    if (*word && *what == WHAT_MACHINE) {
        err_set(e, ST_USAGE, "doctor does not know '%s'", word);
        return err_hint(e,
                        "write athanor doctor, athanor doctor calibrate or athanor doctor burnin");
    }
    static const char *const of_calibrate[] = {"ranks", "disk"};
    for (size_t i = 0; i < ARRAY_LEN(of_calibrate) && *what != WHAT_CALIBRATE; i++) {
        if (!cli_has(args, of_calibrate[i])) continue;
        err_set(e, ST_USAGE, "--%s is for calibrate", of_calibrate[i]);
        return err_hint(e, "write athanor doctor calibrate --%s ...", of_calibrate[i]);
    }
    if (*what != WHAT_MACHINE || !cli_has(args, "seconds")) return ST_OK;
    err_set(e, ST_USAGE, "--seconds is for calibrate and for the burn-in");
    return err_hint(e, "write athanor doctor burnin --seconds N");
}

static status examine(doctor *x, bool anew, err *e) {
    TRY(dev_open(&x->dev, DEV_CPU, 0, e));
    x->f = (machine_facts){.isa = dev_isa(x->dev), .threads = dev_threads(x->dev)};
    dev_machine_name(x->f.name);
    check_machine(x);
    check_memory(x);
    TRY(check_products(x, e));
    TRY(check_speed(x, anew, e));
    check_auto(x);
    check_gpus(x);
    return ST_OK;
}

static status run_burnin(const cli_args *args, err *e) {
    double seconds;
    TRY(cli_num(args, "seconds", 10, 0.1, 86400, &seconds, e));
    doctor_checks c = {.list = json_array()};
    status st = doctor_burnin(seconds, &c, e);
    if (st == ST_OK && args->json) cli_print_json(json_pack("{s:O}", "checks", c.list));
    if (st == ST_OK && !args->json) doctor_print(&c);
    if (st == ST_OK) st = doctor_result(&c, args->json, e);
    json_decref(c.list);
    return st;
}

static status cmd_doctor(const cli_args *args, err *e) {
    doctor_word what;
    TRY(read_word(args, &what, e));
    if (what == WHAT_BURNIN) return run_burnin(args, e);
    doctor x = {.layer = probe_usual_layer(), .checks.list = json_array()};
    status st = examine(&x, what == WHAT_CALIBRATE, e);
    if (st == ST_OK && what == WHAT_CALIBRATE) st = doctor_calibrate(args, &x.checks, e);
    if (st == ST_OK && args->json) cli_print_json(result_json(&x));
    if (st == ST_OK && !args->json) print_all(&x);
    if (st == ST_OK) st = doctor_result(&x.checks, args->json, e);
    json_decref(x.checks.list);
    machine_free(&x.f);
    dev_close(x.dev);
    return st;
}

static const cli_option options[] = {
    {"seconds", "N",
     "burnin: how long products run, and memory at most (10); calibrate: how long at most (60)"},
    {"ranks", "N", "calibrate: for athanor plan cluster=local-N, N ranks that share this machine"},
    {"disk", "FOLDER", "calibrate: measure the disk of this folder, too, for parallel.offload"},
    {0}};

const cli_command command_doctor = {
    .name = "doctor",
    .summary = "check this machine, and show what auto makes of it",
    .usage = "[calibrate [--ranks N] [--seconds N] [--disk FOLDER] | burnin [--seconds N]]",
    .run = cmd_doctor,
    .options = options,
    .max_inputs = 1,
    .about =
        "What was measured is remembered in ~/.cache/athanor/machine.json (ATHANOR_MACHINE_FILE "
        "names\n"
        "another file; none: nothing is measured). calibrate measures anew, and how fast the ops "
        "of\n"
        "training are, for athanor plan cluster=local. burnin keeps every core\n"
        "and every GPU busy with work of known results, and names those that are wrong or slow.\n"};
