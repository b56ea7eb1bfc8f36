/* --dump-grads: loss and every gradient of one batch, for comparison with other implementations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/hf/hf_part.h"
#include "io/npy.h"
#include "run/config/config_device.h"
#include "train/guard/react.h"
#include "train/distill.h"
#include "train/lessons.h"
#include "train/routers.h"

/* What one batch holds: ids [B,T+1]; or sources [B,S] and what the decoder is to write [B,T]. */
typedef struct dump_batch {
    const char *path;
    npy_i32 ids, labels; /* labels without data: ids hold both */
    int B, T, S;
    int64_t targets; /* that count */
} dump_batch;

enum { LABEL_IGNORED = -100 };

static status read_batch(dump_batch *b, err *e) {
    size_t n = strlen(b->path);
    bool pairs = n > 4 && strcmp(b->path + n - 4, ".npz") == 0;
    if (!pairs) return npy_read_i32(&b->ids, b->path, e);
    TRY(npz_read_i32(&b->ids, b->path, "input_ids", e));
    return npz_read_i32(&b->labels, b->path, "labels", e);
}

static status check_array(const npy_i32 *ids, const char *path, const char *shape, int64_t least,
                          int64_t lowest, int64_t vocab, err *e) {
    status st = ST_OK;
    if (ids->rank != 2 || ids->dims[0] < 1 || ids->dims[1] < least)
        st = err_set(e, ST_FORMAT, "%s must hold %s with T >= 1", path, shape);
    for (int64_t i = 0; i < ids->numel && st == ST_OK; i++)
        if ((ids->data[i] < 0 && ids->data[i] != lowest) || ids->data[i] >= vocab)
            st = err_set(e, ST_FORMAT, "%s: id %d at element %ld is outside the vocabulary of %ld",
                         path, ids->data[i], (long)i, (long)vocab);
    if (st != ST_OK) err_where(e, "%s", path);
    return st;
}

static status check_batch(dump_batch *b, const model_config *mc, err *e) {
    bool pairs = b->labels.data != NULL, encoder = mc->num_encoder_layers > 0;
    int64_t vocab = mc->vocab_size;
    if (pairs != encoder) {
        err_at(e, ST_USAGE, "--ids-file", "the model has %s encoder, and %s %s sources and labels",
               encoder ? "an" : "no", b->path, pairs ? "holds" : "does not hold");
        return err_hint(e, encoder ? "give an .npz with input_ids [B,S] and labels [B,T]"
                                   : "give a .npy of ids [B,T+1]");
    }
    TRY(check_array(&b->ids, b->path, pairs ? "input_ids [B,S]" : "ids [B,T+1]", pairs ? 1 : 2, 0,
                    vocab, e));
    b->B = (int)b->ids.dims[0];
    b->T = (int)b->ids.dims[1] - 1;
    b->targets = (int64_t)b->B * b->T;
    if (!pairs) return ST_OK;
    TRY(check_array(&b->labels, b->path, "labels [B,T]", 1, LABEL_IGNORED, vocab, e));
    b->S = (int)b->ids.dims[1];
    b->T = (int)b->labels.dims[1];
    b->targets = 0;
    for (int64_t i = 0; i < b->labels.numel; i++) b->targets += b->labels.data[i] >= 0;
    if (b->labels.dims[0] == b->B && b->targets > 0) return ST_OK;
    err_set(e, ST_FORMAT,
            b->targets ? "%s has other numbers of sources and of labels"
                       : "%s has no label that counts",
            b->path);
    return err_where(e, "%s", b->path);
}

/* As transformers reads such a batch: the decoder's ids are the labels shifted right, and sources have no
 * padding. */
static batch_rows pairs_of(arena *a, const model_config *mc, const dump_batch *d) {
    int B = d->B, T = d->T;
    batch_rows r = batch_rows_new(a, B, T, false, mc);
    batch_rows_add_sources(a, &r, d->S);
    memcpy(r.source, d->ids.data, (size_t)d->ids.numel * sizeof(int32_t));
    for (int b = 0; b < B; b++) {
        batch_rows_see_source(&r, b, d->S);
        for (int t = 0; t < T; t++) {
            int32_t label = d->labels.data[b * T + t];
            int32_t before = t ? d->labels.data[b * T + t - 1] : model_decoder_start(mc);
            int32_t pad = mc->pad_token_id > 0 ? (int32_t)mc->pad_token_id : 0;
            r.ids[b * T + t] = before >= 0 ? before : pad;
            r.targets[b * T + t] = label >= 0 ? label : -1;
            r.pos[b * T + t] = t;
        }
    }
    return r;
}

