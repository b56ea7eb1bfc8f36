/* Hugging Face folders, written (see model_folder.h).
 *
 * Reading order: model_folder_write; write_configs, write_tokenizer, shards_write; staged_begin. */
#include "io/hf/model_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "tok/tok_format.h"

static status write_json(arena *a, const char *dir, const char *name, const json_t *o, err *e) {
    strbuf text = {0};
    json_format(&text, o, 2);
    strbuf_putc(&text, '\n');
    status st = file_write_atomic(path_join(a, dir, name), text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

/* NULL when there is no such file, or it is no object: then nothing of it is known. */
static json_t *read_json(arena *a, const char *dir, const char *name) {
    json_t *o;
    if (json_read_file(&o, path_join(a, dir, name), JSON_FILE_MAX_BYTES, NULL) != ST_OK)
        return NULL;
    if (json_is_object(o)) return o;
    json_decref(o);
    return NULL;
}

static status copy_file(arena *a, const char *from, const char *to, const char *name, err *e) {
    char *source = path_join(a, from, name), *data;
    size_t len;
    if (!file_exists(source)) return ST_OK;
    TRY(file_read_part(source, FILE_PART_MAX_BYTES, &data, &len, e));
    status st = file_write_atomic(path_join(a, to, name), data, len, e);
    free(data);
    return st;
}

/* ---- config.json, generation_config.json ---- */

static const char *const token_keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

/* Ids of special tokens as the source has them: eos may be a list. */
static void keep_token_ids(const model_source *s, json_t *o) {
    for (int i = 0; i < ARRAY_LEN(token_keys); i++) {
        json_t *v = json_object_get(s->keys, token_keys[i]);
        if (v && !json_is_null(v)) json_object_set(o, token_keys[i], v);
    }
}

static json_t *config_json(const model_source *s, dtype dt) {
    model_config mc = model_source_folder_config(s);
    int32_t bos = s->tok ? tok_bos(s->tok) : -1, eos = s->tok ? tok_eos(s->tok) : -1;
    json_t *o = model_config_json(&mc, bos, eos, dt);
    keep_token_ids(s, o);
    return o;
}

static status write_configs(const model_source *s, arena *a, const char *dir, dtype dt, err *e) {
    json_t *config = config_json(s, dt);
    status st = write_json(a, dir, "config.json", config, e);
    json_t *g = json_incref(s->generation);
    bool folder = s->kind == MODEL_SOURCE_HF || s->kind == MODEL_SOURCE_ADAPTER;
    if (!g && folder) g = read_json(a, s->path, "generation_config.json");
    if (!g) {
        g = json_pack("{s:b}", "_from_model_config", 1);
        for (int i = 0; i < ARRAY_LEN(token_keys); i++) {
            json_t *v = json_object_get(config, token_keys[i]);
            if (v && !json_is_null(v)) json_object_set(g, token_keys[i], v);
        }
    }
    if (st == ST_OK) st = write_json(a, dir, "generation_config.json", g, e);
    json_decref(g);
    json_decref(config);
    return st;
}

/* ---- the tokenizer ---- */

static const char MORE_TEMPLATES[] = "additional_chat_templates";

static status copy_more_templates(const model_source *s, arena *a, const char *dir, err *e) {
    char *from = path_join(a, s->path, MORE_TEMPLATES), **names;
    int n;
    if (!file_is_dir(from)) return ST_OK;
    char *to = path_join(a, dir, MORE_TEMPLATES);
    TRY(file_make_dirs(to, e));
    TRY(file_list_dir(a, from, &names, &n, e));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        if (len > 6 && strcmp(names[i] + len - 6, ".jinja") == 0)
            TRY(copy_file(a, from, to, names[i], e));
    }
    return file_sync_dir(to, e);
}

static const char *const tokenizer_files[] = {"tokenizer.json",
                                              "tokenizer_config.json",
                                              "special_tokens_map.json",
                                              "added_tokens.json",
                                              "vocab.json",
                                              "merges.txt",
                                              "vocab.txt",
                                              "tokenizer.model",
                                              "spiece.model",
                                              "sentencepiece.bpe.model",
                                              "tiktoken.model",
                                              "qwen.tiktoken",
                                              "chat_template.jinja"};

static status copy_tokenizer(const model_source *s, arena *a, const char *dir, err *e) {
    for (int i = 0; i < ARRAY_LEN(tokenizer_files); i++)
        TRY(copy_file(a, s->path, dir, tokenizer_files[i], e));
    return copy_more_templates(s, a, dir, e);
}

/* The template stands in both places where tools look for it. */
static status settle_template(arena *a, const char *dir, err *e) {
    char *path = path_join(a, dir, "chat_template.jinja"), *text = NULL;
    size_t len = 0;
    char *file = path_join(a, dir, "tokenizer_config.json");
    json_t *config;
    if (!file_exists(file)) return ST_OK;
    TRY(tok_config_load(file, &config, e));
    const json_t *key = json_object_get(config, "chat_template");
    status st = ST_OK;
    if (file_exists(path) && !key) {
        st = file_read_part(path, FILE_PART_MAX_BYTES, &text, &len, e);
        if (st == ST_OK) json_object_set_new(config, "chat_template", json_text(text, len));
        if (st == ST_OK) st = write_json(a, dir, "tokenizer_config.json", config, e);
    } else if (!file_exists(path) && json_is_string(key))
        st = file_write_atomic(path, json_string_value(key), json_string_length(key), e);
    free(text);
    json_decref(config);
    return st;
}

/* The files of a folder byte for byte, with the chat template both in chat_template.jinja and in
 * tokenizer_config.json. */
static status write_tokenizer(const model_source *s, arena *a, const char *dir, err *e) {
    if (!s->tok) return ST_OK;
    bool copied = s->kind == MODEL_SOURCE_HF || s->kind == MODEL_SOURCE_ADAPTER;
    if (copied) TRY(copy_tokenizer(s, a, dir, e));
    if (!file_exists(path_join(a, dir, "tokenizer.json")))
        TRY(tok_save_file(s->tok, path_join(a, dir, "tokenizer.json"), e));
    if (!file_exists(path_join(a, dir, "tokenizer_config.json")))
        TRY(tok_save_dir(s->tok, dir, s->config.max_position_embeddings, e));
    return settle_template(a, dir, e);
}

/* ---- weights ---- */

static bool may_be_weights(const char *name) {
    static const char end[] = ".safetensors";
    size_t n = strlen(name), n_end = strlen(end);
    if (strcmp(name, "model.safetensors.index.json") == 0) return true;
    return strncmp(name, "model", 5) == 0 && n > n_end && strcmp(name + n - n_end, end) == 0;
}

/* A tensor that does not fit beside those before it begins the next shard. */
shard_cut shards_plan(arena *a, const st_tensor *tensors, int64_t n, uint64_t max_bytes) {
    shard_cut c = {.first = ARENA_ARRAY(a, int64_t, n + 2)};
    uint64_t filled = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bytes = st_tensor_bytes(&tensors[i]);
        if (i > 0 && max_bytes && filled + bytes > max_bytes) {
            c.first[++c.n] = i;
            filled = 0;
        }
        filled += bytes;
        c.bytes += bytes;
    }
    c.first[++c.n] = n;
    c.name = ARENA_ARRAY(a, const char *, c.n);
    for (int k = 0; k < c.n; k++)
        c.name[k] = c.n == 1 ? "model.safetensors"
                             : arena_printf(a, "model-%05d-of-%05d.safetensors", k + 1, c.n);
    return c;
}

