/* Where chat templates come from. */
#include "tok/chat/template_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "tok/format/format.h"
#include "tok/internal.h"
#include "tok/tok_format.h"

static chat_template *new_template(void) {
    chat_template *t = xcalloc(1, sizeof(*t));
    t->tokens = json_object();
    return t;
}

void chat_template_free(chat_template *t) {
    if (!t) return;
    for (int i = 0; i < t->n; i++) {
        free(t->item[i].name);
        free(t->item[i].text);
        jinja_free(t->item[i].jinja);
    }
    json_decref(t->tokens);
    free(t);
}

/* ---- questions ---- */

const char *chat_template_text(const chat_template *t) {
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->item[i].name, "default") == 0) return t->item[i].text;
    return NULL;
}

bool chat_template_mentions(const chat_template *t, const char *text) {
    for (int i = 0; i < t->n; i++)
        if (jinja_mentions(t->item[i].jinja, text)) return true;
    return false;
}

uint64_t chat_template_hash(const chat_template *t) {
    char *tokens = json_dumps(t->tokens, JSON_SORT_KEYS | JSON_COMPACT);
    uint64_t hash = hash_bytes(tokens, strlen(tokens));
    free(tokens);
    for (int i = 0; i < t->n; i++) {
        const uint64_t all[] = {hash, hash_bytes(t->item[i].name, strlen(t->item[i].name)),
                                hash_bytes(t->item[i].text, strlen(t->item[i].text))};
        hash = hash_bytes(all, sizeof all);
    }
    return hash;
}

/* ---- special tokens ---- */

void chat_template_set_token(chat_template *t, const char *name, const char *text) {
    if (text)
        json_object_set_new(t->tokens, name, json_string(text));
    else
        json_object_del(t->tokens, name);
}

static void read_tokens(chat_template *t, const json_t *config) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (int i = 0; i < ARRAY_LEN(names); i++) {
        const char *text = tok_config_token(config, names[i]);
        if (text) chat_template_set_token(t, names[i], text);
    }
}

/* ---- templates by name ---- */

static status add(chat_template *t, const char *name, const char *text, size_t len,
                  const char *origin, err *e) {
    jinja_template *jinja;
    if (t->n == CHAT_MAX_TEMPLATES) {
        return err_set(e, ST_FORMAT, "%s: more than %d chat templates", origin, CHAT_MAX_TEMPLATES);
    }
    if (jinja_parse(&jinja, text, len, e) != ST_OK) {
        err_context(e, "%s: chat template", origin);
        return ST_FORMAT;
    }
    t->item[t->n].name = xstrdup(name);
    t->item[t->n].text = xmalloc(len + 1);
    memcpy(t->item[t->n].text, text, len);
    t->item[t->n].text[len] = '\0';
    t->item[t->n].jinja = jinja;
    t->n++;
    return ST_OK;
}

static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

status chat_template_check(const char *file, const tok *t, const char *path, err *e) {
    bool needs = t && file && strcmp(file, "chatml") == 0;
    if (!needs || (tok_id(t, "<|im_start|>") >= 0 && tok_id(t, "<|im_end|>") >= 0)) return ST_OK;
    err_at(e, ST_USAGE, "--template chatml",
           "%s has no tokens <|im_start|> and <|im_end|>, with which chatml begins "
           "and ends a turn",
           path);
    return err_hint(e, "take the template that the model was taught with: --template FILE");
}

/* Pairs of texts for an encoder and a decoder: each ends with the end of text, and nothing else is said. */
static const char plain[] =
    "{% for message in messages %}{{ message['content'] + eos_token }}{% endfor %}";

static status add_file(chat_template *t, const char *name, const char *path, err *e) {
    char *text;
    size_t len;
    if (strcmp(path, "chatml") == 0) return add(t, name, chatml, sizeof chatml - 1, path, e);
    if (strcmp(path, "plain") == 0) return add(t, name, plain, sizeof plain - 1, path, e);
    status st = file_read_part(path, FILE_PART_MAX_BYTES, &text, &len, e);
    if (st != ST_OK && !strchr(path, '/') && !file_exists(path))
        return err_hint(e, "give a file; chatml and plain are built in");
    TRY(st);
    st = add(t, name, text, len, path, e);
    free(text);
    return st;
}

/* A text, or a list of objects with "name" and "template". */
static status add_config(chat_template *t, const json_t *config, const char *origin, err *e) {
    const json_t *j = json_object_get(config, "chat_template"), *item;
    size_t i;
    if (json_is_string(j)) {
        return add(t, "default", json_string_value(j), json_string_length(j), origin, e);
    }
    json_array_foreach((json_t *)j, i, item) {
        const json_t *name = json_object_get(item, "name"),
                     *text = json_object_get(item, "template");
        if (!json_is_string(name) || !json_is_string(text)) {
            return err_set(e, ST_FORMAT, "%s: entry %zu of chat_template lacks name or template",
                           origin, i);
        }
        TRY(add(t, json_string_value(name), json_string_value(text), json_string_length(text),
                origin, e));
    }
    return ST_OK;
}

