/* A tensor as files of Hugging Face store it: plain numbers, 8-bit floats with their factors, or 4 bits of bitsandbytes. */
#ifndef IO_HF_STORED_H
#define IO_HF_STORED_H

#include "io/hf/bnb.h"
#include "io/safetensors/fp8.h"

/* A parameter as a folder stores it. */
typedef struct hf_weight {
    const st_view *v;
    const st_view
        *scale;        /* fp8: NAME_scale_inv or NAME_scale, the factors of its blocks; else NULL */
    fp8_grid grid;     /* of these */
    bnb_matrix four;   /* in 4 bits of bitsandbytes; bits NULL: it is not */
    const float *mean; /* every row behind those that are stored; NULL: all are stored */
} hf_weight;

/* The factors of a matrix that is stored as 8-bit floats; nothing of another one. ST_FORMAT: it has none, or none that fit. */
status hf_find_scale(const st_reader *r, hf_weight *w, err *e) ATH_MUST_USE;
/* Elements, also of 4 bits, of which files list the bytes. */
int64_t hf_weight_elems(const hf_weight *w);
/* Elements [first, first + n) of what is stored. */
status hf_weight_read(const hf_weight *w, int64_t first, int64_t n, void *dst, dtype dt,
                      err *e) ATH_MUST_USE;

#endif
