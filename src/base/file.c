/* Files: whole reads and atomic writes, mappings, the write stream, hashes. Folders are in dir.c.
 *
 * Every loop survives short counts and EINTR; every error names the path. A write is durable only
 * when its fsync has succeeded, so fsync errors count. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file_fault.h"

enum { OUT_BUFFER_BYTES = 1 << 20, IO_MAX_BYTES = 1 << 30 };

static ssize_t read_retry(int fd, void *p, size_t n) {
    ssize_t got;
    do got = file_sys_read(fd, p, n < IO_MAX_BYTES ? n : IO_MAX_BYTES);
    while (got < 0 && errno == EINTR);
    return got;
}

ssize_t file_read_at(int fd, void *p, size_t n, uint64_t offset) {
    size_t done = 0;
    while (done < n) {
        ssize_t got = file_sys_pread(fd, (char *)p + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int file_poll(struct pollfd *all, int n, int patience_ms) {
    struct pollfd live[n];
    int n_live = 0, k = 0;
    for (int i = 0; i < n; i++)
        if (all[i].fd >= 0) live[n_live++] = all[i];
    int found = poll(live, (nfds_t)n_live, patience_ms);
    for (int i = 0; i < n; i++) all[i].revents = all[i].fd >= 0 ? live[k++].revents : 0;
    return found;
}

static status write_full(int fd, const char *path, const uint8_t *p, size_t n, err *e) {
    while (n > 0) {
        ssize_t put = file_sys_write(fd, p, n < IO_MAX_BYTES ? n : IO_MAX_BYTES);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_errno(e, path, "cannot write %s", path);
        p += put;
        n -= (size_t)put;
    }
    return ST_OK;
}

static status sync_open(int fd, const char *path, err *e) {
    return file_sys_fsync(fd) == 0 ? ST_OK : err_errno(e, path, "cannot sync %s", path);
}

static status open_read(const char *path, int flags, int *fd, struct stat *st, err *e) {
    do *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return err_unreadable(e, "open", path);
    if (fstat(*fd, st) == 0 && !S_ISDIR(st->st_mode)) return ST_OK;
    if (S_ISDIR(st->st_mode)) errno = EISDIR;
    err_unreadable(e, "read", path);
    if (S_ISDIR(st->st_mode)) err_hint(e, "a file is needed here, not a folder");
    close(*fd);
    return ST_FORMAT;
}

/* O_NONBLOCK: a pipe is opened without waiting for who would write into it, and then refused. */
status file_open_part(const char *path, int *fd, int64_t *bytes, err *e) {
    struct stat st;
    TRY(open_read(path, O_NONBLOCK, fd, &st, e));
    if (bytes) *bytes = st.st_size;
    if (S_ISREG(st.st_mode)) return ST_OK;
    close(*fd);
    *fd = -1;
    err_at(e, ST_FORMAT, path, "cannot read %s: not a regular file", path);
    return err_hint(e, "copy the file itself to this place");
}

/* Reads to the end of fd; `expect` is a hint of the size, never trusted. */
static status read_to_end(int fd, const char *path, int64_t expect, int64_t most, char **data,
                          size_t *len, err *e) {
    size_t cap = (size_t)(expect < most ? expect : most) + 2, n = 0; /* to see the end, and a NUL */
    char *buf = xmalloc(cap);
    ssize_t got = 1;
    while (got > 0 && n <= (size_t)most) {
        if (n + 1 >= cap) buf = xrealloc(buf, cap = cap < 4096 ? 8192 : cap * 2);
        got = read_retry(fd, buf + n, cap - n - 1);
        if (got > 0) n += (size_t)got;
    }
    if (got < 0) err_unreadable(e, "read", path);
    if (got > 0) {
        err_at(e, ST_FORMAT, path, "%s is too large: at most %lld bytes are read", path,
               (long long)most);
        err_hint(e, "name another file, or a part of this one");
    }
    if (got != 0) {
        free(buf);
        return ST_FORMAT;
    }
    buf[n] = '\0';
    *data = buf;
    *len = n;
    return ST_OK;
}

status file_read_input(const char *path, int64_t most_bytes, char **data, size_t *len, err *e) {
    const int64_t unknown = 65536;
    *data = NULL;
    *len = 0;
    if (strcmp(path, "-") == 0)
        return read_to_end(STDIN_FILENO, "standard input", unknown, most_bytes, data, len, e);
    int fd;
    struct stat st;
    TRY(open_read(path, 0, &fd, &st, e));
    int64_t expect = S_ISREG(st.st_mode) && st.st_size > 0 ? st.st_size : unknown;
    status s = read_to_end(fd, path, expect, most_bytes, data, len, e);
    close(fd);
    return s;
}

