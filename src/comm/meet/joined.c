/* Two exchanges: on which machine every rank is, and the segment that rank 0 has made; then whether
 * all have opened it.
 *
 * The segment is an anonymous file of rank 0, which the others open by its process and descriptor:
 * it has no name, so nothing stays behind when a rank is killed. Its device and inode numbers, which
 * no other file of the machine has, show that it is the right file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "comm/world.h"

enum { MACHINES_SHOWN = 8 };

/* What a rank tells of itself; the segment is rank 0's. */
typedef struct home {
    char host[64];     /* its name, for people */
    char machine[128]; /* the start of the kernel and the space of process numbers */
    int64_t process, segment_fd, device, inode;
    cpu_set_t processors;
    char failure[320]; /* why it cannot take part */
} home;

/* ---- where a rank lives ---- */

static home find_home(void) {
    home h = {.process = getpid(), .segment_fd = -1};
    char *boot, space[48] = "";
    size_t len;
    if (gethostname(h.host, sizeof h.host - 1) != 0) snprintf(h.host, sizeof h.host, "?");
    bool told = file_read_all("/proc/sys/kernel/random/boot_id", &boot, &len, NULL) == ST_OK;
    if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = '\0';
    snprintf(h.machine, sizeof h.machine, "%s %s", told ? boot : h.host, space);
    free(boot);
    comm_list_processors(&h.processors);
    return h;
}

/* What others have written ends somewhere, and is shown to people. */
static void close_texts(home *h) {
    h->host[sizeof h->host - 1] = h->machine[sizeof h->machine - 1] = '\0';
    h->failure[sizeof h->failure - 1] = '\0';
    text_make_plain(h->host);
    text_make_plain(h->failure);
}

static bool is_same_machine(const home *a, const home *b) {
    return strcmp(a->machine, b->machine) == 0;
}

/* The first rank on the machine of rank i. */
static int first_there(const home *all, int i) {
    int first = 0;
    while (!is_same_machine(&all[first], &all[i])) first++;
    return first;
}

/* Whether a rank before i says that another machine has the same name. */
static bool has_namesake(const home *all, int i) {
    for (int k = 0; k < i; k++)
        if (!is_same_machine(&all[k], &all[i]) && strcmp(all[k].host, all[i].host) == 0)
            return true;
    return false;
}

/* "ranks 0-3 are on a, ranks 4-7 are on b" */
static void put_machines(strbuf *out, const home *all, int n) {
    bool *here = xcalloc((size_t)n, sizeof *here);
    int shown = 0;
    for (int i = 0; i < n && shown < MACHINES_SHOWN; i++) {
        if (first_there(all, i) != i) continue;
        for (int k = 0; k < n; k++) here[k] = is_same_machine(&all[k], &all[i]);
        if (shown++ > 0) strbuf_puts(out, ", ");
        int ranks = rank_list_put(out, here, n);
        strbuf_printf(out, " %s on %s%s", ranks == 1 ? "is" : "are", all[i].host,
                      has_namesake(all, i) ? " in another container" : "");
    }
    free(here);
}

static status check_machines(const home *all, int n, err *e) {
    int same = 0;
    while (same < n && is_same_machine(&all[0], &all[same])) same++;
    if (same == n) return ST_OK;
    strbuf machines = {0};
    put_machines(&machines, all, n);
    err_set(e, ST_USAGE, "ranks that meet by MASTER_ADDR must be on one machine: %s",
            machines.data);
    strbuf_free(&machines);
    return err_hint(e, "for several machines: mpirun or srun, with the MPI plugin");
}

/* ---- the segment ---- */

static status make_segment(home *h, int ranks, err *e) {
    int fd;
    struct stat info;
    TRY(comm_segment_new(ranks, &fd, e));
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fstat(fd, &info) != 0) {
        close(fd);
        return err_errno(e, "athanor-segment", "cannot share the memory of the ranks");
    }
    h->segment_fd = fd;
    h->device = (int64_t)info.st_dev;
    h->inode = (int64_t)info.st_ino;
    return ST_OK;
}

/* Rank 0 may name any file: it is looked at before it is used (comm_open_segment). */
static status open_segment(const home *first, int *fd, err *e) {
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)first->process,
             (long long)first->segment_fd);
    *fd = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0) return err_errno(e, path, "cannot open the memory that rank 0 shares");
    if (fstat(*fd, &info) == 0 && (int64_t)info.st_dev == first->device &&
        (int64_t)info.st_ino == first->inode)
        return ST_OK;
    close(*fd);
    return err_set(e, ST_USAGE, "%s is not the memory that rank 0 shares", path);
}

static status attach(comm_world **out, const home *first, int rank, int n, err *e) {
    int fd;
    TRY(open_segment(first, &fd, e));
    status st = comm_open_segment(out, fd, rank, n, e);
    close(fd);
    if (st == ST_OK) (*out)->wire->kind = "joined";
    return st;
}

/* ---- the meeting ---- */

/* Tells the others of this rank and hears of them. */
static status exchange(rendezvous *r, const home *mine, home *all, int n, err *e) {
    TRY(rendezvous_exchange(r, mine, all, sizeof *mine, e));
    for (int i = 0; i < n; i++) close_texts(&all[i]);
    TRY(check_machines(all, n, e));
    for (int i = 0; i < n; i++) {
        if (!all[i].failure[0]) continue;
        err_set(e, ST_USAGE, "rank %d: %s", i, all[i].failure);
        return err_hint(e, "ranks are processes of one user; or use athanor launch");
    }
    return ST_OK;
}

static void note_failure(home *h, const err *why) {
    snprintf(h->failure, sizeof h->failure, "%.*s", (int)sizeof h->failure - 1, why->message);
}

static void share_processors(const home *all, int rank, int n) {
    cpu_set_t *sets = xcalloc((size_t)n, sizeof *sets);
    for (int r = 0; r < n; r++) sets[r] = all[r].processors;
    comm_share_processors(sets, rank, n);
    free(sets);
}

static status settle(comm_world **out, rendezvous *r, home *mine, home *all, int rank, int n,
                     err *e) {
    err why = {0};
    if (rank == 0 && make_segment(mine, n, &why) != ST_OK) note_failure(mine, &why);
    TRY(exchange(r, mine, all, n, e));
    if (attach(out, &all[0], rank, n, &why) != ST_OK) note_failure(mine, &why);
    return exchange(r, mine, all, n, e);
}

status joined_open(comm_world **out, const rendezvous_plan *plan, err *e) {
    rendezvous *r;
    home mine = find_home();
    *out = NULL;
    TRY(rendezvous_open(&r, plan, e));
    home *all = xcalloc((size_t)plan->size, sizeof *all);
    status st = settle(out, r, &mine, all, plan->rank, plan->size, e);
    if (mine.segment_fd >= 0) close((int)mine.segment_fd); /* all have it, or nobody needs it */
    if (st == ST_OK) share_processors(all, plan->rank, plan->size);
    free(all);
    if (st == ST_OK) {
        board *b = (*out)->wire->board;
        (*out)->lifeline = lifeline_new(r, b, plan->rank, plan->size);
        return ST_OK;
    }
    comm_close(*out);
    *out = NULL;
    rendezvous_close(r);
    return st;
}
