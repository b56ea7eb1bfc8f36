/* What the board tells people: where every rank is, and which one the others wait for. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "comm/board/board.h"

enum { SHOWN = 8 }; /* collectives of each rank */

typedef struct text {
    char s[BOARD_WORDS * 8 + 1];
} text;

static text get_text(const board_text *t) {
    uint64_t words[BOARD_WORDS];
    for (int i = 0; i < BOARD_WORDS; i++)
        words[i] = atomic_load_explicit(&t->words[i], memory_order_relaxed);
    text out = {""};
    memcpy(out.s, words, sizeof words);
    return out;
}

static double seconds_since(_Atomic int64_t const *ns, int64_t now) {
    int64_t t = atomic_load_explicit(ns, memory_order_relaxed);
    return t ? (double)(now - t) * 1e-9 : 0;
}

const char *comm_kind_name(comm_kind kind) {
    static const char *const names[COMM_KINDS] = {"all-reduce", "reduce-scatter", "all-gather",
                                                  "broadcast",  "send",           "all-to-all",
                                                  "shift",      "barrier"};
    return names[kind];
}

/* ---- one rank ---- */

/* The collective that a rank is in on a stream, or the last one; NULL when there was none. */
static const board_call *last_call(const board_seat *seat, bool side) {
    const board_call *last = NULL;
    for (int i = 0; i < BOARD_RECENT; i++) {
        const board_call *c = &seat->recent[i];
        int64_t number = atomic_load_explicit(&c->number, memory_order_acquire);
        if (number == 0 || atomic_load_explicit(&c->side, memory_order_relaxed) != side) continue;
        if (!last || number > atomic_load_explicit(&last->number, memory_order_relaxed)) last = c;
    }
    return last;
}

static bool is_running(const board_call *c) {
    return c && atomic_load_explicit(&c->end_ns, memory_order_relaxed) == 0;
}

static void put_call(strbuf *out, const board_call *c) {
    text what = get_text(&c->what);
    int kind = atomic_load_explicit(&c->kind, memory_order_relaxed);
    strbuf_printf(out, "%s #%" PRId64, comm_kind_name((comm_kind)kind),
                  atomic_load_explicit(&c->number, memory_order_relaxed));
    if (what.s[0]) strbuf_printf(out, " of %s", what.s);
    strbuf_printf(out, " (%" PRId64 " bytes, %d ranks%s)",
                  atomic_load_explicit(&c->bytes, memory_order_relaxed),
                  atomic_load_explicit(&c->group, memory_order_relaxed),
                  atomic_load_explicit(&c->side, memory_order_relaxed) ? ", side stream" : "");
}

/* A rank, or BOARD_NOBODY. */
static int waits_for(const board_seat *seat, bool side) {
    return atomic_load_explicit(&seat->waits_for[side], memory_order_relaxed) - 1;
}

/* "has waited 3.0 s for rank 1 in all-reduce #4 of ...", or "finished 3.0 s ago all-reduce #3 ...".
 */
static void put_stream(strbuf *out, const board_seat *seat, bool side, int64_t now) {
    const board_call *c = last_call(seat, side);
    int peer = waits_for(seat, side);
    if (is_running(c) && peer >= 0)
        strbuf_printf(out, "has waited %.1f s for rank %d in ",
                      seconds_since(&seat->wait_ns[side], now), peer);
    else if (is_running(c))
        strbuf_puts(out, "is in ");
    else if (c)
        strbuf_printf(out, "finished %.1f s ago ", seconds_since(&c->end_ns, now));
    else
        strbuf_puts(out, "has begun no collective");
    if (c) put_call(out, c);
}

static void put_place(strbuf *out, const board_seat *seat, int64_t now) {
    text at = get_text(&seat->at);
    int64_t step = atomic_load_explicit(&seat->step, memory_order_relaxed);
    if (at.s[0] && step > 0) strbuf_printf(out, ", in step %" PRId64, step);
    if (at.s[0]) strbuf_printf(out, ", at %s for %.1f s", at.s, seconds_since(&seat->at_ns, now));
    if (atomic_load(&seat->ended)) strbuf_puts(out, ", has ended");
}

static void put_recent(strbuf *out, const board_seat *seat) {
    uint32_t n = atomic_load_explicit(&seat->n_recent, memory_order_relaxed);
    uint32_t first = n > SHOWN ? n - SHOWN : 0;
    for (uint32_t i = first; i < n; i++) {
        const board_call *c = &seat->recent[i % BOARD_RECENT];
        int64_t begin = atomic_load_explicit(&c->begin_ns, memory_order_relaxed);
        int64_t end = atomic_load_explicit(&c->end_ns, memory_order_relaxed);
        strbuf_puts(out, "    ");
        put_call(out, c);
        if (end)
            strbuf_printf(out, "  %.3f ms\n", (double)(end - begin) * 1e-6);
        else
            strbuf_puts(out, "  unfinished\n");
    }
}

/* " on n3", where there are several hosts. */
static text host_of(const board *b, int rank) {
    text name = get_text(&b->seats[rank].host), out = {""};
    if (name.s[0]) snprintf(out.s, sizeof out.s, " on %.48s", name.s);
    return out;
}

