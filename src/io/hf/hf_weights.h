/* Weights of a parameter store, to and from safetensors files of Hugging Face. Files differ from
 * memory in prefixes of names, in transposed matrices (GPT-2), in the order of rotated rows, and in
 * the format of numbers.
 *
 * Reading order: hf_find_weights, hf_load_weights; hf_model_open, hf_model_locate,
 * hf_model_load_rest; hf_declare, hf_write_part, hf_read_array. */
#ifndef IO_HF_WEIGHTS_H
#define IO_HF_WEIGHTS_H

#include "base/arena.h"
#include "io/checkpoint/held.h"
#include "io/hf/bnb.h"
#include "io/safetensors/fp8.h"
#include "model/config.h"

/* A parameter as a folder stores it. */
typedef struct hf_weight {
    const st_view *v;
    const st_view
        *scale;        /* fp8: NAME_scale_inv or NAME_scale, the factors of its blocks; else NULL */
    fp8_grid grid;     /* of these */
    bnb_matrix four;   /* in 4 bits of bitsandbytes; bits NULL: it is not */
    const float *mean; /* every row behind those that are stored; NULL: all are stored */
} hf_weight;

/* Finds the tensor of every parameter of the whole model (param_store_whole): list[i] is that of
 * parameter i. ST_FORMAT names a tensor that is missing or has another shape. So does it one that
 * is no parameter, except buffers that files are known to hold, a head that equals the
 * embedding, modules of multi-token prediction that the store does not have, and what modules repeat. */
status hf_find_weights(const param_store *s, const st_reader *r, hf_weight *list,
                       err *e) ATH_MUST_USE;
/* Whether a head is stored that differs from the embedding `table`. */
status hf_head_differs(const st_reader *r, const st_view *head, const st_view *table, bool *differs,
                       err *e) ATH_MUST_USE;
/* The same of a folder: whether what it stores as the head makes a model of its own, though config.json ties it to the
 * embedding. What is stored decides, as in transformers. false: also where nothing can be read. */
bool hf_has_own_head(const char *dir, const model_config *mc);
/* model_config_read, with that rule where the object has `from` and does not say tie_word_embeddings itself. */
status hf_config_read(arena *a, const json_t *obj, int64_t vocab_if_auto, model_config *out,
                      err *e) ATH_MUST_USE;
/* A tensor by its name, or by one that differs in a prefix that other tools leave out or add; NULL:
 * there is none. */
const st_view *hf_find_view(const st_reader *r, const char *name);
/* How many of the modules of multi-token prediction that the config names are stored: transformers
 * leaves them out of what it writes, and keeps the config's word of them. */
int hf_count_ahead(const st_reader *r, const model_config *mc);
/* Leaves out of mc the modules that the folder does not hold. */
status hf_settle_ahead(model_config *mc, const char *dir, err *e) ATH_MUST_USE;
/* Elements [first, first + n) of what is stored. */
status hf_weight_read(const hf_weight *w, int64_t first, int64_t n, void *dst, dtype dt,
                      err *e) ATH_MUST_USE;
/* In which order a folder has rotated rows: as its config.json says. */
hf_order hf_order_of(const char *dir);

/* Fills what this rank holds of the store's masters and of their compute copies from a safetensors
 * file or folder. */
status hf_load_weights(const param_store *s, const char *path, err *e) ATH_MUST_USE;

/* The same where the files have a smaller vocabulary, of `rows` tokens. The rows of new tokens, of
 * the embedding and of a head of its own, are the mean of those that are stored, as in transformers'
 * resize_token_embeddings(mean_resizing=True), but without its noise: they depend on the files
 * alone. */
status hf_load_grown(const param_store *s, const char *path, int64_t rows, err *e) ATH_MUST_USE;
/* The same for a model with a new head of labels: that stays as it is, and the files' own head is passed over. rows 0: the
 * vocabulary is that of the store. */
status hf_load_body(const param_store *s, const char *path, int64_t rows, err *e) ATH_MUST_USE;

/* The order of rows: row i of the file is row out[i] of the store. In the arena; NULL: the same. */
const int64_t *hf_file_rows(arena *a, const param *p, hf_order order);

/* ---- a folder opened for inference ----
 *
 * Matrices that lie in its files as they are computed with stay there, what does not is read into
 * masters. A matrix stays when it is F32, BF16 or F16, aligned, and has rows and their order in
 * common with memory: not where it is transposed (GPT-2), has rotary pairs in another order, or
 * has fewer tokens than the model (hf_load_grown). In fp8 it stays, too, if `fp8_stays`: the list of its rows and
 * their factors are made in memory (base/fp8.h), the numbers lie in the file. */

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

/* ---- files that several ranks write ----
 *
 * One safetensors file of whole tensors, of which each rank writes what it holds. st_create makes
 * the file at full length; then every rank calls hf_write_part, in any order, with no message
 * between them. */

/* The format of a parameter in a file of format dt. The bias of a router is fp32 in 16-bit files, too, as in DeepSeek's
 * own: the steps by which it moves would be lost. */
dtype hf_file_dtype(const param *p, dtype dt);
/* Gives a convolution, which is a vector in memory, the shape that files have. */
void hf_shape_taps(const param *p, st_tensor *t);
/* The tensors of one array (masters, or a state of the optimizer), without data: those of the whole
 * model (param_store_whole) that are not frozen, named PREFIX + parameter name. All ranks get the
 * same list, whatever they hold: hf_declared tensors. In the arena. */
st_tensor *hf_declare(arena *a, const param_store *s, const char *prefix, dtype dt, hf_order order);
int hf_declared(const param_store *s);

/* Writes this rank's part: the elements of arrays[n] that it counts (split.h), to where the file
 * has them, and syncs. declared: the lists of hf_declare of all n arrays, one after the other; of
 * an array of one parameter (`only`), that tensor. */
status hf_write_part(const char *path, const st_tensor *declared, const held_array *arrays, int n,
                     hf_order order, err *e) ATH_MUST_USE;
/* Reads this rank's part of an array that hf_write_part wrote in that order. ST_FORMAT: a tensor
 * that is not frozen is missing or has another length, whoever would hold it. */
status hf_read_array(const held_array *a, const st_reader *r, const char *prefix, hf_order order,
                     err *e) ATH_MUST_USE;

#endif
