/* Every collective is made of pieces to and from peers (wire.h).
 *
 * A reduction cuts the vector into one part per rank. Each rank receives its part from all others
 * and sums in the order of ranks (sum.h); an all-reduce then gathers the sums. So each rank sends
 * (n-1)/n of the vector in each of the two legs, the minimum, and each sum is formed by one rank
 * only. Parts travel in pieces. Piece k + 1 is posted before piece k is waited for, so that
 * peers need not meet at every piece. A wire that lends memory (wire.h) sends a part in one piece.
 *
 * In place over such a wire, the sum from a peer overwrites the memory that was lent to that peer.
 * This is safe: the peer has read that memory before it sends the sum, and no other peer does. */
#include "comm/sum.h"
#include "comm/world.h"

enum { SMALL_BYTES = 4096, PART_ALIGN = 16 };

/* One collective under way. */
typedef struct leg {
    const comm *c;
    const comm_call *call;
    wire *w;
    int stream;
    uint32_t tag;
    size_t bytes;     /* of an element */
    int64_t chunk, n; /* elements: of a part but the last; of the whole vector */
    int64_t piece;    /* elements of a piece, at most */
    sum_rule sum;
    int64_t sent_bytes;
    bool failed;
} leg;

static char *part_of(void *data, const leg *l, int64_t i) {
    return data ? (char *)data + (size_t)i * l->bytes : NULL;
}

/* ---- pieces ---- */

typedef struct span {
    int64_t at, n; /* elements */
} span;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Piece k of the part of rank p; n is 0 when there is none. */
static span piece_of(const leg *l, int p, int64_t k) {
    int64_t begin = least(l->n, p * l->chunk), end = least(l->n, begin + l->chunk);
    int64_t at = least(end, begin + k * l->piece);
    return (span){.at = at, .n = least(l->piece, end - at)};
}

static int64_t pieces(const leg *l) {
    return (l->chunk + l->piece - 1) / l->piece;
}

static bool travels_narrow(const leg *l) {
    return l->call->narrow && !l->w->lends;
}

static int64_t wire_bytes(const leg *l, int64_t n) {
    return n * (int64_t)(travels_narrow(l) ? sizeof(uint16_t) : l->bytes);
}

/* What is given to `post` for n elements: themselves, or a copy as they travel. */
static const void *pack(leg *l, const void *data, int64_t n) {
    if (l->w->lends || n == 0) return data;
    void *slot = l->w->class->reserve(l->w, l->stream);
    if (!slot)
        l->failed = true;
    else if (travels_narrow(l))
        sum_narrow(slot, data, n);
    else
        memcpy(slot, data, (size_t)n * l->bytes);
    return slot;
}

static void post(leg *l, int p, const void *packed, int64_t n) {
    if (l->failed) return;
    l->failed =
        !l->w->class->post(l->w, l->stream, l->c->ranks[p], packed, wire_bytes(l, n), l->tag);
    l->sent_bytes += l->call->narrow ? n * 2 : wire_bytes(l, n);
}

static void post_to_all(leg *l, const void *data, int64_t n) {
    const void *packed = pack(l, data, n);
    for (int p = 0; p < l->c->n; p++)
        if (p != l->c->rank) post(l, p, packed, n);
}

static const void *await(leg *l, int p, int64_t n) {
    if (l->failed) return NULL;
    const void *data =
        l->w->class->await(l->w, l->stream, l->c->ranks[p], wire_bytes(l, n), l->tag);
    if (!data) l->failed = true;
    return data;
}

static void release(leg *l, int p) {
    if (l->w->class->release) l->w->class->release(l->w, l->stream, l->c->ranks[p]);
}

static void settle_all(leg *l) {
    for (int p = 0; p < l->c->n && l->w->class->settle; p++)
        if (p != l->c->rank) l->w->class->settle(l->w, l->stream, l->c->ranks[p]);
}

/* ---- sums ---- */

