#include "plan/open_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/checkpoint/checkpoint.h"
#include "tok/tok_format.h"

enum { PREFILL_T = 256 };

static status read_folder(open_model *m, const char *path, err *e) {
    TRY(checkpoint_resolve(m->a, path, &m->dir, e));
    json_t *o = json_object();
    json_object_set_new(o, "from", json_string_nocheck(m->dir)); /* a path may be any bytes */
    status st = model_config_read(m->a, o, 0, &m->config, e);
    json_decref(o);
    if (st != ST_OK) return st;
    char *tokenizer = path_join(m->a, m->dir, "tokenizer.json");
    if (file_exists(tokenizer)) TRY(tok_load(&m->tok, tokenizer, e));
    m->folder = ARENA_NEW(m->a, hf_model);
    return hf_model_open(m->folder, m->dir, &m->config, e);
}

static status read_gguf(open_model *m, const char *path, err *e) {
    m->gguf = ARENA_NEW(m->a, gguf_model);
    TRY(gguf_model_open(m->gguf, path, e));
    m->config = m->gguf->config;
    gguf_model_end_ids(m->gguf, &m->end);
    if (!gguf_meta_find(gguf_get_meta(m->gguf->file), "tokenizer.ggml.tokens")) return ST_OK;
    return tok_load_with(&m->tok, path, &(tok_load_options){0}, e);
}

/* One that is damaged shall be called so. */
bool open_model_is_gguf(const char *path) {
    size_t n = strlen(path);
    bool named = n > 5 && strcmp(path + n - 5, ".gguf") == 0;
    return (named && !file_is_dir(path)) || gguf_is_file(path);
}

status open_model_read(open_model *m, const char *path, int threads, err *e) {
    *m = (open_model){.a = arena_new("model")};
    if (!file_exists(path)) {
        err_set(e, ST_USAGE, "there is no model at %s", path);
        err_hint(e, "give a Hugging Face folder, a run folder or a GGUF file");
        return err_where(e, "%s", path);
    }
    dev_kind kind;
    TRY(dev_find_kind(NULL, &kind, e));
    TRY(dev_open(&m->dev, kind, threads, e));
    return open_model_is_gguf(path) ? read_gguf(m, path, e) : read_folder(m, path, e);
}

status open_model_set_cache(open_model *m, const char *name, err *e) {
    static const char *const names[] = {
        [CACHE_AUTO] = "auto", [CACHE_F32] = "f32", [CACHE_F16] = "f16"};
    for (int i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(name ? name : names[CACHE_AUTO], names[i]) != 0) continue;
        m->cache = (cache_format)i;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "there is no cache format %s", name);
    err_hint(e, "give auto, f32 or f16");
    return err_where(e, "--cache");
}

static bool weights_are_blocks(const open_model *m) {
    for (int64_t i = 0; m->gguf && i < gguf_count(m->gguf->file); i++) {
        dtype dt;
        if (quant_to_dtype(gguf_get(m->gguf->file, i)->format->type, &dt) && dtype_is_blocks(dt))
            return true;
    }
    return false;
}

plan_spec open_model_spec(const open_model *m, int cache_tok, int logits_T) {
    plan_spec spec = {.model = m->config,
                      .compute = DT_F32,
                      .T = 1,
                      .cache_tok = cache_tok,
                      .prefill_T = PREFILL_T < cache_tok ? PREFILL_T : cache_tok,
                      .logits_T = logits_T};
    spec.cache_f16 = m->cache == CACHE_AUTO ? weights_are_blocks(m) : m->cache == CACHE_F16;
    spec.locate = m->gguf ? gguf_model_locate : hf_model_locate;
    spec.locate_ctx = m->gguf ? (void *)m->gguf : m->folder;
    spec.file = m->gguf ? m->gguf->base : m->folder->base;
    return spec;
}

status open_model_load(open_model *m, int cache_tok, int logits_T, err *e) {
    plan_spec spec = open_model_spec(m, cache_tok, logits_T);
    TRY(plan_new(&m->plan, m->dev, &spec, e));
    TRY(plan_check_fits(m->plan, 0, e));
    TRY(plan_commit(m->plan, e));
    if (m->gguf) return gguf_model_load_vectors(m->gguf, m->plan->store, e);
    return hf_model_load_rest(m->folder, m->plan->store, e);
}

status open_model_settings(const open_model *m, generation_settings *s, err *e) {
    *s = (generation_settings){0};
    if (m->dir) TRY(generation_settings_read(s, m->dir, e));
    for (int64_t i = 0; i < m->end.n; i++) generation_add_end(&s->end, m->end.id[i]);
    if (m->tok) generation_add_end(&s->end, tok_eos(m->tok));
    return ST_OK;
}

generator plan_generator(const plan *p, const tok *t) {
    int32_t vocab = (int32_t)p->spec.model.vocab_size, known = t ? tok_vocab_size(t) : vocab;
    generator g = {.decode = generator_pass_of(plan_prog(p, USE_DECODE, 0)),
                   .dev = p->dev,
                   .Tmax = p->spec.cache_tok,
                   .vocab = vocab,
                   .n_ids = known < vocab ? known : vocab};
    for (int i = 0; i < GENERATOR_PREFILLS; i++)
        g.prefill[i] = generator_pass_of(plan_prog(p, USE_PREFILL, i));
    return g;
}

generator open_model_generator(const open_model *m) {
    return plan_generator(m->plan, m->tok);
}

const float *open_model_logits(open_model *m, const int32_t *ids, int n) {
    if (!m->whole.p) m->whole = generator_pass_of(plan_prog(m->plan, USE_LOGITS, 0));
    const generator_pass *k = &m->whole;
    int32_t *place = xmalloc(sizeof *place * (size_t)n); /* positions, and all rows */
    for (int i = 0; i < n; i++) place[i] = i;
    prog_put(k->p, 0, k->ids, ids);
    prog_put(k->p, 0, k->pos, place);
    prog_put(k->p, 0, k->rows, place);
    free(place);
    op_run run = {.dev = m->dev, .first_micro = true, .grad_scale = 1.0f};
    prog_replay(k->p, PROG_F, &run);
    void *logits = prog_port_at(k->p, 0, k->logits);
    return dev_look(m->dev, logits, (size_t)k->logits.bytes, &m->logits);
}

void open_model_close(open_model *m) {
    plan_free(m->plan);
    dev_room_free(&m->logits);
    tok_free(m->tok);
    tok_ids_free(&m->end);
    if (m->gguf) gguf_model_close(m->gguf);
    if (m->folder) hf_model_close(m->folder);
    dev_close(m->dev);
    arena_free(m->a);
}
