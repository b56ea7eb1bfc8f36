/* Ranks that are processes of one machine: a hub in an anonymous file whose descriptor they inherit
 * or open. Its pages take memory when they are first used.
 *
 * A descriptor that somebody else names may be anything, so it is looked at before it is mapped: a
 * file of this user, an anonymous one whose length is sealed, and as long as the hub of so many
 * ranks is. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/wire/hub.h"
#include "comm/world.h"

static const char NAME[] = "athanor-segment";
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

int64_t comm_segment_bytes(int ranks) {
    return (int64_t)hub_over(NULL, ranks, true).bytes;
}

status comm_check_ranks(int64_t ranks, const char *where, err *e) {
    if (ranks >= 1 && ranks <= COMM_MOST_RANKS) return ST_OK;
    err_at(e, ST_USAGE, where, "%s is %lld, but 1 to %d ranks share the memory of a machine", where,
           (long long)ranks, COMM_MOST_RANKS);
    return err_hint(e, "more ranks need several machines: mpirun or srun, with the MPI plugin");
}

status comm_segment_new(int ranks, int *fd, err *e) {
    TRY(comm_check_ranks(ranks, "the number of ranks", e));
    int64_t bytes = comm_segment_bytes(ranks);
    *fd = memfd_create(NAME, MFD_ALLOW_SEALING); /* to be inherited */
    if (*fd < 0) return err_errno(e, NAME, "cannot make the shared segment");
    if (ftruncate(*fd, (off_t)bytes) == 0 && fcntl(*fd, F_ADD_SEALS, SEALS) == 0) return ST_OK;
    err_errno(e, NAME, "cannot make the shared segment %lld MiB long", (long long)bytes >> 20);
    close(*fd);
    *fd = -1;
    return ST_FAILED;
}

static status refuse(int fd, const char *what, err *e) {
    err_at(e, ST_USAGE, NAME, "descriptor %d is not the shared segment of the ranks: %s", fd, what);
    return err_hint(e, "ranks are processes of one user and one program; athanor launch hands the "
                       "segment to those that it starts");
}

static status inspect(int fd, int ranks, err *e) {
    struct stat info;
    TRY(comm_check_ranks(ranks, "the number of ranks", e));
    if (fstat(fd, &info) != 0) return refuse(fd, "it is not open", e);
    if (info.st_uid != geteuid()) return refuse(fd, "it is of another user", e);
    int seals = S_ISREG(info.st_mode) ? fcntl(fd, F_GET_SEALS) : -1;
    if (seals < 0 || (seals & SEALS) != SEALS) return refuse(fd, "it is another kind of file", e);
    if (info.st_size != comm_segment_bytes(ranks)) return refuse(fd, "it has another length", e);
    return ST_OK;
}

static status map_given(hub *out, int fd, int ranks, err *e) {
    TRY(inspect(fd, ranks, e));
    size_t bytes = (size_t)comm_segment_bytes(ranks);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return err_errno(e, NAME, "cannot map the shared segment of %zu MiB", bytes >> 20);
    *out = hub_over(memory, ranks, true);
    return ST_OK;
}

status comm_open_segment(comm_world **out, int fd, int rank, int ranks, err *e) {
    hub h;
    *out = NULL;
    if (rank < 0 || rank >= ranks)
        return err_set(e, ST_USAGE, "there is no rank %d among %d ranks", rank, ranks);
    TRY(map_given(&h, fd, ranks, e));
    *out = comm_world_new(hub_wire_new(&h, rank, "processes"));
    return ST_OK;
}

status comm_segment_fail(int fd, int ranks, int rank, const err *why, err *e) {
    hub h;
    TRY(map_given(&h, fd, ranks, e));
    board_fail(hub_board(&h), rank, why);
    hub_unmap(&h);
    return ST_OK;
}

status comm_segment_check(int fd, int ranks, err *e) {
    hub h;
    TRY(map_given(&h, fd, ranks, e));
    status st = board_check(hub_board(&h), e);
    hub_unmap(&h);
    return st;
}
