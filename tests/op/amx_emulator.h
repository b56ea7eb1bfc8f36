/* Runs AMX instructions on a machine that has none, so that kernels made of them can be tested: the
 * processor stops at each with SIGILL, and the handler does what the instruction would have done.
 *
 * What would fault on the processor ends the test with a word about it: tiles that are not
 * configured, or whose shapes do not belong together. Instructions and arithmetic follow Intel's
 * Software Developer's Manual, volume 2 (LDTILECFG, TILELOADD, TILEZERO, TILESTORED, TDPBF16PS):
 * two sums for the pairs of k, in the order of k, subnormal numbers are 0.
 *
 * Reading order: amx_emulator_start, amx_on_illegal, amx_execute. */
#ifndef TESTS_OP_AMX_EMULATOR_H
#define TESTS_OP_AMX_EMULATOR_H

#if defined(__x86_64__)

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

typedef struct amx_tile {
    int rows, row_bytes;
    uint8_t data[AMX_ROWS][AMX_ROW_BYTES];
} amx_tile;

/* Tiles belong to a thread, as registers do. */
static _Thread_local struct {
    int configured;
    amx_tile tile[AMX_TILES];
} amx_thread;

static _Atomic long amx_products; /* tile products so far, by all threads */

/* An instruction in the only encoding that AMX has: three bytes of VEX, opcode, ModRM, maybe SIB. */
typedef struct amx_code {
    int opcode, prefix; /* prefix: 0 none, 1 66, 2 F3, 3 F2 */
    int mod, reg, rm, third;
    uint64_t address, stride; /* of the operand in memory */
    int bytes;
} amx_code;

static _Noreturn void amx_fault(const char *what) {
    char line[128];
    int n = snprintf(line, sizeof line, "AMX: %s\n", what);
    (void)!write(2, line, (size_t)n);
    _exit(99);
}

static uint64_t amx_register(const ucontext_t *u, int number) {
    static const int at[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                               REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                               REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)u->uc_mcontext.gregs[at[number]];
}

/* The operand in memory: base + displacement, and for tiles index * scale as the stride of rows. */
static void amx_decode_memory(amx_code *c, const uint8_t *p, const ucontext_t *u, int x, int b) {
    int base = c->rm, index = 4, scale = 0, disp = c->mod == 1 ? 1 : c->mod == 2 ? 4 : 0;
    const uint8_t *at = p + 5;
    if (c->rm == 4) {
        base = *at & 7, index = (*at >> 3 & 7) + 8 * x, scale = *at >> 6;
        at++;
    }
    int none = c->mod == 0 && base == 5;
    if (none && c->rm == 5) amx_fault("an operand relative to the program's counter");
    if (none) disp = 4;
    int32_t by = 0;
    if (disp == 1) by = (int8_t)*at;
    if (disp == 4) memcpy(&by, at, 4);
    c->address = (none ? 0 : amx_register(u, base + 8 * b)) + (uint64_t)(int64_t)by;
    c->stride = index == 4 ? 0 : amx_register(u, index) << scale;
    c->bytes = (int)(at - p) + disp;
}

/* False: this is no AMX instruction. */
static int amx_decode(amx_code *c, const uint8_t *p, const ucontext_t *u) {
    if (p[0] != 0xc4 || (p[1] & 31) != 2 || (p[2] & 0x84) != 0) return 0;
    *c = (amx_code){.opcode = p[3], .prefix = p[2] & 3, .third = ~p[2] >> 3 & 15};
    if (c->opcode != 0x49 && c->opcode != 0x4b && c->opcode != 0x5c) return 0;
    c->mod = p[4] >> 6, c->reg = p[4] >> 3 & 7, c->rm = p[4] & 7, c->bytes = 5;
    if (c->mod != 3) amx_decode_memory(c, p, u, !(p[1] & 0x40), !(p[1] & 0x20));
    return 1;
}

/* LDTILECFG: 64 bytes; palette, first row, from byte 16 the bytes of a row, from byte 48 the rows. */
static void amx_configure(const uint8_t *config) {
    if (config[0] != 1 || config[1] != 0) amx_fault("a configuration of another palette");
    memset(&amx_thread, 0, sizeof amx_thread);
    amx_thread.configured = 1;
    for (int t = 0; t < AMX_TILES; t++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, config + 16 + 2 * t, 2);
        if (row_bytes > AMX_ROW_BYTES || row_bytes % 4 || config[48 + t] > AMX_ROWS)
            amx_fault("a configuration with a tile that is too large");
        amx_thread.tile[t].row_bytes = row_bytes, amx_thread.tile[t].rows = config[48 + t];
    }
}

