/* Which elements of a file's tensor a rank holds, and where they lie in its memory.
 *
 * A file has whole tensors, maybe transposed or with rows in another order (hf_order). A rank holds
 * shards of them: spans of the flat parameter (vec_span, param/units.h). held_walk breaks a span into
 * runs: elements that are consecutive in the file's tensor and evenly spaced in the rank's array.
 * io/hf/hf_weights.h reads and writes files with these runs. */
#ifndef IO_HELD_H
#define IO_HELD_H

#include "io/safetensors/safetensors.h"
#include "optim/offload.h"
#include "param/units.h"

/* How the tensors of a file lie. */
typedef enum hf_order {
    HF_MEMORY,      /* as in our memory */
    HF_FILES,       /* as in the files of transformers */
    HF_FILES_PAIRS, /* the same, but rotary pairs are neighbours if they are in memory (models in
                       the way of llama2.c: "rope_interleaved" in config.json) */
} hf_order;

/* Whether files of that order have the parameter's rows (of a vector: its elements) in another order
 * than memory; whether they have it transposed. */
bool held_is_reordered(const param *p, hf_order order);
bool held_is_transposed(const param *p, hf_order order);
/* Number of rows of the whole tensor (of a vector: elements): what is reordered. */
int64_t held_rows(const param *p);

/* n elements: number file, file + 1, file + 2 ... of the file's tensor are number held, held + step,
 * held + 2 step ... of the rank's array. */
typedef struct held_run {
    int64_t file, held, step, n;
} held_run;
typedef status (*held_fn)(void *ctx, const held_run *r, err *e);

/* Calls fn for all runs of span k of parameter p. A parameter that is not sharded comes in the order
 * of the file. Ends early when fn fails. */
status held_walk(const param *p, const vec_span *k, hf_order order, held_fn fn, void *ctx,
                 err *e) ATH_MUST_USE;

/* One array that a store laid out: fp32 master weights, or one state of the optimizer. The host sees floats. */
typedef struct held_array {
    const param_store *store;
    void *first;   /* element 0 */
    dtype dt;      /* DT_F32, or DT_BF16 */
    bool is_state; /* laid out as optimizer state is */
    int only;      /* above 0: of the parameters, number only - 1 of the whole model alone */
    dev *dev;      /* where it lies; NULL: in the host's memory, as a snapshot does */
    struct offload
        *file; /* it lies there instead, as array `number`; of masters, those of matrices;
                             NULL: in memory */
    int number;
} held_array;
/* The store's own masters; optimizer state beside them. */
held_array held_masters(const param_store *s);
held_array held_states(const param_store *s, void *first, dtype dt);

/* The shard of parameter i that this rank holds: spans that follow each other in the array. n 0: it
 * holds nothing of it. */
typedef struct held_piece {
    const vec_span *span;
    int n_spans;
    int64_t first, n; /* elements first .. first + n - 1, in the numbering of the spans' `at` */
    int64_t index;    /* of element `first`, in the array */
    bool in_file;
} held_piece;
held_piece held_piece_of(const held_array *a, int i);

/* Makes the piece available to the host, beginning with element `first`: held_look for reading;
 * held_borrow for writing all of it, followed by held_put_back. `room` as in dev.h: memory for a copy
 * where the host cannot reach the device's memory. */
status held_look(const held_array *a, const held_piece *h, dev_room *room, const float **host,
                 err *e) ATH_MUST_USE;
float *held_borrow(const held_array *a, const held_piece *h, dev_room *room);
status held_put_back(const held_array *a, const held_piece *h, const float *host,
                     err *e) ATH_MUST_USE;

#endif