/* dst = the sum of `own` and the next piece of every peer, n elements each. */
static void await_sum(leg *l, void *dst, const void *own, int64_t n) {
    sum_row rows[l->c->n];
    int held = 0;
    for (; held < l->c->n && !l->failed; held++) {
        if (held == l->c->rank)
            rows[held] = (sum_row){.data = own};
        else
            rows[held] = (sum_row){.data = await(l, held, n), .is_bf16 = travels_narrow(l)};
    }
    if (l->failed) held--; /* the last one never came */
    if (!l->failed) sum_rows(dst, rows, l->c->n, n, &l->sum);
    for (int p = 0; p < held; p++)
        if (p != l->c->rank) release(l, p);
}

static void post_parts(leg *l, const void *in, int64_t k) {
    for (int p = 0; p < l->c->n; p++) {
        span s = piece_of(l, p, k);
        if (p == l->c->rank || s.n == 0) continue;
        post(l, p, pack(l, (const char *)in + (size_t)s.at * l->bytes, s.n), s.n);
    }
}

static void reduce_scatter(leg *l) {
    const char *in = l->call->in;
    int64_t n_pieces = pieces(l), mine = l->c->rank * l->chunk;
    post_parts(l, in, 0);
    for (int64_t k = 0; k < n_pieces && !l->failed; k++) {
        if (k + 1 < n_pieces) post_parts(l, in, k + 1);
        span s = piece_of(l, l->c->rank, k);
        await_sum(l, part_of(l->call->out, l, s.at - mine), in + (size_t)s.at * l->bytes, s.n);
    }
    settle_all(l);
}

/* ---- gathering ---- */

static void take(leg *l, int p, void *dst, int64_t n) {
    const void *data = await(l, p, n);
    if (!data) return;
    if (travels_narrow(l))
        sum_widen(dst, data, n);
    else
        memcpy(dst, data, (size_t)n * l->bytes);
    release(l, p);
}

static void gather_piece(leg *l, int64_t k) {
    for (int p = 0; p < l->c->n && !l->failed; p++) {
        span s = piece_of(l, p, k);
        if (p != l->c->rank && s.n > 0) take(l, p, part_of(l->call->out, l, s.at), s.n);
    }
}

static void all_gather(leg *l) {
    const char *in = l->call->in;
    char *own = part_of(l->call->out, l, l->c->rank * l->chunk);
    int64_t n_pieces = pieces(l);
    if (own != in && l->chunk) memcpy(own, in, (size_t)l->chunk * l->bytes);
    for (int64_t k = 0; k < n_pieces && !l->failed; k++) {
        span s = piece_of(l, 0, k);
        post_to_all(l, in + (size_t)s.at * l->bytes, s.n);
        if (k > 0) gather_piece(l, k - 1);
    }
    if (n_pieces > 0) gather_piece(l, n_pieces - 1);
    settle_all(l);
}

/* ---- all-reduce ---- */

static void sum_piece(leg *l, int64_t k) {
    span s = piece_of(l, l->c->rank, k);
    if (s.n == 0) return;
    const char *own = (const char *)l->call->in + (size_t)s.at * l->bytes;
    await_sum(l, part_of(l->call->out, l, s.at), own, s.n);
}

static void post_sum(leg *l, int64_t k) {
    span s = piece_of(l, l->c->rank, k);
    if (s.n > 0) post_to_all(l, part_of(l->call->out, l, s.at), s.n);
}

/* Between two ranks the order is: parts 0, parts 1, sum 0, parts 2, sum 1, ...: two pieces of parts
 * are under way, and a sum travels while the next one is formed. */
static void all_reduce(leg *l) {
    int64_t n_pieces = pieces(l);
    for (int64_t k = 0; k < 2 && k < n_pieces; k++) post_parts(l, l->call->in, k);
    for (int64_t k = 0; k < n_pieces && !l->failed; k++) {
        sum_piece(l, k);
        if (k > 0) gather_piece(l, k - 1);
        post_sum(l, k);
        if (k + 2 < n_pieces) post_parts(l, l->call->in, k + 2);
    }
    if (n_pieces > 0) gather_piece(l, n_pieces - 1);
    settle_all(l);
}

