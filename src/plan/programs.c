/* The programs of a plan: which there are, what each records, and how they are found.
 *
 * A phase has a program for each use (plan_use) that its spec asks for. A use and a spec give a
 * signature: all that decides what is computed. A program is recorded once for each signature, and
 * is found by it. So phases share the programs that they have in common.
 *
 * Reading order: plan_record_programs, add, signature_of, record, plan_find. */
#include <string.h>

#include "plan/plan_int.h"
#include "step/pipeline.h"

bool plan_grads_in_frame(const plan_spec *s) {
    bool in_slots = (s->ranks && s->sharing.shards > 1 && s->sharing.zero >= 2) ||
                    (s->offload & OFFLOAD_WEIGHTS);
    return s->train_B && s->micro_batches <= 1 && s->chunks <= 1 && !in_slots && !s->fixed_grads;
}

int plan_tp(const plan_spec *s) {
    return s->ranks ? s->ranks->size[MESH_TP] : 1;
}

int plan_cp(const plan_spec *s) {
    return s->ranks ? s->ranks->size[MESH_CP] : 1;
}

static int chunks_of(const plan_spec *s) {
    return s->chunks > 1 ? s->chunks : 1;
}

/* Of a chunk; -1: of the chunk that has most. */
static int frames_of(const plan_spec *s, int chunk) {
    int64_t micro_batches = s->micro_batches > 1 ? s->micro_batches : 1;
    if (s->pipe) return plan_stage_frames(s, chunk);
    if (s->frames <= 1) return 1;
    return s->frames < micro_batches ? s->frames : (int)micro_batches;
}

/* Whether a chunk's program shares scratch (prog/graph.h): with another frame, or another chunk of this stage. */
static bool shares_scratch(const plan_spec *s, int chunk) {
    return frames_of(s, chunk) > 1 || chunks_of(s) > plan_stages_of(s);
}

int plan_chunks(const plan *p) {
    return chunks_of(&p->spec);
}

int plan_frames(const plan *p) {
    return frames_of(&p->spec, -1);
}

/* ---- signatures ---- */

/* What all programs of a phase have in common. */
static plan_signature common(const plan_spec *s, int model) {
    const model_config *mc = model ? &s->others[model - 1].config : &s->model;
    return (plan_signature){.model = model,
                            .layers = model_all_layers(mc),
                            .chunk_rows = s->chunk_rows,
                            .rope_theta = mc->rope_theta,
                            .grads_in_frame = plan_grads_in_frame(s)};
}

/* Sequences that a program runs, of B of a micro-batch: the others of a sample run in another pass
 * of the program that has no backward. */
static int rows_of(const plan_spec *s, int B) {
    return s->learned ? B / s->sequences * s->learned : B;
}

static plan_signature lm_signature(const plan_spec *s, int model, int B) {
    plan_signature g = common(s, model);
    g.task = TASK_LM;
    g.B = B;
    g.T = s->T / plan_cp(s);
    if (s->model.num_encoder_layers) g.S = s->source_T ? s->source_T : s->T;
    g.document_mask = s->document_mask;
    return g;
}

/* What a head of labels says of each sequence: of one row of it. */
static plan_signature labels_signature(plan_signature g) {
    g.task = TASK_LOGITS;
    g.n_logits = g.B;
    return g;
}

static plan_signature train_signature(const plan_spec *s, int chunk) {
    plan_signature g = lm_signature(s, 0, rows_of(s, s->train_B));
    g.train = true;
    g.shares_scratch = shares_scratch(s, chunk);
    g.recompute = s->recompute;
    g.layers = plan_layers_of(s, chunk);
    g.head_elsewhere = s->pipe && !plan_has_chunk(s, chunks_of(s) - 1);
    if (s->model.num_labels)
        g = labels_signature(g);
    else if (s->deferred_loss)
        g.task = TASK_NLL;
    else
        g.z_loss = s->z_loss;
    g.routing = s->routing;
    g.lesson = s->lesson;
    return g;
}

