/* The wire over MPI: an outbox of slots that are sent to one or more peers, a room to receive in
 * per peer. Waiting is testing with naps between, so that failures and timeouts are seen and no
 * core is kept busy. Between hosts MPI moves a large piece only while its sender calls it, so the side
 * stream goes on testing when it has nothing else to do.
 *
 * The board lies in memory of the node: of ranks of other nodes it knows only the host. A failure
 * reaches them when this rank ends, which makes the launcher of MPI end all. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/by_mpi.h"
#include "comm/mpi/mpi_plugin.h"
#include "comm/world.h"

enum { ABORT_S = 5 };
enum { NAP_LEAST_NS = 20000, NAP_MOST_NS = 1000000, TESTS_BEFORE_NAPS = 50 };

/* A piece on its way to a peer. */
typedef struct sending {
    mpi_request *request;
    int peer;
} sending;
_Static_assert(sizeof(sending) <= MPI_SENDING_BYTES, "a plan counts it");

typedef struct slot {
    char *data;
    sending *sent; /* [most_sent] */
    int n_sent;
} slot;

typedef struct mpi_wire {
    wire base;
    const mpi_calls *mpi;
    slot *slots;
    int n_slots, most_sent, current;
    char **rooms; /* [size] made when first used */
} mpi_wire;

/* One wait. */
typedef struct waiting {
    int peer;
    clock_wait wait;
    int64_t left_ns; /* of board_is_gone */
} waiting;

static bool may_wait(mpi_wire *w, waiting *t) {
    board *b = w->base.board;
    double waited = clock_waited_s(&t->wait);
    board_looks(b, w->base.rank, true);
    if (board_failed(b)) return false;
    if (board_is_gone(b, t->peer, &t->left_ns)) {
        board_fail_left(b, w->base.rank, true, t->peer);
        return false;
    }
    if (w->base.timeout_s <= 0 || waited < w->base.timeout_s) return true;
    board_stall(b, w->base.rank, true, t->peer, waited);
    return false;
}

static bool nap_until_done(mpi_wire *w, int peer, mpi_request *request, mpi_arrival *arrival) {
    waiting t = {.peer = peer, .wait = clock_begin_wait()};
    struct timespec nap = {.tv_nsec = NAP_LEAST_NS};
    bool done = false;
    board_waits(w->base.board, w->base.rank, true, peer);
    while (!done && may_wait(w, &t)) {
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < NAP_MOST_NS) nap.tv_nsec += nap.tv_nsec / 4;
        done = w->mpi->is_done(request, arrival);
    }
    board_waits(w->base.board, w->base.rank, true, BOARD_NOBODY);
    return done;
}

static bool wait_for(mpi_wire *w, int peer, mpi_request *request, mpi_arrival *arrival) {
    for (int i = 0; i < TESTS_BEFORE_NAPS; i++)
        if (w->mpi->is_done(request, arrival)) return true;
    return nap_until_done(w, peer, request, arrival);
}

static bool empty_slot(mpi_wire *w, slot *s) {
    for (; s->n_sent > 0; s->n_sent--) {
        const sending *last = &s->sent[s->n_sent - 1];
        if (!wait_for(w, last->peer, last->request, NULL)) return false;
    }
    return true;
}

static void *mpi_reserve(wire *base, int stream) {
    (void)stream;
    mpi_wire *w = (mpi_wire *)base;
    int next = (w->current + 1) % w->n_slots;
    if (!empty_slot(w, &w->slots[next])) return NULL;
    w->current = next;
    if (!w->slots[next].data) w->slots[next].data = xmalloc((size_t)MPI_PIECE_BYTES);
    return w->slots[next].data;
}

static bool mpi_post(wire *base, int stream, int peer, const void *data, int64_t bytes,
                     uint32_t tag) {
    (void)stream;
    mpi_wire *w = (mpi_wire *)base;
    slot *s = &w->slots[w->current];
    if (board_failed(base->board)) return false;
    if (s->n_sent == w->most_sent && !empty_slot(w, s)) return false;
    s->sent[s->n_sent++] = (sending){
        .request = w->mpi->send(data, bytes, peer, (int)(tag % MPI_PLUGIN_TAGS)), .peer = peer};
    return true;
}

static const void *mpi_await(wire *base, int stream, int peer, int64_t bytes, uint32_t tag) {
    (void)stream;
    mpi_wire *w = (mpi_wire *)base;
    mpi_arrival got;
    if (board_failed(base->board)) return NULL;
    if (!w->rooms[peer]) w->rooms[peer] = xmalloc((size_t)MPI_PIECE_BYTES);
    if (!wait_for(w, peer, w->mpi->receive(w->rooms[peer], MPI_PIECE_BYTES, peer), &got))
        return NULL;
    if (got.bytes == bytes && got.tag == (int)(tag % MPI_PLUGIN_TAGS)) return w->rooms[peer];
    board_fail_mixed(base->board, base->rank, true, peer);
    return NULL;
}

static bool mpi_progress(wire *base) {
    mpi_wire *w = (mpi_wire *)base;
    bool under_way = false;
    for (int i = 0; i < w->n_slots; i++) {
        slot *s = &w->slots[i];
        while (s->n_sent > 0 && w->mpi->is_done(s->sent[s->n_sent - 1].request, NULL)) s->n_sent--;
        under_way = under_way || s->n_sent > 0;
    }
    return under_way && !board_failed(base->board);
}

/* What is under way is finished first, unless the world has failed: then MPI cannot end in order,
 * and its launcher takes all ranks down. */
