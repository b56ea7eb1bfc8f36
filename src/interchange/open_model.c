/* Opening a model to run it (see open_model.h).
 *
 * Reading order: open_model_read (the forms), open_model_spec (what is planned),
 * open_model_load, open_model_logits. */
#include "interchange/open_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "io/checkpoint/checkpoint.h"
#include "io/hf/hf_part.h"
#include "io/hf/hf_weights.h"
#include "io/model_source.h"
#include "model/config_file.h"
#include "op/machine.h"
#include "tok/tok_format.h"

/* Tokens of a prompt that go through the model in one pass, at most. */
enum { PREFILL_T = 256 };

/* Of a checkpoint of a run in 16 bits: the fp32 numbers that training has. */
#define MASTERS_FILE "state/master.safetensors"

/* ---- opening ---- */

static status read_tokenizer(open_model *m, const char *dir, err *e) {
    char *tokenizer = path_join(m->a, dir, "tokenizer.json");
    return !m->tok && file_exists(tokenizer) ? tok_load(&m->tok, tokenizer, e) : ST_OK;
}

/* A command that runs a folder takes no keys of configs: a folder without the key is made by import. */
static status say_import(status st, const char *dir, err *e) {
    if (st == ST_OK || !e) return st;
    const char *key = config_ignorable_key(e);
    if (!key) return st;
    return err_hint(e,
                    "if it changes nothing: athanor import %s -o NEW --ignore-key %s, and run NEW",
                    dir, key);
}

/* dir: a folder with config.json and weights. */
static status read_weights(open_model *m, const char *dir, err *e) {
    json_t *from = json_object(); /* as a user's `model: {from: DIR}` */
    json_object_set_new(from, "from", json_string_nocheck(dir)); /* a path may be any bytes */
    if (m->adapter.vocab) /* it may know more tokens than its base model */
        json_object_set_new(from, "vocab_size", json_integer(m->adapter.vocab));
    status st = hf_config_read(m->a, from, 0, &m->config, e);
    json_decref(from);
    TRY(say_import(st, dir, e));
    if (m->config.from_unties)
        log_warn("%s stores a head that differs from the embedding: it is used, although "
                 "config.json says that they "
                 "are tied",
                 dir);
    if (m->adapter.vocab > m->config.vocab_size) m->config.vocab_size = m->adapter.vocab;
    TRY(read_tokenizer(m, dir, e));
    if (m->adapter.dir)
        m->config.num_nextn_predict_layers = 0; /* modules are not adapted */
    else
        TRY(hf_settle_ahead(&m->config, dir, e));
    m->folder = ARENA_NEW(m->a, hf_model);
    return hf_model_open(m->folder, dir, &m->config, e);
}

static status read_gguf(open_model *m, const char *path, err *e) {
    m->gguf = ARENA_NEW(m->a, gguf_model);
    TRY(gguf_model_open(m->gguf, path, e));
    m->config = m->gguf->config;
    gguf_model_end_ids(m->gguf, &m->end);
    bool has_tokenizer = gguf_meta_find(gguf_get_meta(m->gguf->file), "tokenizer.ggml.tokens");
    if (m->tok || !has_tokenizer) return ST_OK;
    return tok_load_with(&m->tok, path, &(tok_load_options){0}, e);
}

static status read_base(open_model *m, const char *base, err *e) {
    char *dir;
    m->base_dir = base;
    if (open_model_is_gguf(base)) return read_gguf(m, base, e);
    TRY(checkpoint_resolve(m->a, base, &dir, e));
    m->base_dir = dir;
    if (!peft_is_folder(dir)) return read_weights(m, dir, e);
    err_at(e, ST_USAGE, base, "the base model %s is an adapter itself", base);
    return err_hint(e, "merge it with `athanor export`, and give the folder that this makes");
}

