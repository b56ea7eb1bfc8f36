/* From stage to stage and part to part. See stage.h. */
#include "train/stage.h"

#include <math.h>
#include <stdlib.h>

uint64_t stage_first_sample(const setup *u, const watch *w, int64_t step) {
    const course_part *p = course_part_of(u->course, step);
    return watch_move(w, p->stage, course_first_sample(u->course, step));
}

uint64_t stage_own_sample(const setup *u, const watch *w, int64_t step) {
    const course_part *p = course_part_of(u->course, step);
    int64_t share = p->batch / u->peers.m.size[MESH_DP];
    return stage_first_sample(u, w, step) + (uint64_t)(u->peers.m.rank[MESH_DP] * share);
}

void stage_init(stage *g) {
    *g = (stage){
        .number = -1, .chat = {.stop = -1}, .noted = {.fd = -1}, .mem = arena_new("part of a run")};
}

/* What lies outside of its arena. */
static void leave_part(stage *g) {
    if (g->late.dev) dev_pinned_free(g->late.dev, g->late.nll);
    g->late = (late_losses){0};
    routing_ports_free(&g->routing);
}

void stage_close(stage *g) {
    stage_leave(g);
    leave_part(g);
    teaching_close(&g->chat);
    arena_free(g->mem);
}

void stage_leave(stage *g) {
    prefetch_free(g->ahead);
    loader_close(g->train);
    loader_close(g->valid);
    free(g->nll);
    resample_close(&g->noted);
    g->ahead = NULL;
    g->train = g->valid = NULL;
    g->nll = NULL;
    g->number = -1;
}

static void make_tables(stage *g, const setup *u) {
    const plan *p = u->plan;
    arena *a = g->mem;
    int ranks = peers_ranks(&u->peers);
    leave_part(g);
    arena_reset(a);
    g->parts = plan_step_parts(p, a, (int)(g->share / g->B), ranks > 1);
    g->table = step_build(a, &g->parts);
    CHECK(g->table.frames_in_flight <= plan_frames(p), "%d micro-batches under way in %d frames",
          g->table.frames_in_flight, plan_frames(p));
    if (ranks > 1) step_name_entries(a, &g->table, &g->parts);
    g->passes = ARENA_ARRAY(a, pass_table, p->n_programs);
    g->n_passes = 0;
    for (int i = 0; i < p->n_programs; i++) {
        const plan_program *k = &p->program[i];
        if (k->of.train || k->of.model > 0) continue;
        g->passes[g->n_passes++] = (pass_table){k->prog, step_build_pass(a, p->store, k->prog)};
    }
}

static late_losses late_of(const stage *g, const setup *u) {
    late_losses l = {.dev = u->dev, .modules = (int)u->models[g->number].num_nextn_predict_layers};
    int64_t rows = g->share * g->T * (1 + l.modules);
    l.nll = dev_pinned(u->dev, (size_t)rows * sizeof *l.nll);
    return l;
}

/* Memory for a micro-batch on the host, and the ports of the programs that read it. */
static void make_ways(stage *g, const setup *u) {
    arena *a = g->mem;
    g->chunks = ARENA_ARRAY(a, batch_ports, g->parts.chunks);
    g->looks = ARENA_ARRAY(a, batch_ports, g->parts.looks);
    for (int c = 0; c < g->parts.chunks; c++) g->chunks[c] = batch_ports_of(g->parts.chunk[c]);
    for (int i = 0; i < g->parts.looks; i++) g->looks[i] = batch_ports_of(g->parts.look[i]);
    g->routing = routing_ports_of(a, u->plan, g->table.micro_batches);
    g->validation = batch_ports_of(plan_prog(u->plan, USE_VALID, 0));
    g->validations = ARENA_ARRAY(a, batch_ports, g->parts.chunks);
    for (int c = 0; c < g->parts.chunks; c++)
        g->validations[c] = batch_ports_of(plan_prog(u->plan, USE_VALID, c));
    g->transfer = ARENA_ARRAY(a, comm_ticket, g->table.n);
    g->rows = batch_rows_new(a, g->B, g->T, g->now->data.document_mask, &u->models[g->number]);
    int S = stage_source_len(g->now, u->models[g->number].num_encoder_layers > 0);
    if (S) batch_rows_add_sources(a, &g->rows, S);
    g->late = late_of(g, u);
    g->learned = ARENA_ARRAY(a, objective_row, g->B);
    g->d_logp = ARENA_ARRAY(a, double, g->B);
    g->marks = ARENA_ARRAY(a, uint8_t, g->T);
    int k = lessons_stored(g->now, g->vocab), live = k ? 0 : (int)g->now->distill.top_k;
    if (k) batch_rows_add_lessons(a, &g->rows, k);
    context_new(&g->context, a, &u->peers.m, u->plan->spec.context, &u->models[g->number], &g->rows,
                &g->own); /* the rows are whole */
    g->heap = ARENA_ARRAY(a, float, live);
    g->best = ARENA_ARRAY(a, int32_t, live);
}

/* The largest contribution to a gradient that fixed-point sums can hold. micro_batches: of all
 * ranks. */
static float fixed_limit(const step_parts *parts, int64_t micro_batches) {
    int tied = parts->tied >= 0 ? 2 : 1; /* another stage adds as much at most */
    return fixed_grad_limit(micro_batches * tied *
                            prog_count_contributions(parts->chunk, parts->chunks));
}