static void mpi_close(wire *base) {
    mpi_wire *w = (mpi_wire *)base;
    bool ended = true;
    for (int i = 0; i < w->n_slots; i++) ended = ended && empty_slot(w, &w->slots[i]);
    if (!ended || board_failed(base->board)) {
        status st = voice_last_words(base->board, base->rank);
        alarm(ABORT_S); /* MPI waits for its launcher, which may be behind a link that is cut */
        w->mpi->abort((int)st);
    }
    w->mpi->end();
    for (int i = 0; i < w->n_slots; i++) {
        free(w->slots[i].data);
        free(w->slots[i].sent);
    }
    for (int r = 0; r < base->size; r++) free(w->rooms[r]);
    free(w->rooms);
    free(w->slots);
    free(w);
}

static const wire_class OVER_MPI = {.one_thread = true,
                                    .reserve = mpi_reserve,
                                    .post = mpi_post,
                                    .await = mpi_await,
                                    .progress = mpi_progress,
                                    .close = mpi_close};

/* Where there are several hosts, every rank is told of with the name of its own. */
static void note_hosts(const mpi_calls *mpi, board *b, int size) {
    char own[MPI_PLUGIN_HOST] = "", (*all)[MPI_PLUGIN_HOST] = xcalloc((size_t)size, sizeof *all);
    if (gethostname(own, sizeof own - 1) != 0) memcpy(own, "?", 2);
    mpi->gather_hosts(own, all);
    bool several = false;
    for (int r = 1; r < size; r++) several = several || strcmp(all[0], all[r]) != 0;
    for (int r = 0; r < size && several; r++) board_set_host(b, r, all[r]);
    free(all);
}

static wire *wire_new(const mpi_calls *mpi, int rank, int size) {
    mpi_wire *w = xcalloc(1, sizeof *w);
    /* Behind the board are the processors of each rank of the node. */
    char *shared = mpi->node_memory(board_bytes(size) + (size_t)size * sizeof(cpu_set_t));
    cpu_set_t *sets = (cpu_set_t *)(void *)(shared + board_bytes(size));
    w->base = (wire){.class = &OVER_MPI,
                     .kind = "mpi",
                     .rank = rank,
                     .size = size,
                     .piece_bytes = MPI_PIECE_BYTES,
                     .board = (board *)(void *)shared};
    w->mpi = mpi;
    comm_list_processors(&sets[rank]);
    note_hosts(mpi, w->base.board,
               size); /* no rank returns before all have come, each with its set */
    comm_share_processors(sets, rank, size);
    w->n_slots = w->most_sent = mpi_slots(size);
    w->slots = xcalloc((size_t)w->n_slots, sizeof *w->slots);
    for (int i = 0; i < w->n_slots; i++)
        w->slots[i].sent = xcalloc((size_t)w->most_sent, sizeof(sending));
    w->rooms = xcalloc((size_t)size, sizeof *w->rooms);
    return &w->base;
}

/* ---- the plugin ---- */

/* It lies in the folder of the program. */
static char *plugin_path(void) {
    char *self = realpath("/proc/self/exe", NULL), *slash = self ? strrchr(self, '/') : NULL;
    size_t folder = slash ? (size_t)(slash - self) + 1 : 0;
    char *path = xmalloc(folder + sizeof MPI_PLUGIN_FILE);
    if (folder) memcpy(path, self, folder);
    memcpy(path + folder, MPI_PLUGIN_FILE, sizeof MPI_PLUGIN_FILE);
    free(self);
    return path;
}

/* The plugin stays loaded: MPI cannot begin twice. Its symbols are global, for MPI's own plugins
 * look there for the library. */
static status load(const mpi_calls **out, err *e) {
    char *path = plugin_path();
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const mpi_calls *calls = plugin ? dlsym(plugin, MPI_PLUGIN_CALLS) : NULL;
    status st = ST_OK;
    if (!calls) {
        const char *why = dlerror();
        st = err_set(e, ST_USAGE,
                     "an MPI launcher started this process, but the MPI plugin does not load: %s",
                     why ? why : "it has no table of calls");
    } else if (calls->version != MPI_PLUGIN_VERSION) {
        st = err_set(e, ST_USAGE, "the MPI plugin is of another version of athanor");
    }
    if (st != ST_OK) {
        err_where(e, "%s", path);
        err_hint(e, "install an MPI (Debian: libopenmpi-dev) and build again; or on one machine: "
                    "athanor launch --ranks N -- ...");
    }
    free(path);
    *out = calls;
    return st;
}

/* An MPI that does not know its launcher takes every rank for the only one. */
static status refuse_alone(int64_t told, const char *by, err *e) {
    err_at(e, ST_USAGE, by, "%s says that there are %lld ranks, but MPI finds this one alone", by,
           (long long)told);
    return err_hint(e,
                    "start them with the mpirun of the MPI that athanor was built with, or with "
                    "srun --mpi=pmix; unset %s for one rank alone",
                    by);
}

status mpi_open(comm_world **out, err *e) {
    const mpi_calls *mpi;
    int rank, size;
    char why[256];
    const char *by = "";
    int64_t told = mpi_ranks_told(&by); /* before MPI begins, which sets some of these, too */
    *out = NULL;
    TRY(load(&mpi, e));
    if (!mpi->begin(&rank, &size, why)) {
        return err_at(e, ST_FAILED, MPI_PLUGIN_FILE, "MPI cannot be used: %s", why);
    }
    if (size == 1) {
        mpi->end();
        return refuse_alone(told, by, e);
    }
    wire *w = wire_new(mpi, rank, size);
    *out = comm_world_new(w);
    return ST_OK;
}