status shards_write_index(const char *dir, const st_tensor *tensors, const shard_cut *c, err *e) {
    if (c->n == 1) return ST_OK;
    json_t *map = json_object();
    for (int k = 0; k < c->n; k++)
        for (int64_t i = c->first[k]; i < c->first[k + 1]; i++)
            json_object_set_new(map, tensors[i].name, json_string(c->name[k]));
    json_t *o = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)c->bytes,
                          "weight_map", map);
    arena *a = arena_new("index");
    status st = write_json(a, dir, "model.safetensors.index.json", o, e);
    arena_free(a);
    json_decref(o);
    return st;
}

status shards_write(const char *dir, const st_tensor *tensors, int64_t n, uint64_t max_bytes,
                    int *n_files, err *e) {
    arena *a = arena_new("shards");
    shard_cut c = shards_plan(a, tensors, n, max_bytes);
    status st = ST_OK;
    for (int k = 0; k < c.n && st == ST_OK; k++)
        st = st_write(path_join(a, dir, c.name[k]), tensors + c.first[k],
                      c.first[k + 1] - c.first[k], e);
    if (st == ST_OK) st = shards_write_index(dir, tensors, &c, e);
    if (n_files) *n_files = c.n;
    arena_free(a);
    return st;
}

/* ---- the whole ---- */

