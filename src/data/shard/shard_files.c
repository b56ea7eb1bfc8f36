/* See shard_files.h. The lock guards the table; reading happens outside it, on a slot that is held
 * by its count of readers. */
#include "data/shard/shard_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"

typedef struct slot {
    const void *owner; /* NULL: free */
    int number;
    int fd;
    int readers;
    uint64_t used; /* clock of the last use */
} slot;

struct shard_files {
    pthread_mutex_t lock;
    slot *slot;
    int n;
    uint64_t clock;
};

/* ---- identity ---- */

static file_identity identity_from(const struct stat *sb) {
    return (file_identity){.device = (uint64_t)sb->st_dev,
                           .inode = (uint64_t)sb->st_ino,
                           .bytes = (uint64_t)sb->st_size,
                           .modified_ns =
                               sb->st_mtim.tv_sec * INT64_C(1000000000) + sb->st_mtim.tv_nsec};
}

bool file_identity_of(const char *path, file_identity *out) {
    struct stat sb;
    if (stat(path, &sb) != 0) return false;
    *out = identity_from(&sb);
    return true;
}

bool file_identity_equal(const file_identity *a, const file_identity *b) {
    return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
           a->modified_ns == b->modified_ns;
}

/* ---- the table ---- */

shard_files *shard_files_new(int limit) {
    shard_files *f = xcalloc(1, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    f->slot = xcalloc((size_t)limit, sizeof *f->slot);
    f->n = limit;
    return f;
}

static void close_slot(slot *s) {
    if (s->owner) close(s->fd);
    *s = (slot){0};
}

void shard_files_free(shard_files *f) {
    if (!f) return;
    for (int i = 0; i < f->n; i++) close_slot(&f->slot[i]);
    pthread_mutex_destroy(&f->lock);
    free(f->slot);
    free(f);
}

void shard_files_drop(shard_files *f, const void *owner) {
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < f->n; i++)
        if (f->slot[i].owner == owner) close_slot(&f->slot[i]);
    pthread_mutex_unlock(&f->lock);
}

/* The slot of an open file, held; NULL when it is not open. */
static slot *hold(shard_files *f, const void *owner, int number) {
    pthread_mutex_lock(&f->lock);
    slot *found = NULL;
    for (int i = 0; i < f->n && !found; i++)
        if (f->slot[i].owner == owner && f->slot[i].number == number) found = &f->slot[i];
    if (found) {
        found->readers++;
        found->used = ++f->clock;
    }
    pthread_mutex_unlock(&f->lock);
    return found;
}

static void release(shard_files *f, slot *s) {
    pthread_mutex_lock(&f->lock);
    s->readers--;
    pthread_mutex_unlock(&f->lock);
}

/* Gives a newly opened file to the table, held; NULL when every slot is being read. Two threads may
 * have opened the same file: it then has two slots for a while, which is harmless. */
static slot *keep(shard_files *f, const void *owner, int number, int fd) {
    pthread_mutex_lock(&f->lock);
    slot *oldest = NULL;
    for (int i = 0; i < f->n; i++) {
        slot *s = &f->slot[i];
        if (s->readers == 0 && (!oldest || s->used < oldest->used)) oldest = s;
    }
    if (oldest) {
        close_slot(oldest);
        *oldest = (slot){owner, number, fd, 1, ++f->clock};
    }
    pthread_mutex_unlock(&f->lock);
    return oldest;
}

/* ---- reading ---- */

static status changed(const char *path, err *e) {
    err_at(e, ST_FORMAT, path,
           "%s was changed while it was in use: it is not what the set was opened with", path);
    return err_hint(
        e, "start again when nothing writes there any more; new data belong into another folder");
}

static status cut_off(const char *path, uint64_t at, err *e) {
    err_at(e, ST_FORMAT, path, "%s ends at byte %" PRIu64 ": it was cut while in use", path, at);
    return err_hint(e, "restore the file");
}

/* Asked after reading: what is written later is not in the bytes that were read. */
static bool is_known(int fd, const file_identity *known) {
    struct stat sb;
    if (fstat(fd, &sb) != 0) return false;
    file_identity now = identity_from(&sb);
    return file_identity_equal(&now, known);
}

status shard_files_read(shard_files *f, const void *owner, int number, shard_files_path *path,
                        const file_identity *known, uint64_t offset, void *buf, size_t n, err *e) {
    char name[SHARD_PATH_BYTES];
    slot *s = hold(f, owner, number);
    int fd = s ? s->fd : -1;
    if (!s) {
        path(owner, number, name);
        do fd = open(name, O_RDONLY | O_CLOEXEC);
        while (fd < 0 && errno == EINTR);
        if (fd < 0) return err_unreadable(e, "open", name);
        s = keep(f, owner, number, fd);
    }
    ssize_t got = file_read_at(fd, buf, n, offset);
    int why = errno;
    bool same = is_known(fd, known);
    if (s)
        release(f, s);
    else
        close(fd);
    if (got == (ssize_t)n && same) return ST_OK;
    path(owner, number, name);
    errno = why;
    if (got < 0) return err_unreadable(e, "read", name);
    return (size_t)got < n ? cut_off(name, offset + (uint64_t)got, e) : changed(name, e);
}
