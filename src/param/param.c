/* The parameter store (see param.h). */
#include "param/store_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/nf4.h"

param_store *param_store_new(arena *a, dtype compute) {
    CHECK(compute == DT_F32 || compute == DT_BF16 || compute == DT_F16, "compute copies in %s",
          dtype_name(compute));
    param_store *s = ARENA_NEW(a, param_store);
    s->a = a;
    s->compute = compute;
    s->ranks.n = 1;
    return s;
}

void param_store_fix_grads(param_store *s) {
    s->fixed_grads = true;
}
bool param_grads_are_fixed(const param_store *s) {
    return s->fixed_grads;
}

void param_store_freeze(param_store *s, bool frozen) {
    s->freezes = frozen;
    s->has_frozen |= frozen;
}

void param_store_thaw(param_store *s, int index) {
    param *p = &s->item[index];
    CHECK(!p->mapped && !s->sharded && !s->unit, "%s cannot be trained", p->name);
    s->trained_elems += p->frozen ? param_whole_elems(p) : 0;
    p->frozen = false;
}

void param_store_keep_apart(param_store *s) {
    CHECK(s->n_packs == 0, "a pack was added before");
    s->apart = true;
}

void param_store_split(param_store *s, const param_ranks *ranks) {
    CHECK(s->n == 0 && ranks->n > 0, "ranks are known before parameters are added");
    s->ranks = *ranks;
}

op_part param_store_experts(const param_store *s, int64_t E) {
    int ranks = s->ranks.experts ? s->ranks.experts : 1;
    CHECK(E % ranks == 0, "%lld experts on %d ranks", (long long)E, ranks);
    return op_part_of(E, ranks, s->ranks.expert_rank);
}

void param_store_map(param_store *s, param_locate_fn locate, void *ctx) {
    CHECK(s->n == 0, "parameters are mapped before they are added");
    s->locate = locate;
    s->locate_ctx = ctx;
}

/* Row i of memory is row `at` of a part of some head. */
static int64_t row_by_head(const param *p, int64_t i) {
    int64_t all = 0, before = 0;
    for (int k = 0; k < PARAM_MAX_PARTS; k++) all += p->part_rows[k];
    for (int k = 0; k < PARAM_MAX_PARTS; k++) {
        int64_t rows = p->part_rows[k];
        if (i < rows * p->heads) return i / rows * all + before + i % rows;
        i -= rows * p->heads, before += rows;
    }
    CHECK(false, "%s has more rows than its parts", p->name);
    return 0;
}

int64_t param_file_row(const param *p, int64_t i) {
    if (p->order == ROWS_SAME) return i;
    if (p->order == ROWS_BY_HEAD) return row_by_head(p, i);
    int64_t D = p->head_dim, in_head = i % D, head = i / D;
    if (in_head >= p->rotary) return i;
    return head * D + in_head / 2 + in_head % 2 * (p->rotary / 2);
}

param_range param_range_at(const param *p, int k) {
    const param_split *s = &p->split;
    const param_run *r = &s->run[k];
    int64_t each = p->rank == 1 ? 1 : p->cols, before = 0;
    for (int i = 0; i < k; i++) before += s->run[i].n;
    param_range g = {.first = before * each,
                     .n = r->n * each,
                     .index = r->first * each,
                     .run = r->n * each,
                     .stride = r->n * each,
                     .copies = r->copies,
                     .counted = r->counted,
                     .partial = r->partial};
    if (s->kind == SPLIT_COLS && p->cols < s->cols) /* a block of columns: a run in each row */
        g.index = s->col0, g.run = p->cols, g.stride = s->cols;
    return g;
}

static bool stays_in_file(param_store *s, param *p) {
    p->mapped = s->locate && !s->in_pack && s->locate(s->locate_ctx, p, &p->stored, &p->offset);
    CHECK(!p->mapped || s->ranks.n == 1, "%s stays in a file, whole", p->name);
    return p->mapped;
}

static void put_in_memory(param_store *s, param *p) {
    bool first_of_pack = s->in_pack && s->packs[s->n_packs - 1].n == 0;
    if (!s->in_pack || first_of_pack) s->flat_elems = param_align(s->flat_elems);
    p->offset = s->flat_elems;
    s->flat_elems += param_elems(p);
    if (!s->in_pack) return;
    pack *k = &s->packs[s->n_packs - 1];
    CHECK(k->n == 0 || p->rank == 1 || s->item[k->first].cols == p->cols,
          "pack %s: %s has another width", k->name, p->name);
    k->n++;
}