static amx_tile *amx_tile_of(int number) {
    if (!amx_thread.configured) amx_fault("a tile is used that is not configured");
    amx_tile *t = &amx_thread.tile[number & 7];
    if (t->rows == 0 || t->row_bytes == 0) amx_fault("a tile without size is used");
    return t;
}

static void amx_load(amx_tile *t, const amx_code *c) {
    memset(t->data, 0, sizeof t->data);
    for (int r = 0; r < t->rows; r++)
        memcpy(t->data[r], (const void *)(c->address + (uint64_t)r * c->stride),
               (size_t)t->row_bytes);
}

static void amx_store(const amx_tile *t, const amx_code *c) {
    for (int r = 0; r < t->rows; r++)
        memcpy((void *)(c->address + (uint64_t)r * c->stride), t->data[r], (size_t)t->row_bytes);
}

static float amx_normal(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

/* Rows of bf16 as floats. */
static void amx_widen(const amx_tile *t, float out[AMX_ROWS][AMX_ROW_BYTES / 2]) {
    for (int r = 0; r < t->rows; r++) {
        for (int i = 0; i < t->row_bytes / 2; i++) {
            uint32_t bits = (uint32_t)t->data[r][2 * i] << 16 | (uint32_t)t->data[r][2 * i + 1]
                                                                    << 24;
            memcpy(&out[r][i], &bits, 4);
            out[r][i] = amx_normal(out[r][i]);
        }
    }
}

/* C [m,n] += A [m,k] B [k,n], where row k/2 of B has the pairs of k. */
__attribute__((target("fma"))) static void amx_multiply(amx_tile *c, const amx_tile *a,
                                                        const amx_tile *b) {
    float wide_a[AMX_ROWS][AMX_ROW_BYTES / 2], wide_b[AMX_ROWS][AMX_ROW_BYTES / 2];
    if (c->rows != a->rows || c->row_bytes != b->row_bytes || a->row_bytes != 4 * b->rows)
        amx_fault("a product of tiles that do not belong together");
    amx_widen(a, wide_a), amx_widen(b, wide_b);
    for (int m = 0; m < c->rows; m++) {
        float sum[AMX_ROW_BYTES / 2] = {0}, old;
        for (int k = 0; k < a->row_bytes / 2; k++)
            for (int n = k % 2; n < c->row_bytes / 2; n += 2)
                sum[n] = amx_normal(fmaf(wide_a[m][k], wide_b[k / 2][n], sum[n]));
        for (int n = 0; n < c->row_bytes / 4; n++) {
            memcpy(&old, &c->data[m][4 * n], 4);
            old = amx_normal(amx_normal(old) + amx_normal(sum[2 * n] + sum[2 * n + 1]));
            memcpy(&c->data[m][4 * n], &old, 4);
        }
    }
    atomic_fetch_add(&amx_products, 1);
}

static void amx_execute(const amx_code *c) {
    enum { PLAIN, P66, PF3, PF2 };
    if (c->opcode == 0x49 && c->mod != 3 && c->prefix == PLAIN)
        amx_configure((const uint8_t *)c->address);
    else if (c->opcode == 0x49 && c->mod == 3 && c->prefix == PLAIN)
        amx_thread.configured = 0; /* TILERELEASE */
    else if (c->opcode == 0x49 && c->mod == 3 && c->prefix == PF2)
        memset(amx_tile_of(c->reg)->data, 0, sizeof amx_thread.tile[0].data);
    else if (c->opcode == 0x4b && c->mod != 3 && (c->prefix == PF2 || c->prefix == P66))
        amx_load(amx_tile_of(c->reg), c); /* TILELOADD, TILELOADDT1 */
    else if (c->opcode == 0x4b && c->mod != 3 && c->prefix == PF3)
        amx_store(amx_tile_of(c->reg), c);
    else if (c->opcode == 0x5c && c->mod == 3 && c->prefix == PF3)
        amx_multiply(amx_tile_of(c->reg), amx_tile_of(c->rm), amx_tile_of(c->third));
    else
        amx_fault("an instruction that the emulator does not know");
}

/* This instruction, and those of AMX right behind it: a signal takes far longer than any of them. */
static void amx_on_illegal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *u = context;
    amx_code c;
    if (!amx_decode(&c, (const uint8_t *)u->uc_mcontext.gregs[REG_RIP], u))
        amx_fault("SIGILL from another instruction");
    do {
        amx_execute(&c);
        u->uc_mcontext.gregs[REG_RIP] += c.bytes;
    } while (amx_decode(&c, (const uint8_t *)u->uc_mcontext.gregs[REG_RIP], u));
}

/* From now on, for all threads of this process. */
static inline void amx_emulator_start(void) {
    struct sigaction act = {.sa_sigaction = amx_on_illegal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGILL, &act, NULL);
}

#endif
#endif
