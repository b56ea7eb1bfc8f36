/* Tiles of a processor with AMX (V_AMX): registers of 16 rows of 64 bytes. TDPBF16PS multiplies
 * C [16,16] f32 += A [16,32] bf16 * B [32,16] bf16, where A has k in its rows, and row i of B has
 * the pairs of k = 2i and 2i + 1 (Intel, Software Developer's Manual, volume 2).
 *
 * A thread configures its tiles once for a call, all of them whole; operands are padded with zeros.
 * The compilers do not know that tiles read and write memory: who uses them says so. */
#ifndef OP_CPU_AMX_H
#define OP_CPU_AMX_H

#include "op/cpu/simd.h"

enum { AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_K = 32 };

#if V_AMX

/* LDTILECFG's operand. */
typedef struct amx_config {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;

V_INLINE void amx_begin(void) {
    amx_config config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.row_bytes[t] = AMX_ROW_BYTES, config.rows[t] = AMX_ROWS;
    __asm__ volatile("" : : "r"(&config) : "memory"); /* it is written before it is read */
    _tile_loadconfig(&config);
}
V_INLINE void amx_end(void) {
    _tile_release();
}

#else

V_INLINE void amx_begin(void) {}
V_INLINE void amx_end(void) {}

#endif
#endif