/* One sequence with a cache; T tokens in a pass. */
static plan_signature generation_signature(const plan_spec *s, int T) {
    plan_signature g = common(s, 0);
    g.task = TASK_LOGITS;
    g.B = 1;
    g.T = T;
    g.Tmax = s->cache_tok;
    g.Smax = s->source_tok;
    g.cache_f16 = s->cache_f16;
    g.n_logits = 1;
    return g;
}

/* A source, whose keys and values go to that cache. */
static plan_signature encode_signature(const plan_spec *s, int S) {
    plan_signature g = generation_signature(s, 0);
    g.task = TASK_ENCODE;
    g.S = S;
    g.n_logits = 0;
    return g;
}

/* Texts for a head of labels may be much shorter than the longest: for them there are programs of halves of its length. */
static int logits_length(const plan_spec *s, int number) {
    enum { SHORTEST = 32 };
    int T = s->logits_T >> number;
    return number == 0 || (s->model.num_labels && T >= SHORTEST) ? T : 0;
}

static plan_signature logits_signature(const plan_spec *s, int number) {
    plan_signature g = common(s, 0);
    g.task = TASK_LOGITS;
    g.B = 1;
    g.T = g.n_logits = logits_length(s, number);
    if (s->model.num_encoder_layers) g.S = g.T;
    return g;
}

static int pass_length(int most, int number) {
    int T[GENERATOR_PREFILLS];
    generator_prefill_lengths(most, T);
    return number < GENERATOR_PREFILLS ? T[number] : 0;
}

/* A source is read in one pass, so the longest takes the longest one. */
static int source_length(const plan_spec *s, int number) {
    if (!s->model.num_encoder_layers) return 0;
    return s->source_tok == 1 && number == 0 ? 1 : pass_length(s->source_tok, number);
}

/* Several sequences with a cache that holds more of them. */
static plan_signature score_signature(const plan_spec *s, scorer_shape shape, bool scores) {
    plan_signature g = common(s, 0);
    g.task = scores ? TASK_SCORE : TASK_FILL;
    g.B = shape.B;
    g.T = shape.T;
    g.Tmax = s->score.tok;
    g.slots = s->score.slots;
    g.positions = s->score.longest;
    g.n_logits = scores ? shape.B * shape.T : 1;
    g.chunk_rows = SCORER_HEAD_ROWS;
    return g;
}

/* The next token of several sequences. */
static plan_signature write_signature(const plan_spec *s) {
    plan_signature g = common(s, 0);
    g.task = TASK_LOGITS;
    g.B = g.n_logits = s->score.writes;
    g.T = 1;
    g.Tmax = s->score.tok;
    g.slots = s->score.slots;
    g.positions = s->score.longest;
    return g;
}

/* Rows of texts of any kind, over a cache of pages; or the head for some of them. ahead: of the first
 * module behind the layers. */
static plan_signature serve_signature(const plan_spec *s, int rows, bool body, bool ahead) {
    plan_signature g = common(s, 0);
    int layers = model_layers(&s->model);
    if (ahead) g.layers = (model_layer_range){layers, layers + 1};
    g.task = body ? TASK_BODY : TASK_HEAD;
    g.B = 1;
    g.T = rows;
    if (!body) return g;
    g.paged = engine_pages(&s->serve);
    g.positions = s->serve.longest;
    g.cache_f16 = s->cache_f16;
    return g;
}

