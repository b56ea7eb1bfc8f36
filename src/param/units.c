/* Units, pieces and slots (see units.h). */
#include <string.h>

#include "base/file.h"
#include "param/store_int.h"

/* how.shards is 0 in a store that nobody shares, and 1 in one that is laid out without ZeRO. */
static bool shares(const param_store *s) {
    return s->how.shards > 1 || s->how.weights_away;
}
bool param_masters_are_flat(const param_store *s) {
    return !s->how.masters_away && (!shares(s) || (s->compute == DT_F32 && s->how.zero <= 2));
}
bool param_weights_in_slots(const param_store *s) {
    return shares(s) && s->how.zero == 3;
}
bool param_grads_in_slots(const param_store *s) {
    return shares(s) && s->how.zero >= 2;
}

bool param_grads_leave(const param_store *s, int u) {
    return param_grads_in_slots(s) && s->unit[u].shares_slot;
}

/* ---- spans ---- */

/* Range k of parameter i, as the kernels of optimizers and digests want it. */
static vec_span span_of(const param_store *s, int i, int k) {
    const param *p = &s->item[i];
    param_range g = param_range_at(p, k);
    return (vec_span){.at = p->offset + g.first,
                      .n = g.n,
                      .owner = i,
                      .name = hash_bytes(p->name, strlen(p->name)),
                      .index = g.index,
                      .run = g.run,
                      .stride = g.stride,
                      .copy_dt = p->rank == 2 ? s->compute : DT_F32,
                      .counted = g.counted && !p->copy};
}

vec_span param_cut_span(vec_span k, int64_t from, int64_t n) {
    int64_t low = k.at > from ? k.at : from, high = k.at + k.n < from + n ? k.at + k.n : from + n;
    k.skip += low - k.at;
    k.n = high > low ? high - low : 0;
    k.at = low - from;
    return k;
}

/* The spans of this rank's piece of a unit. counted: this rank counts in norms and digests; of a
 * unit that all ranks have, only one does. */
static void make_spans(param_store *s, param_unit *u, int index, bool counted) {
    int n = 0;
    for (int i = u->begin; i < u->end; i++)
        if (!s->item[i].mapped && s->item[i].unit == index) n += s->item[i].split.runs;
    u->spans = (vec_spans){.item = ARENA_ARRAY(s->a, vec_span, n)};
    for (int i = u->begin; i < u->end; i++) {
        if (s->item[i].mapped || s->item[i].unit != index) continue;
        for (int r = 0; r < s->item[i].split.runs; r++) {
            vec_span k = param_cut_span(span_of(s, i, r), u->piece, u->piece_n);
            k.counted = k.counted && counted;
            if (k.n > 0) u->spans.item[u->spans.n++] = k;
        }
    }
    vec_spans_index(&u->spans);
}

/* Neighbours are summed by one call, with the gap between them. follows: the one before is such a
 * neighbour. */
static void add_partial(param_store *s, param_unit *u, param_partial p, bool follows, int *cap) {
    param_partial *last = u->n_partial ? &u->partial[u->n_partial - 1] : NULL;
    if (last && follows && last->copies == p.copies) {
        last->n = p.at + p.n - last->at;
        return;
    }
    u->partial = arena_grow(s->a, u->partial, u->n_partial, cap, sizeof p);
    u->partial[u->n_partial++] = p;
}

/* In the order of the unit's elements. */
static void find_partial(param_store *s, param_unit *u, int index) {
    int cap = 0;
    bool follows = false; /* the range before was partial, too */
    for (int i = u->begin; i < u->end; i++) {
        const param *p = &s->item[i];
        for (int k = 0; !p->mapped && p->unit == index && k < p->split.runs; k++) {
            param_range r = param_range_at(p, k);
            if (r.partial)
                add_partial(s, u, (param_partial){p->offset + r.first - u->at, r.n, r.copies},
                            follows, &cap);
            follows = r.partial;
        }
    }
}

