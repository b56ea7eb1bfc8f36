/* Writing a checkpoint: a Hugging Face folder with state/ beside the weights. A run of adapters
 * writes a folder of PEFT, which holds what was trained and names the base model.
 *
 * The files do not depend on how many ranks there are or on what each holds.
 *
 * Reading order: save_begin, save_write, write_part, write_all, list_tensors. */
#include "train/save/save.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/thread.h"
#include "interchange/ledger.h"
#include "io/hf/hf_part.h"
#include "model/config_file.h"
#include "model/layer.h"
#include "train/save/origins.h"

/* ---- tensors ---- */

typedef struct tensor_file {
    const char *name;
    hf_order order;
    const held_array *arrays;
    int n_arrays;
    st_tensor *tensors;
    int64_t n;
} tensor_file;

enum { MOST_FILES = 3 };

static tensor_file file_of_masters(const save_job *j, const char *name, const char *prefix,
                                   dtype dt, hf_order order) {
    tensor_file f = {.name = name, .order = order, .n_arrays = 1, .n = hf_declared(j->store)};
    f.arrays = &j->masters;
    f.tensors = hf_declare(j->mem, j->store, prefix, dt, order);
    return f;
}

/* Where head and embedding are one parameter, PEFT has both tensors. */
static void add_tied_head(const save_job *j, tensor_file *f) {
    const param_store *s = param_store_whole(j->store);
    int embed = 0;
    while (param_at(s, embed)->part != PART_EMBED) embed++;
    st_tensor *list = ARENA_ARRAY(j->mem, st_tensor, (int)f->n + 1), *head = list + f->n;
    memcpy(list, f->tensors, sizeof *list * (size_t)f->n);
    for (int i = 0; i < f->n; i++)
        if (strcmp(list[i].name + strlen(PEFT_PREFIX), param_at(s, embed)->name) == 0)
            *head = list[i];
    head->name = PEFT_PREFIX PEFT_HEAD ".weight";
    held_array *arrays = ARENA_ARRAY(j->mem, held_array, 2);
    arrays[0] = arrays[1] = j->masters;
    arrays[1].only = embed + 1;
    f->tensors = list, f->arrays = arrays;
    f->n++, f->n_arrays++;
}

static tensor_file file_of_adapters(const save_job *j) {
    tensor_file f = file_of_masters(j, PEFT_WEIGHTS, PEFT_PREFIX, DT_F32, j->lora->order);
    f.tensors = peft_declare(j->mem, j->store, j->lora->order);
    if (j->lora->adapters.embedding && j->model.tie_word_embeddings) add_tied_head(j, &f);
    return f;
}

static tensor_file file_of_states(const save_job *j) {
    int each = hf_declared(j->laid_out), n = j->optim->n_states;
    tensor_file f = {.name = "state/optimizer.safetensors",
                     .order = HF_MEMORY,
                     .arrays = j->states,
                     .n_arrays = n,
                     .tensors = ARENA_ARRAY(j->mem, st_tensor, n * each),
                     .n = n * each};
    for (int k = 0; k < n; k++) {
        char *prefix = arena_printf(j->mem, "%s.", j->optim->state_names[k]);
        const st_tensor *t = hf_declare(j->mem, j->laid_out, prefix, j->states[k].dt, HF_MEMORY);
        memcpy(f.tensors + k * each, t, sizeof *t * (size_t)each);
    }
    return f;
}

static int list_tensors(const save_job *j, tensor_file f[MOST_FILES]) {
    int n = 0;
    if (j->lora)
        f[n++] = file_of_adapters(j);
    else
        f[n++] = file_of_masters(j, "model.safetensors", "", j->compute, HF_FILES);
    if (!j->lora && j->compute != DT_F32)
        f[n++] = file_of_masters(j, "state/master.safetensors", "", DT_F32, HF_MEMORY);
    f[n++] = file_of_states(j);
    return n;
}

static status write_part(const tensor_file *f, const char *path, err *e) {
    return f->n_arrays ? hf_write_part(path, f->tensors, f->arrays, f->n_arrays, f->order, e)
                       : ST_OK;
}

/* ---- the other files ---- */

