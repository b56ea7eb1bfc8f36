/* Pieces of files (see file_patch.h). */
#include "base/file_patch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_fault.h"

enum { ALIGN = 64 };

status file_patch_open(file_patch *f, const char *path, err *e) {
    *f = (file_patch){.fd = file_sys_update(path)};
    if (f->fd < 0) return err_errno(e, path, "cannot open %s for writing", path);
    f->path = xstrdup(path);
    f->buf = xmalloc(FILE_PATCH_BYTES + 2 * ALIGN);
    return ST_OK;
}

static status put(const file_patch *f, uint64_t offset, const uint8_t *p, size_t n, err *e) {
    while (n > 0) {
        ssize_t done = file_sys_pwrite(f->fd, p, n < 1 << 30 ? n : 1 << 30, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return err_errno(e, f->path, "cannot write %s", f->path);
        p += done;
        n -= (size_t)done;
        offset += (uint64_t)done;
    }
    return ST_OK;
}

/* The buffer's bytes lie at the same distance from a multiple of ALIGN as they do in the file. */
static uint8_t *begin(const file_patch *f) {
    uint8_t *aligned = f->buf + (ALIGN - (uintptr_t)f->buf % ALIGN) % ALIGN;
    return aligned + f->at % ALIGN;
}

static status flush(file_patch *f, err *e) {
    size_t n = f->used;
    f->used = 0;
    return put(f, f->at, begin(f), n, e);
}

status file_patch_room(file_patch *f, uint64_t offset, size_t len, void **room, err *e) {
    CHECK(len <= FILE_PATCH_BYTES, "%zu bytes at once", len);
    bool follows = f->used > 0 && offset == f->at + f->used;
    if (!follows || f->used + len > FILE_PATCH_BYTES) {
        TRY(flush(f, e));
        f->at = offset;
    }
    *room = begin(f) + f->used;
    f->used += len;
    return ST_OK;
}

status file_patch_write(file_patch *f, uint64_t offset, const void *data, size_t len, err *e) {
    if (len > FILE_PATCH_BYTES / 2) { /* not worth the copy */
        TRY(flush(f, e));
        return put(f, offset, data, len, e);
    }
    void *room;
    TRY(file_patch_room(f, offset, len, &room, e));
    memcpy(room, data, len);
    return ST_OK;
}

status file_patch_close(file_patch *f, bool keep, err *e) {
    status st = keep ? flush(f, e) : ST_OK;
    if (keep && st == ST_OK && file_sys_fsync(f->fd) != 0)
        st = err_errno(e, f->path, "cannot sync %s", f->path);
    if (close(f->fd) != 0 && keep && st == ST_OK)
        st = err_errno(e, f->path, "cannot close %s", f->path);
    free(f->buf);
    free(f->path);
    *f = (file_patch){.fd = -1};
    return st;
}
