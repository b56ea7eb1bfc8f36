/* Recording a run's programs and laying out its arena (see plan.h). */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static const int64_t PAGE_BYTES = 4096;

static int64_t page_up(int64_t n) {
    return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static bool grads_in_frame(const plan_spec *s) {
    bool in_slots = s->ranks && s->sharing.shards > 1 && s->sharing.zero >= 2;
    return s->train_B && s->micro_batches <= 1 && !in_slots && !s->fixed_grads;
}

static int tp_of(const plan_spec *s) {
    return s->ranks ? s->ranks->size[MESH_TP] : 1;
}

/* ---- programs ---- */

static status record(plan *p, plan_phase *ph, plan_prog which, const model_rec *shape, bool train,
                     err *e) {
    graph_options opt = {
        .dev = p->dev, .dt = ph->spec.compute, .train = train, .recompute = ph->spec.recompute};
    opt.mesh = ph->spec.ranks;
    /* generation is of few rows, which need not be a multiple of the ranks */
    opt.sequence_parallel = ph->spec.sequence_parallel && shape->task == TASK_LM;
    opt.grads_in_frame = train && grads_in_frame(&ph->spec);
    opt.fixed_grads = train && ph->spec.fixed_grads;
    model_rec r = *shape;
    r.g = graph_new(p->memory, &opt);
    r.mc = &ph->spec.model;
    r.params = p->store;
    r.chunk_rows = ph->spec.chunk_rows;
    r.z_loss = train ? ph->spec.z_loss : 0.0f;
    model_record(&r);
    static const char *const names[PLAN_PROGS] = {[PLAN_TRAIN] = "training",
                                                  [PLAN_VALID] = "validation",
                                                  [PLAN_PREFILL] = "prefill",
                                                  [PLAN_PREFILL + 1] = "shorter prefill",
                                                  [PLAN_PREFILL + 2] = "shortest prefill",
                                                  [PLAN_DECODE] = "decode",
                                                  [PLAN_LOGITS] = "logits"};
    status st = prog_finish(&ph->prog[which], r.g, e);
    if (st != ST_OK) err_context(e, "recording the %s program", names[which]);
    return st;
}

static status record_all(plan *p, plan_phase *ph, err *e) {
    const plan_spec *s = &ph->spec;
    model_rec lm = {.task = TASK_LM, .T = s->T, .document_mask = s->document_mask};
    lm.B = s->train_B;
    if (s->train_B) TRY(record(p, ph, PLAN_TRAIN, &lm, true, e));
    lm.B = s->valid_B;
    if (s->valid_B) TRY(record(p, ph, PLAN_VALID, &lm, false, e));
    model_rec all = {.task = TASK_LOGITS, .B = 1, .T = s->logits_T, .n_logits = s->logits_T};
    if (s->logits_T) TRY(record(p, ph, PLAN_LOGITS, &all, false, e));
    if (!s->cache_tok) return ST_OK;
    model_rec gen = {.task = TASK_LOGITS, .B = 1, .Tmax = s->cache_tok, .n_logits = 1};
    gen.cache_f16 = s->cache_f16;
    int T[GENERATOR_PREFILLS];
    generator_prefill_lengths(s->prefill_T, T);
    for (int i = 0; i < GENERATOR_PREFILLS; i++) {
        gen.T = T[i];
        if (T[i]) TRY(record(p, ph, PLAN_PREFILL + i, &gen, false, e));
    }
    gen.T = 1;
    return record(p, ph, PLAN_DECODE, &gen, false, e);
}

/* Whether two phases record the same programs: all that a stage may change is compared. */
static bool same_programs(const plan_spec *a, const plan_spec *b) {
    return a->T == b->T && a->train_B == b->train_B &&
           (a->micro_batches > 1) == (b->micro_batches > 1) && a->valid_B == b->valid_B &&
           a->cache_tok == b->cache_tok && a->model.rope_theta == b->model.rope_theta &&
           a->recompute == b->recompute && a->document_mask == b->document_mask &&
           a->chunk_rows == b->chunk_rows && a->z_loss == b->z_loss;
}

static status record_phase(plan *p, int i, err *e) {
    plan_phase *ph = &p->phase[i];
    ph->shared_with = -1;
    for (int k = 0; k < i; k++) {
        if (!same_programs(&p->phase[k].spec, &ph->spec)) continue;
        ph->shared_with = k;
        memcpy(ph->prog, p->phase[k].prog, sizeof ph->prog);
        return ST_OK;
    }
    return record_all(p, ph, e);
}

/* ---- arena ---- */

/* Places what each program pins and returns the largest frame, without the gradients where these
 * lie in it. */
static int64_t lay_out_programs(plan *p) {
    int64_t pinned = 0, most = 0;
    for (int i = 0; i < p->n_phases; i++) {
        plan_phase *ph = &p->phase[i];
        if (ph->shared_with >= 0) continue;
        int64_t frame = 0;
        for (int k = 0; k < PLAN_PROGS; k++) {
            if (!ph->prog[k]) continue;
            const prog_stats *st = prog_get_stats(ph->prog[k]);
            ph->pinned_offset[k] = pinned;
            pinned += (st->pinned_bytes + 63) / 64 * 64;
            if (st->frame_bytes > frame) frame = st->frame_bytes;
        }
        int64_t shared = grads_in_frame(&ph->spec) ? p->region[REGION_GRADS].bytes : 0;
        if (frame - shared > most) most = frame - shared;
    }
    p->region[REGION_PINNED].bytes = pinned;
    return most;
}

static void lay_out_cache(plan *p) {
    for (int i = 0; i < p->n_phases; i++) {
        const plan_spec *s = &p->phase[i].spec;
        if (!s->cache_tok) continue;
        dtype dt = s->cache_f16 ? DT_F16 : s->compute;
        int64_t bytes = model_cache_bytes(&s->model, tp_of(s), 1, s->cache_tok, dt);
        if (bytes > p->region[REGION_CACHE].bytes) p->region[REGION_CACHE].bytes = bytes;
    }
}

static void lay_out(plan *p) {
    param_sizes ps = param_store_sizes(p->store);
    const plan_spec *s = &p->spec;
    p->region[REGION_PARAMS].bytes = ps.master_bytes;
    p->region[REGION_WORK].bytes = ps.work_bytes;
    p->region[REGION_WORK_PIECE].bytes = ps.work_piece_bytes;
    if (s->train_B) {
        p->region[REGION_GRADS].bytes = ps.grad_bytes;
        p->region[REGION_GRAD_PIECE].bytes = ps.grad_piece_bytes;
        p->region[REGION_OPTIM].bytes = ps.state_bytes * s->optim->n_states;
    }
    if (s->snapshot)
        p->region[REGION_SNAPSHOT].bytes = ps.master_bytes + p->region[REGION_OPTIM].bytes;
    p->region[REGION_FRAME].bytes = lay_out_programs(p);
    lay_out_cache(p);
    int64_t offset = 0;
    for (int i = 0; i < REGION_COUNT; i++) {
        p->region[i].offset = offset;
        offset += (p->region[i].bytes + 63) / 64 * 64;
    }
    p->peak_bytes = page_up(offset);
}

void plan_select(plan *p, int i) {
    CHECK(i >= 0 && i < p->n_phases, "phase %d of %d", i, p->n_phases);
    p->spec = p->phase[i].spec;
    memcpy(p->prog, p->phase[i].prog, sizeof p->prog);
}

static plan_spec own_spec(arena *a, const plan_spec *from) {
    plan_spec s = *from;
    s.model = model_config_copy(a, &from->model);
    if (from->ranks) s.ranks = arena_memdup(a, from->ranks, sizeof *from->ranks);
    return s;
}

static status declare(plan *p, const plan_spec *s, err *e) {
    TRY(model_check_ranks(&s->model, tp_of(s), e));
    if (tp_of(s) > 1)
        param_store_split(p->store, &(param_ranks){.n = tp_of(s),
                                                   .rank = s->ranks->rank[MESH_TP],
                                                   .sequence_parallel = s->sequence_parallel});
    model_declare(&s->model, p->store);
    if (s->ranks) param_store_shard(p->store, &s->sharing);
    return ST_OK;
}

status plan_new_phases(plan **out, dev *d, const plan_spec *specs, int n, err *e) {
    arena *memory = arena_new("plan");
    plan *p = ARENA_NEW(memory, plan);
    p->dev = d;
    p->memory = memory;
    p->store = param_store_new(memory, specs->compute);
    if (specs->fixed_grads) param_store_fix_grads(p->store);
    if (specs->locate) param_store_map(p->store, specs->locate, specs->locate_ctx);
    p->phase = ARENA_ARRAY(memory, plan_phase, n);
    p->n_phases = n;
    for (int i = 0; i < n; i++) p->phase[i].spec = own_spec(memory, &specs[i]);
    status st = declare(p, &p->phase[0].spec, e);
    for (int i = 0; i < n && st == ST_OK; i++) st = record_phase(p, i, e);
    if (st != ST_OK) {
        arena_free(memory);
        return st;
    }
    plan_select(p, 0);
    lay_out(p);
    plan_set_classes(p, &p->peak_bytes, 1, specs->ranks ? specs->ranks->size[MESH_WORLD] : 1);
    *out = p;
    return ST_OK;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

void plan_set_classes(plan *p, const int64_t *peak_bytes, int n, int each) {
    int64_t *sorted = arena_memdup(p->memory, peak_bytes, sizeof *sorted * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    p->classes = ARENA_ARRAY(p->memory, plan_class, n);
    p->n_classes = 0;
    for (int i = 0; i < n; i++) {
        if (i == 0 || sorted[i] != sorted[i - 1]) p->classes[p->n_classes++].peak_bytes = sorted[i];
        p->classes[p->n_classes - 1].ranks += each;
    }
}

status plan_new(plan **out, dev *d, const plan_spec *spec, err *e) {
    return plan_new_phases(out, d, spec, 1, e);
}

void plan_free(plan *p) {
    if (!p) return;
    if (p->base) dev_release(p->dev, p->base, (size_t)p->peak_bytes);
    arena_free(p->memory);
}

static void *region_base(const plan *p, plan_region_kind k) {
    return p->region[k].bytes ? (char *)p->base + p->region[k].offset : NULL;
}

static void *frame_base(const plan *p, const plan_spec *s) {
    plan_region_kind first = grads_in_frame(s) ? REGION_GRADS : REGION_FRAME;
    return (char *)p->base + p->region[first].offset;
}

static void bind_phase(plan *p, plan_phase *ph) {
    if (ph->shared_with >= 0) return;
    for (int i = 0; i < PLAN_PROGS; i++) {
        if (!ph->prog[i]) continue;
        void *base[SPACE_COUNT] = {[SPACE_FRAME] = frame_base(p, &ph->spec),
                                   [SPACE_PINNED] =
                                       (char *)region_base(p, REGION_PINNED) + ph->pinned_offset[i],
                                   [SPACE_MASTER] = region_base(p, REGION_PARAMS),
                                   [SPACE_WORK] = region_base(p, REGION_WORK),
                                   [SPACE_GRAD] = region_base(p, REGION_GRADS),
                                   [SPACE_STATE] = region_base(p, REGION_CACHE),
                                   [SPACE_FILE] = (void *)(uintptr_t)ph->spec.file};
        prog_bind(ph->prog[i], base);
    }
}

status plan_commit(plan *p, err *e) {
    TRY(dev_reserve(p->dev, &p->base, (size_t)p->peak_bytes, "the run's arena", e));
    param_arrays arrays = {.master = region_base(p, REGION_PARAMS),
                           .work = region_base(p, REGION_WORK),
                           .work_piece = region_base(p, REGION_WORK_PIECE),
                           .grad = region_base(p, REGION_GRADS),
                           .grad_piece = region_base(p, REGION_GRAD_PIECE)};
    param_store_bind(p->store, p->dev, &arrays);
    param_sizes sizes = param_store_sizes(p->store);
    int64_t states = sizes.state_bytes / (int64_t)sizeof(float);
    int64_t masters = sizes.master_bytes / (int64_t)sizeof(float);
    p->snapshot_params = region_base(p, REGION_SNAPSHOT);
    for (int i = 0; p->region[REGION_OPTIM].bytes && i < p->spec.optim->n_states; i++) {
        p->optim_state[i] = (float *)region_base(p, REGION_OPTIM) + i * states;
        if (p->snapshot_params) p->snapshot_state[i] = p->snapshot_params + masters + i * states;
    }
    for (int i = 0; i < p->n_phases; i++) bind_phase(p, &p->phase[i]);
    return ST_OK;
}

/* ---- traffic ---- */

comm_counts plan_traffic(const plan *p) {
    const plan_spec *s = &p->spec;
    if (!s->ranks || !p->prog[PLAN_TRAIN]) return (comm_counts){0};
    arena *a = arena_new("a step's traffic");
    int micro = s->micro_batches > 1 ? (int)s->micro_batches : 1;
    step_table t = step_build_accumulation(a, p->store, p->prog[PLAN_TRAIN], micro, true);
    comm_counts sent = step_traffic(&t, p->store, p->prog[PLAN_TRAIN], s->ranks, s->narrow_sums);
    arena_free(a);
    return sent;
}

/* ---- FLOPs ---- */

double plan_model_flops(const plan *p) {
    if (!p->prog[PLAN_TRAIN]) return 0;
    const prog_stats *s = prog_get_stats(p->prog[PLAN_TRAIN]);
    return s->flops_forward + s->flops_backward;
}

double plan_hardware_flops(const plan *p) {
    if (!p->prog[PLAN_TRAIN]) return 0;
    return plan_model_flops(p) + prog_get_stats(p->prog[PLAN_TRAIN])->flops_recompute;
}