/* ---- folders and files ---- */

/* FOLDER/additional_chat_templates/NAME.jinja */
static status add_named_files(chat_template *t, arena *mem, const char *dir, err *e) {
    const char *folder = path_join(mem, dir, "additional_chat_templates");
    char **names;
    int n;
    if (!file_is_dir(folder)) return ST_OK;
    TRY(file_list_dir(mem, folder, &names, &n, e));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        if (len <= 6 || strcmp(names[i] + len - 6, ".jinja") != 0) continue;
        TRY(add_file(t, arena_strndup(mem, names[i], len - 6), path_join(mem, folder, names[i]),
                     e));
    }
    return ST_OK;
}

/* A tokenizer's templates, or with `file` its special tokens and the template in that file. */
typedef struct load_job {
    chat_template *t;
    arena *mem;
    const char *path, *file;
    const tok *tok; /* of a GGUF file that is open already; NULL: to be read */
} load_job;

static status load_folder(const load_job *job, const char *dir, err *e) {
    const char *config_path = path_join(job->mem, dir, "tokenizer_config.json");
    const char *file = path_join(job->mem, dir, "chat_template.jinja");
    json_t *config = NULL;
    status st = ST_OK;
    if (file_exists(config_path)) TRY(tok_config_load(config_path, &config, e));
    read_tokens(job->t, config);
    if (!job->file && file_exists(file)) {
        st = add_file(job->t, "default", file, e);
        if (st == ST_OK) st = add_named_files(job->t, job->mem, dir, e);
    } else if (!job->file) {
        st = add_config(job->t, config, config_path, e);
    }
    json_decref(config);
    return st;
}

/* What the reader of another format found: GGUF files have a template in them. */
static status use_tok(const load_job *job, const tok *k, err *e) {
    const char *bos = tok_special(k, k->bos), *eos = tok_special(k, k->eos);
    const char *text = k->source ? k->source->chat_template : NULL;
    if (bos) chat_template_set_token(job->t, "bos_token", bos);
    if (eos) chat_template_set_token(job->t, "eos_token", eos);
    return text && !job->file ? add(job->t, "default", text, strlen(text), job->path, e) : ST_OK;
}

static status load_tok(const load_job *job, err *e) {
    tok *k;
    TRY(tok_load(&k, job->path, e));
    status st = use_tok(job, k, e);
    tok_free(k);
    return st;
}

static status load_path(const load_job *job, err *e) {
    const char *path = job->path;
    size_t dir = (size_t)(path_base(path) - path);
    if (job->tok) return use_tok(job, job->tok, e);
    if (!file_exists(path)) return err_unreadable(e, "read", path);
    if (file_is_dir(path)) return load_folder(job, path, e);
    if (text_ends_with(path, ".gguf")) return load_tok(job, e);
    if (text_ends_with(path, ".jinja"))
        return job->file ? ST_OK : add_file(job->t, "default", path, e);
    return load_folder(job, dir > 0 ? arena_strndup(job->mem, path, dir) : ".", e);
}

status chat_template_find(chat_template **out, const char *path, const tok *open, const char *file,
                          err *e) {
    load_job job = {new_template(), arena_new("chat template paths"), path, file, open};
    status st = load_path(&job, e);
    if (st == ST_OK && file) st = add_file(job.t, "default", file, e);
    arena_free(job.mem);
    *out = st == ST_OK && job.t->n > 0 ? job.t : NULL;
    if (!*out) chat_template_free(job.t);
    return st;
}

status chat_template_load_open(chat_template **out, const char *path, const tok *open,
                               const char *file, err *e) {
    TRY(chat_template_find(out, path, open, file, e));
    if (*out) return ST_OK;
    err_at(e, ST_FORMAT, path, "%s: there is no chat template", path);
    if (tok_hint_run(path, e)) return ST_FORMAT;
    return err_hint(
        e, "put one beside the tokenizer as chat_template.jinja, or give --template FILE or "
           "--template chatml (in a config: data.template); a base model has none and "
           "continues text: athanor generate");
}

status chat_template_load_other(chat_template **out, const char *path, const char *file, err *e) {
    return chat_template_load_open(out, path, NULL, file, e);
}

status chat_template_load(chat_template **out, const char *path, err *e) {
    return chat_template_load_open(out, path, NULL, NULL, e);
}

status chat_template_parse(chat_template **out, const char *text, size_t len, const json_t *config,
                           err *e) {
    chat_template *t = new_template();
    *out = NULL;
    read_tokens(t, config);
    status st = add(t, "default", text, len, "given", e);
    if (st == ST_OK)
        *out = t;
    else
        chat_template_free(t);
    return st;
}
