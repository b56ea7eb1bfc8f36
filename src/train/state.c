/* Checkpoints of a run: a Hugging Face folder with state/ beside the weights, and back. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "io/hf_weights.h"
#include "train/session.h"

/* ---- saving ---- */

static status add_json(checkpoint_writer *w, const char *name, json_t *o, err *e) {
    strbuf text = {0};
    json_format(&text, o, 2);
    strbuf_putc(&text, '\n');
    status st = checkpoint_writer_add_blob(w, name, text.data, text.len, e);
    strbuf_free(&text);
    json_decref(o);
    return st;
}

static status add_tokenizer(const session *s, checkpoint_writer *w, err *e) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json"};
    char *dir = xstrdup(checkpoint_writer_path(w, files[0]));
    *strrchr(dir, '/') = '\0';
    status st = tok_save_dir(s->tok, dir, s->model.max_position_embeddings, e);
    free(dir);
    for (int i = 0; i < ARRAY_LEN(files) && st == ST_OK; i++)
        st = checkpoint_writer_add_file(w, files[i], e);
    return st;
}

static status add_model_files(const session *s, checkpoint_writer *w, arena *a, err *e) {
    const param_store *ps = s->plan->store;
    dtype dt = s->plan->spec.compute;
    int32_t bos = tok_bos(s->tok), eos = tok_eos(s->tok);
    TRY(add_json(w, "config.json", model_config_json(&s->model, bos, eos, dt), e));
    json_t *g = json_pack("{s:b}", "do_sample", 1);
    if (bos >= 0) json_object_set_new(g, "bos_token_id", json_integer(bos));
    if (eos >= 0) json_object_set_new(g, "eos_token_id", json_integer(eos));
    TRY(add_json(w, "generation_config.json", g, e));
    TRY(add_tokenizer(s, w, e));
    st_tensor *weights = hf_tensors(a, ps, param_master(ps), "", dt, true);
    return checkpoint_writer_add_tensors(w, "model.safetensors", weights, param_count(ps), e);
}

static status add_state(const session *s, checkpoint_writer *w, arena *a, err *e) {
    const param_store *ps = s->plan->store;
    int n = param_count(ps);
    if (s->plan->spec.compute != DT_F32) {
        st_tensor *masters = hf_tensors(a, ps, param_master(ps), "", DT_F32, false);
        TRY(checkpoint_writer_add_tensors(w, "state/master.safetensors", masters, n, e));
    }
    st_tensor *all = ARENA_ARRAY(a, st_tensor, n * s->optim->n_states);
    for (int k = 0; k < s->optim->n_states; k++) {
        char *prefix = arena_printf(a, "%s.", s->optim->state_names[k]);
        st_tensor *t = hf_tensors(a, ps, s->plan->optim_state[k], prefix, DT_F32, false);
        memcpy(all + k * n, t, sizeof *t * (size_t)n);
    }
    TRY(checkpoint_writer_add_tensors(w, "state/optimizer.safetensors", all, n * s->optim->n_states,
                                      e));
    char digest[17];
    hash_format(param_digest(ps), digest);
    json_t *where =
        json_pack("{s:I,s:I,s:I,s:o,s:s,s:s}", "step", (json_int_t)s->at.step, "samples",
                  (json_int_t)s->at.samples, "tokens", (json_int_t)s->at.tokens, "seconds",
                  json_f64(s->at.seconds), "optimizer", s->optim->name, "digest", digest);
    return add_json(w, "state/cursor.json", where, e);
}

static uint64_t expected_bytes(const session *s) {
    int64_t elems = param_store_sizes(s->plan->store).elems;
    int64_t per = 4 + (s->plan->spec.compute == DT_F32 ? 0 : 2) + 4 * s->optim->n_states;
    return (uint64_t)(elems * per) + (1u << 20);
}

