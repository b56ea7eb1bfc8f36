/* Memory of devices that is the host's own.
 *
 * A reservation is one private anonymous mapping of exactly the page-rounded length. The kernel
 * gives pages when they are first touched, so the touched part shows what a program really used. */
#include "dev/dev_int.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LARGE_PAGE = 2 << 20 }; /* of x86-64, and of ARM with pages of 4 KB */

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_to_page(size_t bytes) {
    size_t page = page_bytes();
    return (bytes + page - 1) / page * page;
}

static status no_memory(size_t bytes, const char *what, err *e) {
    err_at(e, ST_MEMORY, what,
           "%s needs %.1f MB, but this machine has %.1f MB available of %.1f MB", what,
           (double)bytes * 1e-6, (double)dev_machine_available_bytes() * 1e-6,
           (double)dev_machine_total_bytes() * 1e-6);
    return err_hint(e, "make the micro-batch, the context or the model smaller; athanor plan says "
                       "what each takes");
}

/* There is memory, but not for this process. */
static status no_room(size_t bytes, const char *what, err *e) {
    err_errno(e, what, "%s needs %.1f MB, which the system does not give", what,
              (double)bytes * 1e-6);
    if (e) e->code = ST_MEMORY;
    err_hint(e, "ulimit -v, or vm.overcommit_memory, lets a process have less than what is free");
    return ST_MEMORY;
}

size_t dev_mapping_bytes(size_t bytes) {
    return bytes ? round_to_page(bytes) : page_bytes();
}

status dev_reserve_host(void **ptr, size_t bytes, const char *what, err *e) {
    if (bytes > SIZE_MAX / 4 || bytes > dev_machine_available_bytes())
        return no_memory(bytes, what, e);
    size_t length = dev_mapping_bytes(bytes);
    void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return no_room(bytes, what, e);
    /* Large pages would be resident beyond what was touched and blur the comparison with the plan.
     * The call fails harmlessly where the kernel has none. */
    (void)madvise(p, length, MADV_NOHUGEPAGE);
    *ptr = p;
    return ST_OK;
}

/* Packed operands and activations are walked in strides of pages; with small pages, a product whose
 * operands are not in the second-level cache waits for address look-ups more than for memory, above
 * all in a virtual machine, where each takes two walks. The last large page stays small ones, so that
 * the highest touched page is exact where everything was touched. */
void dev_use_large_pages(void *ptr, size_t bytes) {
    uintptr_t first = ((uintptr_t)ptr + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uintptr_t end = ((uintptr_t)ptr + bytes) / LARGE_PAGE * LARGE_PAGE - LARGE_PAGE;
    if (end > first) (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
}

void dev_release_host(void *ptr, size_t bytes) {
    munmap(ptr, dev_mapping_bytes(bytes));
}

enum { SCAN_PAGES = 4096 };

/* One past the highest touched page among n <= SCAN_PAGES pages, 0 for none. The page map also sees
 * pages that were swapped out; where the system has none, mincore answers for resident ones. */
static size_t highest_touched(int pagemap_fd, const char *start, size_t n) {
    size_t page = page_bytes();
    uint64_t entries[SCAN_PAGES];
    off_t at = (off_t)((uintptr_t)start / page * sizeof entries[0]);
    ssize_t want = (ssize_t)(n * sizeof entries[0]);
    if (pagemap_fd >= 0 && pread(pagemap_fd, entries, (size_t)want, at) == want) {
        while (n > 0 && !(entries[n - 1] >> 62)) n--; /* bit 63 present, bit 62 swapped */
        return n;
    }
    unsigned char resident[SCAN_PAGES];
    if (mincore((void *)(uintptr_t)start, n * page, resident) != 0) return n;
    while (n > 0 && !(resident[n - 1] & 1)) n--;
    return n;
}

size_t dev_touched_bytes(const void *ptr, size_t bytes) {
    if (!ptr) return 0;
    size_t page = page_bytes(), end = round_to_page(bytes) / page, top = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    while (end > 0 && top == 0) {
        size_t begin = end > SCAN_PAGES ? end - SCAN_PAGES : 0;
        size_t found = highest_touched(fd, (const char *)ptr + begin * page, end - begin);
        if (found) top = begin + found;
        end = begin;
    }
    if (fd >= 0) close(fd);
    return top * page;
}
