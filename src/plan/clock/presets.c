/* Clusters that many people have: data sheets for what a device can do, measurements for what kernels reach of it.
 *
 * Peaks are dense tensor-core rates with fp32 sums: H100/H200 SXM 989.5 TFLOP/s in bf16, A100 312, B200 2250, L4 121, L40S
 * 362, RTX 4090 165 (NVIDIA's data sheets; the published 3,960 of H100 in FP8 is with sparsity). GB200 and GB300 have 2500 in a rack
 * of 72; their best products are taken to be those of B200, GH200's are measured (829; ml-engineering). fp32 products take TF32.
 * Latencies: NCCL's least all-reduce on 8 x H100 is 12.9 us in a node, 55.5 over two nodes and 235 over 16 (EFA); with the
 * steps of a tree (network.h) that is some 2 and 25 us a message. Prices: of large providers in 2025, a device
 * with its share of the machine (H100 and H200: AWS's capacity blocks of p5 and p5e, 3.93 and 5.41; on demand costs more, small
 * providers take 2 to 3, spot devices 2 to 2.5); watts likewise. */
#include <string.h>

#include "plan/clock/cluster.h"

typedef struct preset {
    const char *name, *device, *source;
    double tflops_16, tflops_32, memory_gib, gb_per_s;
    int per_node;
    double node_gb_per_s, node_us, net_gb_per_s, net_us;
    double dollars, watts;
    double reserved_gib; /* 0: 2, of a driver; else what the system and other programs have */
    double reached;      /* by the best products, as a multiple of what they reach on H100 */
} preset;

/* GPUs of a rack that jobs take: of 18 trays of 4 GPUs 16, so that axes of powers of two stay in racks. */
enum { RACK = 64 };

#define SHEET "NVIDIA data sheet; "
static const preset presets[] = {
    {"h100", "NVIDIA H100 SXM 80GB", SHEET "NVLink 4, 400 Gb/s a GPU", 989.5, 494.7, 80, 3350, 8,
     450, 2, 50, 12, 3.9, 1000, 0, 1},
    {"h200", "NVIDIA H200 SXM 141GB", SHEET "NVLink 4, 400 Gb/s a GPU", 989.5, 494.7, 141, 4800, 8,
     450, 2, 50, 12, 5.4, 1000, 0, 1},
    {"h800", "NVIDIA H800 SXM 80GB", SHEET "NVLink 4 of 400 GB/s, 400 Gb/s a GPU", 989.5, 494.7, 80,
     3350, 8, 200, 2, 50, 12, 0, 1000, 0, 1},
    {"a100", "NVIDIA A100 SXM 80GB", SHEET "NVLink 3, 200 Gb/s a GPU", 312, 156, 80, 2039, 8, 300,
     2, 25, 12, 1.6, 650, 0, 1.083},
    {"a100-40g", "NVIDIA A100 SXM 40GB", SHEET "NVLink 3, 200 Gb/s a GPU", 312, 156, 40, 1555, 8,
     300, 2, 25, 12, 1.2, 650, 0, 1.083},
    {"a800", "NVIDIA A800 SXM 80GB", SHEET "NVLink 3 of 400 GB/s, 200 Gb/s a GPU", 312, 156, 80,
     2039, 8, 200, 2, 25, 12, 0, 650, 0, 1.083},
    {"h20", "NVIDIA H20 SXM 96GB", SHEET "NVLink 4, 400 Gb/s a GPU", 148, 74, 96, 4000, 8, 450, 2,
     50, 12, 0, 700, 0, 1},
    {"b200", "NVIDIA B200 180GB", SHEET "NVLink 5, 400 Gb/s a GPU", 2250, 1125, 180, 8000, 8, 900,
     2, 50, 12, 5, 1800, 0, 0.966},
    {"b300", "NVIDIA B300 288GB", SHEET "NVLink 5, 800 Gb/s a GPU", 2250, 1125, 270, 8000, 8, 900,
     2, 100, 12, 0, 2000, 0, 0.966},
    {"gh200", "NVIDIA GH200 96GB", SHEET "NVLink 4 among 4, 200 Gb/s a GPU", 989.5, 494.7, 96, 4000,
     4, 450, 2, 25, 12, 0, 1000, 0, 1.043},
    {"gb200", "NVIDIA GB200 NVL72 186GB", SHEET "NVLink 5 in a rack, 400 Gb/s a GPU", 2500, 1250,
     186, 8000, RACK, 900, 2, 50, 12, 0, 2000, 0, 0.87},
    {"gb300", "NVIDIA GB300 NVL72 279GB", SHEET "NVLink 5 in a rack, 800 Gb/s a GPU", 2500, 1250,
     279, 8000, RACK, 900, 2, 100, 12, 0, 2200, 0, 0.87},
    {"l40s", "NVIDIA L40S 48GB", SHEET "PCIe 4 x16", 362, 183, 48, 864, 8, 24, 8, 3.1, 25, 1.0, 450,
     0, 1},
    {"l4", "NVIDIA L4 24GB", SHEET "PCIe 4 x8", 121, 60, 24, 300, 4, 12, 8, 3.1, 25, 0.7, 120, 0,
     1},
    {"rtx4090", "NVIDIA RTX 4090 24GB", SHEET "PCIe 4 x16, no peer access", 165, 82.6, 24, 1008, 1,
     12, 10, 1.25, 50, 0.4, 600, 0, 1},
    {"laptop", "laptop, Apple M3 16GB", "Apple's sheet: 100 GB/s; its GPU about 3.5 TFLOP/s", 3.5,
     3.5, 16, 100, 1, 12, 10, 0.1, 100, 0, 30, 6, 1},
    {"phone", "phone, Snapdragon 8 Gen 3 12GB", "LPDDR5X-4800, 64 bits; its GPU about 5.5 TFLOP/s",
     5.5, 2.8, 12, 76.8, 1, 12, 10, 0.1, 100, 0, 6, 6, 1},
};