/* A short vector goes to all as it is, who each form the same sum: one meeting instead of two.
 * What is lent is a copy, for out may be in. */
static void all_reduce_small(leg *l) {
    char copy[SMALL_BYTES];
    memcpy(copy, l->call->in, (size_t)l->n * l->bytes);
    post_to_all(l, copy, l->n);
    await_sum(l, l->call->out, copy, l->n);
    settle_all(l);
}

/* ---- the others ---- */

static void broadcast(leg *l) {
    int root = l->call->root;
    for (int64_t k = 0; k < pieces(l) && !l->failed; k++) {
        span s = piece_of(l, 0, k);
        if (root == l->c->rank)
            post_to_all(l, part_of(l->call->out, l, s.at), s.n);
        else
            take(l, root, part_of(l->call->out, l, s.at), s.n);
    }
    settle_all(l);
}

static void all_to_all(leg *l) {
    const char *in = l->call->in;
    int64_t n_pieces = pieces(l);
    memcpy(part_of(l->call->out, l, l->c->rank * l->chunk),
           in + (size_t)(l->c->rank * l->chunk) * l->bytes, (size_t)l->chunk * l->bytes);
    post_parts(l, in, 0);
    for (int64_t k = 0; k < n_pieces && !l->failed; k++) {
        if (k + 1 < n_pieces) post_parts(l, in, k + 1);
        gather_piece(l, k);
    }
    settle_all(l);
}

static void post_shifted(leg *l, int64_t k) {
    span s = piece_of(l, 0, k);
    const void *own = (const char *)l->call->in + (size_t)s.at * l->bytes;
    if (s.n > 0) post(l, (l->c->rank + 1) % l->c->n, pack(l, own, s.n), s.n);
}

static void shift(leg *l) {
    post_shifted(l, 0);
    for (int64_t k = 0; k < pieces(l) && !l->failed; k++) {
        span s = piece_of(l, 0, k);
        post_shifted(l, k + 1);
        if (s.n > 0)
            take(l, (l->c->rank + l->c->n - 1) % l->c->n, part_of(l->call->out, l, s.at), s.n);
    }
    settle_all(l);
}

static void barrier(leg *l) {
    post_to_all(l, NULL, 0);
    for (int p = 0; p < l->c->n && !l->failed; p++)
        if (p != l->c->rank && await(l, p, 0)) release(l, p);
}

/* ---- beginning ---- */