int param_add(param_store *s, const param *p) {
    s->item = arena_grow(s->a, s->item, s->n, &s->cap, sizeof *s->item);
    param *q = &s->item[s->n];
    *q = *p;
    q->name = arena_strdup(s->a, p->name);
    names_add(&s->by_name, s->a, q->name, s->n);
    q->frozen = s->freezes;
    s->elems += param_elems(p);
    s->trained_elems += q->frozen ? 0 : param_elems(p);
    param_split_place(&q->split, &s->ranks, q->rank, &q->rows, &q->cols);
    if (!s->in_experts && !stays_in_file(s, q)) put_in_memory(s, q);
    return s->n++;
}

static void begin_pack(param_store *s, const char *name) {
    CHECK(!s->in_pack, "pack %s begins inside another", name);
    s->packs = arena_grow(s->a, s->packs, s->n_packs, &s->cap_packs, sizeof *s->packs);
    s->packs[s->n_packs++] = (pack){.name = arena_strdup(s->a, name), .first = s->n};
    s->in_pack = true;
}

void param_pack_begin(param_store *s, const char *name) {
    if (!s->locate && !s->apart) begin_pack(s, name);
}

/* Programs find what is in the last pack by its name. */
static void end_pack(param_store *s) {
    s->in_pack = false;
    names_add(&s->pack_by_name, s->a, s->packs[s->n_packs - 1].name, s->n_packs - 1);
}

void param_pack_end(param_store *s) {
    if (s->in_pack) end_pack(s);
}

/* ---- experts ---- */

void param_experts_begin(param_store *s, const char *name) {
    begin_pack(s, name);
    s->in_experts = true;
}

/* Whether parameters first, first + step, ... all stay in the file, in one format. */
static bool all_stay(param_store *s, int first, int step) {
    for (int i = first; i < s->n; i += step)
        if (!stays_in_file(s, &s->item[i]) || s->item[i].stored != s->item[first].stored)
            return false;
    return true;
}

/* Where each expert's matrix begins, in bytes from the first; NULL: one behind the other. */
static const int64_t *places_of(param_store *s, int first, int step) {
    int64_t *at = ARENA_ARRAY(s->a, int64_t, s->n - first), n = 0;
    const param *p = &s->item[first];
    int64_t bytes = p->rows * dtype_span_bytes(p->stored, p->cols);
    bool even = true;
    for (int i = first; i < s->n; i += step, n++) {
        at[n] = s->item[i].offset - p->offset;
        even = even && at[n] == n * bytes;
    }
    return even ? NULL : at;
}

static void add_stack(param_store *s, const char *name, int first, int step) {
    s->stacks = arena_grow(s->a, s->stacks, s->n_stacks, &s->cap_stacks, sizeof *s->stacks);
    s->stacks[s->n_stacks++] = (stack){.name = arena_strdup(s->a, name),
                                       .first = first,
                                       .step = step,
                                       .n = (s->n - first + step - 1) / step,
                                       .at = places_of(s, first, step)};
}

void param_experts_end(param_store *s, const char *const *stacks, int each) {
    int first = s->packs[s->n_packs - 1].first;
    bool stay = s->locate != NULL;
    s->in_experts = s->in_pack = false;
    for (int i = 0; i < each && stay; i++) stay = all_stay(s, first + i, each);
    s->in_pack = !stay;
    for (int i = first; i < s->n && !stay; i++) {
        s->item[i].mapped = false;
        put_in_memory(s, &s->item[i]);
    }
    if (!stay) {
        end_pack(s);
        return;
    }
    s->n_packs--;
    for (int i = 0; i < each; i++) add_stack(s, stacks[i], first + i, each);
}

int param_count(const param_store *s) {
    return s->n;
}

const param *param_at(const param_store *s, int index) {
    return &s->item[index];
}

int param_find(const param_store *s, const char *name) {
    return names_find(&s->by_name, name);
}

bool param_is_bias(const param *p) {
    size_t n = strlen(p->name);
    return n > 5 && strcmp(p->name + n - 5, ".bias") == 0;
}

static const pack *find_pack(const param_store *s, const char *name) {
    int k = names_find(&s->pack_by_name, name);
    return k < 0 ? NULL : &s->packs[k];
}

/* Elements from parameter `first` to the parameter behind `last`, or to the end of the unit, which has its parameters in
 * their order. A program may write the gradient there; the gap is included, since ranks sum it, too. */
static int64_t room_of(const param_store *s, int first, int last) {
    const param_unit *u = &s->unit[s->item[first].unit];
    int next = last + 1;
    while (next < u->end && (s->item[next].mapped || s->item[next].unit != s->item[last].unit))
        next++;
    int64_t end = next < u->end ? s->item[next].offset : u->at + u->n;
    return end - s->item[first].offset;
}

