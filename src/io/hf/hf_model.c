#include "io/hf/hf_model.h"

#include "model/family.h"

static status find_all(hf_model *m, const model_config *mc, err *e) {
    arena *a = arena_new("hf check");
    param_store *s = param_store_new(a, DT_F32);
    model_declare(mc, s);
    m->n = param_count(s);
    m->weights = ARENA_ARRAY(m->a, hf_weight, m->n);
    status st = hf_find_weights(s, m->file, m->weights, e);
    arena_free(a);
    return st;
}

/* The lowest address of a tensor in any of the files. */
static const uint8_t *lowest(const st_reader *r) {
    const uint8_t *low = NULL;
    for (int64_t i = 0; i < st_count(r); i++) {
        const uint8_t *at = st_get(r, i)->data;
        if (!low || (uintptr_t)at < (uintptr_t)low) low = at;
    }
    return low;
}

status hf_model_open(hf_model *m, const char *dir, const model_config *mc, err *e) {
    *m = (hf_model){.a = arena_new("hf model"), .order = hf_order_of(dir)};
    TRY(st_open(&m->file, dir, e));
    m->base = lowest(m->file);
    return find_all(m, mc, e);
}

void hf_model_close(hf_model *m) {
    st_close(m->file);
    arena_free(m->a);
    *m = (hf_model){0};
}

static bool is_computed_with(const st_view *v) {
    bool known = v->dt == DT_F32 || v->dt == DT_BF16 || v->dt == DT_F16;
    return known && (uintptr_t)v->data % dtype_bytes(v->dt) == 0;
}

/* Files are mapped one by one, so the distance from `base` is one of addresses, not of pointers
 * into the same object. */
bool hf_model_locate(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes) {
    const hf_model *m = ctx;
    if (p->rank == 1 || held_is_transposed(p, m->order) || held_is_reordered(p, m->order))
        return false;
    const st_view *v = hf_find_view(m->file, p->name);
    CHECK(v, "tensor %s was checked", p->name);
    if (!is_computed_with(v)) return false;
    *stored = v->dt;
    *offset_bytes = (int64_t)((uintptr_t)v->data - (uintptr_t)m->base);
    return true;
}

status hf_model_load_rest(const hf_model *m, const param_store *s, err *e) {
    int n = param_count(param_store_whole(s));
    CHECK(n == m->n, "%d parameters, %d were checked", n, m->n);
    return hf_fill_masters(s, m->weights, m->order, e);
}
