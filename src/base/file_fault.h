/* The system calls that change files, with a place to inject faults: a test facility.
 *
 * All code that creates, writes, syncs, renames or removes files calls these. Unarmed they cost one
 * load. Armed by the environment variable ATHANOR_FAULT, or by file_fault_arm, with
 *     KIND:N        the N-th operation of that kind (counted from 1) fails; KIND is
 *                   create, write, fsync, rename, remove or mkdir
 *     kill:N        the process dies by SIGKILL in place of the N-th operation of any kind
 * A failed create, write or mkdir says ENOSPC, the others EIO. Only the N-th fails; what follows
 * works again, as after a passing fault. */
#ifndef BASE_FILE_FAULT_H
#define BASE_FILE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

int file_sys_create(const char *path); /* for writing, truncated, close-on-exec */
ssize_t file_sys_write(int fd, const void *p, size_t n);
int file_sys_fsync(int fd);
int file_sys_rename(const char *from, const char *to);
int file_sys_unlinkat(int dir_fd, const char *name, int flags);
int file_sys_mkdir(const char *path);

/* Arms or, with NULL, disarms, and starts the counts anew. Returns false on a spec that is not of
 * the form above. */
bool file_fault_arm(const char *spec);
/* Whether the armed fault has struck. */
bool file_fault_struck(void);

#endif
