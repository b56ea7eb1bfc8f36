/* --dump-grads: loss and every gradient of one batch, for comparison with other implementations. */
#include <math.h>

#include "io/hf/hf_weights.h"
#include "io/npy.h"
#include "run/config/config_device.h"
#include "train/session.h"

static status check_ids(const npy_i32 *ids, const char *path, int64_t vocab, err *e) {
    status st = ST_OK;
    if (ids->rank != 2 || ids->dims[0] < 1 || ids->dims[1] < 2)
        st = err_set(e, ST_FORMAT, "%s must hold ids [B,T+1] with T >= 1", path);
    for (int64_t i = 0; i < ids->numel && st == ST_OK; i++)
        if (ids->data[i] < 0 || ids->data[i] >= vocab)
            st = err_set(e, ST_FORMAT, "%s: id %d at element %ld is outside the vocabulary of %ld",
                         path, ids->data[i], (long)i, (long)vocab);
    if (st != ST_OK) err_where(e, "%s", path);
    return st;
}

static batch_rows rows_of(arena *a, const npy_i32 *ids) {
    int B = (int)ids->dims[0], T = (int)ids->dims[1] - 1;
    batch_rows r = batch_rows_new(a, B, T, false);
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            r.ids[b * T + t] = ids->data[b * (T + 1) + t];
            r.targets[b * T + t] = ids->data[b * (T + 1) + t + 1];
            r.pos[b * T + t] = t;
        }
    return r;
}

static status write_gradients(const session *s, const char *path, err *e) {
    const param_store *ps = s->plan->store;
    size_t bytes = (size_t)param_store_sizes(ps).grad_bytes;
    dev_room room = {0};
    const float *host = dev_look(s->dev, param_grad(ps), bytes, &room);
    st_tensor *t = hf_tensors(s->a, ps, host, "", DT_F32, HF_FILES_PAIRS);
    status st = st_write(path, t, param_count(ps), NULL, e);
    dev_room_free(&room);
    return st;
}

/* Gradients that hold a NaN compare with nothing: the first tensor that has one is named. */
static status check_finite(const session *s, const batch_ports *io, const op_run *run, double loss,
                           err *e) {
    if (isfinite(loss) && isfinite(optim_grad_squares(s->dev, s->plan->store))) return ST_OK;
    status st = guard_explain_pass(s->plan->store, io->p, run, e);
    if (st == ST_OK) return st;
    err_where(e, "--dump-grads");
    return err_hint(e, s->model.from
                           ? "look at the weights of model.from, or try "
                             "train.precision=fp32"
                           : "lower model.initializer_range, or try train.precision=fp32");
}

static status run_batch(session *s, const npy_i32 *ids, const char *out_file, double *loss,
                        err *e) {
    int B = (int)ids->dims[0], T = (int)ids->dims[1] - 1;
    if (T > model_max_tokens(&s->model)) {
        err_set(e, ST_USAGE, "the batch has %d positions, the model's end at %ld", T,
                (long)model_max_tokens(&s->model));
        return err_hint(e, "set model.max_position_embeddings=%d", T);
    }
    plan_spec spec = {.model = s->model,
                      .compute = session_compute(s->c),
                      .T = T,
                      .train_B = B,
                      .optim = optim_find("adamw"),
                      .recompute = (recompute_policy)s->c->train.recompute,
                      .z_loss = (float)s->c->optim.z_loss,
                      .chunk_rows = s->c->train.head_chunk_rows};
    TRY(plan_new(&s->plan, s->dev, &spec, e));
    TRY(plan_check_fits(s->plan, s->c->train.memory_limit, e));
    TRY(plan_commit(s->plan, e));
    if (s->model.from)
        TRY(hf_load_weights(s->plan->store, s->model.from, e));
    else
        param_init_all(s->plan->store, (uint64_t)s->c->train.seed);
    batch_ports io = batch_ports_of(plan_prog(s->plan, USE_TRAIN, 0));
    batch_rows rows = rows_of(s->a, ids);
    batch_put(&io, 0, &rows);
    op_run run = {.dev = s->dev,
                  .seed = (uint64_t)s->c->train.seed,
                  .first_micro = true,
                  .grad_scale = (float)(1.0 / ((double)B * T))};
    prog_replay(io.p, PROG_ALL, &run);
    *loss = batch_take_nll(&io, 0, &rows) / ((double)B * T);
    TRY(check_finite(s, &io, &run, *loss, e));
    return write_gradients(s, out_file, e);
}

status train_dump_gradients(config *c, const char *ids_file, const char *out_file, double *loss,
                            err *e) {
    static const train_options none = {0};
    session s = {.c = c, .opt = &none, .a = arena_new("gradients")};
    npy_i32 ids = {0};
    status st;
    if (c->train.precision.compute == CONFIG_PRECISION_AUTO)
        c->train.precision.compute = CONFIG_PRECISION_FP32;
    TRY_GOTO(st, npy_read_i32(&ids, ids_file, e), done);
    c->train.seq_len = ids.rank == 2 && ids.dims[1] > 1 ? ids.dims[1] - 1 : 1;
    TRY_GOTO(st, peers_open(&s.peers, c, NULL, e), done);
    TRY_GOTO(st, config_open_device(c, &s.dev, e), done);
    TRY_GOTO(st, session_open_tokenizer(&s, e), done);
    TRY_GOTO(st, session_open_course(&s, 0, NULL, e), done);
    TRY_GOTO(st, check_ids(&ids, ids_file, s.model.vocab_size, e), done);
    st = run_batch(&s, &ids, out_file, loss, e);
done:
    npy_i32_free(&ids);
    session_close(&s);
    return st;
}