/* Ranks in different collectives meet different tags. */
static uint32_t tag_of(const comm *c, const comm_call *call) {
    uint32_t h = (c->tag ^ (uint32_t)call->kind) * 16777619u;
    for (const char *s = call->what ? call->what : ""; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

/* Elements of a part but the last. */
static int64_t chunk_of(const comm_call *call, int ranks) {
    if (call->kind != COMM_ALL_REDUCE) return call->n;
    int64_t chunk = (call->n + ranks - 1) / ranks;
    return (chunk + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

static bool is_small(const comm_call *call) {
    return call->n * (int64_t)dtype_bytes(call->dt) <= SMALL_BYTES;
}

static leg begin(const comm *c, const comm_call *call, int stream) {
    leg l = {.c = c, .call = call, .w = c->world->wire, .stream = stream, .tag = tag_of(c, call)};
    bool parts = call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_GATHER ||
                 call->kind == COMM_ALL_TO_ALL;
    l.bytes = dtype_bytes(call->dt);
    l.n = parts ? call->n * c->n : call->n;
    l.chunk = chunk_of(call, c->n);
    l.piece = l.w->piece_bytes / (int64_t)l.bytes;
    if (l.w->lends || l.piece > l.chunk) l.piece = l.chunk > 0 ? l.chunk : 1;
    l.sum = (sum_rule){.dt = call->dt,
                       .op = call->sum,
                       .add = call->add,
                       .narrow_rows = call->narrow,
                       .narrow_result = call->narrow && call->kind == COMM_ALL_REDUCE};
    return l;
}

static void check_call(const comm *c, const comm_call *call) {
    bool reduces = call->kind == COMM_ALL_REDUCE || call->kind == COMM_REDUCE_SCATTER;
    CHECK(call->n >= 0, "%s of %lld elements", comm_kind_name(call->kind), (long long)call->n);
    CHECK(!reduces || call->dt == DT_F32 || call->dt == DT_F64 || call->dt == DT_BF16 ||
              call->dt == DT_F16 || call->dt == DT_I32 || call->dt == DT_I64,
          "no sums of %s", dtype_name(call->dt));
    CHECK(!call->narrow || (reduces && call->dt == DT_F32), "narrow sums are of f32");
    CHECK(!call->add || (call->kind == COMM_REDUCE_SCATTER && call->in != call->out),
          "only a reduce-scatter adds to out, which is not in");
    bool has_root = call->kind == COMM_BROADCAST || call->kind == COMM_SEND;
    CHECK(!has_root || (call->root >= 0 && call->root < c->n), "root %d of %d", call->root, c->n);
    CHECK(call->kind != COMM_SEND || c->n == 2, "a send among %d ranks", c->n);
    bool moves = call->kind == COMM_ALL_TO_ALL || call->kind == COMM_SHIFT;
    CHECK(!moves || call->in != call->out || call->n == 0, "%s in place",
          comm_kind_name(call->kind));
}

/* One rank: its own part is the result. */
static void run_alone(const comm_call *call) {
    if (call->kind == COMM_BROADCAST || call->kind == COMM_BARRIER || call->n == 0) return;
    if (call->add) {
        sum_rule rule = {.dt = call->dt, .op = call->sum, .add = true};
        sum_rows(call->out, &(sum_row){.data = call->in}, 1, call->n, &rule);
    } else if (call->out != call->in) {
        memcpy(call->out, call->in, (size_t)call->n * dtype_bytes(call->dt));
    }
}

int64_t collective_run(comm *c, const comm_call *call, int stream) {
    check_call(c, call);
    if (c->n == 1) {
        run_alone(call);
        return 0;
    }
    leg l = begin(c, call, stream);
    switch (call->kind) {
        case COMM_ALL_REDUCE:
            if (is_small(call))
                all_reduce_small(&l);
            else
                all_reduce(&l);
            break;
        case COMM_REDUCE_SCATTER: reduce_scatter(&l); break;
        case COMM_ALL_GATHER: all_gather(&l); break;
        case COMM_BROADCAST:
        case COMM_SEND: broadcast(&l); break;
        case COMM_ALL_TO_ALL: all_to_all(&l); break;
        case COMM_SHIFT: shift(&l); break;
        case COMM_BARRIER: barrier(&l); break;
        case COMM_KINDS: break;
    }
    return l.sent_bytes;
}

int64_t collective_bytes(const comm *c, const comm_call *call) {
    if (call->kind == COMM_BARRIER) return 0;
    bool of_all = call->kind == COMM_ALL_GATHER || call->kind == COMM_ALL_TO_ALL;
    int64_t n = of_all ? call->n * c->n : call->n;
    return n * (int64_t)dtype_bytes(call->dt);
}

int64_t comm_call_sends(const comm_call *call, int rank, int size) {
    int64_t each = call->narrow ? 2 : (int64_t)dtype_bytes(call->dt), peers = size - 1;
    int64_t chunk = chunk_of(call, size), begin = least(call->n, rank * chunk);
    int64_t own = least(call->n, begin + chunk) - begin; /* of an all-reduce */
    switch (call->kind) {
        case COMM_ALL_REDUCE:
            if (peers == 0 || is_small(call)) return peers * call->n * each;
            return (call->n - own + peers * own) * each;
        case COMM_REDUCE_SCATTER:
        case COMM_ALL_GATHER:
        case COMM_ALL_TO_ALL: return peers * call->n * each;
        case COMM_SHIFT: return peers > 0 ? call->n * each : 0;
        case COMM_BROADCAST:
        case COMM_SEND: return rank == call->root ? peers * call->n * each : 0;
        case COMM_BARRIER:
        case COMM_KINDS: break;
    }
    return 0;
}
