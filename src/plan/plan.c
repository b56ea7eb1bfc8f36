/* Recording a run's programs and laying out its arena (see plan.h). */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

static const int64_t PAGE_BYTES = 4096;

static int64_t page_up(int64_t n) {
    return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static bool grads_in_frame(const plan *p) {
    return p->spec.train_B && !p->spec.accumulates;
}

/* ---- programs ---- */

static status record(plan *p, plan_prog which, const model_rec *shape, bool train, err *e) {
    graph_options opt = {
        .dev = p->dev, .dt = p->spec.compute, .train = train, .recompute = p->spec.recompute};
    opt.grads_in_frame = train && grads_in_frame(p);
    model_rec r = *shape;
    r.g = graph_new(p->memory, &opt);
    r.mc = &p->spec.model;
    r.params = p->store;
    r.chunk_rows = p->spec.chunk_rows;
    r.z_loss = train ? p->spec.z_loss : 0.0f;
    model_record(&r);
    static const char *const names[] = {"training", "validation", "prefill", "decode", "logits"};
    status st = prog_finish(&p->prog[which], r.g, e);
    if (st != ST_OK) err_context(e, "recording the %s program", names[which]);
    return st;
}

static status record_all(plan *p, err *e) {
    const plan_spec *s = &p->spec;
    model_rec lm = {.task = TASK_LM, .T = s->T, .document_mask = s->document_mask};
    lm.B = s->train_B;
    if (s->train_B) TRY(record(p, PLAN_TRAIN, &lm, true, e));
    lm.B = s->valid_B;
    if (s->valid_B) TRY(record(p, PLAN_VALID, &lm, false, e));
    model_rec all = {.task = TASK_LOGITS, .B = 1, .T = s->logits_T, .n_logits = s->logits_T};
    if (s->logits_T) TRY(record(p, PLAN_LOGITS, &all, false, e));
    if (!s->cache_tok) return ST_OK;
    model_rec gen = {.task = TASK_LOGITS, .B = 1, .Tmax = s->cache_tok, .n_logits = 1};
    gen.T = s->prefill_T;
    TRY(record(p, PLAN_PREFILL, &gen, false, e));
    gen.T = 1;
    return record(p, PLAN_DECODE, &gen, false, e);
}

/* ---- arena ---- */

static void lay_out(plan *p) {
    param_sizes ps = param_store_sizes(p->store);
    const plan_spec *s = &p->spec;
    p->region[REGION_PARAMS].bytes = ps.master_bytes;
    p->region[REGION_WORK].bytes = ps.work_bytes;
    if (s->train_B) {
        p->region[REGION_GRADS].bytes = ps.grad_bytes;
        p->region[REGION_OPTIM].bytes = ps.master_bytes * s->optim->n_states;
    }
    int64_t pinned = 0, frame = 0;
    for (int i = 0; i < PLAN_PROGS; i++) {
        if (!p->prog[i]) continue;
        const prog_stats *st = prog_get_stats(p->prog[i]);
        p->pinned_offset[i] = pinned;
        pinned += (st->pinned_bytes + 63) / 64 * 64;
        if (st->frame_bytes > frame) frame = st->frame_bytes;
    }
    p->region[REGION_PINNED].bytes = pinned;
    int64_t shared = grads_in_frame(p) ? p->region[REGION_GRADS].bytes : 0;
    p->region[REGION_FRAME].bytes = frame > shared ? frame - shared : 0;
    if (s->cache_tok)
        p->region[REGION_CACHE].bytes = model_cache_bytes(&s->model, 1, s->cache_tok, s->compute);
    int64_t offset = 0;
    for (int i = 0; i < REGION_COUNT; i++) {
        p->region[i].offset = offset;
        offset += (p->region[i].bytes + 63) / 64 * 64;
    }
    p->peak_bytes = page_up(offset);
}

status plan_new(plan **out, dev *d, const plan_spec *spec, err *e) {
    arena *memory = arena_new("plan");
    plan *p = ARENA_NEW(memory, plan);
    p->spec = *spec;
    p->dev = d;
    p->memory = memory;
    p->store = param_store_new(memory, spec->compute);
    spec->model.family->declare(&p->spec.model, p->store);
    status st = record_all(p, e);
    if (st != ST_OK) {
        arena_free(memory);
        return st;
    }
    lay_out(p);
    *out = p;
    return ST_OK;
}

void plan_free(plan *p) {
    if (!p) return;
    if (p->base) dev_release(p->dev, p->base, (size_t)p->peak_bytes);
    arena_free(p->memory);
}

static void *region_base(const plan *p, plan_region_kind k) {
    return p->region[k].bytes ? (char *)p->base + p->region[k].offset : NULL;
}

static void *frame_base(const plan *p) {
    plan_region_kind first = grads_in_frame(p) ? REGION_GRADS : REGION_FRAME;
    return (char *)p->base + p->region[first].offset;
}

status plan_commit(plan *p, err *e) {
    TRY(dev_reserve(p->dev, &p->base, (size_t)p->peak_bytes, "the run's arena", e));
    param_store_bind(p->store, p->dev, region_base(p, REGION_PARAMS), region_base(p, REGION_WORK),
                     region_base(p, REGION_GRADS));
    int64_t flat = param_store_sizes(p->store).flat_elems;
    for (int i = 0; p->region[REGION_OPTIM].bytes && i < p->spec.optim->n_states; i++)
        p->optim_state[i] = (float *)region_base(p, REGION_OPTIM) + i * flat;
    for (int i = 0; i < PLAN_PROGS; i++) {
        if (!p->prog[i]) continue;
        void *base[SPACE_COUNT] = {[SPACE_FRAME] = frame_base(p),
                                   [SPACE_PINNED] =
                                       (char *)region_base(p, REGION_PINNED) + p->pinned_offset[i],
                                   [SPACE_MASTER] = region_base(p, REGION_PARAMS),
                                   [SPACE_WORK] = region_base(p, REGION_WORK),
                                   [SPACE_GRAD] = region_base(p, REGION_GRADS),
                                   [SPACE_STATE] = region_base(p, REGION_CACHE)};
        prog_bind(p->prog[i], base);
    }
    return ST_OK;
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
