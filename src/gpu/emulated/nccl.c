/* NCCL for the emulated devices of one machine's ranks, be they threads or processes: what a rank sends
 * is a file, in a folder whose path is the unique id.
 *
 * A collective is work of its stream. When the stream has come there, the rank's contribution is read
 * and written to a file; when those of all ranks are there, the result is made. So a collective holds up
 * its own stream alone, and an event that is missing before or behind it shows. What NCCL leaves to the
 * caller is looked at: that all ranks make the same call, that memory is the device's. Sums run from the
 * last rank to the first, in the type that is sent: NCCL has an order of its own, too.
 *
 * A send ends when it has been received, so that ranks that wait in a circle do so here, too. The first
 * collective of a communicator, and the first message between two ranks, make connections: such a call is
 * in progress until the others have made theirs, and the stream has nothing of it before. To destroy a
 * communicator waits for the other ranks. To abort one waits for all work of the device, as giving back
 * memory does, but in a group only when all of the group are marked.
 *
 * A rank removes its file when the next collective shows that all have read it; the last to be destroyed
 * removes the folder. A rank that was killed leaves it. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "gpu/emulated/emulated.h"
#include "gpu/nccl.h"

enum { PATH = 256, MOST_MOVES = 512 };

/* Kinds of collectives; also what ranks compare. */
enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };

/* Marks that a rank leaves for others: it is there, has made its first collective, its first message with
 * one rank, or has left. */
typedef enum mark { MARK_NONE, MARK_HERE, MARK_FIRST, MARK_PAIR, MARK_LEFT } mark;

/* What a call gives to a stream. */
typedef struct work {
    cu_stream s;
    bool (*poll)(const void *args);
    void (*run)(const void *args);
    void *of; /* the only argument of both; NULL: there is no work */
} work;

struct nccl_comm_handle {
    char dir[sizeof(nccl_id)];
    int n, rank;
    uint64_t calls;            /* collectives so far */
    uint64_t *sent, *received; /* [n] messages to and from each rank so far */
    bool in_progress;
    mark *awaited; /* [n] by what is in progress */
    work held;     /* until it no longer is */
    nccl_result planted;
    unsigned planted_at, given; /* calls of any kind so far */
    unsigned slow_ms;           /* planted */
    nccl_comm next_to_leave;    /* of those that a group aborts */
    _Atomic bool broken;        /* by what is planted */
    _Atomic bool aborted;
    _Atomic int users; /* the owner, and work in streams */
};

/* ---- files ---- */

static void name_file(const struct nccl_comm_handle *c, char path[PATH], const char *kind, int a,
                      int b, uint64_t number) {
    snprintf(path, PATH, "%s/%s-%d-%d-%llu", c->dir, kind, a, b, (unsigned long long)number);
}

/* Under another name first: who sees it sees all of it. */
static void write_file(const char *path, const void *head, size_t head_bytes, const void *data,
                       size_t bytes) {
    char hidden[PATH + 8];
    snprintf(hidden, sizeof hidden, "%s.part", path);
    FILE *f = fopen(hidden, "wb");
    CHECK(f, "the emulated NCCL cannot write %s", hidden);
    bool whole = (!head_bytes || fwrite(head, head_bytes, 1, f) == 1) &&
                 (!bytes || fwrite(data, bytes, 1, f) == 1);
    whole = fclose(f) == 0 && whole && rename(hidden, path) == 0;
    CHECK(whole, "the emulated NCCL cannot write %s", path);
}

/* Bytes of a file behind the first `skip`; returns how many there were. */
static size_t read_file(const char *path, size_t skip, void *data, size_t bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    size_t got = fseek(f, (long)skip, SEEK_SET) == 0 ? fread(data, 1, bytes, f) : 0;
    fclose(f);
    return got;
}

static bool is_there(const char *path) {
    return access(path, F_OK) == 0;
}