static void put_rank(strbuf *out, const board_seat *seat, int64_t now) {
    if (!atomic_load(&seat->here)) {
        bool elsewhere = get_text(&seat->host).s[0];
        strbuf_puts(out, elsewhere ? "is on another host" : "has not come yet");
        return;
    }
    bool side = last_call(seat, true) != NULL, caller = last_call(seat, false) || !side;
    if (caller) put_stream(out, seat, false, now);
    if (caller && side) strbuf_puts(out, "; ");
    if (side) put_stream(out, seat, true, now);
    put_place(out, seat, now);
}

void board_report(const board *b, strbuf *out) {
    int64_t now = clock_now_ns();
    for (int r = 0; r < b->ranks; r++) {
        strbuf_printf(out, "  rank %d%s ", r, host_of(b, r).s);
        put_rank(out, &b->seats[r], now);
        strbuf_putc(out, '\n');
    }
    for (int r = 0; r < b->ranks; r++) {
        if (atomic_load(&b->seats[r].n_recent) == 0) continue;
        strbuf_printf(out, "  the last of rank %d\n", r);
        put_recent(out, &b->seats[r]);
    }
}

/* ---- who is to blame ---- */

/* How far a rank has come on a stream. */
static int64_t progress_of(const board *b, int rank, bool side) {
    return atomic_load_explicit(&b->seats[rank].calls[side], memory_order_relaxed);
}

/* Whether a rank waits, and has not looked for so long whether it still must: it is stopped. */
static bool is_stopped(const board_seat *seat, double seconds, int64_t now) {
    for (int side = 0; side < BOARD_STREAMS; side++)
        if (waits_for(seat, side) >= 0 && seconds_since(&seat->look_ns[side], now) > seconds)
            return true;
    return false;
}

/* A rank that is stopped; or, following who waits for whom, one that waits for nobody. It may wait on the other
 * stream than the one who waits for it: stages meet on the side stream, ranks that share a layer among the ops. In a
 * circle there is a rank that has not seen that its wait is over: one whose ops wait for nobody, else the one that has come
 * least far. */
static int find_culprit(const board *b, bool side, int peer, double seconds) {
    int at = peer, least = peer, computing = BOARD_NOBODY;
    int64_t now = clock_now_ns();
    for (int r = 0; r < b->ranks; r++)
        if (is_stopped(&b->seats[r], seconds / 2, now)) return r;
    for (int steps = 0; steps < b->ranks; steps++) {
        const board_seat *seat = &b->seats[at];
        int next = waits_for(seat, side), other = waits_for(seat, !side);
        if (next < 0 && other < 0) return at;
        if (computing < 0 && waits_for(seat, false) < 0) computing = at;
        at = next >= 0 ? next : other;
        if (progress_of(b, at, side) < progress_of(b, least, side)) least = at;
    }
    return computing >= 0 ? computing : least;
}

static void put_scene(strbuf *out, const board *b, int rank, bool side) {
    const board_call *c = last_call(&b->seats[rank], side);
    if (c)
        put_call(out, c);
    else
        strbuf_puts(out, "no collective");
}

/* Raises the failure that the caller has claimed. The report is made first, while all ranks are
 * still where they are, and written last. */
static void raise_with_report(board *b, int culprit, const err *why) {
    strbuf report = {0};
    strbuf_printf(&report, "athanor: %s\nathanor: where each rank is, and what it did last:\n",
                  why->message);
    board_report(b, &report);
    board_raise(b, culprit, why);
    fwrite(report.data, 1, report.len, stderr);
    fflush(stderr);
    strbuf_free(&report);
}

void board_stall(board *b, int rank, bool side, int peer, double seconds) {
    if (!board_claim(b)) return;
    int culprit = find_culprit(b, side, peer, seconds);
    int64_t now = clock_now_ns();
    strbuf where = {0}, scene = {0};
    put_rank(&where, &b->seats[culprit], now);
    put_scene(&scene, b, rank, side);
    err why = {0};
    err_set(&why, ST_RANK,
            "rank %d%s holds up the others: rank %d%s has waited %.1f s in %s; rank %d %s", culprit,
            host_of(b, culprit).s, rank, host_of(b, rank).s, seconds, scene.data, culprit,
            where.data);
    err_hint(&why,
             "the report on standard error says where every rank is; a rank that is only slow "
             "needs a longer timeout");
    raise_with_report(b, culprit, &why);
    strbuf_free(&where);
    strbuf_free(&scene);
}

void board_fail_left(board *b, int rank, bool side, int peer) {
    if (!board_claim(b)) return;
    strbuf scene = {0};
    put_scene(&scene, b, rank, side);
    err why = {0};
    err_set(&why, ST_RANK, "rank %d%s has ended while rank %d%s waits for it in %s", peer,
            host_of(b, peer).s, rank, host_of(b, rank).s, scene.data);
    raise_with_report(b, peer, &why);
    strbuf_free(&scene);
}

void board_fail_mixed(board *b, int rank, bool side, int peer) {
    if (!board_claim(b)) return;
    strbuf mine = {0}, theirs = {0};
    put_scene(&mine, b, rank, side);
    put_scene(&theirs, b, peer, side);
    err why = {0};
    err_set(&why, ST_RANK,
            "ranks %d and %d are in different collectives: rank %d in %s, rank %d in %s", rank,
            peer, rank, mine.data, peer, theirs.data);
    raise_with_report(b, peer, &why);
    strbuf_free(&mine);
    strbuf_free(&theirs);
}
