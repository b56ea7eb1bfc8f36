/* Which processor this is, and which instruction set a device uses on it: the highest that the
 * processor has, the system allows, and ATHANOR_ISA does not exclude. Bits are those of Intel's
 * Software Developer's Manual, volume 2, CPUID. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/arena.h"
#include "base/text.h"
#include "dev/dev_int.h"

static const char *const ISA_NAMES[] = {
    [ISA_BASE] = "base",
    [ISA_AVX2] = "avx2",
    [ISA_AVX512] = "avx512",
    [ISA_AVX512_VNNI] = "avx512_vnni",
    [ISA_AVX512_BF16] = "avx512_bf16",
    [ISA_AMX] = "amx",
};

const char *cpu_isa_name(cpu_isa isa) {
    return ISA_NAMES[isa];
}

static bool all_of(uint64_t word, uint64_t bits) {
    return (word & bits) == bits;
}

#define BIT(n) (1ull << (n))

/* Kernels are compiled for the levels x86-64-v3 and v4, so all of a level must be there, and the
 * system must save its registers. */
cpu_isa isa_of(const cpu_id *id) {
    enum { FMA = 12, MOVBE = 22, OSXSAVE = 27, F16C = 29, LZCNT = 5 };
    enum { BMI1 = 3, AVX2 = 5, BMI2 = 8, AVX512F = 16, DQ = 17, CD = 28, BW = 30, VL = 31 };
    enum { VNNI = 11, BF16 = 5, AMX_BF16 = 22, AMX_TILE = 24 };
    const uint64_t ymm = BIT(1) | BIT(2), zmm = ymm | BIT(5) | BIT(6) | BIT(7);
    const uint64_t tiles = zmm | BIT(17) | BIT(18);
    if (!all_of(id->basic_ecx, BIT(FMA) | BIT(MOVBE) | BIT(OSXSAVE) | BIT(F16C)) ||
        !all_of(id->more_ebx, BIT(BMI1) | BIT(AVX2) | BIT(BMI2)) ||
        !all_of(id->extended_ecx, BIT(LZCNT)) || !all_of(id->xcr0, ymm))
        return ISA_BASE;
    if (!all_of(id->more_ebx, BIT(AVX512F) | BIT(DQ) | BIT(CD) | BIT(BW) | BIT(VL)) ||
        !all_of(id->xcr0, zmm))
        return ISA_AVX2;
    if (!all_of(id->more_ecx, BIT(VNNI))) return ISA_AVX512;
    if (!all_of(id->more1_eax, BIT(BF16))) return ISA_AVX512_VNNI;
    if (!all_of(id->more_edx, BIT(AMX_BF16) | BIT(AMX_TILE)) || !all_of(id->xcr0, tiles) ||
        !id->tiles_granted)
        return ISA_AVX512_BF16;
    return ISA_AMX;
}

#if defined(__x86_64__)

/* Linux gives a process tiles only when it asks, since they make its saved state 8 KiB larger. A
 * process may ask again; its threads and children have what it has. */
static bool ask_for_tiles(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static cpu_id read_id(void) {
    const unsigned osxsave = 1u << 27, amx_tile = 1u << 24;
    cpu_id id = {0};
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) id.basic_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) id.more_ebx = b, id.more_ecx = c, id.more_edx = d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) id.more1_eax = a;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) id.extended_ecx = c;
    if (id.basic_ecx & osxsave) id.xcr0 = read_xcr0();
    if (id.more_edx & amx_tile) id.tiles_granted = ask_for_tiles();
    return id;
}

/* The brand string is 48 bytes in three leaves; family and model are extended as CPUID leaf 1 says.
 */
void dev_machine_name(char out[DEV_NAME_MAX]) {
    unsigned r[12] = {0}, eax = 0, ebx, ecx, edx;
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    char brand[sizeof r + 1] = {0};
    memcpy(brand, r, sizeof r);
    size_t n = strlen(brand);
    while (n > 0 && brand[n - 1] == ' ') brand[--n] = '\0';
    __get_cpuid(1, &eax, &ebx, &ecx, &edx);
    unsigned family = (eax >> 8 & 15) + (eax >> 20 & 255);
    unsigned model = (eax >> 4 & 15) | (eax >> 12 & 0xf0);
    snprintf(out, DEV_NAME_MAX, "%s (family %u model %u)", brand, family, model);
}

static cpu_isa detect_isa(void) {
    cpu_id id = read_id();
    return isa_of(&id);
}

#else

void dev_machine_name(char out[DEV_NAME_MAX]) {
    struct utsname u;
    snprintf(out, DEV_NAME_MAX, "%s", uname(&u) == 0 ? u.machine : "unknown");
}

static cpu_isa detect_isa(void) {
    return ISA_BASE;
}

#endif

cpu_isa dev_machine_isa(void) {
    return detect_isa();
}

status isa_choose(cpu_isa *isa, err *e) {
    *isa = detect_isa();
    int wish = (int)*isa;
    TRY(env_word("ATHANOR_ISA", ISA_NAMES, ARRAY_LEN(ISA_NAMES), &wish, e));
    if (wish < (int)*isa) *isa = (cpu_isa)wish;
    return ST_OK;
}
