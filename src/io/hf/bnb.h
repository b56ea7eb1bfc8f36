/* Matrices that bitsandbytes has quantised to NF4, as transformers saves them: NAME holds the bits, two numbers a byte and the first in
 * its high half; beside it lie NAME.absmax, NAME.quant_map, NAME.nested_absmax, NAME.nested_quant_map, and
 * NAME.quant_state.bitsandbytes__nf4, a JSON object with the shape. Blocks go on from row to row.
 *
 * What is read is equal to what bitsandbytes reads in fp32, bit for bit (base/nf4.h). */
#ifndef IO_BNB_H
#define IO_BNB_H

#include "base/nf4.h"
#include "io/safetensors/safetensors.h"

typedef struct bnb_matrix {
    const uint8_t *bits; /* NULL: it is no such matrix */
    int64_t rows, cols;  /* as files have it */
    const uint8_t *scale, *nested,
        *absmax; /* maybe unaligned floats; absmax in place of scale: not quantised twice */
    float mean;
} bnb_matrix;

/* Whether v is stored so. ST_FORMAT: in a way that is not read. */
status bnb_find(const st_reader *r, const st_view *v, bnb_matrix *out, err *e) ATH_MUST_USE;
/* Whether the tensor is one of those that lie beside a matrix; *matrix: how long the name of the matrix is. */
bool bnb_is_part(const char *name, size_t *matrix);
/* Elements [first, first + n). */
void bnb_read(const bnb_matrix *m, int64_t first, int64_t n, float *dst);
/* The same blocks in memory, without quantising anew. false: they are not quantised twice. */
bool bnb_take(const bnb_matrix *m, nf4_matrix *to);

#endif
