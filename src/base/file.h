/* Files: whole reads, atomic writes, mappings, folders. Every error names the path. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/status.h"

/* Reading whole files into heap memory with a NUL after it; free() it. No file is read beyond a
 * limit, so that none fills memory: pipes and devices have no size that could be asked first.
 *
 * What the user names: a file, a pipe or a device; "-" is standard input. file_read_all is
 * file_read_input with the limit for whole texts. ST_FORMAT when there is more. */
#define FILE_TEXT_MAX_BYTES ((int64_t)4 << 30)
status file_read_input(const char *path, int64_t most_bytes, char **data, size_t *len,
                       err *e) ATH_MUST_USE;
status file_read_all(const char *path, char **data, size_t *len, err *e) ATH_MUST_USE;
/* A file of a folder (a run, a checkpoint, a model), which may have come from elsewhere: it must be
 * a regular file, and a pipe is refused rather than waited for. FILE_PART_MAX_BYTES is the limit of
 * what may be large (a tokenizer.json). */
#define FILE_PART_MAX_BYTES ((int64_t)256 << 20)
status file_read_part(const char *path, int64_t most_bytes, char **data, size_t *len,
                      err *e) ATH_MUST_USE;
/* Opens such a file for reads of pieces (close-on-exec). bytes may be NULL. */
status file_open_part(const char *path, int *fd, int64_t *bytes, err *e) ATH_MUST_USE;
/* Reads n bytes of an open file from a position on; fewer only at its end. -1 with errno. */
ssize_t file_read_at(int fd, void *p, size_t n, uint64_t offset);
/* poll, where entries without a descriptor cost nothing: the system counts them as open files, of which a process may have
 * few (ulimit -n), and refuses to wait. */
struct pollfd;
int file_poll(struct pollfd *all, int n, int patience_ms);
/* The name that symbolic links lead to, though nothing may stand there: who writes to a link writes what it names. In the
 * arena, or `path` itself. */
const char *file_behind_links(arena *a, const char *path);
/* Writes path.tmp-THREAD, fsyncs it, renames it over path, fsyncs the folder. On failure the old file
 * stands, and the error names it, and a link stays one. Where `path` is a pipe or a device (/dev/null, /dev/stdout) it gets the bytes. */
status file_write_atomic(const char *path, const void *data, size_t len, err *e) ATH_MUST_USE;
/* A file for writing by pieces, empty, close-on-exec. ST_USAGE where `path` is a pipe or a device, which who removes a file
 * that could not be written to its end would remove. */
status file_create(const char *path, int *fd, err *e) ATH_MUST_USE;
bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* The folder in which `path` is or would be made: itself, or the nearest one above it that is there. In the arena. */
const char *file_nearest_dir(arena *a, const char *path);
const char *file_temp_dir(void); /* TMPDIR, or /tmp where that is unset or empty */
/* Whether both are there and one and the same file or folder, also through links. */
bool file_is_same(const char *a, const char *b);
int64_t file_size(const char *path); /* -1 when it cannot be read */
/* mkdir -p */
status file_make_dirs(const char *path, err *e) ATH_MUST_USE;
/* The same, and the path is still there after the machine crashes: the folder that holds it is synced,
 * and so are those that hold the folders made above it. */
status file_make_dirs_synced(const char *path, err *e) ATH_MUST_USE;
/* rm -rf; no error when absent. Never follows symbolic links. */
status file_remove_tree(const char *path, err *e) ATH_MUST_USE;
/* rename(2): replaces a file at `to` in one step; durable after file_sync_dir. */
status file_rename(const char *from, const char *to, err *e) ATH_MUST_USE;
/* Lets two files or folders change places, in one step where the file system can. */
status file_swap(const char *a, const char *b, err *e) ATH_MUST_USE;
/* fsync of a file that someone else wrote. */
status file_sync(const char *path, err *e) ATH_MUST_USE;
status file_sync_dir(const char *path, err *e) ATH_MUST_USE;
/* Of the folder that `path` is in. */
status file_sync_parent(const char *path, err *e) ATH_MUST_USE;
/* Sorted names in a folder without "." and "..", in the arena. */
status file_list_dir(arena *a, const char *path, char ***names, int *n, err *e) ATH_MUST_USE;
/* "a/b" from "a" and "b", in the arena; an absolute b wins. */
char *path_join(arena *a, const char *dir, const char *name);
const char *path_base(const char *path); /* behind the last slash */
/* Without slashes at the end, so that path_base says the name of a folder. */
char *path_plain(arena *a, const char *path);

/* A read-only mapping of a file. */
typedef struct file_map {
    const uint8_t *data;
    size_t len;
} file_map;
status file_map_open(file_map *m, const char *path, err *e) ATH_MUST_USE;
/* Lets go of the memory that holds what was read so far; it is read again from the file when it is
 * looked at. */
void file_map_release(const file_map *m);
void file_map_close(file_map *m);

/* A write stream that hashes what it writes (XXH3-64), and fsyncs on close. After a failed write
 * the only call left is file_out_abandon. */
typedef struct file_out {
    int fd;
    char *path;
    uint8_t *buf;
    size_t used;
    void *hash;
} file_out;
status file_out_open(file_out *f, const char *path, err *e) ATH_MUST_USE;
status file_out_write(file_out *f, const void *data, size_t len, err *e) ATH_MUST_USE;
/* Flushes, fsyncs; closes in any case. hash may be NULL. */
status file_out_close(file_out *f, uint64_t *hash, err *e) ATH_MUST_USE;
void file_out_abandon(file_out *f); /* closes and removes the file; nothing where none is open */

/* A state for XXH3_64bits_update, to be freed by XXH3_freeState. */
void *hash_begin(void);
/* XXH3-64 of bytes, and of a whole file. */
uint64_t hash_bytes(const void *data, size_t len);
status hash_file(const char *path, uint64_t *hash, err *e) ATH_MUST_USE;
void hash_format(uint64_t hash, char out[17]); /* 16 lower-case hex digits */
/* False when the text is not such digits, or NULL. */
bool hash_parse(const char *hex, uint64_t *hash);

#endif
