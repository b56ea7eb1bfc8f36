/* The store itself; private to the module. */
#ifndef PARAM_STORE_INT_H
#define PARAM_STORE_INT_H

#include "base/names.h"
#include "param/units.h"

enum { PARAM_ALIGN_ELEMS = 64 };

typedef struct pack {
    const char *name;
    int first, n;
} pack;

/* Matrices of experts that stay in a file: parameters first, first + step, ... */
typedef struct stack {
    const char *name;
    int first, step, n;
    const int64_t *at; /* as in graph_param_ref */
} stack;

struct param_store {
    arena *a;
    dtype compute;
    bool fixed_grads;
    param *item;
    int n, cap;
    names by_name, pack_by_name;
    pack *packs;
    int n_packs, cap_packs;
    stack *stacks;
    int n_stacks, cap_stacks;
    bool in_pack, apart;
    bool in_experts; /* in_pack, and where the members lie is known when all are there */
    bool freezes;    /* what is added now is frozen */
    bool has_frozen; /* something is */
    int64_t flat_elems, elems, trained_elems;
    int64_t trained_flat, trained_pieces; /* has_frozen: where what is trained ends */
    dev *dev;
    param_arrays at;
    param_away away;
    param_locate_fn locate; /* NULL: everything is in memory */
    void *locate_ctx;
    param_ranks ranks; /* tensor-parallel */
    param_sharding how;
    bool sharded; /* param_store_shard has laid the parameters out */
    param_unit *unit;
    int n_units;
    int64_t piece_elems, slot_elems; /* lengths of piece and slot arrays */
    int64_t grad_slot_elems;         /* of the slots of what is trained, which come first */
    const param_store *whole;        /* NULL: this store has everything */
    const int *in_whole;             /* number in `whole` of each parameter */
};

static inline int64_t param_align(int64_t elems) {
    return (elems + PARAM_ALIGN_ELEMS - 1) / PARAM_ALIGN_ELEMS * PARAM_ALIGN_ELEMS;
}

/* units.c: for a store that nobody shares: one unit of what is trained, one of what is frozen. */
void param_store_make_unit(param_store *s);
static inline dtype param_grad_dtype(const param_store *s) {
    return s->fixed_grads ? DT_I64 : DT_F32;
}
bool param_masters_are_flat(const param_store *s);
/* Those of one parameter. */
vec_spans param_spans_from(arena *a, const vec_spans *all, int index);
/* Calls fn for a unit's piece; of one in a file, for each window of it. */
void param_visit(const param_store *s, int unit, bool writes, param_window_fn fn, void *ctx);

#endif
