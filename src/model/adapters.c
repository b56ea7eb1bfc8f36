/* Low-rank adapters (LoRA, Hu et al. 2021): beside a frozen matrix W [O,I] two that are trained, A
 * [rank,I], drawn at random, and B [O,rank], which is 0 at first:
 *
 *   y = x W^T + scale * (x A^T) B^T        scale: alpha / rank, or alpha / sqrt(rank)
 *
 * They bear the matrix's name with .lora_A and .lora_B, as in PEFT's files.
 *
 * Tensor-parallel ranks share them as they share W. By rows (q, gate, ...): A is whole on every
 * rank, and B has W's rows. By columns (o, down): A has W's columns, and B is whole; x A^T is then
 * a summand, as x W^T is, and B is multiplied before the ranks sum. What is whole gets from each
 * rank a summand of its gradient (split.h: per_head); so do both of a W that is whole for that reason. */
#include <math.h>
#include <string.h>

#include "base/strbuf.h"
#include "model/parts.h"

static const char WEIGHT[] = ".weight";

double model_adapters_scale(const model_adapters *ad) {
    return ad->alpha / (ad->rslora ? sqrt((double)ad->rank) : (double)ad->rank);
}

/* The name of what stands beside NAME.weight. */
static const char *beside(arena *a, const char *name, const char *which) {
    return arena_printf(a, "%.*s%s%s", (int)(strlen(name) - strlen(WEIGHT)), name, which, WEIGHT);
}

/* A matrix of a layer. Routers are small, and pick by small differences. */
bool model_is_quantised(const param *p) {
    if (p->part == PART_ROUTER || p->part == PART_SHARED_SCALE) return false;
    return p->rank == 2 && p->layer >= 0 && p->part < PART_LORA_A;
}

static bool may_have_adapter(const param *p) {
    return model_is_quantised(p) && !model_part_of_expert(p->part);
}

/* The same model as files of Hugging Face name and order its tensors, where it is read from a GGUF
 * file. */
static model_config as_in_files(const model_config *mc) {
    model_config files = *mc;
    files.names = NULL;
    files.gguf_order = false;
    return files;
}

/* PEFT's rule: the module is called so, or its name ends in a dot and this. */
static bool is_target(const char *name, const char *target) {
    size_t n = strlen(name) - strlen(WEIGHT), m = strlen(target);
    if (n < m || strncmp(name + n - m, target, m) != 0) return false;
    return n == m || name[n - m - 1] == '.';
}

bool model_has_adapter(const model_adapters *ad, const param *p) {
    if (!ad->rank || !may_have_adapter(p)) return false;
    for (int i = 0; i < ad->n_targets; i++)
        if (is_target(p->name, ad->targets[i])) return true;
    return ad->n_targets == 0;
}

bool model_trains_whole(const model_adapters *ad, const param *p) {
    bool whole = (p->part == PART_EMBED && ad->embedding) || (p->part == PART_HEAD && ad->head);
    return !ad->rank || (whole && p->rank == 2);
}

/* ---- which matrices ---- */

static const char *last_word(arena *a, const char *name) {
    const char *end = name + strlen(name) - strlen(WEIGHT), *at = end;
    while (at > name && at[-1] != '.') at--;
    return arena_printf(a, "%.*s", (int)(end - at), at);
}

const char **model_adapter_names(arena *a, const model_adapters *ad, const param_store *s, int *n) {
    const char **list = ARENA_ARRAY(a, const char *, param_count(s));
    *n = 0;
    for (int i = 0; i < param_count(s); i++) {
        if (!model_has_adapter(ad, param_at(s, i))) continue;
        const char *word = last_word(a, param_at(s, i)->name);
        bool known = false;
        for (int k = 0; k < *n && !known; k++) known = strcmp(list[k], word) == 0;
        if (!known) list[(*n)++] = word;
    }
    return list;
}

static status no_such_target(const param_store *s, const char *target, err *e) {
    arena *a = arena_new("targets");
    const model_adapters all = {.rank = 1};
    int n;
    const char **names = model_adapter_names(a, &all, s, &n);
    strbuf text = {0};
    for (int i = 0; i < n; i++) strbuf_printf(&text, "%s%s", i ? ", " : "", names[i]);
    err_set(e, ST_USAGE, "no matrix of the model's layers is called %s", target);
    err_where(e, "lora.targets");
    err_hint(e, "its matrices are %s; all-linear means all of them", strbuf_cstr(&text));
    strbuf_free(&text);
    arena_free(a);
    return ST_USAGE;
}

status model_check_targets(const model_adapters *ad, const param_store *s, err *e) {
    for (int t = 0; t < ad->n_targets; t++) {
        bool found = false;
        for (int i = 0; i < param_count(s) && !found; i++)
            found =
                may_have_adapter(param_at(s, i)) && is_target(param_at(s, i)->name, ad->targets[t]);
        if (!found) return no_such_target(s, ad->targets[t], e);
    }
    return ST_OK;
}

/* ---- declaring ---- */