static void nap(unsigned microseconds) {
    struct timespec left = {.tv_sec = microseconds / 1000000,
                            .tv_nsec = (long)(microseconds % 1000000) * 1000};
    while (nanosleep(&left, &left) != 0) continue;
}

/* ---- marks ---- */

/* That of `rank`; a pair is one with `other`. */
static void name_mark(const struct nccl_comm_handle *c, char path[PATH], mark m, int rank,
                      int other) {
    static const char *const names[] = {"", "here", "first", "pair", "left"};
    name_file(c, path, names[m], rank, m == MARK_PAIR ? other : 0, 0);
}

static void leave_mark(const struct nccl_comm_handle *c, mark m, int other) {
    char path[PATH];
    name_mark(c, path, m, c->rank, other);
    write_file(path, NULL, 0, NULL, 0);
}

static bool has_mark(const struct nccl_comm_handle *c, mark m, int rank) {
    char path[PATH];
    name_mark(c, path, m, rank, c->rank);
    return is_there(path);
}

static bool all_have(const struct nccl_comm_handle *c, mark m) {
    for (int p = 0; p < c->n; p++)
        if (!has_mark(c, m, p)) return false;
    return true;
}

/* This rank is in progress until p has left the same mark. */
static void meet(nccl_comm c, mark m, int p) {
    c->in_progress = true;
    c->awaited[p] = m;
}

static void meet_all(nccl_comm c, mark m) {
    leave_mark(c, m, 0);
    for (int p = 0; p < c->n; p++) meet(c, m, p);
}

/* ---- communicators ---- */

static nccl_result emu_get_version(int *version) {
    *version = 22700;
    return 0;
}

static nccl_result emu_get_id(nccl_id *id) {
    *id = (nccl_id){0};
    int n = snprintf(id->bytes, sizeof id->bytes, "%s/athanor-nccl-XXXXXX", file_temp_dir());
    if (n >= (int)sizeof id->bytes || !mkdtemp(id->bytes)) return NCCL_SYSTEM_ERROR;
    return 0;
}

/* ATHANOR_NCCL_FAULT=WORD:RANK:NUMBER, for tests: the rank comes so many milliseconds late (late), ends
 * each collective so many later than it could (slow), or has an error from its call of that number on, which does not end then
 * (internal, remote). */
static void plant(nccl_comm c) {
    char word[16];
    int rank;
    unsigned number;
    const char *text = getenv("ATHANOR_NCCL_FAULT");
    if (!text || sscanf(text, "%15[a-z]:%d:%u", word, &rank, &number) != 3 || rank != c->rank)
        return;
    if (strcmp(word, "late") == 0) {
        nap(number * 1000);
        return;
    }
    if (strcmp(word, "slow") == 0) {
        c->slow_ms = number;
        return;
    }
    c->planted = strcmp(word, "remote") == 0 ? NCCL_REMOTE_ERROR : NCCL_INTERNAL_ERROR;
    c->planted_at = number;
}

static nccl_result emu_init(nccl_comm *out, int ranks, nccl_id id, int rank, nccl_config *config) {
    *out = NULL;
    if (ranks < 1 || rank < 0 || rank >= ranks || !config || config->magic != NCCL_CONFIG_MAGIC)
        return NCCL_INVALID_ARGUMENT;
    nccl_comm c = *out = xcalloc(1, sizeof *c);
    memcpy(c->dir, id.bytes, sizeof c->dir);
    c->n = ranks, c->rank = rank, c->users = 1;
    c->sent = xcalloc((size_t)ranks, sizeof *c->sent);
    c->received = xcalloc((size_t)ranks, sizeof *c->received);
    c->awaited = xcalloc((size_t)ranks, sizeof *c->awaited);
    plant(c);
    meet_all(c, MARK_HERE);
    return NCCL_IN_PROGRESS;
}

static void give_held(nccl_comm c) {
    const work *w = &c->held;
    if (w->of) emu_stream_poll(w->s, w->poll, w->run, &w->of, sizeof w->of);
    c->held = (work){0};
}

