#include "train/bench/disk_speed.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file_fault.h"
#include "base/strbuf.h"

enum { PIECE = 8 << 20, PIECES = 32 };

static status write_pieces(int fd, const char *path, const uint8_t *piece, err *e) {
    for (int i = 0; i < PIECES; i++)
        for (size_t at = 0; at < PIECE;) {
            ssize_t n = file_sys_write(fd, piece + at, PIECE - at);
            if (n < 0) return err_errno(e, path, "cannot write %s", path);
            at += (size_t)n;
        }
    return file_sys_fsync(fd) == 0 ? ST_OK : err_errno(e, path, "cannot write %s", path);
}

static status read_pieces(int fd, const char *path, uint8_t *piece, err *e) {
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* else memory would be read */
    for (int i = 0; i < PIECES; i++)
        if (file_read_at(fd, piece, PIECE, (uint64_t)i * PIECE) != PIECE)
            return err_errno(e, path, "cannot read %s", path);
    return ST_OK;
}

/* Numbers without a pattern: some disks store a repeated block once. */
static uint8_t *make_piece(void) {
    uint32_t *x = xmalloc(PIECE);
    for (uint32_t i = 0; i < PIECE / sizeof *x; i++) x[i] = i * 2654435761u ^ i >> 7;
    return (uint8_t *)x;
}

/* The file has no name while it is used: nothing is left behind if this process is stopped. */
static status open_unnamed(const char *folder, int *fd, err *e) {
    strbuf path = {0};
    strbuf_printf(&path, "%s/athanor-disk-XXXXXX", folder);
    *fd = mkostemp(path.data, O_CLOEXEC);
    status st = *fd < 0 ? err_errno(e, folder, "cannot write into %s", folder) : ST_OK;
    if (st == ST_OK) unlink(path.data);
    strbuf_free(&path);
    return st;
}

status disk_speed(const char *folder, double *bytes_per_s, err *e) {
    int fd;
    TRY(open_unnamed(folder, &fd, e));
    uint8_t *piece = make_piece();
    int64_t began = clock_now_ns();
    status st = write_pieces(fd, folder, piece, e);
    if (st == ST_OK) st = read_pieces(fd, folder, piece, e);
    *bytes_per_s = 2.0 * PIECE * PIECES / clock_since_s(began);
    free(piece);
    close(fd);
    return st;
}