status file_read_all(const char *path, char **data, size_t *len, err *e) {
    return file_read_input(path, FILE_TEXT_MAX_BYTES, data, len, e);
}

status file_read_part(const char *path, int64_t most_bytes, char **data, size_t *len, err *e) {
    int fd;
    int64_t bytes;
    *data = NULL;
    *len = 0;
    TRY(file_open_part(path, &fd, &bytes, e));
    status s = read_to_end(fd, path, bytes, most_bytes, data, len, e);
    close(fd);
    return s;
}

/* Writes, fsyncs and closes a new file. */
static status write_durable(const char *path, const void *data, size_t len, err *e) {
    int fd = file_sys_create(path);
    if (fd < 0) return err_errno(e, path, "cannot create %s", path);
    status s = write_full(fd, path, data, len, e);
    if (s == ST_OK) s = sync_open(fd, path, e);
    if (close(fd) != 0 && s == ST_OK) s = err_errno(e, path, "cannot close %s", path);
    return s;
}

status file_rename(const char *from, const char *to, err *e) {
    if (file_sys_rename(from, to) == 0) return ST_OK;
    return err_errno(e, to, "cannot rename %s to %s", from, to);
}

/* By a third name; what fails half-way is undone. */
static int swap_slowly(const char *a, const char *b, const char *third) {
    if (file_sys_rename(b, third) != 0) return -1;
    if (file_sys_rename(a, b) == 0) return file_sys_rename(third, a);
    int cause = errno;
    if (file_sys_rename(third, b) == 0) errno = cause;
    return -1;
}

status file_swap(const char *a, const char *b, err *e) {
    if (file_sys_exchange(a, b) == 0) return ST_OK;
    if (errno == EINVAL || errno == ENOSYS) {
        arena *mem = arena_new("swap");
        int done = swap_slowly(a, b, arena_printf(mem, "%s.old", a));
        arena_free(mem);
        if (done == 0) return ST_OK;
    }
    return err_errno(e, b, "cannot let %s and %s change places", a, b);
}

status file_sync(const char *path, err *e) {
    int fd;
    TRY(file_open_part(path, &fd, NULL, e));
    status s = sync_open(fd, path, e);
    close(fd);
    return s;
}

/* What this process has open under the names /dev/stdout, /dev/stderr and /dev/fd/N; -1 for any other name. */
static int open_descriptor(const char *path) {
    char tail;
    int fd;
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    return sscanf(path, "/dev/fd/%d%c", &fd, &tail) == 1 ? fd : -1;
}