status state_save(session *s, err *e) {
    checkpoint_writer *w;
    TRY(checkpoint_writer_begin(&w, s->c->run, s->at.step, expected_bytes(s), e));
    arena *a = arena_new("checkpoint");
    status st = add_model_files(s, w, a, e);
    if (st == ST_OK) st = add_state(s, w, a, e);
    if (st == ST_OK)
        st = checkpoint_writer_commit(w, e);
    else
        checkpoint_writer_abort(w);
    if (st == ST_OK)
        st = checkpoint_prune(s->c->run, (int)s->c->checkpoint.keep, s->c->checkpoint.keep_every,
                              s->at.step, e);
    if (st == ST_OK) {
        json_t *o = session_event("checkpoint", s->at.step);
        json_object_set_new(o, "path", json_string(checkpoint_path(a, s->c->run, s->at.step)));
        st = session_emit(s, o, e);
    } else {
        err_context(e, "saving the checkpoint of step %ld", (long)s->at.step);
    }
    arena_free(a);
    return st;
}

/* ---- loading ---- */

static status read_cursor(session *s, const char *dir, char digest[17], err *e) {
    char *path = path_join(s->a, dir, "state/cursor.json"), *text;
    size_t len;
    TRY(file_read_all(path, &text, &len, e));
    json_t *o = json_loadb(text, len, 0, NULL);
    free(text);
    json_int_t step = -1, samples = -1, tokens = -1;
    double seconds = 0;
    const char *optimizer = "", *hex = "";
    int bad =
        json_unpack(o, "{s:I,s:I,s:I,s:F,s:s,s:s}", "step", &step, "samples", &samples, "tokens",
                    &tokens, "seconds", &seconds, "optimizer", &optimizer, "digest", &hex);
    status st = ST_OK;
    if (bad || step < 0 || samples < 0 || tokens < 0 || strlen(hex) != 16) {
        st = err_set(e, ST_FORMAT, "%s is not a cursor", path);
        err_where(e, "%s", path);
    } else if (strcmp(optimizer, s->optim->name) != 0) {
        st = err_set(e, ST_FORMAT, "the checkpoint was made by optimizer %s, not %s", optimizer,
                     s->optim->name);
        err_where(e, "%s", path);
    } else {
        memcpy(digest, hex, 17);
        s->at = (cursor){step, (uint64_t)samples, (uint64_t)tokens, seconds};
    }
    json_decref(o);
    return st;
}

static status read_states(session *s, const char *dir, err *e) {
    st_reader *r;
    TRY(st_open(&r, path_join(s->a, dir, "state/optimizer.safetensors"), e));
    status st = ST_OK;
    for (int k = 0; k < s->optim->n_states && st == ST_OK; k++) {
        char *prefix = arena_printf(s->a, "%s.", s->optim->state_names[k]);
        st = hf_read_flat(s->plan->store, r, prefix, s->plan->optim_state[k], e);
    }
    st_close(r);
    return st;
}

static status read_masters(session *s, const char *dir, err *e) {
    if (s->plan->spec.compute == DT_F32) return hf_load_weights(s->plan->store, dir, e);
    st_reader *r;
    TRY(st_open(&r, path_join(s->a, dir, "state/master.safetensors"), e));
    status st = hf_read_flat(s->plan->store, r, "", param_master(s->plan->store), e);
    st_close(r);
    if (st == ST_OK) param_refresh_work(s->plan->store);
    return st;
}

status state_load(session *s, const char *dir, err *e) {
    char want[17], got[17];
    TRY(read_cursor(s, dir, want, e));
    TRY(read_masters(s, dir, e));
    TRY(read_states(s, dir, e));
    hash_format(param_digest(s->plan->store), got);
    if (strcmp(want, got) == 0) return ST_OK;
    err_set(e, ST_FORMAT, "the weights of %s have digest %s, its cursor says %s", dir, got, want);
    err_hint(e,
             "the checkpoint was changed after it was written; use another or start with --fresh");
    return err_where(e, "%s", dir);
}
