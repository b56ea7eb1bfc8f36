/* Ranks that are processes of one machine: a hub in an anonymous file whose descriptor they
 * inherit. Its pages take memory when they are first used. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/wire/hub.h"
#include "comm/world.h"

enum { MOST_RANKS = 256 };
static const char NAME[] = "athanor-segment";

static void unmap(hub *h) {
    munmap(h, hub_bytes(hub_ranks(h), true));
}

static status map(hub **out, int fd, size_t bytes, err *e) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return err_errno(e, NAME, "cannot map the shared segment of %zu MiB", bytes >> 20);
    *out = memory;
    return ST_OK;
}

int64_t comm_segment_bytes(int ranks) {
    return (int64_t)hub_bytes(ranks, true);
}

status comm_segment_new(int ranks, int *fd, err *e) {
    if (ranks < 1 || ranks > MOST_RANKS) {
        err_set(e, ST_USAGE, "a shared segment has room for 1 to %d ranks, not %d", MOST_RANKS,
                ranks);
        return err_hint(e, "more ranks need several machines, under MPI");
    }
    size_t bytes = hub_bytes(ranks, true);
    *fd = memfd_create(NAME, 0); /* to be inherited */
    if (*fd < 0) return err_errno(e, NAME, "cannot make the shared segment");
    hub *h = NULL;
    status st = ST_OK;
    if (ftruncate(*fd, (off_t)bytes) != 0)
        st = err_errno(e, NAME, "cannot make the shared segment %zu MiB long", bytes >> 20);
    if (st == ST_OK) st = map(&h, *fd, bytes, e);
    if (st != ST_OK) {
        close(*fd);
        return st;
    }
    hub_init(h, ranks, true);
    unmap(h);
    return ST_OK;
}

/* A descriptor that somebody else gave: it may be anything. */
static status map_given(hub **out, int fd, err *e) {
    struct stat info;
    if (fstat(fd, &info) != 0) {
        err_errno(e, NAME, "descriptor %d is not the shared segment", fd);
        return err_hint(e, "ranks are started by athanor launch, which hands it to them");
    }
    size_t bytes = (size_t)info.st_size;
    if (bytes < hub_bytes(1, true)) {
        err_set(e, ST_USAGE, "descriptor %d is not the shared segment of ranks", fd);
        return err_hint(e, "ranks are started by athanor launch, which hands it to them");
    }
    TRY(map(out, fd, bytes, e));
    int ranks = hub_ranks(*out);
    if (ranks >= 1 && ranks <= MOST_RANKS && hub_bytes(ranks, true) == bytes) return ST_OK;
    munmap(*out, bytes);
    return err_set(e, ST_USAGE, "descriptor %d holds no segment of this version", fd);
}

status comm_open_segment(comm_world **out, int fd, int rank, err *e) {
    hub *h;
    *out = NULL;
    TRY(map_given(&h, fd, e));
    if (rank < 0 || rank >= hub_ranks(h)) {
        int ranks = hub_ranks(h);
        unmap(h);
        return err_set(e, ST_USAGE, "there is no rank %d among %d ranks", rank, ranks);
    }
    *out = comm_world_new(hub_wire_new(h, rank, "processes", unmap));
    return ST_OK;
}

status comm_segment_fail(int fd, int rank, const err *why, err *e) {
    hub *h;
    TRY(map_given(&h, fd, e));
    board_fail(hub_board(h), rank, why);
    unmap(h);
    return ST_OK;
}

status comm_segment_check(int fd, err *e) {
    hub *h;
    TRY(map_given(&h, fd, e));
    status st = board_check(hub_board(h), e);
    unmap(h);
    return st;
}
