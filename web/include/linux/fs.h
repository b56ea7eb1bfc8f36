/* What base/file_fault.c takes of Linux, where there is none: the call that swaps two files fails. Only runs swap files. */
#include <errno.h>

#define RENAME_EXCHANGE 2
#define syscall(...) (errno = ENOSYS, -1)