static batch_rows rows_of(arena *a, const model_config *mc, const dump_batch *d) {
    if (d->S) return pairs_of(a, mc, d);
    const npy_i32 *ids = &d->ids;
    int B = d->B, T = d->T;
    batch_rows r = batch_rows_new(a, B, T, false, mc);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            r.ids[b * T + t] = ids->data[b * (T + 1) + t];
            r.targets[b * T + t] = ids->data[b * (T + 1) + t + 1];
            r.pos[b * T + t] = t;
        }
    return r;
}

static status write_gradients(const setup *u, const char *path, err *e) {
    const param_store *ps = u->plan->store;
    size_t bytes = (size_t)param_store_sizes(ps).grad_bytes;
    dev_room room = {0};
    const float *host = dev_look(u->dev, param_grad(ps), bytes, &room);
    held_array grads = {.store = ps, .first = (float *)(uintptr_t)host};
    const st_tensor *t = hf_declare(u->a, ps, "", DT_F32, HF_FILES_PAIRS);
    status st = st_create(path, t, hf_declared(ps), e);
    if (st == ST_OK) {
        st = hf_write_part(path, t, &grads, 1, HF_FILES_PAIRS, e);
        if (st != ST_OK) remove(path); /* no half file stays */
    }
    dev_room_free(&room);
    return st;
}

/* Gradients with a NaN cannot be compared with anything: the first tensor that has one is named
 * instead. */
static status check_finite(const setup *u, const batch_ports *io, const op_run *run, double loss,
                           err *e) {
    if (isfinite(loss) && isfinite(optim_grad_squares(u->dev, u->plan->store))) return ST_OK;
    status st = react_explain_pass(u->plan->store, io->p, run, e);
    if (st == ST_OK) return st;
    err_where(e, "--dump-grads");
    return err_hint(e, u->models[0].from
                           ? "look at the weights of model.from, or try "
                             "train.precision=fp32"
                           : "lower model.initializer_range, or try train.precision=fp32");
}

static void divide_gradients(const setup *u, double scale) {
    const param_store *ps = u->plan->store;
    int64_t n = param_store_sizes(ps).grad_bytes / (int64_t)sizeof(float);
    dev_room room = {0};
    float *host = dev_borrow(u->dev, param_grad(ps), (size_t)n * sizeof *host, true, &room);
    for (int64_t i = 0; i < n; i++) host[i] /= (float)scale;
    dev_put_back(u->dev, param_grad(ps), host, (size_t)n * sizeof *host);
    dev_room_free(&room);
}

/* Forward and backward. The batch is a whole step: between them routers get what they did to it. */
static void pass(const setup *u, const batch_ports *io, const op_run *run) {
    int forward = prog_get_stats(io->p)->ops_forward;
    const step_entry first = {0};
    routing_ports routing = routing_ports_of(u->a, u->plan, 1);
    routers r;
    routers_init(&r, u->a, &u->models[0]);
    prog_replay_range(io->p, 0, forward, run, NULL);
    routers_take(&r, &routing, &first);
    routers_settle(&r, &routing);
    routers_give(&r, &routing, 0, 0);
    prog_replay_range(io->p, forward, prog_get_stats(io->p)->ops, run, NULL);
    routing_ports_free(&routing);
}

/* In fp16 with the largest loss scale at which nothing overflows. */
static void replay(const setup *u, const batch_ports *io, op_run *run, int64_t targets) {
    loss_scale l;
    for (loss_scale_init(&l, u->c);; loss_scale_step(&l, u->c, true)) {
        run->grad_scale = (float)(l.scale / (double)targets);
        pass(u, io, run);
        bool finite = isfinite(optim_grad_squares(u->dev, u->plan->store));
        if (finite || !loss_scale_may_shrink(&l, u->c)) break;
    }
    if (l.scale != 1.0) divide_gradients(u, l.scale);
}

/* As if it had been stored and read. */
static status store_teacher(const setup *u, const batch_ports *io, const batch_ports *teacher,
                            const batch_rows *rows, err *e) {
    int64_t vocab = u->models[0].vocab_size, each = (int64_t)rows->T * rows->k;
    lesson_format f = lesson_format_of(rows->T, rows->k, vocab);
    float *logits = ARENA_ARRAY(u->a, float, rows->B * rows->T * vocab);
    uint8_t *record = ARENA_ARRAY(u->a, uint8_t, f.bytes);
    prog_get(teacher->p, 0, teacher->score, logits);
    for (int64_t b = 0; b < rows->B; b++) {
        lessons_pack(&f, logits + b * rows->T * vocab, vocab, record);
        TRY(lessons_unpack(&f, record, vocab, rows->taught + b * each, rows->tokens + b * each, e));
    }
    batch_put(io, 0, rows);
    return ST_OK;
}