static status add_json(checkpoint_writer *w, const char *name, const json_t *o, err *e) {
    strbuf text = {0};
    json_format(&text, o, 2);
    strbuf_putc(&text, '\n');
    status st = checkpoint_writer_add_blob(w, name, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

static status add_tokenizer(const save_job *j, checkpoint_writer *w, err *e) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json", "chat_template.jinja"};
    char *dir = arena_strdup(j->mem, checkpoint_writer_path(w, files[0]));
    *strrchr(dir, '/') = '\0';
    TRY(tok_save_chat(j->tok, dir, j->model.max_position_embeddings, j->chat_template, j->stop, e));
    for (int i = 0; i < ARRAY_LEN(files); i++)
        if (file_exists(checkpoint_writer_path(w, files[i])))
            TRY(checkpoint_writer_add_file(w, files[i], e));
    return ST_OK;
}

/* A number, or a list of several. */
static json_t *end_json(const tok_ids *end) {
    json_t *list = json_array();
    for (int64_t i = 0; i < end->n; i++) json_array_append_new(list, json_integer(end->id[i]));
    if (end->n != 1) return list;
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

static status add_configs(const save_job *j, checkpoint_writer *w, err *e) {
    int32_t bos = tok_bos(j->tok), eos = j->stop >= 0 ? j->stop : tok_eos(j->tok);
    json_t *model = j->lora ? peft_config(&j->lora->adapters, j->store, &j->model, j->lora->base)
                            : model_config_json(&j->model, bos, eos, j->compute);
    status st = add_json(w, j->lora ? PEFT_CONFIG : "config.json", model, e);
    json_decref(model);
    TRY(st);
    json_t *g = json_pack("{s:b}", "do_sample", 1);
    if (bos >= 0) json_object_set_new(g, "bos_token_id", json_integer(bos));
    if (j->end.n) json_object_set_new(g, "eos_token_id", end_json(&j->end));
    if (j->model.num_encoder_layers) {
        json_int_t start = model_decoder_start(&j->model);
        json_object_set_new(g, "decoder_start_token_id", json_integer(start));
        json_object_set_new(g, "pad_token_id", json_integer(start));
    }
    st = add_json(w, "generation_config.json", g, e);
    json_decref(g);
    return st;
}

/* The card is not in the manifest: people may change it. */
static status add_origins(const save_job *j, checkpoint_writer *w, err *e) {
    TRY(add_json(w, LEDGER_FILE, j->ledger, e));
    char *dir = arena_strdup(j->mem, checkpoint_writer_path(w, LEDGER_FILE));
    *strrchr(dir, '/') = '\0';
    return origins_write_card(j, dir, e);
}

/* ---- the whole ---- */

/* Tensors first: the other ranks wait for their files. */
static status write_files(const save_job *j, checkpoint_writer *w, err *e) {
    tensor_file f[MOST_FILES];
    int n = list_tensors(j, f);
    for (int i = 0; i < n; i++)
        TRY(checkpoint_writer_create_tensors(w, f[i].name, f[i].tensors, f[i].n, e));
    TRY(checkpoint_writer_call_team(w, e));
    for (int i = 0; i < n; i++) TRY(write_part(&f[i], checkpoint_writer_path(w, f[i].name), e));
    TRY(checkpoint_writer_await_team(w, e));
    TRY(add_configs(j, w, e));
    TRY(add_tokenizer(j, w, e));
    TRY(add_origins(j, w, e));
    TRY(add_json(w, "state/guard.json", j->guard, e));
    return add_json(w, "state/cursor.json", j->cursor, e);
}

static status write_all(save_job *j, err *e) {
    checkpoint_writer *w = j->writer;
    j->writer = NULL;
    checkpoint_writer_set_score(w, j->val_loss);
    status st = write_files(j, w, e);
    if (st == ST_OK) return checkpoint_writer_commit(w, e);
    checkpoint_writer_abort(w);
    return st;
}

static status write_parts(const save_job *j, err *e) {
    checkpoint_part *p;
    tensor_file f[MOST_FILES];
    status st = ST_OK;
    TRY(checkpoint_part_begin(&p, j->run, j->step, &j->team, e));
    int n = list_tensors(j, f);
    for (int i = 0; i < n && st == ST_OK; i++)
        st = write_part(&f[i], checkpoint_part_path(p, f[i].name), e);
    return checkpoint_part_end(p, st, e);
}

static bool leads(const save_job *j) {
    return j->writes && j->team.rank == 0;
}

static status in_context(const save_job *j, status st, err *e) {
    return st == ST_OK ? st : err_context(e, "saving the checkpoint of step %ld", (long)j->step);
}

status save_begin(save_job *j, err *e) {
    if (!leads(j)) return ST_OK;
    return in_context(
        j, checkpoint_writer_begin_team(&j->writer, j->run, j->step, j->need_bytes, &j->team, e),
        e);
}

void save_abandon(save_job *j) {
    checkpoint_writer_abort(j->writer);
    j->writer = NULL;
}

status save_write(save_job *j, err *e) {
    if (!j->writes) return ST_OK;
    TRY(in_context(j, leads(j) ? write_all(j, e) : write_parts(j, e), e));
    if (leads(j)) j->pruned = checkpoint_prune(j->run, &j->keep, j->step, &j->why_not_pruned);
    return ST_OK;
}

/* ---- in the background ---- */

enum { NICE = 10 };

static void *run(void *arg) {
    saving *v = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* on Linux: of this thread alone */
    v->result = save_write(v->job, &v->why);
    atomic_store_explicit(&v->done, true, memory_order_release);
    return NULL;
}

void saving_start(saving *v, save_job *job) {
    v->job = job;
    v->why = (err){0};
    atomic_store(&v->done, false);
    v->running = thread_start(&v->thread, run, v);
    if (v->running) return;
    v->result = save_write(job, &v->why);
    atomic_store(&v->done, true);
}

bool saving_is_done(const saving *v) {
    return atomic_load_explicit(&v->done, memory_order_acquire);
}

save_job *saving_take(saving *v, status *result, err *e) {
    save_job *job = v->job;
    if (v->running) pthread_join(v->thread, NULL);
    v->running = false;
    v->job = NULL;
    *result = v->result;
    if (e) *e = v->why;
    return job;
}
