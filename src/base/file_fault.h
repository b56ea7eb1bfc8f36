/* The system calls that read and change files, with a place to inject faults: a test facility.
 *
 * All code that reads by calls, maps, creates, writes, syncs, renames or removes files calls these.
 * Unarmed they cost one load. Armed by the environment variable ATHANOR_FAULT, or by
 * file_fault_arm, with
 *     KIND:N        the N-th operation of that kind (counted from 1) fails; KIND is
 *                   create, write, fsync, rename, remove, mkdir or read (a mapping is one read)
 *     kill:N        the process dies by SIGKILL in place of the N-th operation of any kind but read
 *     alloc:N       the N-th allocation of base/arena.h fails: memory has run out
 * A failed create, write or mkdir says ENOSPC, the others EIO. Only the N-th fails; what follows
 * works again, as after a passing fault.
 *
 * So that a test knows how far to count, ATHANOR_FAULT=count:FILE lets all operations be and writes
 * at exit how many there were of each kind: "write 12" and so on, a line each. */
#ifndef BASE_FILE_FAULT_H
#define BASE_FILE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

ssize_t file_sys_read(int fd, void *p, size_t n);
ssize_t file_sys_pread(int fd, void *p, size_t n, off_t offset);
/* A read-only private mapping of len > 0 bytes, or NULL. */
void *file_sys_map(int fd, size_t len);
int file_sys_create(const char *path); /* for writing, truncated, close-on-exec */
int file_sys_update(const char *path); /* an existing file for writing; counts as a create */
ssize_t file_sys_write(int fd, const void *p, size_t n);
ssize_t file_sys_pwrite(int fd, const void *p, size_t n, off_t offset); /* counts as a write */
int file_sys_ftruncate(int fd, off_t length);                           /* counts as a write */
int file_sys_fsync(int fd);
int file_sys_rename(const char *from, const char *to);
int file_sys_exchange(const char *a, const char *b); /* counts as a rename */
int file_sys_unlinkat(int dir_fd, const char *name, int flags);
int file_sys_mkdir(const char *path);

/* Whether the allocation that is about to be made is the one to fail. */
bool file_fault_alloc(void);

/* Arms or, with NULL, disarms, and starts the counts anew. Returns false on a spec that is not of
 * the form above. */
bool file_fault_arm(const char *spec);
/* Whether the armed fault has struck. */
bool file_fault_struck(void);

#endif
