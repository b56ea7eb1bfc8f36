/* See shard_writer.h. The buffer is hashed when it is flushed, while it is still in the cache. */
#include "data/shard/shard_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_fault.h"

enum { BUFFER_BYTES = 1 << 18 };

static void init(shard_out *o, int fd, const char *path, size_t header_bytes) {
    *o = (shard_out){.fd = fd, .path = xstrdup(path), .header_bytes = header_bytes};
    o->buf = xmalloc(BUFFER_BYTES);
    o->hash = hash_begin();
}

static void release(shard_out *o) {
    XXH3_freeState(o->hash);
    free(o->buf);
    free(o->path);
    *o = (shard_out){.fd = -1};
}

/* Keeps the error that errno tells of, and hands it to the caller. */
static status fail(shard_out *o, const char *verb, err *e) {
    err_errno(&o->failure, o->path, "cannot %s %s", verb, o->path);
    if (e) *e = o->failure;
    return o->failure.code;
}

static status failed_before(const shard_out *o, err *e) {
    if (e) *e = o->failure;
    return o->failure.code;
}

status shard_out_create(shard_out *o, const char *path, size_t header_bytes, err *e) {
    int fd = file_sys_create(path);
    if (fd < 0) return err_errno(e, path, "cannot create %s", path);
    init(o, fd, path, header_bytes);
    if (lseek(fd, (off_t)header_bytes, SEEK_SET) >= 0) return ST_OK;
    fail(o, "write", e);
    shard_out_abandon(o, true);
    return ST_FAILED;
}

static bool write_full(int fd, const uint8_t *p, size_t n) {
    while (n > 0) {
        ssize_t put = file_sys_write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

static status flush(shard_out *o, err *e) {
    if (o->failure.code != ST_OK) return failed_before(o, e);
    XXH3_64bits_update(o->hash, o->buf, o->used);
    if (!write_full(o->fd, o->buf, o->used)) return fail(o, "write", e);
    o->flushed += o->used;
    o->used = 0;
    return ST_OK;
}

/* Reads the body that is there into the hash. */
static status read_back(shard_out *o, uint64_t body_bytes, err *e) {
    while (o->flushed < body_bytes) {
        uint64_t left = body_bytes - o->flushed;
        size_t want = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        ssize_t got = file_read_at(o->fd, o->buf, want, o->header_bytes + o->flushed);
        if (got < 0) return err_unreadable(e, "read", o->path);
        if (got == 0) break;
        XXH3_64bits_update(o->hash, o->buf, (size_t)got);
        o->flushed += (uint64_t)got;
    }
    return ST_OK;
}

static status not_the_same(const shard_out *o, const char *what, err *e) {
    err_at(e, ST_FORMAT, o->path, "cannot go on with %s: %s", o->path, what);
    return err_hint(e, "begin the build anew");
}

static status go_on(shard_out *o, uint64_t body_bytes, uint64_t hash, err *e) {
    TRY(read_back(o, body_bytes, e));
    if (o->flushed < body_bytes) return not_the_same(o, "it is shorter than it was", e);
    if (XXH3_64bits_digest(o->hash) != hash)
        return not_the_same(o, "it is not what was written", e);
    off_t end = (off_t)(o->header_bytes + body_bytes);
    if (file_sys_ftruncate(o->fd, end) != 0 || lseek(o->fd, end, SEEK_SET) < 0)
        return fail(o, "write", e);
    return ST_OK;
}

status shard_out_reopen(shard_out *o, const char *path, size_t header_bytes, uint64_t body_bytes,
                        uint64_t hash, err *e) {
    int fd;
    do fd = open(path, O_RDWR | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return err_unreadable(e, "go on with", path);
    init(o, fd, path, header_bytes);
    status st = go_on(o, body_bytes, hash, e);
    if (st != ST_OK) shard_out_abandon(o, false);
    return st;
}

status shard_out_room(shard_out *o, uint8_t **room, size_t *bytes, err *e) {
    if (BUFFER_BYTES - o->used < 8) TRY(flush(o, e));
    *room = o->buf + o->used;
    *bytes = BUFFER_BYTES - o->used;
    return ST_OK;
}

void shard_out_filled(shard_out *o, size_t bytes) {
    o->used += bytes;
}

status shard_out_write(shard_out *o, const void *data, size_t bytes, err *e) {
    const uint8_t *p = data;
    while (bytes > 0) {
        uint8_t *room;
        size_t n;
        TRY(shard_out_room(o, &room, &n, e));
        n = bytes < n ? bytes : n;
        memcpy(room, p, n);
        shard_out_filled(o, n);
        p += n;
        bytes -= n;
    }
    return ST_OK;
}

status shard_out_sync(shard_out *o, uint64_t *hash, err *e) {
    TRY(flush(o, e));
    *hash = XXH3_64bits_digest(o->hash);
    return file_sys_fsync(o->fd) == 0 ? ST_OK : fail(o, "sync", e);
}

static status put_header(shard_out *o, const void *header, err *e) {
    if (o->header_bytes == 0) return ST_OK;
    if (lseek(o->fd, 0, SEEK_SET) < 0 || !write_full(o->fd, header, o->header_bytes))
        return fail(o, "write", e);
    return ST_OK;
}

status shard_out_finish(shard_out *o, const void *header, uint64_t *hash, err *e) {
    status st = flush(o, e);
    if (st == ST_OK) st = put_header(o, header, e);
    if (st == ST_OK && file_sys_fsync(o->fd) != 0) st = fail(o, "sync", e);
    if (close(o->fd) != 0 && st == ST_OK) st = fail(o, "close", e);
    *hash = XXH3_64bits_digest(o->hash);
    release(o);
    return st;
}

void shard_out_abandon(shard_out *o, bool remove) {
    if (!o->path) return;
    close(o->fd);
    if (remove) unlink(o->path);
    release(o);
}
