/* GGUF files, the format of llama.cpp: reading by mapping, and writing without a second copy of the
 * model in memory.
 *
 * After the metadata (base/gguf.h) comes a record for each tensor: name (under 64 bytes), u32 rank,
 * u64 dimensions with the fastest first, u32 format (base/quant.h), u64 offset from the beginning
 * of the data, a multiple of the alignment. Rows, which dimension 0 runs along, are whole blocks.
 *
 * Reading trusts nothing: a view's bytes always lie inside the mapping, match its shape, and are
 * shared with no other tensor. Formats that nothing computes with are carried, and refused when
 * numbers are asked for.
 *
 * Reading order: gguf_view, gguf_open, gguf_find, gguf_read_f32; gguf_tensor, gguf_write. */
#ifndef IO_GGUF_H
#define IO_GGUF_H

#include "base/dtype.h"
#include "base/gguf.h"
#include "base/quant.h"
#include "base/status.h"

#define GGUF_MAX_RANK 4
#define GGUF_MAX_NAME_BYTES 63

/* One stored tensor. Pointers live until gguf_close. */
typedef struct gguf_view {
    const char *name;
    const quant_format *format;
    int rank;
    int64_t dims[GGUF_MAX_RANK]; /* fastest first; 1 from rank on */
    int64_t rows, cols;          /* all of them: cols is dims[0] */
    const uint8_t *data;         /* maybe unaligned */
    size_t bytes, row_bytes;
} gguf_view;

typedef struct gguf_reader gguf_reader;

bool gguf_is_file(const char *path); /* by its first bytes; false also for folders and nothing */

status gguf_open(gguf_reader **r, const char *path, err *e) ATH_MUST_USE;
/* A file already in memory; the bytes stay the caller's and must outlive r. label stands for the
 * path in errors. */
status gguf_open_bytes(gguf_reader **r, const void *bytes, size_t len, const char *label,
                       err *e) ATH_MUST_USE;
void gguf_close(gguf_reader *r); /* NULL is fine */
const gguf_meta *gguf_get_meta(const gguf_reader *r);
int64_t gguf_count(const gguf_reader *r);
const gguf_view *gguf_get(const gguf_reader *r, int64_t i);         /* in the order of the file */
const gguf_view *gguf_find(const gguf_reader *r, const char *name); /* NULL when absent */
/* As gguf_find, but an absent tensor is an error that names the file and the nearest name. */
status gguf_require(const gguf_reader *r, const char *name, const gguf_view **v,
                    err *e) ATH_MUST_USE;
/* Rows [first, first + n) as numbers. ST_FORMAT: nothing reads the format. */
status gguf_read_f32(const gguf_view *v, int64_t first, int64_t n, float *dst, err *e) ATH_MUST_USE;

/* Produces the blocks of rows [first, first + n) into dst. */
typedef status (*gguf_fill_fn)(void *ctx, int64_t first, int64_t n, void *dst, err *e);

/* One tensor to write. Its blocks come from data, or, when data is NULL, from fill in pieces of
 * about a megabyte. */
typedef struct gguf_tensor {
    const char *name;
    quant_type type;
    int rank;
    int64_t dims[GGUF_MAX_RANK]; /* fastest first */
    const void *data;
    gguf_fill_fn fill;
    void *ctx;
} gguf_tensor;

/* Header, pairs and tensors in the given order, fsync; the alignment is that of the pairs
 * (general.alignment) or the default. On failure the file is removed; to replace a file in one
 * step, write another and file_rename it. */
status gguf_write(const char *path, const gguf_pairs *pairs, const gguf_tensor *tensors, int64_t n,
                  err *e) ATH_MUST_USE;

#endif