/* Whether every number of `from` is one of `to`. */
static bool holds(dtype to, dtype from) {
    return to == from || to == DT_F64 || (to == DT_F32 && from != DT_F64);
}

static void describe(const model_source *s, const st_tensor *list, model_folder_report *r) {
    int64_t of[DT_COUNT] = {0}, most = 0;
    for (int i = 0; i < param_count(s->params); i++) {
        const param *p = param_at(s->params, i);
        int64_t n = param_elems(p);
        r->n_params += n;
        r->bytes += (uint64_t)n * dtype_bytes(list[i].dt);
        r->lossy |=
            !holds(list[i].dt,
                   p->rank == 2 && s->kind == MODEL_SOURCE_GGUF ? s->matrices : s->tensors[i].dt);
        of[list[i].dt] += n;
        if (of[list[i].dt] > most) {
            most = of[list[i].dt];
            r->dt = list[i].dt;
        }
    }
}

status model_folder_write_rest(const model_source *s, const char *dir, dtype dt, err *e) {
    arena *a = arena_new("model folder");
    status st = write_configs(s, a, dir, dt, e);
    if (st == ST_OK) st = write_tokenizer(s, a, dir, e);
    arena_free(a);
    return st;
}

status model_folder_write(const model_source *s, const char *dir, const model_folder_options *opt,
                          model_folder_report *out, err *e) {
    arena *a = arena_new("model folder");
    *out = (model_folder_report){0};
    st_tensor *list = model_source_folder_tensors(s, a, opt->dt);
    describe(s, list, out);
    status st = model_folder_write_rest(s, dir, out->dt, e);
    if (st == ST_OK)
        st =
            shards_write(dir, list, param_count(s->params), opt->max_shard_bytes, &out->n_files, e);
    arena_free(a);
    return st;
}

/* ---- results under a hidden name until they are complete ---- */

/* Whether a folder that is written here may have an entry of this name. */
static bool may_hold(const char *name) {
    static const char *const others[] = {"README.md", "config.json", "generation_config.json",
                                         "athanor_ledger.json", MORE_TEMPLATES};
    for (int i = 0; i < ARRAY_LEN(others); i++)
        if (strcmp(name, others[i]) == 0) return true;
    for (int i = 0; i < ARRAY_LEN(tokenizer_files); i++)
        if (strcmp(name, tokenizer_files[i]) == 0) return true;
    return may_be_weights(name);
}

static bool is_empty_folder(arena *a, const char *path) {
    char **names;
    int n;
    err ignored;
    return file_is_dir(path) && file_list_dir(a, path, &names, &n, &ignored) == ST_OK && n == 0;
}

/* --force deletes only what could have been written by it: a folder that also holds anything else
 * (a run, a project with a config.json) is not replaced. *other names what that is. */
static bool is_model(arena *a, const char *path, const char **other) {
    char **names;
    int n;
    err ignored;
    *other = NULL;
    if (!file_is_dir(path)) return gguf_is_file(path);
    if (file_list_dir(a, path, &names, &n, &ignored) != ST_OK) return false;
    for (int i = 0; i < n && !*other; i++)
        if (!may_hold(names[i])) *other = names[i];
    return !*other && file_exists(path_join(a, path, "config.json"));
}