/* False: the phase has no such program. */
static bool signature_of(const plan_spec *s, plan_use use, int number, plan_signature *out) {
    *out = (plan_signature){0};
    switch (use) {
        case USE_TRAIN:
            if (!s->train_B || !plan_has_chunk(s, number)) return false;
            *out = train_signature(s, number);
            return true;
        case USE_VALID:
            if (s->pipe && !plan_has_chunk(s, number)) return false;
            if (s->valid_B) *out = lm_signature(s, 0, rows_of(s, s->valid_B));
            if (s->valid_B && s->pipe) out->layers = plan_layers_of(s, number);
            if (s->valid_B && s->model.num_labels) *out = labels_signature(*out);
            if (s->valid_B && s->teaches) out->task = TASK_TEACH;
            return s->valid_B > 0;
        case USE_LOOK:
            if (!s->train_B || number >= s->n_others) return false;
            *out = lm_signature(s, 1 + number, rows_of(s, s->train_B));
            if (s->lesson.weight > 0) out->task = TASK_TEACH;
            return true;
        case USE_PREFILL:
            if (!s->cache_tok || !pass_length(s->prefill_T, number)) return false;
            *out = generation_signature(s, pass_length(s->prefill_T, number));
            return true;
        case USE_ENCODE:
            if (!s->cache_tok || !source_length(s, number)) return false;
            *out = encode_signature(s, source_length(s, number));
            return true;
        case USE_DECODE:
            if (s->cache_tok) *out = generation_signature(s, 1);
            return s->cache_tok > 0;
        case USE_LOGITS: *out = logits_signature(s, number); return out->T > 0;
        case USE_FILL:
        case USE_SCORE: {
            scorer_shape shape = scorer_shape_at(&s->score, number);
            if (shape.B) *out = score_signature(s, shape, use == USE_SCORE);
            return shape.B > 0;
        }
        case USE_WRITE:
            if (s->score.writes) *out = write_signature(s);
            return s->score.writes > 0;
        case USE_BODY:
        case USE_HEAD: {
            int rows = engine_rows_at(&s->serve, number, use == USE_BODY);
            if (rows) *out = serve_signature(s, rows, use == USE_BODY, false);
            return rows > 0;
        }
        case USE_AHEAD_BODY:
        case USE_AHEAD_HEAD: {
            int rows = engine_ahead_rows_at(&s->serve, number, use == USE_AHEAD_BODY);
            if (rows) *out = serve_signature(s, rows, use == USE_AHEAD_BODY, true);
            return rows > 0;
        }
    }
    return false;
}

/* By members, since there may be gaps between them. */
static bool is_same(const plan_signature *a, const plan_signature *b) {
    return a->model == b->model && a->task == b->task && a->layers.first == b->layers.first &&
           a->layers.end == b->layers.end && a->B == b->B && a->T == b->T && a->S == b->S &&
           a->Tmax == b->Tmax && a->Smax == b->Smax && a->slots == b->slots &&
           a->positions == b->positions && a->n_logits == b->n_logits &&
           a->paged.page == b->paged.page && a->paged.pages == b->paged.pages &&
           a->paged.seqs == b->paged.seqs && a->paged.of_seq == b->paged.of_seq &&
           a->train == b->train && a->cache_f16 == b->cache_f16 &&
           a->document_mask == b->document_mask && a->recompute == b->recompute &&
           a->chunk_rows == b->chunk_rows && a->z_loss == b->z_loss &&
           a->routing.balance == b->routing.balance && a->routing.z_loss == b->routing.z_loss &&
           a->routing.tallies == b->routing.tallies &&
           a->routing.capacity_factor == b->routing.capacity_factor &&
           a->lesson.weight == b->lesson.weight && a->lesson.temperature == b->lesson.temperature &&
           a->lesson.stored == b->lesson.stored && a->rope_theta == b->rope_theta &&
           a->grads_in_frame == b->grads_in_frame && a->shares_scratch == b->shares_scratch &&
           a->head_elsewhere == b->head_elsewhere;
}

static plan_program *find(const plan *p, const plan_signature *g) {
    for (int i = 0; i < p->n_programs; i++)
        if (is_same(&p->program[i].of, g)) return &p->program[i];
    return NULL;
}

plan_program *plan_find(const plan *p, plan_use use, int number) {
    plan_signature g;
    return signature_of(&p->spec, use, number, &g) ? find(p, &g) : NULL;
}

prog *plan_prog(const plan *p, plan_use use, int number) {
    const plan_program *found = plan_find(p, use, number);
    return found ? found->prog : NULL;
}

/* ---- recording ---- */

static const model_config *config_of(const plan_spec *s, const plan_signature *g) {
    return g->model ? &s->others[g->model - 1].config : &s->model;
}

