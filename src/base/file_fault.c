/* System calls on files, and the fault hook before each of them. The one piece of state is the
 * armed fault, process-wide because the file system is. */
#include "base/file_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

typedef enum fault_op {
    OP_CREATE,
    OP_WRITE,
    OP_FSYNC,
    OP_RENAME,
    OP_REMOVE,
    OP_MKDIR,
    OP_READ,
    OP_ALLOC,
    OP_KINDS,
    OP_CHANGE = OP_KINDS, /* any of create to mkdir: what kill:N counts */
} fault_op;

static const char *const op_names[] = {"create", "write", "fsync", "rename", "remove",
                                       "mkdir",  "read",  "alloc", "kill"};

static struct {
    pthread_once_t once;
    atomic_bool armed;
    fault_op op;
    long at; /* 0: only counts */
    atomic_long seen[OP_KINDS + 1];
    const char *count_file;
} fault = {.once = PTHREAD_ONCE_INIT};

static bool parse_spec(const char *spec, fault_op *op, long *at) {
    const char *colon = strchr(spec, ':');
    if (!colon || colon[1] < '1' || colon[1] > '9') return false;
    char *end;
    *at = strtol(colon + 1, &end, 10);
    if (*end) return false;
    for (int i = 0; i < ARRAY_LEN(op_names); i++) {
        size_t n = strlen(op_names[i]);
        if (n != (size_t)(colon - spec) || memcmp(op_names[i], spec, n) != 0) continue;
        *op = (fault_op)i;
        return true;
    }
    return false;
}

static bool arm(const char *spec) {
    bool good = spec && parse_spec(spec, &fault.op, &fault.at);
    for (int i = 0; i <= OP_KINDS; i++) atomic_store(&fault.seen[i], 0);
    atomic_store(&fault.armed, good);
    return good || !spec;
}

static void write_counts(void) {
    int fd = open(fault.count_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return;
    for (int i = 0; i <= OP_KINDS; i++)
        dprintf(fd, "%s %ld\n", op_names[i], atomic_load(&fault.seen[i]));
    close(fd);
}

static void arm_from_environment(void) {
    const char *spec = getenv("ATHANOR_FAULT");
    if (spec && strncmp(spec, "count:", 6) == 0 && spec[6]) {
        fault.count_file = spec + 6;
        atomic_store(&fault.armed, atexit(write_counts) == 0);
    } else {
        CHECK(arm(spec), "ATHANOR_FAULT=%s is not of the form write:7", spec);
    }
}

bool file_fault_arm(const char *spec) {
    pthread_once(&fault.once, arm_from_environment);
    return arm(spec);
}

bool file_fault_struck(void) {
    return atomic_load(&fault.armed) && atomic_load(&fault.seen[fault.op]) >= fault.at;
}

/* Counts the operation; whether it is the one to fail. */
static bool strikes(fault_op op) {
    bool struck = atomic_fetch_add(&fault.seen[op], 1) + 1 == fault.at && fault.op == op;
    if (op < OP_READ && atomic_fetch_add(&fault.seen[OP_CHANGE], 1) + 1 == fault.at &&
        fault.op == OP_CHANGE)
        kill(getpid(), SIGKILL);
    return struck;
}

/* False when this operation is the one to fail; errno is set then. */
static bool allowed(fault_op op) {
    pthread_once(&fault.once, arm_from_environment);
    if (!atomic_load(&fault.armed) || !strikes(op)) return true;
    errno = op == OP_CREATE || op == OP_WRITE || op == OP_MKDIR ? ENOSPC : EIO;
    return false;
}

bool file_fault_alloc(void) {
    return !allowed(OP_ALLOC);
}

ssize_t file_sys_read(int fd, void *p, size_t n) {
    return allowed(OP_READ) ? read(fd, p, n) : -1;
}

ssize_t file_sys_pread(int fd, void *p, size_t n, off_t offset) {
    return allowed(OP_READ) ? pread(fd, p, n, offset) : -1;
}

void *file_sys_map(int fd, size_t len) {
    if (!allowed(OP_READ)) return NULL;
    void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

int file_sys_create(const char *path) {
    return allowed(OP_CREATE) ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
}

int file_sys_update(const char *path) {
    return allowed(OP_CREATE) ? open(path, O_WRONLY | O_CLOEXEC) : -1;
}

ssize_t file_sys_write(int fd, const void *p, size_t n) {
    return allowed(OP_WRITE) ? write(fd, p, n) : -1;
}

ssize_t file_sys_pwrite(int fd, const void *p, size_t n, off_t offset) {
    return allowed(OP_WRITE) ? pwrite(fd, p, n, offset) : -1;
}

int file_sys_ftruncate(int fd, off_t length) {
    return allowed(OP_WRITE) ? ftruncate(fd, length) : -1;
}

/* A signal, SIGTERM say, interrupts it where the file system is behind a network or a process. */
int file_sys_fsync(int fd) {
    int rc;
    if (!allowed(OP_FSYNC)) return -1;
    do rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

int file_sys_rename(const char *from, const char *to) {
    return allowed(OP_RENAME) ? rename(from, to) : -1;
}

int file_sys_exchange(const char *a, const char *b) {
    if (!allowed(OP_RENAME)) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

int file_sys_unlinkat(int dir_fd, const char *name, int flags) {
    return allowed(OP_REMOVE) ? unlinkat(dir_fd, name, flags) : -1;
}

int file_sys_mkdir(const char *path) {
    return allowed(OP_MKDIR) ? mkdir(path, 0777) : -1;
}
