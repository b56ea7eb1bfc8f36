/* safetensors: reading, and writing without a second copy of the model in memory.
 *
 * File: u64 little-endian N, N bytes of JSON that begin with '{' (trailing spaces allowed), then
 * the data. Each entry of the JSON is name -> {dtype, shape, data_offsets:[begin,end)}; offsets
 * count from the byte after the header and tile the data without holes or overlap. The optional
 * entry "__metadata__" maps strings to strings.
 *
 * Reading trusts nothing: every rule above is checked before a view is handed out, so a view's
 * bytes always lie inside the mapping and always match its shape. Foreign files may hold formats
 * that athanor only carries (BOOL, F8_E4M3, ...) and data that is not aligned to its element size:
 * st_view_read is the safe way to numbers.
 *
 * Reading order: st_view, st_open, st_find, st_view_read; st_tensor, st_write, st_create. */
#ifndef IO_SAFETENSORS_H
#define IO_SAFETENSORS_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/status.h"

#define ST_MAX_RANK 8
#define ST_MAX_HEADER_BYTES 100000000u

/* One stored tensor. Pointers live until st_close. */
typedef struct st_view {
    const char *name;
    const char *format; /* the file's own word: "F32", "BF16", "F8_E4M3", ... */
    dtype dt;           /* DT_COUNT for a format that has no dtype (BOOL, I16, F8_E4M3, ...) */
    int rank;
    int64_t dims[ST_MAX_RANK];
    int64_t numel;
    const uint8_t *data; /* row-major, maybe unaligned */
    size_t bytes;
    const char *path; /* the file it lies in */
} st_view;

typedef struct st_reader st_reader;

/* Opens one .safetensors file, or a folder that holds model.safetensors or
 * model.safetensors.index.json with its shards (the index decides which tensors exist). */
status st_open(st_reader **r, const char *path, err *e) ATH_MUST_USE;
/* A file already in memory; the bytes stay the caller's and must outlive r. label stands for the
 * path in errors. */
status st_open_bytes(st_reader **r, const void *bytes, size_t len, const char *label,
                     err *e) ATH_MUST_USE;
/* Lets go of the memory that holds what was read so far of the files; nothing else changes. */
void st_release(const st_reader *r);
void st_close(st_reader *r); /* NULL is fine */
/* Views in the order of the header (of the shards in name order, for a sharded folder). */
int64_t st_count(const st_reader *r);
const st_view *st_get(const st_reader *r, int64_t i);
const st_view *st_find(const st_reader *r, const char *name); /* NULL when absent */
/* As st_find, but an absent tensor is an error that names the file and the nearest name. */
status st_require(const st_reader *r, const char *name, const st_view **v, err *e) ATH_MUST_USE;
/* Elements [first, first + n) converted to dt; between the floating-point formats, or unchanged
 * when dt is the stored format. */
status st_view_read(const st_view *v, int64_t first, int64_t n, void *dst, dtype dt,
                    err *e) ATH_MUST_USE;

/* A tensor, and the names of the n equal parts that it consists of, one behind the other. */
typedef struct st_cut {
    const st_view *v;
    const char *const *names;
    int64_t n;
} st_cut;
/* The tensors give way to their parts, which are matrices with the tensor's last dimension; one that has no such parts stays
 * as it is. Other views move. */
void st_cut_up(st_reader *r, const st_cut *cuts, int n);

/* Produces elements [first, first + n) in row-major order into dst. For rank >= 2 both numbers are
 * multiples of the last dimension, so conversions and transpositions can work by rows. */
typedef status (*st_fill_fn)(void *ctx, int64_t first, int64_t n, void *dst, err *e);

/* One tensor to write. Its bytes come from data (contiguous, already in dt), or, when data is NULL,
 * from fill in pieces of about a megabyte. */
typedef struct st_tensor {
    const char *name;
    dtype dt;
    int rank;
    int64_t dims[ST_MAX_RANK];
    const void *data;
    st_fill_fn fill;
    void *ctx;
} st_tensor;

/* What a file calls a dtype: "F32". */
const char *st_format_name(dtype dt);
uint64_t st_tensor_bytes(const st_tensor *t);
/* Size of the file that st_write would make. */
uint64_t st_file_bytes(const st_tensor *tensors, int64_t n);
/* Header (padded so that the data begins at a multiple of 64, metadata {"format":"pt"}), data in
 * the given order, fsync. On failure the file is removed. Writing shards is calling this once for
 * each part of a list. */
status st_write(const char *path, const st_tensor *tensors, int64_t n, err *e) ATH_MUST_USE;

/* A file whose data several processes write, each some of it (file_patch.h), and which st_write
 * would make the same: created with its header at full length; where tensor i's bytes begin, in
 * first_byte[n]; and once all is written, XXH3-64 of the file and of each tensor's bytes. When
 * st_create fails, there is no new file, and what it could not open is as it was. */
status st_create(const char *path, const st_tensor *tensors, int64_t n, err *e) ATH_MUST_USE;
void st_locate(const st_tensor *tensors, int64_t n, uint64_t *first_byte);
status st_hash(const char *path, const st_tensor *tensors, int64_t n, uint64_t *hash,
               uint64_t *tensor_hashes, err *e) ATH_MUST_USE;

#endif