static graph_options options_of(const plan *p, const plan_spec *s, const plan_signature *g) {
    return (graph_options){
        .dev = p->dev,
        .dt = s->compute,
        .train = g->train,
        .recompute = g->recompute,
        .keep_collectives = s->keep_collectives,
        .split_backward = g->train && s->pipe && s->pipe->splits,
        .mesh = s->ranks,
        /* generation is of few rows, which need not be a multiple of the ranks */
        .sequence_parallel = s->sequence_parallel && (g->task == TASK_LM || g->task == TASK_NLL),
        .async_products = s->async_products && (g->task == TASK_LM || g->task == TASK_NLL),
        /* so is generation, and scoring */
        .context_parallel = g->task == TASK_LM && plan_cp(s) > 1,
        .context = s->context,
        .expert_load = s->expert_load,
        .grads_in_frame = g->train && g->grads_in_frame,
        .shares_scratch = g->shares_scratch,
        .fixed_grads = g->train && s->fixed_grads,
        .by_row = g->task == TASK_BODY || g->task == TASK_HEAD,
        .rounds = !s->exact_products &&
                  (g->task == TASK_LOGITS || g->task == TASK_BODY || g->task == TASK_HEAD),
        .random_ops_before = model_random_ops_before(config_of(s, g), g->layers.first)};
}

static const char *use_name(plan_use use) {
    static const char *const names[] = {
        [USE_TRAIN] = "training",    [USE_VALID] = "validation",      [USE_LOOK] = "other model",
        [USE_PREFILL] = "prefill",   [USE_DECODE] = "decode",         [USE_LOGITS] = "logits",
        [USE_ENCODE] = "encoding",   [USE_FILL] = "context",          [USE_SCORE] = "scoring",
        [USE_WRITE] = "writing",     [USE_BODY] = "serving",          [USE_HEAD] = "serving head",
        [USE_AHEAD_BODY] = "module", [USE_AHEAD_HEAD] = "module head"};
    return names[use];
}

static status record(plan *p, const plan_spec *s, const plan_signature *g, prog **out, err *e) {
    graph_options opt = options_of(p, s, g);
    model_rec r = {.g = graph_new(p->memory, &opt),
                   .mc = config_of(s, g),
                   .params = p->model[g->model].store,
                   .adapters = &s->adapters,
                   .task = g->task,
                   .layers = g->layers,
                   .head_elsewhere = g->head_elsewhere,
                   .B = g->B,
                   .T = g->T,
                   .S = g->S,
                   .Tmax = g->Tmax,
                   .Smax = g->Smax,
                   .slots = g->slots,
                   .positions = g->positions,
                   .paged = g->paged,
                   .cache_f16 = g->cache_f16,
                   .n_logits = g->n_logits,
                   .document_mask = g->document_mask,
                   .chunk_rows = g->chunk_rows,
                   .z_loss = g->z_loss,
                   .routing = g->routing,
                   .lesson = g->lesson,
                   .sample_rows = (s->learned     ? s->learned
                                   : s->sequences ? s->sequences
                                                  : 1) *
                                  (int64_t)g->T};
    model_record(&r);
    return prog_finish(out, r.g, e);
}

/* The program of the stage that this one is like; NULL: it is recorded. */
static prog *borrowed(const plan *p, plan_use use, int number) {
    if (!p->like) return NULL;
    bool of_chunk = use == USE_TRAIN || use == USE_VALID;
    int like = plan_stage(p->like);
    return plan_prog(p->like, use, of_chunk ? plan_chunk_like(p->phase, number, like) : number);
}

/* Nothing where the phase has no such program, or another one has it already. */
static status add(plan *p, const plan_spec *s, plan_use use, int number, err *e) {
    plan_signature g;
    if (!signature_of(s, use, number, &g)) return ST_OK;
    int frames = use == USE_TRAIN ? frames_of(s, number) : 1;
    plan_program *same = find(p, &g);
    if (same) {
        if (frames > same->frames) same->frames = same->ports = frames;
        return ST_OK;
    }
    plan_program made = {
        .of = g, .frames = frames, .ports = frames, .prog = borrowed(p, use, number)};
    status st = made.prog ? ST_OK : record(p, s, &g, &made.prog, e);
    if (st != ST_OK) return err_context(e, "recording the %s program", use_name(use));
    made.frame_step = prog_get_stats(made.prog)->frame_bytes;
    p->program =
        arena_grow(p->memory, p->program, p->n_programs, &p->cap_programs, sizeof *p->program);
    p->program[p->n_programs++] = made;
    return ST_OK;
}