/* What stands in the adapter's folder goes before what the base model says. */
static status read_adapter(open_model *m, const char *base, err *e) {
    TRY(peft_open(&m->adapter, m->dir, e));
    if (!base) TRY(peft_find_base(&m->adapter, "name it with --base FOLDER", &base, e));
    TRY(read_tokenizer(m, m->dir, e));
    status st = read_base(m, base, e);
    if (st != ST_OK) err_context(e, "the base model of %s", m->dir);
    return st;
}

static status read_folder(open_model *m, const char *path, const char *base, err *e) {
    TRY(checkpoint_resolve(m->a, path, &m->dir, e)); /* of a run folder: its checkpoint */
    if (peft_is_folder(m->dir)) return read_adapter(m, base, e);
    if (!base) return read_weights(m, m->dir, e);
    err_at(e, ST_USAGE, "--base", "%s is no adapter, and has no base model", path);
    return err_hint(e, "leave --base out");
}

bool open_model_is_gguf(const char *path) {
    size_t n = strlen(path);
    bool named = n > 5 && strcmp(path + n - 5, ".gguf") == 0;
    return (named && !file_is_dir(path)) || gguf_is_file(path);
}

status open_model_read(open_model *m, const char *path, int threads, err *e) {
    return open_model_read_on(m, path, NULL, NULL, threads, e);
}

static status open_device(open_model *m, const char *device, int threads, err *e) {
    dev_kind kind;
    status st = dev_find_kind(device, &kind, e);
    if (st == ST_OK) st = dev_open(&m->dev, kind, threads, e);
    if (st != ST_OK && device) err_where(e, "--device");
    return st;
}

status open_model_read_on(open_model *m, const char *path, const char *base, const char *device,
                          int threads, err *e) {
    *m = (open_model){.a = arena_new("model"), .compute = DT_F32};
    if (!file_exists(path))
        return model_source_missing(
            path, "give a Hugging Face folder, a run folder, an adapter or a GGUF file", e);
    TRY(open_device(m, device, threads, e));
    bool gguf = open_model_is_gguf(path) && !base;
    return gguf ? read_gguf(m, path, e) : read_folder(m, path, base, e);
}

void open_model_borrow(open_model *m, const model_config *config, tok *t, dtype compute, plan *p,
                       void (*replay)(void *ctx, const prog *p, const op_run *run), void *ctx) {
    *m = (open_model){.is_borrowed = true,
                      .dev = p ? p->dev : NULL,
                      .config = *config,
                      .tok = t,
                      .compute = compute,
                      .plan = p,
                      .replay = replay,
                      .replay_ctx = ctx};
}

/* ---- loading ---- */

status open_model_set_cache(open_model *m, const char *name, err *e) {
    static const char *const names[] = {
        [CACHE_AUTO] = "auto", [CACHE_F32] = "f32", [CACHE_F16] = "f16"};
    for (int i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(name ? name : names[CACHE_AUTO], names[i]) != 0) continue;
        m->cache = (cache_format)i;
        return ST_OK;
    }
    err_at(e, ST_USAGE, "--cache", "there is no cache format %s", name);
    return err_hint(e, "give auto, f32 or f16");
}

void open_model_set_scorer(open_model *m, int64_t longest, int64_t cache_bytes) {
    const int64_t most = (int64_t)1 << 30, quarter = (int64_t)dev_machine_available_bytes() / 4;
    if (cache_bytes == 0) cache_bytes = quarter < most ? quarter : most;
    if (m->is_borrowed) cache_bytes = (int64_t)256 << 20;
    m->score = scorer_size_for(&m->config, m->compute, longest, cache_bytes);
}

/* The format of most weights of a folder: that of its largest tensor. */
static dtype stored_format(const st_reader *r) {
    const st_view *largest = st_count(r) ? st_get(r, 0) : NULL;
    for (int64_t i = 1; i < st_count(r); i++)
        if (st_get(r, i)->bytes > largest->bytes) largest = st_get(r, i);
    return largest ? largest->dt : DT_F32;
}