static const char *const names[] = {"h100", "h200",  "h800",    "h20",    "a100",  "a100-40g",
                                    "a800", "gh200", "b200",    "b300",   "gb200", "gb300",
                                    "l40s", "l4",    "rtx4090", "laptop", "phone", NULL};

/* What kernels of these devices reach, by the microseconds that a call would take at the limit. Products: 794.5 of 989.5
 * TFLOP/s is the best of large ones on H100 (ml-engineering's mamf-finder; 271 of 312 on A100, 1745 of 2250 on B200), 715 to 758 on shapes of a 70B model. Attention:
 * FlashAttention 2 and 3 in bf16 with heads of 128 (Dao 2023; Shah et al. 2024). Elementwise: what copies reach of the
 * memory's rate. Small calls: each has a ramp of some microseconds. */
static const cluster_rate gpu_rates[] = {
    {.of = "matmul", .share = {5, {2, 10, 50, 250, 2000}, {0.25, 0.5, 0.68, 0.74, 0.78}}},
    {.of = "head", .share = {3, {50, 250, 2000}, {0.6, 0.68, 0.72}}},
    {.of = "attention", .pass = "forward", .share = {3, {5, 50, 500}, {0.2, 0.45, 0.58}}},
    {.of = "attention", .share = {3, {5, 50, 500}, {0.15, 0.36, 0.47}}},
    {.share = {4, {1, 5, 25, 200}, {0.3, 0.6, 0.8, 0.88}}},
};

/* One NVMe drive of four PCIe 4 lanes for each device, as machines of eight H100 or A100 have: sheets say 7 GB/s read and
 * 4 to 5 written. */
static const double DISK_BYTES_PER_S = 5e9;

static void fill(cluster *c, const preset *p) {
    *c = (cluster){.kind = p->reserved_gib > 0 ? DEV_CPU : DEV_CUDA,
                   .peak_flops = {[DT_F32] = p->tflops_32 * 1e12,
                                  [DT_BF16] = p->tflops_16 * 1e12,
                                  [DT_F16] = p->tflops_16 * 1e12},
                   .memory_bytes = p->memory_gib * (1 << 30),
                   .reserved_bytes = (p->reserved_gib > 0 ? p->reserved_gib : 2) * (1 << 30),
                   .memory_bytes_per_s = p->gb_per_s * 1e9,
                   .call_s = 2e-6,
                   .micro_s = 100 * 1e-6, /* as a file of 100 us is read: the same bits */
                   .step_s = 1e-3,
                   .disk_bytes_per_s = DISK_BYTES_PER_S,
                   .contention = 0.1,
                   .straggle = 0.02,
                   .per_node = p->per_node,
                   .nodes = 1,
                   .node = {p->node_gb_per_s * 1e9, p->node_us * 1e-6, 0.8},
                   .network = {p->net_gb_per_s * 1e9, p->net_us * 1e-6, 0.8},
                   .dollars_per_hour = p->dollars,
                   .watts = p->watts};
    strcpy(c->name, p->name);
    strcpy(c->device_name, p->device);
    strcpy(c->source, p->source);
    for (int i = 0; i < ARRAY_LEN(gpu_rates); i++) {
        cluster_rate r = gpu_rates[i];
        bool products = strcmp(r.of, "matmul") == 0 || strcmp(r.of, "head") == 0;
        for (int k = 0; products && k < r.share.n; k++) r.share.y[k] *= p->reached;
        CHECK(cluster_add_rate(c, &r), "too many rates");
    }
    cluster_index(c);
}

bool cluster_preset(cluster *out, const char *name) {
    for (int i = 0; i < ARRAY_LEN(presets); i++) {
        if (strcmp(name, presets[i].name) != 0) continue;
        fill(out, &presets[i]);
        return true;
    }
    return false;
}

const char *const *cluster_preset_names(void) {
    return names;
}