static status record_phase(plan *p, const plan_spec *s, err *e) {
    for (int c = 0; c < chunks_of(s); c++) TRY(add(p, s, USE_TRAIN, c, e));
    for (int c = 0; c < (s->pipe ? chunks_of(s) : 1); c++) TRY(add(p, s, USE_VALID, c, e));
    for (int i = 0; i < s->n_others; i++) TRY(add(p, s, USE_LOOK, i, e));
    for (int i = 0; logits_length(s, i); i++) TRY(add(p, s, USE_LOGITS, i, e));
    for (int i = 0; i < GENERATOR_PREFILLS; i++) {
        TRY(add(p, s, USE_PREFILL, i, e));
        TRY(add(p, s, USE_ENCODE, i, e));
    }
    for (int i = 0; scorer_shape_at(&s->score, i).B; i++) {
        TRY(add(p, s, USE_FILL, i, e));
        TRY(add(p, s, USE_SCORE, i, e));
    }
    TRY(add(p, s, USE_WRITE, 0, e));
    for (int i = 0; engine_rows_at(&s->serve, i, true); i++) TRY(add(p, s, USE_BODY, i, e));
    for (int i = 0; engine_rows_at(&s->serve, i, false); i++) TRY(add(p, s, USE_HEAD, i, e));
    for (int i = 0; engine_ahead_rows_at(&s->serve, i, true); i++)
        TRY(add(p, s, USE_AHEAD_BODY, i, e));
    for (int i = 0; engine_ahead_rows_at(&s->serve, i, false); i++)
        TRY(add(p, s, USE_AHEAD_HEAD, i, e));
    return add(p, s, USE_DECODE, 0, e);
}

/* What caches of pages and the scorer do not have. */
static status check_uses(const plan_spec *s, err *e) {
    bool encoder = s->model.num_encoder_layers > 0;
    if (s->serve.rows && (encoder || s->model.positions == POSITIONS_RELATIVE)) {
        err_set(e, ST_USAGE, "a cache of pages (serve, --draft) does not go with %s",
                encoder ? "an encoder" : "position_type: relative");
        return err_hint(e,
                        "`athanor generate` and `athanor chat` run such a model without --draft");
    }
    if (s->score.tok && encoder)
        return err_set(e, ST_USAGE, "texts are not scored by a model with an encoder");
    if (chunks_of(s) > 1 && (encoder || s->model.positions == POSITIONS_RELATIVE)) {
        err_set(e, ST_USAGE, "parallel.virtual does not go with %s",
                encoder ? "an encoder" : "position_type: relative");
        return err_hint(e, "parallel.virtual=1");
    }
    return ST_OK;
}

status plan_record_programs(plan *p, err *e) {
    for (int i = 0; i < p->n_phases; i++) TRY(check_uses(&p->phase[i], e));
    for (int i = 0; i < p->n_phases; i++) TRY(record_phase(p, &p->phase[i], e));
    return ST_OK;
}

/* ---- the step ---- */

static bool has_experts(const model_config *mc) {
    bool any = false;
    for (int l = 0; l < model_blocks(mc); l++)
        any = any || (model_layer(mc, l).mlp.E > 0 && !model_layer(mc, l).mlp.slots);
    return any;
}

/* The unit of a table that first and last stage share, for the head or for modules; -1: this stage has
 * none. */
