/* A folder of Hugging Face opened for inference.
 *
 * Matrices that lie in its files as they are computed with stay there, what does not is read into
 * masters. A matrix stays when it is F32, BF16 or F16, aligned, and has rows and their order in
 * common with memory: not where it is transposed (GPT-2), has rotary pairs in another order, or
 * has fewer tokens than the model (hf_load_grown). In fp8 it stays, too, if `fp8_stays`: the list of its rows and
 * their factors are made in memory (base/fp8.h), the numbers lie in the file. */
#ifndef IO_HF_MODEL_H
#define IO_HF_MODEL_H

#include "base/arena.h"
#include "io/hf/hf_weights.h"

typedef struct hf_model {
    arena *a;
    st_reader *file;
    hf_order order;
    hf_weight *weights; /* by the number of the parameter */
    int n;
    /* Set by the caller before a store is declared: programs are of fp32, in the host's memory. */
    bool fp8_stays;
    fp8_row **fp8;       /* by the number of the tensor in the files; made when it is located */
    const uint8_t *base; /* locations are counted from here, through all files */
} hf_model;

/* Maps the files and checks that they hold the model of the config, as hf_find_weights says; its
 * vocabulary may be larger than theirs (mc->from_vocab). */
status hf_model_open(hf_model *m, const char *dir, const model_config *mc, err *e) ATH_MUST_USE;
void hf_model_close(hf_model *m); /* also after a failure */

/* A param_locate_fn with a hf_model as context. */
bool hf_model_locate(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes);
/* Fills the masters of what did not stay in the files, in a store whose first parameters are those
 * of the same config. */
status hf_model_load_rest(const hf_model *m, const param_store *s, err *e) ATH_MUST_USE;

/* Quantises what the store has in 4 bits (param_quant), a matrix after the other, some rows at a time. ST_FORMAT: a weight is
 * no finite number. */
status hf_model_quantise(const hf_model *m, const param_store *s, err *e) ATH_MUST_USE;

#endif
