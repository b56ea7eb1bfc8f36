/* Low-rank adapters (LoRA, Hu et al. 2021): beside a frozen matrix W [O,I] two that are trained, A
 * [rank,I], drawn at random, and B [O,rank], which is 0 at first:
 *
 *   y = x W^T + alpha / rank * (x A^T) B^T
 *
 * They bear the matrix's name with .lora_A and .lora_B. */
#include <math.h>
#include <string.h>

#include "model/parts.h"

static const char WEIGHT[] = ".weight";

/* The name of what stands beside NAME.weight. */
static const char *beside(arena *a, const char *name, const char *which) {
    return arena_printf(a, "%.*s%s%s", (int)(strlen(name) - strlen(WEIGHT)), name, which, WEIGHT);
}

static bool has_adapter(const param *p) {
    return p->rank == 2 && !p->table && p->part != PART_HEAD && p->layer >= 0;
}

/* A is drawn as torch.nn.Linear draws its weights, with the same variance. */
static void declare_pair(const param *w, int64_t rank, arena *a, param_store *s) {
    param pair = {.part = w->part, .layer = w->layer, .rank = 2};
    pair.name = beside(a, w->name, ".lora_A");
    pair.rows = rank, pair.cols = w->cols;
    pair.init = (param_init){.kind = INIT_NORMAL, .std = 1.0 / sqrt(3.0 * (double)w->cols)};
    param_add(s, &pair);
    pair.name = beside(a, w->name, ".lora_B");
    pair.rows = w->rows, pair.cols = rank;
    pair.init = (param_init){.kind = INIT_ZEROS};
    param_add(s, &pair);
}

void model_declare_adapted(const model_config *mc, const model_adapters *ad, param_store *s) {
    arena *names = arena_new("names of adapters");
    param_store_keep_apart(s);
    param_store_freeze(s, true);
    model_declare(mc, s);
    param_store_freeze(s, false);
    for (int i = 0, n = param_count(s); i < n; i++) {
        param w = *param_at(s, i); /* the list grows */
        if (has_adapter(&w)) declare_pair(&w, ad->rank, names, s);
    }
    arena_free(names);
}

val model_adapt(model_rec *r, const char *name, val x, val y) {
    val a = model_named(r, name, ".lora_A.weight"), b = model_named(r, name, ".lora_B.weight");
    if (a == VAL_NONE) return y;
    val narrow = graph_scale(r->g, graph_linear(r->g, x, a, VAL_NONE),
                             (float)(r->adapters->alpha / (double)r->adapters->rank));
    return graph_add(r->g, y, graph_linear(r->g, narrow, b, VAL_NONE));
}