static nccl_result emu_async_error(nccl_comm c, nccl_result *r) {
    *r = 0;
    if (c->broken) *r = c->planted;
    if (c->broken || !c->in_progress) return 0;
    *r = NCCL_IN_PROGRESS;
    for (int p = 0; p < c->n; p++)
        if (c->awaited[p] && !has_mark(c, c->awaited[p], p)) return 0;
    memset(c->awaited, 0, (size_t)c->n * sizeof *c->awaited);
    c->in_progress = false;
    give_held(c);
    *r = 0;
    return 0;
}

static void drop(nccl_comm c) {
    if (atomic_fetch_sub(&c->users, 1) > 1) return;
    free(c->sent);
    free(c->received);
    free(c->awaited);
    free(c);
}

/* With all that is in it. */
static void remove_folder(const struct nccl_comm_handle *c) {
    char path[PATH];
    DIR *d = opendir(c->dir);
    if (!d) return;
    for (const struct dirent *f; (f = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.100s", c->dir, f->d_name);
        if (f->d_name[0] != '.') unlink(path);
    }
    closedir(d);
    rmdir(c->dir);
}

/* The last one removes the folder, which shows that all have left, too. */
static nccl_result emu_destroy(nccl_comm c) {
    if (c->in_progress) return NCCL_INVALID_USAGE;
    leave_mark(c, MARK_LEFT, 0);
    while (is_there(c->dir) && !all_have(c, MARK_LEFT)) nap(50);
    remove_folder(c);
    drop(c);
    return 0;
}

/* Of this thread, between group_start and group_end. */
static _Thread_local nccl_comm to_leave;
static _Thread_local int depth;

static nccl_result emu_group_start(void) {
    depth++;
    return 0;
}

static nccl_result emu_group_end(void);

static nccl_result emu_abort(nccl_comm c) {
    emu_group_start();
    c->aborted = true;
    c->next_to_leave = to_leave;
    to_leave = c;
    return emu_group_end();
}

static void leave_aborted(void) {
    if (to_leave) emu_context_sync();
    for (nccl_comm c = to_leave, next; c; c = next) {
        next = c->next_to_leave;
        if (c->held.of) c->held.run(&c->held.of); /* frees it */
        leave_mark(c, MARK_LEFT, 0);
        if (all_have(c, MARK_LEFT)) remove_folder(c);
        drop(c);
    }
    to_leave = NULL;
}

/* ---- collectives ---- */

/* Heads each file of a contribution: what NCCL needs to be the same on all ranks. */
typedef struct header {
    int kind, type, op, root;
    uint64_t n;
} header;

typedef struct collective {
    nccl_comm c;
    cu_stream s;
    header head;
    uint64_t number;
    const char *in;
    char *out;
    bool posted;
    int come;        /* ranks whose files have been seen, from 0 on */
    int64_t come_ns; /* when all had been seen */
} collective;

static dtype dtype_of(int type) {
    for (dtype dt = 0; dt <= DT_U8; dt++)
        if (nccl_type_of(dt) == type) return dt;
    return DT_COUNT;
}

static size_t bytes_of(const collective *k, bool out) {
    size_t parts = (k->head.kind == REDUCE_SCATTER && !out) || (k->head.kind == ALL_GATHER && out)
                       ? (size_t)k->c->n
                       : 1;
    return parts * k->head.n * dtype_bytes(dtype_of(k->head.type));
}

static void fault(cu_stream s, const char *what) {
    emu_library_fault(emu_stream_device(s), "NCCL", what);
}

static bool touches_its_memory(const collective *k) {
    bool reads = k->head.kind != BROADCAST || k->c->rank == k->head.root;
    if ((!reads || emu_stream_use(k->s, "NCCL", k->in, bytes_of(k, false), false)) &&
        emu_stream_use(k->s, "NCCL", k->out, bytes_of(k, true), true))
        return true;
    fault(k->s, "a buffer is not the device's memory");
    return false;
}

static void post(collective *k) {
    char path[PATH];
    bool sends = k->head.kind != BROADCAST || k->c->rank == k->head.root;
    k->posted = true;
    if (!touches_its_memory(k)) return;
    name_file(k->c, path, "call", k->c->rank, 0, k->number);
    write_file(path, &k->head, sizeof k->head, k->in, sends ? bytes_of(k, false) : 0);
}

/* Whether work ends as it is: the communicator is aborted, or the device has a fault. */
static bool is_over(const struct nccl_comm_handle *c, cu_stream s) {
    return c->aborted || emu_fault(emu_stream_device(s));
}

static bool poll_collective(const void *args) {
    collective *k = *(void *const *)args;
    char path[PATH];
    if (is_over(k->c, k->s)) return true;
    if (k->c->broken) return false;
    if (!k->posted) post(k);
    for (; k->come < k->c->n; k->come++) {
        name_file(k->c, path, "call", k->come, 0, k->number);
        if (!is_there(path)) return false;
    }
    if (!k->come_ns) k->come_ns = clock_now_ns();
    return clock_since_s(k->come_ns) * 1000 >= k->c->slow_ms;
}

/* The contribution of a rank, from element `first` on. */
static void take(const collective *k, int rank, size_t first, void *to, size_t n) {
    char path[PATH];
    size_t bytes = dtype_bytes(dtype_of(k->head.type));
    name_file(k->c, path, "call", rank, 0, k->number);
    if (read_file(path, sizeof(header) + first * bytes, to, n * bytes) != n * bytes)
        fault(k->s, "ranks send different amounts");
}

#define JOIN(type, sum_type)                                                                       \
    for (size_t i = 0; i < n; i++) {                                                               \
        type *x = (type *)to + i, y = ((const type *)from)[i];                                     \
        *x = op == NCCL_MAX ? (*x > y ? *x : y) : (type)((sum_type)*x + (sum_type)y);              \
    }

static void join(void *to, const void *from, size_t n, dtype dt, int op) {
    if (dt == DT_F32) JOIN(float, float)
    if (dt == DT_F64) JOIN(double, double)
    if (dt == DT_I32) JOIN(int32_t, uint32_t)
    if (dt == DT_I64) JOIN(int64_t, uint64_t)
    if (dt == DT_U8) JOIN(uint8_t, uint8_t)
    if (dt != DT_BF16 && dt != DT_F16) return;
    for (size_t i = 0; i < n; i++) {
        float x, y;
        dtype_convert(&x, DT_F32, (const uint16_t *)to + i, dt, 1);
        dtype_convert(&y, DT_F32, (const uint16_t *)from + i, dt, 1);
        x = op == NCCL_MAX ? (x > y ? x : y) : x + y;
        dtype_convert((uint16_t *)to + i, dt, &x, DT_F32, 1);
    }
}

static void sum(const collective *k) {
    size_t n = k->head.n, bytes = bytes_of(k, true);
    size_t first = k->head.kind == REDUCE_SCATTER ? (size_t)k->c->rank * n : 0;
    char *all = xmalloc(bytes + 1), *one = xmalloc(bytes + 1);
    for (int p = k->c->n - 1; p >= 0; p--) {
        take(k, p, first, p == k->c->n - 1 ? all : one, n);
        if (p < k->c->n - 1) join(all, one, n, dtype_of(k->head.type), k->head.op);
    }
    memcpy(k->out, all, bytes);
    free(all);
    free(one);
}

static bool all_agree(const collective *k) {
    char path[PATH];
    for (int p = 0; p < k->c->n; p++) {
        header theirs = {0};
        name_file(k->c, path, "call", p, 0, k->number);
        read_file(path, 0, &theirs, sizeof theirs);
        if (memcmp(&theirs, &k->head, sizeof theirs) == 0) continue;
        fault(k->s, "ranks make different calls on one communicator");
        return false;
    }
    return true;
}

/* All have made this call, so all have read what was sent in the one before. */
static void remove_previous(const collective *k) {
    char path[PATH];
    name_file(k->c, path, "call", k->c->rank, 0, k->number - 1);
    unlink(path);
}

static void finish_collective(const collective *k) {
    if (!all_agree(k)) return;
    if (k->head.kind == BROADCAST) take(k, k->head.root, 0, k->out, k->head.n);
    for (int p = 0; k->head.kind == ALL_GATHER && p < k->c->n; p++)
        take(k, p, 0, k->out + (size_t)p * bytes_of(k, false), k->head.n);
    if (k->head.kind == ALL_REDUCE || k->head.kind == REDUCE_SCATTER) sum(k);
    remove_previous(k);
}

static void run_collective(const void *args) {
    collective *k = *(void *const *)args;
    if (!is_over(k->c, k->s)) finish_collective(k);
    drop(k->c);
    free(k);
}

/* It is held while the ranks have yet to meet. */
static nccl_result hand_over(nccl_comm c, work w) {
    atomic_fetch_add(&c->users, 1);
    c->held = w;
    if (++c->given == c->planted_at) c->broken = true;
    if (c->in_progress) return NCCL_IN_PROGRESS;
    give_held(c);
    return 0;
}

static nccl_result give(nccl_comm c, cu_stream s, header head, const void *in, void *out) {
    if (!c || c->aborted || head.root < 0 || head.root >= c->n || dtype_of(head.type) == DT_COUNT)
        return NCCL_INVALID_ARGUMENT;
    if (c->in_progress) return NCCL_INVALID_USAGE;
    if (c->calls == 0) meet_all(c, MARK_FIRST);
    collective *k = xcalloc(1, sizeof *k);
    *k = (collective){.c = c, .s = s, .number = ++c->calls, .in = in, .out = out};
    memcpy(&k->head, &head, sizeof head); /* with its gaps */
    return hand_over(c, (work){s, poll_collective, run_collective, k});
}

static header head_of(int kind, size_t n, int type, int op, int root) {
    header h;
    memset(&h, 0, sizeof h);
    h.kind = kind, h.n = n, h.type = type, h.op = op, h.root = root;
    return h;
}

static nccl_result emu_all_reduce(const void *in, void *out, size_t n, int type, int op,
                                  nccl_comm c, cu_stream s) {
    return give(c, s, head_of(ALL_REDUCE, n, type, op, 0), in, out);
}

static nccl_result emu_reduce_scatter(const void *in, void *out, size_t n, int type, int op,
                                      nccl_comm c, cu_stream s) {
    return give(c, s, head_of(REDUCE_SCATTER, n, type, op, 0), in, out);
}

static nccl_result emu_all_gather(const void *in, void *out, size_t n, int type, nccl_comm c,
                                  cu_stream s) {
    return give(c, s, head_of(ALL_GATHER, n, type, 0, 0), in, out);
}

static nccl_result emu_broadcast(const void *in, void *out, size_t n, int type, int root,
                                 nccl_comm c, cu_stream s) {
    return give(c, s, head_of(BROADCAST, n, type, 0, root), in, out);
}

/* ---- sends and receives, which together are one piece of work ---- */

typedef struct message {
    bool sends, begun, done;
    int peer;
    char *at;
    size_t bytes;
    uint64_t number;
} message;

typedef struct group {
    nccl_comm c;
    cu_stream s;
    message item[MOST_MOVES];
    int n;
} group;

static _Thread_local group *current; /* as to_leave */

static void name_message(const group *g, const message *m, char path[PATH]) {
    int own = g->c->rank;
    name_file(g->c, path, "message", m->sends ? own : m->peer, m->sends ? m->peer : own, m->number);
}

static void advance(const group *g, message *m) {
    char path[PATH];
    name_message(g, m, path);
    if (!m->begun && !emu_stream_use(g->s, "NCCL", m->at, m->bytes, !m->sends))
        fault(g->s, "a buffer is not the device's memory");
    else if (m->sends && !m->begun)
        write_file(path, NULL, 0, m->at, m->bytes);
    else if (m->sends)
        m->done = !is_there(path);
    else if (is_there(path)) {
        if (read_file(path, 0, m->at, m->bytes) != m->bytes)
            fault(g->s, "a rank receives more than is sent");
        unlink(path);
        m->done = true;
    }
    m->begun = true;
}

static bool poll_group(const void *args) {
    group *g = *(void *const *)args;
    bool all = true;
    if (is_over(g->c, g->s)) return true;
    if (g->c->broken) return false;
    for (int i = 0; i < g->n; i++) {
        if (!g->item[i].done) advance(g, &g->item[i]);
        all = all && g->item[i].done;
    }
    return all;
}

static void run_group(const void *args) {
    group *g = *(void *const *)args;
    drop(g->c);
    free(g);
}

static nccl_result emu_group_end(void) {
    if (depth == 0) return NCCL_INVALID_USAGE;
    if (--depth > 0) return 0;
    leave_aborted();
    group *g = current;
    current = NULL;
    return g ? hand_over(g->c, (work){g->s, poll_group, run_group, g}) : 0;
}

static nccl_result add_message(message m, int type, nccl_comm c, cu_stream s) {
    if (!c || c->aborted || m.peer < 0 || m.peer >= c->n || dtype_of(type) == DT_COUNT)
        return NCCL_INVALID_ARGUMENT;
    if (c->in_progress && !current) return NCCL_INVALID_USAGE;
    if (c->sent[m.peer] + c->received[m.peer] == 0) {
        leave_mark(c, MARK_PAIR, m.peer);
        meet(c, MARK_PAIR, m.peer);
    }
    emu_group_start();
    if (!current) {
        current = xcalloc(1, sizeof *current);
        current->c = c, current->s = s;
    }
    CHECK(current->c == c && current->s == s && current->n < MOST_MOVES,
          "the emulated NCCL takes groups of one communicator and stream");
    m.number = ++(m.sends ? c->sent : c->received)[m.peer];
    m.bytes *= dtype_bytes(dtype_of(type));
    current->item[current->n++] = m;
    return emu_group_end();
}

static nccl_result emu_send(const void *in, size_t n, int type, int peer, nccl_comm c,
                            cu_stream s) {
    message m = {.sends = true, .peer = peer, .at = (char *)(uintptr_t)in, .bytes = n};
    return add_message(m, type, c, s);
}

static nccl_result emu_recv(void *out, size_t n, int type, int peer, nccl_comm c, cu_stream s) {
    return add_message((message){.peer = peer, .at = out, .bytes = n}, type, c, s);
}

static const char *emu_error_text(nccl_result r) {
    return r == NCCL_SYSTEM_ERROR     ? "no folder for its files"
           : r == NCCL_INTERNAL_ERROR ? "an error that was planted"
           : r == NCCL_REMOTE_ERROR   ? "a peer is gone, or what leads to it"
           : r == NCCL_INVALID_USAGE  ? "a call while another is in progress"
                                      : "a wrong argument";
}

void emu_nccl_fill(nccl_library *n) {
    *n = (nccl_library){
        .get_version = emu_get_version,
        .get_id = emu_get_id,
        .init = emu_init,
        .destroy = emu_destroy,
        .abort = emu_abort,
        .async_error = emu_async_error,
        .all_reduce = emu_all_reduce,
        .reduce_scatter = emu_reduce_scatter,
        .all_gather = emu_all_gather,
        .broadcast = emu_broadcast,
        .send = emu_send,
        .recv = emu_recv,
        .group_start = emu_group_start,
        .group_end = emu_group_end,
        .error_text = emu_error_text,
    };
}