/* Whether bf16 products are the faster ones here. */
static bool bf16_is_faster(const dev *d) {
    machine_facts f;
    err unused = {0};
    if (dev_get_kind(d) == DEV_CUDA) return true;
    if (machine_read(&f, d, &unused) != ST_OK) log_warn("%s; it is not used", unused.message);
    bool faster = machine_choose(&f, f.layer, f.n_layers, MACHINE_ANY).how == ARITH_DOTS;
    machine_free(&f);
    return faster;
}

static dtype own_format(const open_model *m) {
    if (!m->folder) return DT_F32;
    dtype stored = stored_format(m->folder->file);
    if (m->as_trained) return stored == DT_BF16 || stored == DT_F16 ? stored : DT_F32;
    return stored == DT_BF16 && bf16_is_faster(m->dev) ? DT_BF16 : DT_F32;
}

const char *open_model_precision(dtype compute) {
    return compute == DT_BF16 ? "bf16" : compute == DT_F16 ? "fp16" : "fp32";
}

status open_model_set_precision(open_model *m, const char *name, err *e) {
    static const struct {
        const char *name;
        dtype dt;
    } formats[] = {{"fp32", DT_F32}, {"bf16", DT_BF16}, {"fp16", DT_F16}};
    m->as_trained = m->dir && !m->adapter.dir && file_exists(path_join(m->a, m->dir, MASTERS_FILE));
    m->compute = own_format(m);
    if (!name || strcmp(name, "auto") == 0) return ST_OK;
    for (int i = 0; i < ARRAY_LEN(formats); i++) {
        if (strcmp(name, formats[i].name) != 0) continue;
        m->compute = formats[i].dt;
        if (m->folder || m->compute == DT_F32) return ST_OK;
        err_at(e, ST_USAGE, "--precision", "GGUF files compute in fp32, not in %s", name);
        return err_hint(e, "import it as a folder (athanor import --dtype BF16)");
    }
    err_at(e, ST_USAGE, "--precision", "there is no precision %s", name);
    return err_hint(e, "give auto, fp32, bf16 or fp16");
}

status open_model_set_formats(open_model *m, const char *cache, const char *precision, err *e) {
    TRY(open_model_set_cache(m, cache, e));
    TRY(open_model_set_precision(m, precision, e));
    if (m->cache == CACHE_AUTO || m->compute == DT_F32) return ST_OK;
    if (!precision || strcmp(precision, "auto") == 0) return open_model_set_precision(m, "fp32", e);
    err_at(e, ST_USAGE, "--cache",
           "a model that computes in %s keeps keys and values so, not in %s", precision, cache);
    return err_hint(e, "leave --cache out, or give --precision fp32");
}

void open_model_set_writer(open_model *m, int64_t texts) {
    scorer_size_add_writer(&m->score, texts);
}

void open_model_set_beams(open_model *m, int64_t longest, int beams) {
    m->score = scorer_size_for_beams(longest, beams);
}

static bool has_blocks(const gguf_reader *file) {
    for (int64_t i = 0; i < gguf_count(file); i++) {
        dtype dt = gguf_get(file, i)->format->dt;
        if (dt != DT_COUNT && dtype_is_blocks(dt)) return true;
    }
    return false;
}

static bool cache_is_f16(const open_model *m) {
    if (m->cache == CACHE_AUTO) return m->gguf && has_blocks(m->gguf->file);
    return m->cache == CACHE_F16;
}

void open_model_set_engine(open_model *m, int longest, int seqs, int64_t cache_bytes) {
    dtype dt = cache_is_f16(m) ? DT_F16 : m->compute;
    m->serve = engine_size_for(&m->config, dt, m->compute, longest, seqs, cache_bytes);
}

/* Products of 16 bits read weights of the same format only. */
static bool locate_in_folder(void *ctx, const param *p, dtype *stored, int64_t *offset_bytes) {
    const open_model *m = ctx;
    return hf_model_locate(m->folder, p, stored, offset_bytes) &&
           (m->compute == DT_F32 || *stored == m->compute);
}