static graph_param_ref ref_in_file(const char *name, const param *p, int64_t n) {
    return (graph_param_ref){.name = name,
                             .where = p->stored == DT_NF4 ? SPACE_QUANT : SPACE_FILE,
                             .dt = p->stored,
                             .rows = p->rows * n,
                             .cols = p->cols,
                             .offset_bytes = p->offset};
}

static bool stack_ref(const param_store *s, const char *name, graph_param_ref *out) {
    for (int k = 0; k < s->n_stacks; k++) {
        const stack *x = &s->stacks[k];
        if (strcmp(x->name, name) != 0) continue;
        *out = ref_in_file(name, &s->item[x->first], x->n);
        out->experts_at = x->at;
        return true;
    }
    return false;
}

bool param_ref(const param_store *s, const char *name, graph_param_ref *out) {
    int first = param_find(s, name), last = first;
    if (first < 0 && stack_ref(s, name, out)) return true;
    if (first < 0) {
        const pack *k = find_pack(s, name);
        if (!k) return false;
        first = k->first;
        last = k->first + k->n - 1;
    }
    const param *p = &s->item[first];
    if (p->mapped) {
        *out = ref_in_file(name, p, 1);
        return true;
    }
    int64_t elems = s->item[last].offset + param_elems(&s->item[last]) - p->offset;
    bool copied = p->rank == 2 && (s->compute != DT_F32 || param_weights_in_slots(s));
    dtype dt = p->rank == 2 ? s->compute : DT_F32;
    int64_t in_slots = p->offset;
    if (s->sharded) in_slots += s->unit[p->unit].slot - s->unit[p->unit].at;
    int64_t grad_bytes = (int64_t)dtype_bytes(param_grad_dtype(s));
    int64_t at = copied && param_weights_in_slots(s) ? in_slots : p->offset;
    if (!copied && !param_masters_are_flat(s)) /* a vector, in a unit that is not cut */
        at += s->unit[p->unit].state - s->unit[p->unit].at;
    *out = (graph_param_ref){
        .name = name,
        .where = copied ? SPACE_WORK : SPACE_MASTER,
        .dt = dt,
        .rows = p->rank == 1 ? 1 : elems / p->cols,
        .cols = p->rank == 1 ? elems : p->cols,
        .unit = p->unit,
        .offset_bytes = at * (int64_t)dtype_bytes(dt),
        .grad_offset_bytes = (param_grads_in_slots(s) ? in_slots : p->offset) * grad_bytes,
        .grad_room_bytes = s->sharded ? room_of(s, first, last) * grad_bytes : 0,
        .grad_leaves = s->sharded && param_grads_leave(s, p->unit),
        .trainable = !p->frozen};
    return true;
}

void param_ref_widen(graph_param_ref *ref) {
    CHECK(ref->where == SPACE_MASTER, "%s has no master to be read in double", ref->name);
    ref->dt = DT_F64;
    ref->offset_bytes *= 2;
    ref->grad_offset_bytes *= 2;
    ref->grad_room_bytes *= 2;
}

param_sizes param_store_sizes(const param_store *s) {
    int64_t flat = param_align(s->flat_elems), compute = (int64_t)dtype_bytes(s->compute);
    int64_t pieces = s->sharded ? s->piece_elems : flat, slots = s->slot_elems;
    int64_t trained = s->has_frozen ? s->trained_flat : flat;
    int64_t own = !s->has_frozen ? pieces : s->sharded ? s->trained_pieces : trained;
    param_sizes z = {.elems = s->elems,
                     .trained_elems = s->trained_elems,
                     .flat_elems = flat,
                     .piece_elems = pieces};
    z.master_bytes = (param_masters_are_flat(s) ? flat : pieces) * 4;
    z.trained_master_bytes = (param_masters_are_flat(s) ? trained : own) * 4;
    if (s->how.masters_away) z.master_bytes = z.trained_master_bytes = s->unit[0].n * 4;
    if (param_weights_in_slots(s)) {
        z.work_bytes = slots * compute;
        bool copies = s->compute != DT_F32 && !s->how.weights_away;
        z.work_piece_bytes = copies ? pieces * compute : 0;
    } else if (s->compute != DT_F32)
        z.work_bytes = flat * compute;
    int64_t grad = (int64_t)dtype_bytes(param_grad_dtype(s));
    z.grad_bytes = (param_grads_in_slots(s) ? s->grad_slot_elems : trained) * grad;
    if (param_grads_in_slots(s)) z.grad_piece_bytes = own * grad;
    z.state_bytes = own * 4;
    return z;
}

