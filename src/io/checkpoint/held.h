/* Where what a rank holds of a parameter lies in a file.
 *
 * A file holds whole tensors, maybe transposed or with its rows in another order (hf_order); a rank
 * holds spans of them (vec_span). A span is walked as runs: elements that follow each other in the
 * file's tensor, and lie evenly spaced in the rank's array. */
#ifndef IO_HELD_H
#define IO_HELD_H

#include "io/safetensors/safetensors.h"
#include "param/units.h"

/* How tensors lie: as in memory, as transformers' files have them, or so but with rotary pairs as
 * neighbours where the store has them (the lineage of llama2.c: "rope_interleaved" in config.json).
 */
typedef enum hf_order { HF_MEMORY, HF_FILES, HF_FILES_PAIRS } hf_order;

/* Whether files of that order have the parameter's rows (of a vector: elements) in another order
 * than memory; or its rows as columns. */
bool held_is_reordered(const param *p, hf_order order);
bool held_is_transposed(const param *p, hf_order order);
/* Rows, of a vector: elements, of the whole tensor; what is reordered. */
int64_t held_rows(const param *p);

/* Elements file .. file + n - 1 of the file's tensor are, in the rank's array, held, held + step,
 * held + 2 step ... */
typedef struct held_run {
    int64_t file, held, step, n;
} held_run;
typedef status (*held_fn)(void *ctx, const held_run *r, err *e);

/* Calls fn for all runs of span k, a part of p, in the file's order as far as the span follows it;
 * what is whole comes in the order of the file. */
status held_walk(const param *p, const vec_span *k, hf_order order, held_fn fn, void *ctx,
                 err *e) ATH_MUST_USE;

/* One array that a store laid out: masters, or optimizer state. */
typedef struct held_array {
    const param_store *store;
    float *first;  /* element 0 */
    bool is_state; /* laid out as optimizer state is */
    dev *dev;      /* where it lies; NULL: in the host's memory, as a snapshot does */
} held_array;
/* The store's own masters; optimizer state beside them. */
held_array held_masters(const param_store *s);
held_array held_states(const param_store *s, float *first);

/* What of parameter i a rank holds: spans that follow each other in the array, of which element
 * `first` is the first. */
typedef struct held_piece {
    const vec_span *span;
    int n_spans;
    int64_t first, n; /* elements of the spans: first .. first + n - 1, counted as their `at` are */
    float *at;        /* of element `first`, on the array's device */
} held_piece;
held_piece held_piece_of(const held_array *a, int i);

/* Where the host finds the piece, element `first` foremost: only to be read, or (borrowed) to be
 * written from end to end and then put back. The room is as in dev.h; nothing is copied where the
 * host reaches the memory. */
const float *held_look(const held_array *a, const held_piece *h, dev_room *room);
float *held_borrow(const held_array *a, const held_piece *h, dev_room *room);
void held_put_back(const held_array *a, const held_piece *h, const float *host);

#endif