plan_spec open_model_spec(const open_model *m, int cache_tok, int logits_T) {
    plan_spec spec = {.model = m->config,
                      .compute = m->compute,
                      .T = 1,
                      .cache_tok = cache_tok,
                      .cache_f16 = cache_is_f16(m),
                      .prefill_T = PREFILL_T < cache_tok ? PREFILL_T : cache_tok,
                      .source_tok = m->source_tok ? m->source_tok : cache_tok,
                      .logits_T = logits_T,
                      .exact_products = m->exact,
                      .adapters = m->adapter.adapters,
                      .score = m->score,
                      .serve = m->serve};
    if (m->gguf) {
        spec.locate = gguf_model_locate;
        spec.locate_ctx = m->gguf;
        spec.file = m->gguf->base;
    } else {
        m->folder->fp8_stays = m->compute == DT_F32 && dev_host_enters(m->dev);
        spec.locate = locate_in_folder;
        spec.locate_ctx = (void *)m;
        spec.file = m->folder->base;
    }
    return spec;
}

/* What is not mapped, as training has it: not rounded to the format of the weights. */
static status load_masters(const open_model *m, err *e) {
    st_reader *r;
    TRY(st_open(&r, path_join(m->a, m->dir, MASTERS_FILE), e));
    held_array masters = held_masters(m->plan->store);
    status st = hf_read_array(&masters, r, "", HF_MEMORY, e);
    st_close(r);
    if (st == ST_OK) param_refresh_work(m->plan->store);
    return st;
}

void open_model_set_source(open_model *m, int source_tok) {
    m->source_tok = source_tok;
}

/* A head of labels gives no next token. */
static status check_writes(const open_model *m, int cache_tok, err *e) {
    bool writes = cache_tok || m->score.tok || m->serve.rows;
    if (!m->config.num_labels || !writes) return ST_OK;
    err_at(
        e, ST_USAGE, "num_labels",
        "the model has a head of %lld label%s, and is no language model: it writes and scores no "
        "text",
        (long long)m->config.num_labels, text_s(m->config.num_labels));
    return err_hint(e, "athanor classify says the labels of texts");
}

status open_model_load(open_model *m, int cache_tok, int logits_T, err *e) {
    TRY(check_writes(m, cache_tok, e));
    if (m->is_borrowed) return ST_OK;
    plan_spec spec = open_model_spec(m, cache_tok, logits_T);
    TRY(plan_new(&m->plan, m->dev, &spec, e));
    TRY(plan_check_fits(m->plan, 0, e));
    TRY(plan_commit(m->plan, e));
    const param_store *s = m->plan->store;
    hf_order order = m->folder ? m->folder->order : HF_FILES;
    TRY(m->gguf ? gguf_model_load_rest(m->gguf, s, e) : hf_model_load_rest(m->folder, s, e));
    if (m->as_trained) TRY(load_masters(m, e));
    return m->adapter.dir ? peft_load(&m->adapter, s, order, e) : ST_OK;
}

/* ---- running ---- */

const char *open_model_text_dir(const open_model *m) {
    bool own = !m->adapter.dir || file_exists(path_join(m->a, m->dir, "tokenizer.json"));
    return own ? m->dir : m->base_dir;
}

status open_model_settings(const open_model *m, generation_settings *s, err *e) {
    *s = (generation_settings){0};
    const char *dir = m->dir;
    if (m->base_dir && !file_exists(path_join(m->a, dir, "generation_config.json")))
        dir = m->base_dir;
    if (dir) TRY(generation_settings_read(s, dir, e));
    for (int64_t i = 0; i < m->end.n; i++) generation_add_end(&s->end, m->end.id[i]);
    if (m->tok) generation_add_end(&s->end, tok_eos(m->tok));
    return ST_OK;
}

generator open_model_generator(const open_model *m) {
    generator g = plan_generator(m->plan, m->tok);
    g.replay = m->replay;
    g.replay_ctx = m->replay_ctx;
    return g;
}

