#include "train/bench/disk_speed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file_fault.h"
#include "base/strbuf.h"

enum { PIECE = 8 << 20, PIECES = 32 };

typedef struct opened {
    int to, from; /* one file; -1: not open */
} opened;

static status write_piece(int fd, const char *path, const uint8_t *piece, err *e) {
    for (size_t at = 0; at < PIECE;) {
        ssize_t n = file_sys_write(fd, piece + at, PIECE - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, path, "cannot write %s", path);
        at += (size_t)n;
    }
    return ST_OK;
}

static status write_pieces(int fd, const char *path, const uint8_t *piece, err *e) {
    for (int i = 0; i < PIECES; i++) TRY(write_piece(fd, path, piece, e));
    return file_sys_fsync(fd) == 0 ? ST_OK : err_errno(e, path, "cannot write %s", path);
}

static status read_pieces(int fd, const char *path, uint8_t *piece, err *e) {
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* else memory would be read */
    for (int i = 0; i < PIECES; i++) {
        ssize_t n = file_read_at(fd, piece, PIECE, (uint64_t)i * PIECE);
        if (n == PIECE) continue;
        if (n >= 0) errno = EIO; /* the file ends early */
        return err_errno(e, path, "cannot read %s", path);
    }
    return ST_OK;
}

/* Numbers without a pattern: some disks store a repeated block once. */
static uint8_t *make_piece(void) {
    uint32_t *x = xmalloc(PIECE);
    for (uint32_t i = 0; i < PIECE / sizeof *x; i++) x[i] = i * 2654435761u ^ i >> 7;
    return (uint8_t *)x;
}

/* The file has no name while it is used: nothing is left behind if this process is stopped. */
static status open_unnamed(const char *folder, opened *f, err *e) {
    strbuf path = {0};
    strbuf_printf(&path, "%s/athanor-disk-%ld-%llx", folder, (long)getpid(),
                  (unsigned long long)clock_now_ns());
    *f = (opened){file_sys_create(path.data), -1};
    status st = f->to < 0 ? err_errno(e, folder, "cannot write into %s", folder)
                          : file_open_part(path.data, &f->from, NULL, e);
    if (f->to >= 0 && file_sys_unlinkat(AT_FDCWD, path.data, 0) != 0 && st == ST_OK)
        st = err_errno(e, path.data, "cannot remove %s", path.data);
    strbuf_free(&path);
    return st;
}

static status measure(const opened *f, const char *folder, double *bytes_per_s, err *e) {
    uint8_t *piece = make_piece();
    int64_t began = clock_now_ns();
    status st = write_pieces(f->to, folder, piece, e);
    if (st == ST_OK) st = read_pieces(f->from, folder, piece, e);
    *bytes_per_s = 2.0 * PIECE * PIECES / clock_since_s(began);
    free(piece);
    return st;
}

status disk_speed(const char *folder, double *bytes_per_s, err *e) {
    opened f;
    status st = open_unnamed(folder, &f, e);
    if (st == ST_OK) st = measure(&f, folder, bytes_per_s, e);
    if (f.to >= 0) close(f.to);
    if (f.from >= 0) close(f.from);
    return st;
}