/* Rows of experts add to gradients in each round of an exchange; all of a rank may go to one other. */
static int64_t most_rounds(const setup *u) {
    int ep = u->peers.m.size[MESH_EP];
    return ep > 1 ? (int64_t)ceil(ep / u->c->parallel.ep_load) : 1;
}

void stage_enter_shape(stage *g, const setup *u, int number, int64_t batch) {
    const course_stage *k = &u->course->stage[number];
    if (number != g->number) {
        if (!g->decay) g->decay = ARENA_ARRAY(u->a, bool, param_count(u->plan->store));
        dev_sync(u->dev); /* updates that still run on the device read the mask */
        plan_select(u->plan, number);
        g->number = number;
        g->now = k->c;
        g->vocab = u->models[number].vocab_size;
        g->T = k->T;
        g->B = k->B;
        g->batch = 0;
        optim_decay_mask(u->plan->store, k->c->optim.no_decay.items, k->c->optim.no_decay.n,
                         g->decay);
        for (int i = 0; i < param_count(u->plan->store); i++) /* moved by the load alone */
            if (param_at(u->plan->store, i)->part == PART_ROUTER_BIAS) g->decay[i] = false;
    }
    if (batch == g->batch) return;
    g->batch = batch;
    g->share = batch / u->peers.m.size[MESH_DP];
    make_tables(g, u);
    int64_t passes = batch / g->B * u->peers.m.size[MESH_CP];
    g->fixed_limit = fixed_limit(&g->parts, passes * most_rounds(u));
    make_ways(g, u);
}

status stage_open_data(stage *g, const setup *u, stage_data *d, int number, err *e) {
    int begun = stage_data_begun(d->record);
    for (int i = begun < number ? begun : number; i <= number; i++) {
        bool is_new;
        loader_close(g->train); /* of the stage before, which a fork has not trained itself */
        TRY(stage_data_open(d, u->course->stage[i].c, i, &g->train, &is_new, e));
        d->record_is_new |= is_new;
    }
    return stage_data_open_valid(d, u->course->stage[number].c, &g->valid, e);
}

static status check_references(const stage *g, const setup *u, int number, err *e) {
    if (u->lessons) TRY(lessons_check(&u->lessons[number], g->train, e));
    if (!u->references) return ST_OK;
    TRY(reference_check(&u->references[number].train, g->train, e));
    return reference_check(&u->references[number].valid, g->valid, e);
}

/* All ranks have drawn the same sequences, and note losses in one file, which rank 0 makes. */
static status open_round(stage *g, const setup *u, const stage_data *d, int number, err *e) {
    const course_stage *k = &u->course->stage[number];
    int64_t drawn = (int64_t)stage_data_drawn(d->record, number);
    bool leads = setup_leads(u);
    if (peers_any(&u->peers, drawn != peers_first(&u->peers, drawn))) {
        config_error(k->c, e, "data.resample", "the ranks have drawn different sequences");
        return err_hint(e, "all machines must see the same run folder");
    }
    for (int turn = 0; k->c->data.resample.keep_losses && turn < 2; turn++) {
        status st = ST_OK;
        if (leads == (turn == 0))
            st = resample_open(&g->noted, u->a, u->c->run, k->c, number, g->train,
                               leads && g->begins, e);
        TRY(peers_agree(&u->peers, st, e));
    }
    return ST_OK;
}

static status enter_stage(stage *g, const setup *u, stage_data *d, const course_part *p, err *e) {
    const course_stage *k = &u->course->stage[p->stage];
    /* by probe_data (train.c), which opens the data of the first stage */
    bool is_open = g->number < 0 && g->train && p->stage == 0;
    if (!is_open) stage_leave(g);
    status st = is_open ? ST_OK : stage_open_data(g, u, d, p->stage, e);
    if (st == ST_OK) st = open_round(g, u, d, p->stage, e);
    if (st == ST_OK) st = check_references(g, u, p->stage, e);
    if (st == ST_OK) st = teaching_open(&g->chat, u, g->train, e);
    if (st != ST_OK) {
        stage_leave(g);
        return u->c->stages.n ? err_context(e, "stage %s", k->name) : st;
    }
    stage_enter_shape(g, u, p->stage, p->batch);
    g->lessons = u->lessons ? &u->lessons[p->stage] : NULL;
    if (u->references) {
        g->train_reference = &u->references[p->stage].train;
        g->valid_reference = &u->references[p->stage].valid;
    }
    g->ahead = prefetch_new(g->train, g->B, k->max_batch / u->peers.m.size[MESH_DP],
                            g->now->data.document_mask);
    g->nll = xcalloc((size_t)(k->max_batch * g->T), sizeof *g->nll);
    return ST_OK;
}

status stage_enter(stage *g, const setup *u, stage_data *d, const cursor *at, err *e) {
    const course_part *p = course_part_of(u->course, at->step + 1);
    if (p->stage != g->number) {
        g->begins = at->step == u->course->stage[p->stage].first_step - 1;
        TRY(enter_stage(g, u, d, p, e));
    }
    stage_enter_shape(g, u, p->stage, p->batch);
    return ST_OK;
}