static int tied_unit(const plan *p) {
    const plan_spec *s = &p->spec;
    bool begins = plan_has_chunk(s, 0), ends = plan_has_chunk(s, chunks_of(s) - 1);
    bool shared = model_head_is_table(&s->model) || s->model.num_nextn_predict_layers > 0;
    if (!s->pipe || !shared || begins == ends) return -1;
    for (int i = 0; i < param_count(p->store); i++)
        if (param_at(p->store, i)->part == PART_EMBED)
            return param_at(p->store, i)->frozen ? -1 : param_at(p->store, i)->unit;
    CHECK(false, "a stage without its table");
}

step_parts plan_step_parts(const plan *p, arena *a, int micro_batches, bool reduces) {
    int chunks = plan_chunks(p), looks = p->spec.n_others;
    const prog **chunk = ARENA_ARRAY(a, const prog *, chunks);
    const prog **look = ARENA_ARRAY(a, const prog *, looks);
    for (int c = 0; c < chunks; c++) chunk[c] = plan_prog(p, USE_TRAIN, c);
    for (int i = 0; i < looks; i++) look[i] = plan_prog(p, USE_LOOK, i);
    return (step_parts){.store = p->store,
                        .chunk = chunk,
                        .chunks = chunks,
                        .look = look,
                        .looks = looks,
                        .pipe = plan_pipeline(&p->spec, a, micro_batches),
                        .tied = tied_unit(p),
                        .micro_batches = micro_batches,
                        .frames = plan_frames(p),
                        .reduces = reduces || param_grads_in_slots(p->store),
                        .fetches = plan_has_file(p),
                        .tallies = p->spec.routing.tallies && has_experts(&p->spec.model),
                        .counts_first = p->spec.routing.balance == BALANCE_GLOBAL &&
                                        has_experts(&p->spec.model) &&
                                        p->spec.model.router_aux_loss_coef > 0};
}

/* ---- generation ---- */

generate_limits plan_limits(const plan *p, const tok *t, int longest) {
    int32_t vocab = (int32_t)p->spec.model.vocab_size, known = t ? tok_vocab_size(t) : vocab;
    return (generate_limits){
        .Tmax = longest, .vocab = vocab, .n_ids = known < vocab ? known : vocab};
}

generator plan_generator(const plan *p, const tok *t) {
    generate_limits limits = plan_limits(p, t, p->spec.cache_tok);
    generator g = {.decode = generator_pass_of(plan_prog(p, USE_DECODE, 0)),
                   .dev = p->dev,
                   .Smax = p->spec.model.num_encoder_layers ? p->spec.source_tok : 0,
                   .begin = model_decoder_start(&p->spec.model),
                   .Tmax = limits.Tmax,
                   .vocab = limits.vocab,
                   .n_ids = limits.n_ids};
    for (int i = 0; i < GENERATOR_PREFILLS; i++) {
        g.prefill[i] = generator_pass_of(plan_prog(p, USE_PREFILL, i));
        g.encode[i] = generator_pass_of(plan_prog(p, USE_ENCODE, i));
    }
    return g;
}

scorer *plan_scorer(const plan *p) {
    scorer_cache cache = {plan_cache(p), p->spec.compute, plan_tp(&p->spec)};
    scorer *s = scorer_new(p->dev, &p->spec.model, &p->spec.score, &cache);
    for (int i = 0; i < scorer_shapes(&p->spec.score); i++)
        scorer_set_pass(s, i, plan_prog(p, USE_FILL, i), plan_prog(p, USE_SCORE, i));
    scorer_set_write(s, plan_prog(p, USE_WRITE, 0));
    return s;
}

engine *plan_engine(const plan *p, const tok *t) {
    const engine_size *size = &p->spec.serve;
    generate_limits limits = plan_limits(p, t, size->longest);
    engine *en = engine_new(p->dev, size, &limits);
    for (int body = 0; body < 2; body++)
        for (int i = 0; engine_rows_at(size, i, body); i++)
            engine_set_program(en, i, body, plan_prog(p, body ? USE_BODY : USE_HEAD, i));
    for (int body = 0; body < 2; body++)
        for (int i = 0; engine_ahead_rows_at(size, i, body); i++)
            engine_set_ahead_program(en, i, body,
                                     plan_prog(p, body ? USE_AHEAD_BODY : USE_AHEAD_HEAD, i));
    return en;
}
