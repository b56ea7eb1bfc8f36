/* A Hugging Face folder opened for inference: matrices that lie in its files as they are computed
 * with stay there, what does not is read into masters.
 *
 * A matrix stays when it is F32, BF16 or F16, aligned, and has rows and their order in common with
 * memory: not where it is transposed (GPT-2), has rotary pairs in another order, or is fp8.
 *
 * Reading order: hf_model_open, hf_model_locate, hf_model_load_rest. */
#ifndef IO_HF_MODEL_H
#define IO_HF_MODEL_H

#include "io/hf/hf_weights.h"
#include "model/config.h"

typedef struct hf_model {
    arena *a;
    st_reader *file;
    hf_order order;
    hf_weight *weights; /* by the number of the parameter */
    int n;
    const uint8_t *base; /* locations are counted from here, through all files */
} hf_model;

/* Maps the files and checks that they hold the model of the config, as hf_find_weights says. */
status hf_model_open(hf_model *m, const char *dir, const model_config *mc, err *e) ATH_MUST_USE;
void hf_model_close(hf_model *m); /* also after a failure */

/* A param_locate_fn with a hf_model as context. */
bool hf_model_locate(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes);
/* Fills the masters of what did not stay in the files, in a store that was declared from the same
 * config. */
status hf_model_load_rest(const hf_model *m, const param_store *s, err *e) ATH_MUST_USE;

#endif
