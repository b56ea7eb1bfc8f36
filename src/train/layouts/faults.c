#include "train/layouts/faults.h"

#include <string.h>

/* As if a rank's part of a parameter were drawn from the beginning of the whole. */
static void draw_as_first(session *s) {
    const param_store *store = s->plan->store;
    uint64_t seed = (uint64_t)s->c->train.seed;
    for (int i = 0; i < param_count(store); i++) {
        const param *p = param_at(store, i);
        if (p->init.kind != INIT_NORMAL || p->split.kind == SPLIT_NONE) continue;
        param_piece k = param_piece_of(store, p->unit);
        arena *a = arena_new("fault");
        vec_spans own = param_spans_of(a, store, i);
        for (int n = 0; n < own.n; n++)
            rng_fill_normal(rng_key_named(seed, p->name), (uint64_t)own.item[n].skip,
                            k.master + own.item[n].at, own.item[n].n, p->init.std);
        arena_free(a);
    }
    param_refresh_work(store);
    peers_gather_all(&s->peers);
}

/* One rank begins to sum two units in the other order. */
static void swap_reductions(session *s) {
    step_entry *first = NULL;
    for (int i = 0; i < s->table.n; i++) {
        step_entry *t = &s->table.entry[i];
        if (t->action != STEP_REDUCE || param_unit_at(s->plan->store, t->unit)->spans.n == 0)
            continue;
        if (first) {
            int unit = first->unit;
            first->unit = t->unit;
            t->unit = unit;
            return;
        }
        first = t;
    }
}

void layout_fault_weights(session *s, layout_fault f) {
    bool second = peers_rank(&s->peers) == 1;
    switch (f) {
        case LAYOUT_SAME_SEED: draw_as_first(s); break;
        case LAYOUT_NO_PARTIAL: peers_forget_partial(&s->peers); break;
        case LAYOUT_BUCKET_ORDER:
            if (second) swap_reductions(s);
            break;
        case LAYOUT_SHIFTED:
            if (second) peers_shift_pieces(&s->peers);
            peers_gather_all(&s->peers);
            break;
        default: break;
    }
}

void layout_fault_step(session *s, layout_fault f, int i) {
    if (f != LAYOUT_FLIPPED_BIT || i != 2 || peers_rank(&s->peers) != 1) return;
    param_piece k = param_piece_of(s->plan->store, param_units(s->plan->store) - 1);
    uint32_t bits;
    float *x = k.master + k.spans->item[0].at;
    memcpy(&bits, x, sizeof bits);
    bits ^= 1u;
    memcpy(x, &bits, sizeof bits);
}