/* A pipe or a device takes bytes and keeps its name: a file that is put in its place would destroy it. */
static bool is_stream(const char *path) {
    struct stat st;
    if (open_descriptor(path) >= 0) return true;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static status write_stream(const char *path, const void *data, size_t len, err *e) {
    int known = open_descriptor(path);
    int fd = known < 0 ? file_sys_update(path) : fcntl(known, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return err_errno(e, path, "cannot open %s", path);
    status s = write_full(fd, path, data, len, e);
    if (close(fd) != 0 && s == ST_OK) s = err_errno(e, path, "cannot close %s", path);
    return s;
}

const char *file_behind_links(arena *a, const char *path) {
    enum { MOST = 40 }; /* as the system; who goes in circles is refused by whatever comes next */
    char to[PATH_MAX];
    for (int i = 0; i < MOST; i++) {
        ssize_t n = readlink(path, to, sizeof to - 1);
        if (n <= 0) break;
        int folder = to[0] == '/' ? 0 : (int)(path_base(path) - path);
        path = arena_printf(a, "%.*s%.*s", folder, path, (int)n, to);
    }
    return path;
}

status file_write_atomic(const char *path, const void *data, size_t len, err *e) {
    if (is_stream(path)) return write_stream(path, data, len, e);
    arena *a = arena_new("file name");
    path = file_behind_links(a, path);
    char *temp = arena_printf(a, "%s.tmp-%ld", path,
                              (long)gettid()); /* threads may write one file at once */
    status s = write_durable(temp, data, len, e);
    if (s == ST_OK && file_sys_rename(temp, path) != 0)
        s = err_errno(e, path, "cannot put %s in its place", path);
    if (s != ST_OK) {
        file_sys_unlinkat(AT_FDCWD, temp, 0);
        err_rename(e, temp, path);
    }
    if (s == ST_OK) s = file_sync_parent(path, e);
    arena_free(a);
    return s;
}

status file_map_open(file_map *m, const char *path, err *e) {
    *m = (file_map){0};
    int fd;
    int64_t bytes;
    TRY(file_open_part(path, &fd, &bytes, e));
    status s = ST_OK;
    if (bytes > 0) { /* an empty file has no mapping: data stays NULL, len 0 */
        void *p = file_sys_map(fd, (size_t)bytes);
        if (!p)
            s = err_unreadable(e, "map", path);
        else
            *m = (file_map){p, (size_t)bytes};
    }
    close(fd);
    return s;
}

void file_map_release(const file_map *m) {
    if (m->data) (void)madvise((void *)(uintptr_t)m->data, m->len, MADV_DONTNEED);
}

void file_map_close(file_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->len);
    *m = (file_map){0};
}

status file_create(const char *path, int *fd, err *e) {
    *fd = -1;
    if (is_stream(path)) {
        err_at(e, ST_USAGE, path, "%s is a device or a pipe, and a file is to be made here", path);
        return err_hint(e, "give the name of a file");
    }
    *fd = file_sys_create(path);
    return *fd >= 0 ? ST_OK : err_errno(e, path, "cannot create %s", path);
}

status file_out_open(file_out *f, const char *path, err *e) {
    *f = (file_out){.fd = -1};
    TRY(file_create(path, &f->fd, e));
    f->path = xstrdup(path);
    f->buf = xmalloc(OUT_BUFFER_BYTES);
    f->hash = hash_begin();
    return ST_OK;
}

static status flush(file_out *f, err *e) {
    size_t n = f->used;
    f->used = 0;
    return write_full(f->fd, f->path, f->buf, n, e);
}

status file_out_write(file_out *f, const void *data, size_t len, err *e) {
    const uint8_t *p = data;
    if (len) XXH3_64bits_update(f->hash, p, len);
    while (len > 0) {
        size_t room = OUT_BUFFER_BYTES - f->used, n = len < room ? len : room;
        memcpy(f->buf + f->used, p, n);
        f->used += n;
        p += n;
        len -= n;
        if (f->used == OUT_BUFFER_BYTES) TRY(flush(f, e));
    }
    return ST_OK;
}

static void release(file_out *f) {
    XXH3_freeState(f->hash);
    free(f->buf);
    free(f->path);
    *f = (file_out){.fd = -1};
}

status file_out_close(file_out *f, uint64_t *hash, err *e) {
    status s = flush(f, e);
    if (s == ST_OK) s = sync_open(f->fd, f->path, e);
    if (close(f->fd) != 0 && s == ST_OK) s = err_errno(e, f->path, "cannot close %s", f->path);
    if (hash) *hash = XXH3_64bits_digest(f->hash);
    release(f);
    return s;
}

void file_out_abandon(file_out *f) {
    if (!f->path) return; /* never opened, or closed already */
    close(f->fd);
    file_sys_unlinkat(AT_FDCWD, f->path, 0);
    release(f);
}

void *hash_begin(void) {
    XXH3_state_t *h = XXH3_createState();
    CHECK(h, "no memory for a hash state");
    XXH3_64bits_reset(h);
    return h;
}

uint64_t hash_bytes(const void *data, size_t len) {
    return XXH3_64bits(len ? data : "", len);
}

status hash_file(const char *path, uint64_t *hash, err *e) {
    int fd;
    TRY(file_open_part(path, &fd, NULL, e));
    uint8_t *buf = xmalloc(OUT_BUFFER_BYTES);
    XXH3_state_t *state = hash_begin();
    ssize_t got;
    while ((got = read_retry(fd, buf, OUT_BUFFER_BYTES)) > 0)
        XXH3_64bits_update(state, buf, (size_t)got);
    status s = got < 0 ? err_unreadable(e, "read", path) : ST_OK;
    *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(buf);
    close(fd);
    return s;
}

void hash_format(uint64_t hash, char out[17]) {
    for (int i = 15; i >= 0; i--, hash >>= 4) out[i] = "0123456789abcdef"[hash & 15];
    out[16] = '\0';
}

bool hash_parse(const char *hex, uint64_t *hash) {
    if (!hex || strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16) return false;
    *hash = strtoull(hex, NULL, 16);
    return true;
}
