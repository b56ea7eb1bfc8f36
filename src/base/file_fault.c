/* System calls that change files, and the fault hook before each of them. The one piece of state is
 * the armed fault, process-wide because the file system is. */
#include "base/file_fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

typedef enum file_op {
    OP_CREATE,
    OP_WRITE,
    OP_FSYNC,
    OP_RENAME,
    OP_REMOVE,
    OP_MKDIR,
    OP_ANY_KILL, /* in a spec only: matches every operation */
} file_op;

static struct {
    pthread_once_t once;
    atomic_bool armed;
    file_op op;
    long at;
    atomic_long seen;
} fault = {.once = PTHREAD_ONCE_INIT};

static bool parse_spec(const char *spec, file_op *op, long *at) {
    static const char *const names[] = {"create", "write", "fsync", "rename",
                                        "remove", "mkdir", "kill"};
    const char *colon = strchr(spec, ':');
    if (!colon || colon[1] < '1' || colon[1] > '9') return false;
    char *end;
    *at = strtol(colon + 1, &end, 10);
    if (*end) return false;
    for (int i = 0; i < ARRAY_LEN(names); i++) {
        size_t n = strlen(names[i]);
        if (n != (size_t)(colon - spec) || memcmp(names[i], spec, n) != 0) continue;
        *op = (file_op)i;
        return true;
    }
    return false;
}

static bool arm(const char *spec) {
    bool good = spec && parse_spec(spec, &fault.op, &fault.at);
    atomic_store(&fault.seen, 0);
    atomic_store(&fault.armed, good);
    return good || !spec;
}

static void arm_from_environment(void) {
    const char *spec = getenv("ATHANOR_FAULT");
    CHECK(arm(spec), "ATHANOR_FAULT=%s is not of the form write:7", spec);
}

bool file_fault_arm(const char *spec) {
    pthread_once(&fault.once, arm_from_environment);
    return arm(spec);
}

bool file_fault_struck(void) {
    return atomic_load(&fault.armed) && atomic_load(&fault.seen) >= fault.at;
}

/* False when this operation is the one to fail; errno is set then. */
static bool allowed(file_op op) {
    pthread_once(&fault.once, arm_from_environment);
    if (!atomic_load(&fault.armed) || (fault.op != op && fault.op != OP_ANY_KILL)) return true;
    if (atomic_fetch_add(&fault.seen, 1) + 1 != fault.at) return true;
    if (fault.op == OP_ANY_KILL) kill(getpid(), SIGKILL);
    errno = op == OP_CREATE || op == OP_WRITE || op == OP_MKDIR ? ENOSPC : EIO;
    return false;
}

int file_sys_create(const char *path) {
    return allowed(OP_CREATE) ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
}

ssize_t file_sys_write(int fd, const void *p, size_t n) {
    return allowed(OP_WRITE) ? write(fd, p, n) : -1;
}

int file_sys_fsync(int fd) {
    return allowed(OP_FSYNC) ? fsync(fd) : -1;
}

int file_sys_rename(const char *from, const char *to) {
    return allowed(OP_RENAME) ? rename(from, to) : -1;
}

int file_sys_unlinkat(int dir_fd, const char *name, int flags) {
    return allowed(OP_REMOVE) ? unlinkat(dir_fd, name, flags) : -1;
}

int file_sys_mkdir(const char *path) {
    return allowed(OP_MKDIR) ? mkdir(path, 0777) : -1;
}