static status refuse_existing(const char *path, err *e) {
    err_set(e, ST_USAGE, "%s exists already", path);
    err_hint(e, "give another name, or --force");
    return err_where(e, "-o %s", path);
}

static status refuse_other(const char *path, const char *other, err *e) {
    if (other)
        err_set(e, ST_USAGE, "%s holds %s, which is no part of a model, and is not replaced", path,
                other);
    else
        err_set(e, ST_USAGE, "%s is no model and is not replaced", path);
    err_hint(e, "give another name, or remove it yourself");
    return err_where(e, "-o %s", path);
}

/* Also a link that leads nowhere. */
static bool is_taken(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

/* "DIR/PREFIXNAME" for DIR/NAME. */
static const char *hidden_name(arena *a, const char *path, const char *prefix) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    return arena_printf(a, "%.*s%s%s", folder, path, prefix, path + folder);
}

/* Whether the result's place is free, or may be replaced; and the folder that it lies in. An empty folder is
 * free for a folder. */
static status claim_place(staged *s, arena *a, const char *path, bool folder, bool force, err *e) {
    s->path = path = file_behind_links(a, path_plain(a, path));
    if (is_taken(path) && !(folder && is_empty_folder(a, path))) {
        const char *other;
        if (!force) return refuse_existing(path, e);
        if (!is_model(a, path, &other)) return refuse_other(path, other, e);
        s->replace = true;
    }
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return ST_OK;
    return file_make_dirs(arena_strndup(a, path, (size_t)(slash - path)), e);
}

status staged_begin(staged *s, arena *a, const char *path, bool folder, bool force, err *e) {
    *s = (staged){0};
    TRY(claim_place(s, a, path, folder, force, e));
    s->temp = hidden_name(a, s->path, arena_printf(a, ".tmp-%ld-", (long)getpid()));
    if (is_taken(s->temp)) TRY(file_remove_tree(s->temp, e));
    if (!folder || file_make_dirs(s->temp, e) == ST_OK) return ST_OK;
    return err_rename(e, s->temp, s->path);
}

status staged_resume(staged *s, arena *a, const char *path, bool force, err *e) {
    *s = (staged){0};
    TRY(claim_place(s, a, path, true, force, e));
    s->temp = hidden_name(a, s->path, ".part-");
    return file_make_dirs(s->temp, e);
}

void staged_add_beside(staged *s, arena *a, const char *suffix) {
    s->beside = arena_printf(a, "%s%s", s->path, suffix);
    s->beside_temp = arena_printf(a, "%s%s", s->temp, suffix);
}

/* Both get their names, or none does. *old: what stood there has the hidden name now. */
static status take_places(const staged *s, bool swap, bool *old, err *e) {
    *old = s->beside && is_taken(s->beside);
    if (s->beside) TRY((*old ? file_swap : file_rename)(s->beside_temp, s->beside, e));
    status st = (swap ? file_swap : file_rename)(s->temp, s->path, e);
    if (st == ST_OK || !s->beside) return st;
    err undone = {0};
    if ((*old ? file_swap : file_rename)(s->beside, s->beside_temp, &undone) != ST_OK)
        err_context(e, "%s is that of what was not written: %s", s->beside, undone.message);
    return st;
}

status staged_commit(const staged *s, err *e) {
    bool old;
    if (file_is_dir(s->temp)) TRY(file_sync_dir(s->temp, e));
    /* a file is replaced by renaming, a folder is not */
    bool swap = s->replace && (file_is_dir(s->temp) || file_is_dir(s->path));
    TRY(take_places(s, swap, &old, e));
    TRY(file_sync_parent(s->path, e));
    if (old) TRY(file_remove_tree(s->beside_temp, e));
    return swap ? file_remove_tree(s->temp, e) : ST_OK;
}

void staged_abandon(const staged *s, err *why) {
    err ignored;
    if (!s->temp) return;
    status st = file_remove_tree(s->temp, &ignored); /* the failure that led here is told */
    if (s->beside) st = file_remove_tree(s->beside_temp, &ignored);
    (void)st;
    err_rename(why, s->temp, s->path);
}