/* A is drawn as torch.nn.Linear draws its weights, which is PEFT's rule: kaiming_uniform with
 * a = sqrt(5). w is the matrix in the store, file the same as files have it: its name and order of
 * rows are those of the adapter's file. */
static void declare_pair(const param *w, const param *file, int64_t rank, arena *a,
                         param_store *s) {
    const param_split *split = &w->split;
    param down = {.part = PART_LORA_A, .layer = w->layer, .rank = 2, .rows = rank};
    down.name = beside(a, file->name, ".lora_A");
    down.cols = param_whole_cols(w);
    down.init.kind = INIT_UNIFORM;
    down.init.bound = 1.0 / sqrt((double)down.cols);
    param up = *file;
    up.part = PART_LORA_B, up.transposed = false, up.cols = rank;
    up.name = beside(a, file->name, ".lora_B");
    up.init = (param_init){.kind = INIT_ZEROS};
    up.split = (param_split){.kind = split->kind, .per_head = split->per_head, .runs = split->runs};
    down.split.per_head = split->per_head;
    if (split->kind == SPLIT_COLS) {
        down.split = param_split_cols();
        up.split = (param_split){.per_head = true};
    } else if (split->kind == SPLIT_ROWS) {
        down.split.per_head = true;
        for (int i = 0; i < split->runs; i++)
            up.split.run[i] = (param_run){.all = split->run[i].all, .heads = split->run[i].heads};
    }
    param_add(s, &down);
    param_add(s, &up);
}

/* Some chunks of a model's layers. */
typedef struct chunks {
    const model_layer_range *chunk;
    int n;
} chunks;

/* Their matrices as files have them, by the number that they have in the store s. */
static status list_files(const model_config *mc, chunks of, arena *a, const param_store *s,
                         const param_store **out, err *e) {
    model_config files = as_in_files(mc);
    param_store *list = param_store_new(a, DT_F32);
    model_declare_chunks(&files, of.chunk, of.n, list);
    bool same = param_count(list) == param_count(s);
    for (int i = 0; same && i < param_count(s); i++)
        same = param_at(list, i)->part == param_at(s, i)->part;
    *out = list;
    if (same) return ST_OK;
    err_set(e, ST_USAGE, "this file has other tensors than a folder of %s, for which adapters are",
            mc->family->model_type);
    return err_hint(e, "make a folder of it with `athanor import`, and use that");
}

static status declare_beside(const model_config *mc, chunks of, const model_adapters *ad, arena *a,
                             param_store *s, err *e) {
    const param_store *files;
    TRY(list_files(mc, of, a, s, &files, e));
    bool is_whole = of.chunk[0].first == 0 && of.chunk[0].end == model_layers(mc);
    if (is_whole) TRY(model_check_targets(ad, files, e));
    for (int i = 0; i < param_count(files); i++) {
        param w = *param_at(s, i); /* the list grows */
        if (model_trains_whole(ad, &w)) param_store_thaw(s, i);
        if (model_has_adapter(ad, param_at(files, i)))
            declare_pair(&w, param_at(files, i), ad->rank, a, s);
    }
    return ST_OK;
}

status model_declare_adapted_chunks(const model_config *mc, const model_layer_range *chunk, int n,
                                    const model_adapters *ad, param_store *s, err *e) {
    arena *a = arena_new("adapters");
    param_store_keep_apart(s);
    param_store_freeze(s, true);
    model_declare_chunks(mc, chunk, n, s);
    param_store_freeze(s, false);
    status st = declare_beside(mc, (chunks){chunk, n}, ad, a, s, e);
    arena_free(a);
    return st;
}

status model_declare_adapted(const model_config *mc, const model_adapters *ad, param_store *s,
                             err *e) {
    model_layer_range all = model_all_layers(mc);
    return model_declare_adapted_chunks(mc, &all, 1, ad, s, e);
}

/* ---- recording ---- */

bool model_adapters_of(model_rec *r, model_part part, int l, val *a, val *b) {
    *a = *b = VAL_NONE;
    if (!r->adapters || !r->adapters->rank) return false;
    model_config files = as_in_files(r->mc);
    char name[MODEL_NAME_BYTES];
    model_part_name(&files, part, l, name);
    *a = model_named(r, name, ".lora_A.weight");
    *b = model_named(r, name, ".lora_B.weight");
    return *a != VAL_NONE;
}

val model_adapt(model_rec *r, model_part part, int l, val x, val y) {
    char name[MODEL_NAME_BYTES];
    val a, b;
    if (!model_adapters_of(r, part, l, &a, &b)) return y;
    model_config files = as_in_files(r->mc);
    model_part_name(&files, part, l, name);
    if (r->adapters->dropout > 0) x = graph_dropout_copy(r->g, x, r->adapters->dropout);
    val narrow = graph_linear(r->g, x, a, VAL_NONE);
    graph_name(r->g, narrow, "%s.lora_A", name);
    narrow = graph_scale(r->g, narrow, (float)model_adapters_scale(r->adapters));
    y = graph_add(r->g, y, graph_linear(r->g, narrow, b, VAL_NONE));
    graph_name(r->g, y, "%s.lora_B", name);
    return y;
}