void param_store_bind(param_store *s, dev *d, const param_arrays *arrays) {
    if (!s->sharded) param_store_make_unit(s);
    s->dev = d;
    s->at = *arrays;
}

float *param_master(const param_store *s) {
    return s->at.master;
}
uint16_t *param_work(const param_store *s) {
    return s->at.work;
}
float *param_grad(const param_store *s) {
    CHECK(!s->fixed_grads, "gradients in fixed point are read as floats");
    return s->at.grad;
}

void *param_quant(const param_store *s, int index) {
    const param *p = param_at(s, index);
    bool is = p->mapped && p->stored == DT_NF4;
    return is ? (char *)s->at.quant + p->offset - sizeof(nf4_matrix) : NULL;
}
int64_t param_quant_bytes(const param *p) {
    return nf4_bytes(p->rows, p->cols);
}

typedef struct drawing {
    dev *dev;
    const vec_rule *rule; /* [parameters] */
} drawing;

static void draw_window(void *ctx, const param_window *w) {
    const drawing *d = ctx;
    vec_draw(d->dev, w->spans, d->rule, w->master, w->work);
}

void param_init_all(param_store *s, uint64_t seed) {
    vec_rule *rule = xcalloc((size_t)s->n, sizeof *rule);
    for (int i = 0; i < s->n; i++) {
        const param *p = &s->item[i];
        rule[i] = (vec_rule){.normal = p->init.kind == INIT_NORMAL,
                             .uniform = p->init.kind == INIT_UNIFORM,
                             .bound = (float)p->init.bound,
                             .value = p->init.kind == INIT_ONES ? 1.0f : (float)p->init.mean,
                             .std = p->init.std,
                             .cut = p->init.cut,
                             .key = rng_key_named(seed, p->name)};
    }
    drawing d = {s->dev, rule};
    for (int u = 0; u < s->n_units; u++) param_visit(s, u, true, draw_window, &d);
    free(rule);
}

static void round_window(void *d, const param_window *w) {
    if (w->work) vec_round(d, w->spans, w->master, w->work);
}

void param_refresh_work(const param_store *s) {
    if (s->compute == DT_F32) return;
    for (int u = 0; u < s->n_units; u++) param_visit(s, u, true, round_window, s->dev);
}

typedef struct digesting {
    const param_store *s;
    int only; /* one parameter; -1: all */
    uint64_t sum;
} digesting;

static void digest_window(void *ctx, const param_window *w) {
    digesting *d = ctx;
    if (d->only < 0) {
        d->sum += vec_digest(d->s->dev, w->spans, w->master);
        return;
    }
    arena *a = arena_new("spans");
    vec_spans own = param_spans_from(a, w->spans, d->only);
    d->sum += vec_digest(d->s->dev, &own, w->master);
    arena_free(a);
}

uint64_t param_digest_of(const param_store *s, int index) {
    digesting d = {s, index, 0};
    param_visit(s, s->item[index].unit, false, digest_window, &d);
    return d.sum;
}

uint64_t param_digest(const param_store *s) {
    bool frozen = s->trained_elems == 0;
    digesting d = {s, -1, 0};
    for (int u = 0; u < s->n_units; u++)
        if (s->unit[u].frozen == frozen) param_visit(s, u, false, digest_window, &d);
    return d.sum;
}

dev *param_device(const param_store *s) {
    return s->dev;
}

float *param_host_master(const param_store *s) {
    CHECK(!s->dev, "masters on a device are read as if they were the host's");
    return s->at.master;
}

/* Both are in the order of declaration, so one walk finds all. */
void param_store_set_whole(param_store *s, const param_store *whole) {
    int *found = ARENA_ARRAY(s->a, int, s->n), w = 0;
    for (int i = 0; i < s->n; i++, w++) {
        while (w < whole->n && strcmp(whole->item[w].name, s->item[i].name) != 0) w++;
        CHECK(w < whole->n, "%s is not in the whole, or not in this order", s->item[i].name);
        CHECK(param_whole_elems(&whole->item[w]) == param_whole_elems(&s->item[i]),
              "%s has another shape in the whole", s->item[i].name);
        found[i] = w;
    }
    s->whole = whole;
    s->in_whole = found;
}

const param_store *param_store_whole(const param_store *s) {
    return s->whole ? s->whole : s;
}

int param_number_in_whole(const param_store *s, int index) {
    return s->whole ? s->in_whole[index] : index;
}
