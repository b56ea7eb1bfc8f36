/* Experts as transformers 5 holds them, and writes them with save_original_format=False: all of a layer in two tensors,
 * experts.gate_up_proj [E,2F,C], in which each expert's gate stands before its up, and experts.down_proj [E,C,F]. That is the
 * order of the parameters, too, so each tensor gives way to its parts under their names, where they lie. */
#include <string.h>

#include "io/hf/hf_weights.h"
#include "model/family.h"

/* Parameters first .. first + n - 1, which one tensor holds: of each expert `each`. */
typedef struct stack {
    const param_store *s;
    int first, n, each;
} stack;

static bool is_down(const param *p) {
    return p->part == PART_EXPERT_DOWN;
}

static stack stack_at(const param_store *s, int first) {
    const param *p = param_at(s, first);
    stack k = {s, first, 0, is_down(p) ? 1 : 2};
    for (int i = first; i < param_count(s); i++) {
        const param *q = param_at(s, i);
        if (!model_part_of_expert(q->part) || q->layer != p->layer || is_down(q) != is_down(p))
            break;
        k.n++;
    }
    return k;
}

/* The tensor with all of them, or the factors of its blocks, which `end` names; NULL: there is none. */
static const st_view *find_stack(const st_reader *r, const stack *k, const char *end) {
    static const char mark[] = ".experts.";
    const char *name = param_at(k->s, k->first)->name, *at = strstr(name, mark);
    char all[512];
    if (!at) return NULL;
    snprintf(all, sizeof all, "%.*s%s%s", (int)(at - name + (int)strlen(mark)), name,
             k->each == 2 ? "gate_up_proj" : "down_proj", end);
    return hf_find_view(r, all);
}

static st_cut cut_of(arena *a, const stack *k, const st_view *v, const char *end) {
    const char **names = ARENA_ARRAY(a, const char *, k->n);
    for (int i = 0; i < k->n; i++)
        names[i] = arena_printf(a, "%s%s", param_at(k->s, k->first + i)->name, end);
    return (st_cut){v, names, k->n};
}

static status check_stack(const stack *k, const st_view *v, err *e) {
    const param *p = param_at(k->s, k->first);
    long experts = k->n / k->each, rows = k->each * (long)param_whole_rows(p);
    long cols = (long)param_whole_cols(p);
    if (v->rank == 3 && v->dims[0] == experts && v->dims[1] == rows && v->dims[2] == cols)
        return ST_OK;
    err_at(e, ST_FORMAT, v->path, "tensor %s does not have the shape [%ld,%ld,%ld] of the config",
           v->name, experts, rows, cols);
    return err_hint(e, "the weights and config.json belong to different models");
}

/* Appends what is to be cut of a stack; nothing where each expert has tensors of its own. */
static status add_cuts(arena *a, const st_reader *r, const stack *k, st_cut *list, int *n, err *e) {
    static const char of_blocks[] = "_scale_inv";
    const st_view *v = find_stack(r, k, ""), *s = find_stack(r, k, of_blocks);
    if (!v || hf_find_view(r, param_at(k->s, k->first)->name)) return ST_OK;
    TRY(check_stack(k, v, e));
    list[(*n)++] = cut_of(a, k, v, "");
    if (s) list[(*n)++] = cut_of(a, k, s, of_blocks);
    return ST_OK;
}

status hf_part_experts(st_reader *r, const param_store *s, err *e) {
    arena *a = arena_new("stacked experts");
    st_cut *list = ARENA_ARRAY(a, st_cut, 2 * param_count(s) + 1);
    int n = 0;
    status st = ST_OK;
    for (int i = 0; i < param_count(s) && st == ST_OK; i++) {
        if (!model_part_of_expert(param_at(s, i)->part)) continue;
        stack k = stack_at(s, i);
        st = add_cuts(a, r, &k, list, &n, e);
        i += k.n - 1;
    }
    if (st == ST_OK && n) st_cut_up(r, list, n);
    arena_free(a);
    return st;
}
