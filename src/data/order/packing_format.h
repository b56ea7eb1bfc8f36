/* The bytes of an index of sequences; shared by its reader and its maker, private to them.
 * Integers are little-endian. */
#ifndef DATA_PACKING_FORMAT_H
#define DATA_PACKING_FORMAT_H

#include "data/order/packing.h"

enum { PACKING_PIECE_BYTES = 12, PACKING_ENTRY_BYTES = 8 };
#define PACKING_MAGIC "ATHSEQ01"
#define PACKING_N_TOK_MASK UINT32_C(0x3ffffff)
#define PACKING_GOES_ON (UINT32_C(1) << 30)
#define PACKING_LAST (UINT32_C(1) << 31)

_Static_assert(LOADER_MAX_SEQ_LEN <= PACKING_N_TOK_MASK, "a piece's length has its bits");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");

/* The end of the file. */
typedef struct packing_trailer {
    char magic[8];
    uint32_t packing, order, seq_len, source_len, firsts, zero;
    uint64_t fingerprint; /* of the set */
    uint64_t n_tok;
    uint64_t n_pieces;
    packing_totals totals;
    uint64_t hash; /* XXH3-64 of what stands before */
} packing_trailer;
_Static_assert(sizeof(packing_trailer) == 104, "no padding: it is written as it is");

uint64_t packing_trailer_hash(const packing_trailer *t);
/* Makes the file at `path` anew. */
status packing_make(const packing_spec *spec, const char *path, err *e) ATH_MUST_USE;

#endif
