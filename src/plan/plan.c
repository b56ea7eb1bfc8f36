/* Makes and commits a plan, and counts its traffic and FLOPs (see plan.h).
 *
 * Reading order: plan_new_phases, declare (stores), make (programs, then lay_out), lay_out and the
 * functions above it (the arena), plan_commit, plan_traffic. */
#include "plan/plan_int.h"

#include "base/nf4.h"

#include <stdlib.h>
#include <string.h>

static const int64_t PAGE_BYTES = 4096;

static int64_t page_up(int64_t n) {
    return (n + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* ---- arena ---- */

/* Constants, inputs and outputs of all programs, one after the other: they are kept between runs.
 */
static void lay_out_pinned(plan *p) {
    int64_t at = 0;
    for (int i = 0; i < p->n_programs; i++) {
        plan_program *g = &p->program[i], *same = p->program;
        const prog_stats *st = prog_get_stats(g->prog);
        while (same < g && !prog_share_constants(g->prog, same->prog)) same++;
        g->const_offset = same < g ? same->const_offset : at;
        g->pinned_offset = at + (same < g ? 0 : st->const_bytes);
        at = g->pinned_offset + g->ports * st->pinned_bytes;
    }
    p->region[REGION_PINNED].bytes = at;
}

static int64_t place_frames(plan_program *g, int64_t at) {
    g->frame_offset = at;
    return at + g->frames * g->frame_step;
}

/* Frames of the chunks of the selected phase, one after the other, behind so many bytes of scratch:
 * all hold activations at the same time, until the backward, but for those that share places. Returns where they end. */
static int64_t place_chunks(plan *p, int64_t scratch) {
    int64_t at = scratch;
    for (int c = 0; c < plan_chunks(p); c++) {
        plan_program *g = plan_find(p, USE_TRAIN, c), *mate = plan_mate(p, c);
        if (mate && mate < g)
            g->frame_offset = mate->frame_offset;
        else if (g)
            at = place_frames(g, at);
    }
    return at;
}

/* Frames of the other models: all begin at 0, since one looks after the other, when no pass is under way. Returns where the
 * longest ends. */
static int64_t place_looks(plan *p) {
    int64_t most = 0;
    for (int i = 0; i < p->spec.n_others; i++) {
        plan_program *g = plan_find(p, USE_LOOK, i);
        int64_t end = g ? place_frames(g, 0) : 0;
        if (end > most) most = end;
    }
    return most;
}

/* The largest frame of the programs that run between steps (validation, sampling). All begin at
 * offset 0, where nothing else is needed then. */
static int64_t largest_between(const plan *p) {
    int64_t most = 0;
    for (int i = 0; i < p->n_programs; i++) {
        const plan_program *g = &p->program[i];
        int64_t bytes = prog_get_stats(g->prog)->frame_bytes;
        bool is_of_phase = g->of.grads_in_frame == plan_grads_in_frame(&p->spec);
        if (!g->of.train && g->of.model == 0 && is_of_phase && bytes > most) most = bytes;
    }
    return most;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* What passes of the selected phase need beside frames. If earlier micro-batches hold activations in these, other models look
 * in scratch, too; if none does, in the frames. */
static int64_t scratch_of_phase(plan *p) {
    int64_t most = plan_frames(p) > 1 ? place_looks(p) : 0;
    for (int c = 0; c < plan_chunks(p); c++) {
        const plan_program *g = plan_find(p, USE_TRAIN, c);
        if (g) most = larger(most, prog_get_stats(g->prog)->scratch_bytes);
    }
    return most;
}

/* Places the frames of all programs, and returns how long REGION_FRAME must be: what a frame that
 * begins with the gradients has in common with REGION_GRADS is not counted again. A program has one
 * place for all phases, so they have one length of scratch. */
static int64_t lay_out_frames(plan *p) {
    int64_t most = 0, scratch = 0;
    for (int i = 0; i < p->n_phases; i++) {
        plan_select(p, i);
        scratch = larger(scratch, scratch_of_phase(p));
    }
    for (int i = 0; i < p->n_phases; i++) {
        plan_select(p, i);
        bool in_frame = plan_grads_in_frame(&p->spec);
        int64_t bytes = larger(place_chunks(p, scratch_of_phase(p) ? scratch : 0), place_looks(p));
        int64_t shared = in_frame ? p->region[REGION_GRADS].bytes : 0;
        most = larger(most, larger(bytes, largest_between(p)) - shared);
    }
    plan_select(p, 0);
    return most;
}

static void lay_out_boxes(plan *p) {
    for (int i = 0; i < p->n_phases; i++) {
        plan_select(p, i);
        p->region[REGION_BOXES].bytes = larger(p->region[REGION_BOXES].bytes, plan_boxes_bytes(p));
    }
    plan_select(p, 0);
}

static void lay_out_cache(plan *p) {
    for (int i = 0; i < p->n_phases; i++) {
        const plan_spec *s = &p->phase[i];
        int64_t *most = &p->region[REGION_CACHE].bytes;
        dtype dt = s->cache_f16 ? DT_F16 : s->compute;
        if (s->cache_tok)
            *most = larger(
                *most, model_cache_bytes(&s->model, plan_tp(s), 1, s->cache_tok, dt, s->compute) +
                           model_source_cache_bytes(&s->model, plan_tp(s), 1, s->source_tok, dt));
        if (s->score.tok)
            *most = larger(*most, model_cache_bytes(&s->model, plan_tp(s), s->score.slots,
                                                    s->score.tok, s->compute, s->compute));
        if (!s->serve.rows) continue;
        model_pages pages = engine_pages(&s->serve);
        *most = larger(*most, model_paged_bytes(&s->model, plan_tp(s), &pages, s->serve.ahead, dt,
                                                s->compute));
    }
}

/* Of each model: masters, then work copies. */
static void lay_out_others(plan *p) {
    int64_t at = 0;
    for (int i = 1; i < p->n_models; i++) {
        param_sizes z = param_store_sizes(p->model[i].store);
        p->model[i].offset = at;
        at += z.master_bytes + z.work_bytes;
    }
    p->region[REGION_OTHERS].bytes = at;
}

/* elems: of an array of states. */
static offload_content away_of(const plan_spec *s, int64_t elems) {
    int n_states = s->optim ? s->optim->n_states : 0;
    return offload_content_of(s->offload, s->compute, s->adapters.rank > 0, elems, n_states,
                              s->state_dt);
}

/* Of one array of states. */
static int64_t state_elems(const plan *p) {
    return p->states ? param_store_sizes(p->states).state_bytes / (int64_t)sizeof(float) : 0;
}

int64_t plan_state_array_bytes(const plan *p) {
    return state_elems(p) * (int64_t)dtype_bytes(p->spec.state_dt);
}

static void lay_out_states(plan *p) {
    const plan_spec *s = &p->spec;
    if (!(s->offload & OFFLOAD_OPTIMIZER))
        p->region[REGION_OPTIM].bytes = plan_state_array_bytes(p) * s->optim->n_states;
    p->away = away_of(s, state_elems(p));
    p->region[REGION_OFFLOAD].bytes = offload_slot_bytes(&p->away);
}

static void lay_out(plan *p) {
    param_sizes ps = param_store_sizes(p->store);
    const plan_spec *s = &p->spec;
    p->region[REGION_PARAMS].bytes = ps.master_bytes;
    p->region[REGION_WORK].bytes = ps.work_bytes;
    p->region[REGION_WORK_PIECE].bytes = ps.work_piece_bytes;
    p->region[REGION_QUANT].bytes = p->quant_bytes;
    lay_out_others(p);
    if (s->train_B) {
        p->region[REGION_GRADS].bytes = ps.grad_bytes;
        p->region[REGION_GRAD_PIECE].bytes = ps.grad_piece_bytes;
        p->states = p->like ? p->like->states : optim_states(s->optim, p->memory, p->dev, p->store);
        lay_out_states(p);
    }
    if (s->snapshot)
        p->region[REGION_SNAPSHOT].bytes = ps.trained_master_bytes + p->region[REGION_OPTIM].bytes;
    lay_out_pinned(p);
    lay_out_boxes(p);
    p->region[REGION_FRAME].bytes = lay_out_frames(p);
    lay_out_cache(p);
    int64_t offset = 0;
    for (int i = 0; i < REGION_SNAPSHOT; i++) {
        p->region[i].offset = offset;
        offset += (p->region[i].bytes + 63) / 64 * 64;
    }
    p->arena_bytes = page_up(offset);
    p->peak_bytes = p->arena_bytes + page_up(p->region[REGION_SNAPSHOT].bytes);
}

void plan_select(plan *p, int i) {
    CHECK(i >= 0 && i < p->n_phases, "phase %d of %d", i, p->n_phases);
    p->spec = p->phase[i];
}

static plan_spec own_spec(arena *a, const plan_spec *from) {
    plan_spec s = *from;
    s.model = model_config_copy(a, &from->model);
    if (from->ranks) s.ranks = arena_memdup(a, from->ranks, sizeof *from->ranks);
    if (from->cut) s.cut = arena_memdup(a, from->cut, sizeof *s.cut * (size_t)(s.chunks + 1));
    if (!from->n_others) return s;
    plan_other *others = ARENA_ARRAY(a, plan_other, from->n_others);
    for (int i = 0; i < from->n_others; i++)
        others[i] = (plan_other){.name = arena_strdup(a, from->others[i].name),
                                 .config = model_config_copy(a, &from->others[i].config)};
    s.others = others;
    return s;
}

/* ---- models ---- */

static param_store *new_store(plan *p, const plan_spec *s) {
    param_store *store = param_store_new(p->memory, s->compute);
    if (s->ranks)
        param_store_split(store, &(param_ranks){.n = plan_tp(s),
                                                .rank = s->ranks->rank[MESH_TP],
                                                .sequence_parallel = s->sequence_parallel,
                                                .experts = s->ranks->size[MESH_EP],
                                                .expert_rank = s->ranks->rank[MESH_EP]});
    return store;
}

/* A head whose loss is computed outside of the program, or has a teacher, reads weights in the format of activations
 * only (HEAD_NLL, HEAD_DISTILL). */
static bool is_deferred_head(const plan *p, const param *q) {
    bool head =
        q->part == PART_HEAD || (q->part == PART_EMBED && p->phase[0].model.tie_word_embeddings);
    bool deferred = false;
    for (int i = 0; i < p->n_phases; i++)
        deferred = deferred || p->phase[i].deferred_loss || p->phase[i].lesson.weight > 0;
    return head && deferred;
}

/* What is in 4 bits, one matrix behind the other. */
static bool quantise(plan *p, const param *q, dtype *stored, int64_t *offset_bytes) {
    if (!p->phase[0].nf4_base || !model_is_quantised(q) || q->cols % NF4_BLOCK) return false;
    *stored = DT_NF4;
    *offset_bytes = p->quant_bytes + (int64_t)sizeof(nf4_matrix);
    p->quant_bytes += param_quant_bytes(q);
    return true;
}

/* maps: else ranks have parts of matrices. */
static status check_quantised(const plan *p, bool maps, err *e) {
    if (!maps) {
        err_at(e, ST_USAGE, "lora.base_dtype",
               "blocks of 4 bits are not split by parallel.tp and parallel.ep");
        return err_hint(e, "lora.base_dtype=stored");
    }
    for (int i = 0; i < param_count(p->store); i++) {
        const param *q = param_at(p->store, i);
        bool is = q->mapped && q->stored == DT_NF4;
        if (!q->frozen || is || !model_is_quantised(q)) continue;
        err_at(e, ST_USAGE, "lora.base_dtype",
               "%s has rows of %lld, and blocks of NF4 are of %d numbers of a row", q->name,
               (long long)q->cols, NF4_BLOCK);
        return err_hint(e, "lora.base_dtype=stored");
    }
    return ST_OK;
}

/* What stays in the file: nothing that is trained, and what the programs can compute with. The
 * context is the plan. */
static bool locate_frozen(void *ctx, const param *q, dtype *stored, int64_t *offset_bytes) {
    plan *p = ctx;
    const plan_spec *s = &p->phase[0];
    bool trained =
        s->adapters.rank ? !q->frozen || model_trains_whole(&s->adapters, q) : s->train_B > 0;
    if (!trained && quantise(p, q, stored, offset_bytes)) return true;
    if (trained || !s->locate || !s->locate(s->locate_ctx, q, stored, offset_bytes)) return false;
    return *stored == s->compute || (s->compute == DT_F32 && !is_deferred_head(p, q));
}

status plan_declare_whole(arena *a, const plan_spec *s, param_store **out, err *e) {
    *out = param_store_new(a, s->compute);
    if (s->adapters.rank) return model_declare_adapted(&s->model, &s->adapters, *out, e);
    model_declare(&s->model, *out);
    return ST_OK;
}

/* This rank has some of the layers, or of the experts. */
static status declare_share(plan *p, const plan_spec *s, err *e) {
    param_store *whole = NULL;
    bool stages = plan_stages_of(s) > 1;
    if (!s->reckoned || (stages && !s->cut)) TRY(plan_declare_whole(p->memory, s, &whole, e));
    if (stages) TRY(plan_cut_stages(p, whole, e));
    model_layer_range *own = ARENA_ARRAY(p->memory, model_layer_range, s->chunks);
    int n = 0;
    for (int c = 0; c < s->chunks; c++)
        if (plan_has_chunk(s, c)) own[n++] = plan_layers_of(s, c);
    if (s->adapters.rank)
        TRY(model_declare_adapted_chunks(&s->model, own, n, &s->adapters, p->store, e));
    else
        model_declare_chunks(&s->model, own, n, p->store);
    if (!s->reckoned) param_store_set_whole(p->store, whole);
    return ST_OK;
}

static status declare_trained(plan *p, const plan_spec *s, err *e) {
    TRY(model_check_ranks(&s->model, plan_tp(s), e));
    p->store = p->model[0].store = new_store(p, s);
    if (s->fixed_grads) param_store_fix_grads(p->store);
    bool experts = s->ranks && s->ranks->size[MESH_EP] > 1,
         maps = (s->locate || s->nf4_base) && plan_tp(s) == 1 &&
                !experts; /* else each rank has its part */
    if (maps) param_store_map(p->store, locate_frozen, p);
    if (experts || plan_stages_of(s) > 1)
        TRY(declare_share(p, s, e));
    else if (s->adapters.rank)
        TRY(model_declare_adapted(&s->model, &s->adapters, p->store, e));
    else
        model_declare(&s->model, p->store);
    if (s->nf4_base) TRY(check_quantised(p, maps, e));
    param_sharding how = s->sharing;
    how.cut = plan_layer_cuts(p);
    how.cuts = s->cut ? s->chunks : 0;
    how.masters_away = s->train_B > 0 && away_of(s, 0).masters;
    how.weights_away = s->train_B > 0 && (s->offload & OFFLOAD_WEIGHTS);
    CHECK(!how.weights_away || how.zero == 3, "weights lie in a file with zero %d", how.zero);
    if (!s->ranks) how.shards = 1, how.rank = 0;
    if (s->ranks || how.masters_away)
        param_store_shard(p->store, &how);
    else
        param_store_put_trained_first(p->store);
    return ST_OK;
}

/* Data-parallel ranks do not share another model: each has all of it, or its part as a
 * tensor-parallel rank. */
static status declare_other(plan *p, const plan_spec *s, int i, err *e) {
    const plan_other *o = &s->others[i];
    TRY(model_check_ranks(&o->config, plan_tp(s), e));
    param_store *store = new_store(p, s);
    param_store_freeze(store, true);
    model_declare(&o->config, store);
    param_store_put_trained_first(store);
    p->model[1 + i] = (plan_model){.name = o->name, .store = store};
    return ST_OK;
}

static status declare(plan *p, const plan_spec *s, err *e) {
    p->n_models = 1 + s->n_others;
    p->model = ARENA_ARRAY(p->memory, plan_model, p->n_models);
    p->model[0].name = "model";
    TRY(declare_trained(p, s, e));
    for (int i = 0; i < s->n_others; i++) TRY(declare_other(p, s, i, e));
    return ST_OK;
}

/* ---- sizes that fit nowhere ---- */

/* What needs more fits no machine, and sums of such sizes would leave 64 bits. A program's own
 * arrays have been checked as they were recorded, the number of parameters with the config. */
static const double MOST_BYTES = (double)(1LL << 60);

/* Frames are copies of a program's memory, of which a step may want millions. */
static status check_frames(const plan *p, err *e) {
    double bytes = 0;
    for (int i = 0; i < p->n_programs; i++) {
        const prog_stats *st = prog_get_stats(p->program[i].prog);
        bytes += (double)p->program[i].frames * (double)(st->frame_bytes + st->pinned_bytes);
    }
    if (bytes <= MOST_BYTES) return ST_OK;
    return err_set(e, ST_MEMORY, "%.0f MiB of activations do not fit in any memory",
                   bytes / (1 << 20));
}

static status check_traffic(const plan *p, err *e) {
    comm_counts sent = plan_traffic(p);
    for (int k = 0; k < COMM_KINDS; k++)
        if (sent.sent_bytes[k] == INT64_MAX) {
            err_at(e, ST_USAGE, "train.global_batch_size",
                   "in a step of %lld micro-batches a rank sends more than 2^63 bytes",
                   (long long)p->spec.micro_batches);
            return err_hint(e, "lower train.global_batch_size");
        }
    return ST_OK;
}

static status hint_at_less(const plan_spec *s, err *e) {
    err_where(e, s->train_B ? "train.micro_batch_size" : "model");
    return err_hint(e, s->train_B ? "lower train.micro_batch_size or train.seq_len"
                                  : "ask for fewer tokens or choose a smaller model");
}

/* Its programs, and the arena around them. */
static status make(plan *p, err *e) {
    status st = plan_record_programs(p, e);
    if (st == ST_OK) st = check_frames(p, e);
    if (st != ST_OK) return e && e->hint[0] ? st : hint_at_less(p->phase, e);
    plan_share_places(p);
    for (int i = p->n_phases - 1; i >= 0; i--) { /* the first stays selected */
        plan_select(p, i);
        if (!p->like) TRY(check_traffic(p, e)); /* which sends as much */
    }
    lay_out(p);
    return ST_OK;
}

/* What has not been declared yet. */
static plan *begin(dev *d, const plan_spec *specs, int n) {
    arena *memory = arena_new("plan");
    plan *p = ARENA_NEW(memory, plan);
    p->dev = d;
    p->memory = memory;
    p->phase = ARENA_ARRAY(memory, plan_spec, n);
    p->n_phases = n;
    for (int i = 0; i < n; i++) p->phase[i] = own_spec(memory, &specs[i]);
    return p;
}

/* st: how declaring went. */
static status complete(plan **out, plan *p, status st, err *e) {
    if (st == ST_OK) st = make(p, e);
    if (st != ST_OK) {
        arena_free(p->memory);
        return st;
    }
    const mesh *ranks = p->phase->ranks;
    plan_set_classes(p, &(plan_class){ranks ? ranks->size[MESH_WORLD] : 1, p->peak_bytes}, 1);
    *out = p;
    return ST_OK;
}

status plan_new_phases(plan **out, dev *d, const plan_spec *specs, int n, err *e) {
    plan *p = begin(d, specs, n);
    return complete(out, p, declare(p, &p->phase[0], e), e);
}

status plan_new_like(plan **out, const plan *like, const mesh *ranks, err *e) {
    plan_spec spec = like->spec;
    CHECK(like->n_phases == 1 && spec.reckoned && spec.cut, "no stage that others can be like");
    spec.ranks = ranks;
    spec.pipe = NULL;
    plan *p = begin(like->dev, &spec, 1);
    p->like = like;
    p->store = like->store;
    p->model = like->model;
    p->n_models = like->n_models;
    p->quant_bytes = like->quant_bytes;
    return complete(out, p, plan_cut_stages(p, NULL, e), e);
}

static int by_size(const void *a, const void *b) {
    const plan_class *x = a, *y = b;
    return (x->peak_bytes < y->peak_bytes) - (x->peak_bytes > y->peak_bytes);
}

void plan_set_classes(plan *p, const plan_class *needs, int n) {
    plan_class *c = arena_memdup(p->memory, needs, sizeof *c * (size_t)n);
    qsort(c, (size_t)n, sizeof *c, by_size);
    p->classes = c;
    p->n_classes = 0;
    for (int i = 0; i < n; i++) {
        if (p->n_classes && c[p->n_classes - 1].peak_bytes == c[i].peak_bytes)
            c[p->n_classes - 1].ranks += c[i].ranks;
        else if (c[i].ranks > 0)
            c[p->n_classes++] = c[i];
    }
}

status plan_new(plan **out, dev *d, const plan_spec *spec, err *e) {
    return plan_new_phases(out, d, spec, 1, e);
}

void plan_free(plan *p) {
    if (!p) return;
    for (int i = 0; i < p->n_programs; i++) prog_drop_graphs(p->program[i].prog);
    if (p->base) dev_release(p->dev, p->base, (size_t)p->arena_bytes);
    if (p->snapshot) dev_release_host(p->snapshot, (size_t)p->region[REGION_SNAPSHOT].bytes);
    arena_free(p->memory);
}

int64_t plan_touched_bytes(const plan *p) {
    size_t snapshot = (size_t)p->region[REGION_SNAPSHOT].bytes;
    return (int64_t)(dev_touched_bytes(p->base, (size_t)p->arena_bytes) +
                     dev_touched_bytes(p->snapshot, snapshot));
}

/* ---- binding ---- */

void *plan_region(const plan *p, plan_region_kind k) {
    return p->region[k].bytes ? (char *)p->base + p->region[k].offset : NULL;
}

static void *frame_base(const plan *p, const plan_program *g) {
    plan_region_kind first = g->of.grads_in_frame ? REGION_GRADS : REGION_FRAME;
    return (char *)p->base + p->region[first].offset + g->frame_offset;
}

void *plan_cache(const plan *p) {
    return plan_region(p, REGION_CACHE);
}

/* Where a model's weights are. */
static param_arrays arrays_of(const plan *p, int model) {
    if (model == 0)
        return (param_arrays){.master = plan_region(p, REGION_PARAMS),
                              .work = plan_region(p, REGION_WORK),
                              .work_piece = plan_region(p, REGION_WORK_PIECE),
                              .grad = plan_region(p, REGION_GRADS),
                              .grad_piece = plan_region(p, REGION_GRAD_PIECE),
                              .quant = plan_region(p, REGION_QUANT)};
    char *at = (char *)plan_region(p, REGION_OTHERS) + p->model[model].offset;
    param_sizes z = param_store_sizes(p->model[model].store);
    return (param_arrays){.master = (float *)at, .work = z.work_bytes ? at + z.master_bytes : NULL};
}

static prog_frame frame_of(const plan *p, const plan_program *g, int i) {
    const prog_stats *st = prog_get_stats(g->prog);
    param_arrays weights = arrays_of(p, g->of.model);
    char *pinned = plan_region(p, REGION_PINNED);
    return (prog_frame){
        {[SPACE_FRAME] = (char *)frame_base(p, g) + i * g->frame_step,
         [SPACE_SCRATCH] = (char *)p->base + p->region[REGION_FRAME].offset,
         [SPACE_PINNED] = pinned + g->pinned_offset + i % g->ports * st->pinned_bytes,
         [SPACE_CONST] = pinned + g->const_offset,
         [SPACE_MASTER] = weights.master,
         [SPACE_WORK] = weights.work,
         [SPACE_GRAD] = weights.grad,
         [SPACE_STATE] = plan_region(p, REGION_CACHE),
         [SPACE_FILE] = (void *)(uintptr_t)p->spec.file,
         [SPACE_QUANT] = weights.quant}};
}

static void bind_program(const plan *p, const plan_program *g) {
    prog_frame *frames = xcalloc((size_t)g->frames, sizeof *frames);
    for (int i = 0; i < g->frames; i++) frames[i] = frame_of(p, g, i);
    prog_bind(g->prog, frames, g->frames);
    free(frames);
}

static void find_states(plan *p) {
    int64_t each = plan_state_array_bytes(p);
    char *copies = p->snapshot; /* behind those of the masters */
    if (copies) copies += param_store_sizes(p->store).trained_master_bytes;
    p->snapshot_params = p->snapshot;
    for (int i = 0; p->region[REGION_OPTIM].bytes && i < p->spec.optim->n_states; i++) {
        p->optim_state[i] = (char *)plan_region(p, REGION_OPTIM) + i * each;
        if (copies) p->snapshot_state[i] = copies + i * each;
    }
}

status plan_commit(plan *p, err *e) {
    int64_t snapshot = p->region[REGION_SNAPSHOT].bytes;
    TRY(dev_reserve(p->dev, &p->base, (size_t)p->arena_bytes, "the run's arena", e));
    dev_expect_whole(p->dev, p->base, (size_t)p->arena_bytes);
    if (snapshot) TRY(dev_reserve_host(&p->snapshot, (size_t)snapshot, "the run's snapshot", e));
    for (int i = 0; i < p->n_models; i++) {
        param_arrays arrays = arrays_of(p, i);
        param_store_bind(p->model[i].store, p->dev, &arrays);
    }
    find_states(p);
    for (int i = 0; i < p->n_programs; i++) bind_program(p, &p->program[i]);
    return ST_OK;
}

/* ---- what lies in a file ---- */

bool plan_has_file(const plan *p) {
    return plan_file_bytes(p) > 0;
}

int64_t plan_file_bytes(const plan *p) {
    return offload_file_bytes(&p->away);
}

status plan_open_offload(plan *p, offload **out, const char *path, err *e) {
    offload_memory m = {.slots = plan_region(p, REGION_OFFLOAD)};
    memcpy(m.state, p->optim_state, sizeof m.state);
    return offload_open(out, p->spec.optim, p->store, &p->away, &m, path, e);
}

/* ---- traffic ---- */

typedef struct traffic {
    comm_counts sent;
    int64_t pieces_bytes; /* that are gathered from a file */
} traffic;

/* Of a step of n micro-batches, `frames` under way together. */
static traffic traffic_of(const plan *p, int n, int frames) {
    arena *a = arena_new("a step's traffic");
    step_parts parts = plan_step_parts(p, a, n, true);
    parts.frames = frames;
    step_table t = step_build(a, &parts);
    traffic sum = {.pieces_bytes = step_file_bytes(&t, p->store)};
    if (p->spec.ranks) sum.sent = step_traffic(&t, &parts, p->spec.ranks, p->spec.narrow_sums);
    arena_free(a);
    return sum;
}

/* *sum += times * (b - a), or INT64_MAX where that is too much. */
static void add_times(int64_t *sum, int64_t times, int64_t a, int64_t b) {
    int64_t more;
    if (*sum == INT64_MAX || b == INT64_MAX || __builtin_mul_overflow(times, b - a, &more) ||
        __builtin_add_overflow(*sum, more, sum))
        *sum = INT64_MAX;
}

/* Of a long step only a short one is built, and one that is a group of micro-batches longer: but
 * for the first and the last group, all are alike. Where all micro-batches are under way together
 * they are one group, and a group's micro-batches are alike in the same way. */
static traffic traffic_of_step(const plan *p) {
    enum { FEW = 3 };
    const plan_spec *s = &p->spec;
    int n = s->micro_batches > 1 ? (int)s->micro_batches : 1, frames = plan_frames(p);
    int group = s->pipe ? 2 * plan_stages_of(s) : frames < n ? frames : 1;
    if (n / group <= FEW) return traffic_of(p, n, frames);
    int n_short = FEW * group + n % group, n_longer = n_short + group;
    traffic sum = traffic_of(p, n_short, frames < n ? frames : n_short);
    traffic more = traffic_of(p, n_longer, frames < n ? frames : n_longer);
    int64_t times = n / group - FEW;
    for (int k = 0; k < COMM_KINDS; k++) {
        add_times(&sum.sent.sent_bytes[k], times, sum.sent.sent_bytes[k], more.sent.sent_bytes[k]);
        add_times(&sum.sent.calls[k], times, sum.sent.calls[k], more.sent.calls[k]);
    }
    add_times(&sum.pieces_bytes, times, sum.pieces_bytes, more.pieces_bytes);
    return sum;
}

comm_counts plan_traffic(const plan *p) {
    bool sends = p->spec.ranks && p->spec.train_B;
    return sends ? traffic_of_step(p).sent : (comm_counts){0};
}

offload_counts plan_file_traffic(const plan *p) {
    if (!plan_has_file(p)) return (offload_counts){0};
    return offload_step_bytes(&p->away, p->store, traffic_of_step(p).pieces_bytes);
}

/* ---- FLOPs ---- */

double plan_model_flops(const plan *p) {
    double flops = 0;
    for (int c = 0; p->spec.train_B && c < plan_chunks(p); c++) {
        const prog *own = plan_prog(p, USE_TRAIN, c);
        if (own) flops += prog_get_stats(own)->flops_forward + prog_get_stats(own)->flops_backward;
    }
    return flops;
}

double plan_hardware_flops(const plan *p) {
    double flops = plan_model_flops(p);
    for (int c = 0; p->spec.train_B && c < plan_chunks(p); c++) {
        const prog *own = plan_prog(p, USE_TRAIN, c);
        if (own) flops += prog_get_stats(own)->flops_recompute;
    }
    for (int i = 0; p->spec.train_B && i < p->spec.n_others; i++)
        flops += prog_get_stats(plan_prog(p, USE_LOOK, i))->flops_forward;
    return flops;
}