scorer *open_model_scorer(const open_model *m) {
    scorer *s = plan_scorer(m->plan);
    scorer_set_replay(s, m->replay, m->replay_ctx);
    return s;
}

engine *open_model_engine(const open_model *m) {
    return plan_engine(m->plan, m->tok);
}

/* The sequence as source and, shifted right, as what the decoder reads. */
static void put_source(const open_model *m, const generator_pass *k, const int32_t *ids,
                       const int32_t *count, int n) {
    int32_t *row = xmalloc(sizeof *row * (size_t)n);
    prog_put(k->p, 0, k->source, ids);
    prog_put(k->p, 0, k->source_pos, count);
    for (int i = 0; i < n; i++) row[i] = i ? ids[i - 1] : model_decoder_start(&m->config);
    prog_put(k->p, 0, k->ids, row);
    for (int i = 0; i < n; i++) row[i] = 0;
    prog_put(k->p, 0, k->source_start, row);
    prog_put(k->p, 0, k->seen_start, row);
    for (int i = 0; i < n; i++) row[i] = n;
    prog_put(k->p, 0, k->source_end, row);
    generator_put_slots(k, n);
    prog_put(k->p, 0, k->seen_end, row);
    free(row);
}

/* Runs a program of all logits over n ids, and padding behind them. */
static const float *run_whole(open_model *m, const generator_pass *pass, const int32_t *ids,
                              int n) {
    int T = (int)pass->T;
    int32_t *count = xmalloc(sizeof *count * (size_t)T), *all = xcalloc((size_t)T, sizeof *all);
    for (int i = 0; i < T; i++) count[i] = i;
    memcpy(all, ids, sizeof *ids * (size_t)n);
    if (m->config.num_encoder_layers)
        put_source(m, pass, all, count, T);
    else
        prog_put(pass->p, 0, pass->ids, all);
    prog_put(pass->p, 0, pass->pos, count);
    prog_put(pass->p, 0, pass->rows, count); /* the rows whose logits are wanted: all */
    free(count);
    free(all);
    op_run run = {.dev = m->dev, .first_micro = true, .grad_scale = 1.0f};
    prog_replay(pass->p, PROG_F, &run);
    void *logits = prog_port_at(pass->p, 0, pass->logits);
    return dev_look(m->dev, logits, (size_t)pass->logits.bytes, &m->logits);
}

const float *open_model_scores(open_model *m, const int32_t *ids, int n) {
    int number = 0, last = n - 1;
    prog *p = plan_prog(m->plan, USE_LOGITS, 0);
    CHECK(n > 0 && n <= m->plan->spec.logits_T, "%d ids of a text", n);
    while (m->plan->spec.logits_T >> (number + 1) >= n &&
           plan_prog(m->plan, USE_LOGITS, number + 1))
        p = plan_prog(m->plan, USE_LOGITS, ++number);
    while (last > 0 && ids[last] == m->config.pad_token_id) last--;
    generator_pass pass = generator_pass_of(p);
    return run_whole(m, &pass, ids, n) + (int64_t)last * m->config.num_labels;
}

const float *open_model_logits(open_model *m, const int32_t *ids, int n) {
    if (!m->whole.p) m->whole = generator_pass_of(plan_prog(m->plan, USE_LOGITS, 0));
    const generator_pass *pass = &m->whole;
    CHECK(n == pass->T, "%d ids for a pass of %ld", n, (long)pass->T);
    return run_whole(m, pass, ids, n);
}

void open_model_close(open_model *m) {
    dev_room_free(&m->logits);
    tok_ids_free(&m->end);
    if (m->is_borrowed) return;
    plan_free(m->plan);
    tok_free(m->tok);
    if (m->gguf) gguf_model_close(m->gguf);
    if (m->folder) hf_model_close(m->folder);
    if (m->adapter.a) peft_close(&m->adapter);
    dev_close(m->dev);
    arena_free(m->a);
}