static status hear_teacher(const setup *u, const batch_ports *io, const batch_rows *rows,
                           const op_run *run, err *e) {
    int64_t k = u->c->distill.top_k;
    batch_ports teacher = batch_ports_of(plan_prog(u->plan, USE_LOOK, 0));
    TRY(distill_load(u, u->plan->model[1].store, e));
    batch_put(&teacher, 0, rows);
    prog_replay(teacher.p, PROG_ALL, run);
    if (rows->k) return store_teacher(u, io, &teacher, rows, e);
    distill_give(u->dev, &teacher, io, 0, k, ARENA_ARRAY(u->a, float, (int)k),
                 ARENA_ARRAY(u->a, int32_t, (int)k));
    return ST_OK;
}

static status run_batch(setup *u, const dump_batch *d, const char *out_file, double *loss, err *e) {
    if (u->models[0].num_labels) {
        err_at(e, ST_USAGE, "--dump-grads",
               "the batch has no labels, and the model's head is one of labels");
        return err_hint(e, "its body alone: model.num_labels=0");
    }
    int B = d->B, T = d->T > d->S ? d->T : d->S;
    if (T > model_max_tokens(&u->models[0])) {
        err_set(e, ST_USAGE, "the batch has %d positions, the model's end at %ld", T,
                (long)model_max_tokens(&u->models[0]));
        return err_hint(e, "set model.max_position_embeddings=%d", T);
    }
    plan_spec spec = {.model = u->models[0],
                      .compute = setup_compute(u->c),
                      .T = d->T,
                      .source_T = d->S,
                      .train_B = B,
                      .optim = optim_find("adamw"),
                      .recompute = (recompute_policy)u->c->train.recompute,
                      .z_loss = (float)u->c->optim.z_loss,
                      .lesson = distill_lesson(u->c, u->models[0].vocab_size),
                      .others = &u->reference,
                      .n_others = u->c->distill.teacher != NULL,
                      .routing = setup_routing(u->c),
                      .chunk_rows = u->c->train.head_chunk_rows};
    if (spec.n_others) TRY(distill_open(u, e));
    TRY(lora_plan(&u->lora, u->dev, &u->models[0], &spec, 1, e));
    TRY(plan_new(&u->plan, u->dev, &spec, e));
    TRY(plan_check_fits(u->plan, u->c->train.memory_limit, e));
    TRY(plan_commit(u->plan, e));
    TRY(setup_make_weights(u, u->plan->store, &u->models[0], e));
    batch_ports io = batch_ports_of(plan_prog(u->plan, USE_TRAIN, 0));
    batch_rows rows = rows_of(u->a, &u->models[0], d);
    if (spec.lesson.stored) batch_rows_add_lessons(u->a, &rows, (int)spec.lesson.stored);
    batch_put(&io, 0, &rows);
    op_run run = {.dev = u->dev, .seed = (uint64_t)u->c->train.seed, .first_micro = true};
    if (spec.n_others) TRY(hear_teacher(u, &io, &rows, &run, e));
    replay(u, &io, &run, d->targets);
    *loss = batch_take_nll(&io, 0, &rows) / (double)d->targets;
    TRY(check_finite(u, &io, &run, *loss, e));
    return write_gradients(u, out_file, e);
}

status train_dump_gradients(config *c, const char *ids_file, const char *out_file, double *loss,
                            err *e) {
    static const train_options none = {0};
    session s = {.opt = &none, .setup = {.c = c, .a = arena_new("gradients")}};
    dump_batch d = {.path = ids_file};
    status st;
    if (c->train.precision.compute == CONFIG_PRECISION_AUTO)
        c->train.precision.compute = CONFIG_PRECISION_FP32;
    TRY_GOTO(st, read_batch(&d, e), done);
    c->train.seq_len = d.ids.rank == 2 && d.ids.dims[1] > 1 ? d.ids.dims[1] - 1 : 1;
    TRY_GOTO(st, peers_open(&s.setup.peers, c, NULL, e), done);
    TRY_GOTO(st, config_open_device(c, s.setup.peers.m.world, &s.setup.dev, e), done);
    TRY_GOTO(st, session_open(&s, e), done);
    TRY_GOTO(st, session_open_course(&s, 0, NULL, e), done);
    TRY_GOTO(st, check_batch(&d, &s.setup.models[0], e), done);
    st = run_batch(&s.setup, &d, out_file, loss, e);
done:
    npy_i32_free(&d.ids);
    npy_i32_free(&d.labels);
    session_close(&s);
    return st;
}