/* ---- layout ---- */

/* Places parameter i at the end of the flat array. follows: without a gap, as the member of a pack
 * that is not its first. */
static void place(param_store *s, int i, bool follows) {
    if (!follows) s->flat_elems = param_align(s->flat_elems);
    s->item[i].offset = s->flat_elems;
    s->flat_elems += param_elems(&s->item[i]);
}

/* Packs begin in rising order. */
static bool follows_in_pack(const param_store *s, int i) {
    int low = 0, high = s->n_packs;
    while (low < high) {
        int mid = (low + high) / 2;
        if (s->packs[mid].first < i)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && i < s->packs[low - 1].first + s->packs[low - 1].n;
}

static param_unit *add_unit(param_store *s) {
    param_unit *u = &s->unit[s->n_units++];
    *u = (param_unit){.at = s->flat_elems};
    return u;
}

/* Whether another chunk of layers begins between the two. */
static bool is_cut(const param_store *s, int layer, int other) {
    for (int i = 0; i < s->how.cuts; i++)
        if ((layer < s->how.cut[i]) != (other < s->how.cut[i])) return true;
    return false;
}

/* Whether matrix i begins a unit. before: the matrix before it, or -1; joined: elements in the unit
 * so far. Parameters outside of the layers share no unit: the gradient of a tied embedding is
 * complete last of all, and the stages that have a table alike must find it in like units. */
static bool begins_unit(const param_store *s, int i, int before, int64_t joined) {
    /* Gradients of a unit in a slot are written one behind the other, and a layer's experts lie between its other matrices. */
    bool single = s->how.zero == 3 || (s->how.zero == 2 && s->ranks.experts > 1);
    if (before >= 0 && s->item[before].of_expert != s->item[i].of_expert) return true;
    if (before < 0 || s->item[i].layer < 0 || s->item[before].layer < 0) return true;
    if (s->item[before].layer == s->item[i].layer) return false;
    return single || joined >= s->how.bucket_elems ||
           is_cut(s, s->item[before].layer, s->item[i].layer);
}

static void end_unit(param_store *s, param_unit *u) {
    int apart = u->of_experts && s->how.shards > 1 ? s->ranks.experts : 1;
    int64_t shards = s->how.shards / apart, round = shards * PARAM_ALIGN_ELEMS;
    u->n = (s->flat_elems - u->at + round - 1) / round * round;
    s->flat_elems = u->at + u->n;
    u->piece_n = u->whole ? u->n : u->n / shards;
    u->piece = u->whole ? u->at : u->at + s->how.rank / apart * u->piece_n;
    u->state = s->piece_elems;
    s->piece_elems += u->piece_n;
}

static bool has_vectors(const param_store *s, bool frozen) {
    for (int i = 0; i < s->n; i++)
        if (!s->item[i].mapped && s->item[i].rank == 1 && s->item[i].frozen == frozen) return true;
    return false;
}

static void place_vectors(param_store *s, bool frozen) {
    param_unit *u = add_unit(s);
    u->whole = u->vectors = true;
    u->end = s->n;
    for (int i = 0; i < s->n; i++) {
        if (s->item[i].mapped || s->item[i].rank != 1 || s->item[i].frozen != frozen) continue;
        place(s, i, follows_in_pack(s, i));
        s->item[i].unit = s->n_units - 1;
    }
    end_unit(s, u);
}

static void place_matrices(param_store *s, bool frozen) {
    param_unit *u = NULL;
    for (int i = 0, before = -1; i < s->n; i++) {
        if (s->item[i].mapped || s->item[i].rank == 1 || s->item[i].frozen != frozen) continue;
        if (begins_unit(s, i, before, u ? s->flat_elems - u->at : 0)) {
            if (u) end_unit(s, u);
            u = add_unit(s);
            u->whole = !shares(s);
            u->shares_slot = s->item[i].layer >= 0;
            u->of_experts = s->item[i].of_expert;
            u->begin = i;
        }
        place(s, i, follows_in_pack(s, i));
        s->item[i].unit = s->n_units - 1;
        u->end = i + 1;
        before = i;
    }
    if (u) end_unit(s, u);
}

/* Units of what is trained, then of what is frozen. */
static void place_units(param_store *s) {
    place_vectors(s, false);
    place_matrices(s, false);
    s->trained_flat = s->flat_elems;
    s->trained_pieces = s->piece_elems;
    int trained = s->n_units;
    if (has_vectors(s, true)) place_vectors(s, true);
    place_matrices(s, true);
    for (int u = trained; u < s->n_units; u++) s->unit[u].frozen = true;
}

static void place_all(param_store *s, bool frozen) {
    for (int i = 0; i < s->n; i++)
        if (!s->item[i].mapped && s->item[i].frozen == frozen) place(s, i, follows_in_pack(s, i));
    s->flat_elems = param_align(s->flat_elems);
}

void param_store_put_trained_first(param_store *s) {
    CHECK(!s->sharded && !s->unit, "parameters are laid out once");
    if (!s->has_frozen) return;
    s->flat_elems = 0;
    place_all(s, false);
    s->trained_flat = s->flat_elems;
    place_all(s, true);
}

void param_store_make_unit(param_store *s) {
    int64_t flat = param_align(s->flat_elems), trained = s->has_frozen ? s->trained_flat : flat;
    if (!s->unit) s->unit = ARENA_ARRAY(s->a, param_unit, 2);
    s->n_units = trained < flat ? 2 : 1;
    for (int i = 0; i < s->n; i++) s->item[i].unit = s->item[i].frozen && s->n_units > 1;
    s->unit[0] = (param_unit){.whole = true, .end = s->n, .n = trained, .piece_n = trained};
    s->unit[1] = (param_unit){.whole = true,
                              .frozen = true,
                              .end = s->n,
                              .at = trained,
                              .n = flat - trained,
                              .piece = trained,
                              .piece_n = flat - trained,
                              .state = trained};
    for (int u = 0; u < s->n_units; u++) make_spans(s, &s->unit[u], u, true);
}

/* Slots of what is trained, or of what is frozen, from element `next` on: first those that belong
 * to one unit, then the two in which layers take turns, each as long as the longest unit of layers.
 * Returns where they end. */
static int64_t place_slots(param_store *s, bool frozen, int64_t next) {
    int64_t most = 0;
    int turn = 0;
    for (int u = 0; u < s->n_units; u++) {
        param_unit *k = &s->unit[u];
        if (k->frozen != frozen) continue;
        if (k->shares_slot && k->n > most) most = k->n;
        if (k->shares_slot) continue;
        k->slot = next;
        next += k->n;
    }
    for (int u = 0; u < s->n_units; u++)
        if (s->unit[u].shares_slot && s->unit[u].frozen == frozen)
            s->unit[u].slot = next + turn++ % 2 * most;
    return next + (turn < 2 ? turn : 2) * most;
}

void param_store_shard(param_store *s, const param_sharding *how) {
    CHECK(!s->sharded, "a store is laid out for ranks once");
    s->sharded = true;
    s->how = *how;
    CHECK(!how->masters_away || !s->has_frozen, "frozen masters lie in memory");
    if (!shares(s)) s->how.zero = 0;
    if (s->how.zero == 0) s->how.shards = 1, s->how.rank = s->ranks.expert_rank;
    s->flat_elems = s->piece_elems = 0;
    s->unit = ARENA_ARRAY(s->a, param_unit, s->n + 2);
    place_units(s);
    s->grad_slot_elems = place_slots(s, false, 0);
    s->slot_elems = place_slots(s, true, s->grad_slot_elems);
    for (int u = 0; u < s->n_units; u++) {
        const param_unit *k = &s->unit[u];
        make_spans(s, &s->unit[u], u, !k->whole || k->of_experts || s->how.rank == 0);
        find_partial(s, &s->unit[u], u);
    }
}

int param_units(const param_store *s) {
    return s->n_units;
}

const param_unit *param_unit_at(const param_store *s, int u) {
    return &s->unit[u];
}

/* ---- arrays ---- */

/* NULL where there is no array: on the meta device, and what a layout does without. */
static void *element(void *array, int64_t i, dtype dt) {
    return array ? (char *)array + i * (int64_t)dtype_bytes(dt) : NULL;
}

param_piece param_piece_of(const param_store *s, int i) {
    const param_unit *u = &s->unit[i];
    const param_arrays *at = &s->at;
    uint16_t *work = param_weights_in_slots(s) ? at->work_piece : at->work;
    if (s->compute == DT_F32) work = NULL;
    int64_t in_work = param_weights_in_slots(s) ? u->state : u->piece;
    void *grad = u->frozen ? NULL : param_grads_in_slots(s) ? at->grad_piece : at->grad;
    int64_t in_grad = param_grads_in_slots(s) ? u->state : u->piece;
    bool away = s->how.masters_away && !u->vectors;
    int64_t in_master = param_masters_are_flat(s) ? u->piece : u->state;
    return (param_piece){.master = away ? NULL : element(at->master, in_master, DT_F32),
                         .away = away,
                         .at = in_master,
                         .grad = element(grad, in_grad, param_grad_dtype(s)),
                         .work = element(work, in_work, s->compute),
                         .spans = &u->spans,
                         .state = u->state};
}

void param_store_put_away(param_store *s, const param_away *away) {
    CHECK(s->how.masters_away, "masters that lie in memory are put away");
    s->away = *away;
}

struct offload *param_file(const param_store *s) {
    return s->away.file;
}

void param_visit(const param_store *s, int unit, bool writes, param_window_fn fn, void *ctx) {
    param_piece k = param_piece_of(s, unit);
    if (k.away)
        s->away.visit(s->away.file, unit, writes, fn, ctx);
    else
        fn(ctx, &(param_window){k.spans, k.master, k.work});
}

vec_spans param_spans_from(arena *a, const vec_spans *all, int index) {
    vec_spans own = {.item = ARENA_ARRAY(a, vec_span, all->n)};
    for (int i = 0; i < all->n; i++)
        if (all->item[i].owner == index) own.item[own.n++] = all->item[i];
    vec_spans_index(&own);
    return own;
}

vec_spans param_spans_of(arena *a, const param_store *s, int index) {
    return param_spans_from(a, &s->unit[s->item[index].unit].spans, index);
}

param_transfer param_weights_transfer(const param_store *s, int i) {
    const param_unit *u = &s->unit[i];
    dtype dt = s->compute;
    void *flat = dt == DT_F32 ? (void *)s->at.master : s->at.work;
    param_transfer t = {.n = u->whole ? 0 : u->piece_n, .dt = dt};
    if (s->how.weights_away) {
        t.out = element(s->at.work, u->slot, dt);
        t.in = element(t.out, u->piece - u->at, dt);
        t.from_file = t.n > 0;
    } else if (param_weights_in_slots(s)) {
        t.in = element(dt == DT_F32 ? (void *)s->at.master : s->at.work_piece, u->state, dt);
        t.out = element(s->at.work, u->slot, dt);
    } else {
        t.in = element(flat, u->piece, dt);
        t.out = element(flat, u->at, dt);
    }
    return t;
}

param_transfer param_grads_transfer(const param_store *s, int i) {
    const param_unit *u = &s->unit[i];
    dtype dt = param_grad_dtype(s);
    param_transfer t = {.n = u->piece_n, .dt = dt};
    bool slots = param_grads_in_slots(s);
    t.in = element(s->at.grad, slots ? u->slot : u->at, dt);
    t.out = slots ? element(s->at.grad_piece, u->state, dt) : element(s->at.grad, u->piece, dt);
    return t;
}
