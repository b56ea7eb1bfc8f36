/* See peft.h. */
#include "io/hf/peft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "io/hf/hf_part.h"
#include "io/hf/hf_weights.h"

static const char LORA_A[] = ".lora_A.weight", LORA_B[] = ".lora_B.weight";

bool peft_is_folder(const char *dir) {
    arena *a = arena_new("adapter");
    bool is = file_exists(path_join(a, dir, PEFT_CONFIG));
    arena_free(a);
    return is;
}

/* ---- the config ---- */

/* Keys that say how training began or was run, or of which only some values change the function;
 * those are looked at by check_config. */
static const char *const known[] = {"alpha_pattern",
                                    "auto_mapping",
                                    "base_model_name_or_path",
                                    "bias",
                                    "corda_config",
                                    "ensure_weight_tying",
                                    "eva_config",
                                    "exclude_modules",
                                    "fan_in_fan_out",
                                    "inference_mode",
                                    "init_lora_weights",
                                    "layers_pattern",
                                    "layers_to_transform",
                                    "loftq_config",
                                    "lora_alpha",
                                    "lora_dropout",
                                    "lora_ga_config",
                                    "megatron_config",
                                    "megatron_core",
                                    "modules_to_save",
                                    "peft_type",
                                    "peft_version",
                                    "qalora_group_size",
                                    "r",
                                    "rank_pattern",
                                    "revision",
                                    "runtime_config",
                                    "target_modules",
                                    "task_type",
                                    "use_rslora"};

static bool is_nothing(const json_t *v) {
    return json_is_null(v) || json_is_false(v) || (json_is_object(v) && !json_object_size(v)) ||
           (json_is_array(v) && !json_array_size(v)) ||
           (json_is_number(v) && json_number_value(v) == 0);
}

static bool is_known(const char *key) {
    for (int i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i], key) == 0) return true;
    return false;
}

static status hint_merge(err *e) {
    return err_hint(e, "merge it with PEFT (merge_and_unload), and use the folder that this gives");
}

static status refuse(const peft_adapter *p, const char *what, err *e) {
    err_set(e, ST_FORMAT, "the adapter %s has %s, which is not available here", p->dir, what);
    err_where(e, "%s/" PEFT_CONFIG, p->dir);
    return hint_merge(e);
}

static status refuse_key(const peft_adapter *p, const char *key, const json_t *v, err *e) {
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    status st = refuse(p, arena_printf(p->a, "%s %.40s", key, text ? text : ""), e);
    free(text);
    return st;
}

/* Initial weights that take their share out of the base model's. */
static bool changes_base(const json_t *init) {
    const char *word = json_string_value(init);
    return word && strcmp(word, "gaussian") != 0 && strcmp(word, "eva") != 0 &&
           strcmp(word, "orthogonal") != 0;
}

static status check_config(const peft_adapter *p, json_t *o, err *e) {
    const char *type = json_string_value(json_object_get(o, "peft_type")), *key;
    if (!type || strcmp(type, "LORA") != 0)
        return refuse(p, arena_printf(p->a, "peft_type %.40s", type ? type : "(none)"), e);
    json_t *v = json_object_get(o, "bias");
    if (v && strcmp(json_is_string(v) ? json_string_value(v) : "", "none") != 0)
        return refuse_key(p, "bias", v, e);
    static const char *const uniform[] = {"rank_pattern", "alpha_pattern"};
    for (int i = 0; i < ARRAY_LEN(uniform); i++) {
        v = json_object_get(o, uniform[i]);
        if (v && !is_nothing(v)) return refuse_key(p, uniform[i], v, e);
    }
    v = json_object_get(o, "init_lora_weights");
    if (changes_base(v)) return refuse_key(p, "init_lora_weights", v, e);
    json_object_foreach(o, key, v) {
        if (!is_known(key) && !is_nothing(v)) return refuse_key(p, key, v, e);
    }
    return ST_OK;
}

status peft_take_config(peft_adapter *p, json_t *o, err *e) {
    model_adapters *ad = &p->adapters;
    TRY(check_config(p, o, e));
    const char *base = json_string_value(json_object_get(o, "base_model_name_or_path"));
    if (base && *base) p->base = arena_strdup(p->a, base);
    ad->alpha = json_number_value(json_object_get(o, "lora_alpha"));
    p->ties = json_is_true(json_object_get(o, "ensure_weight_tying"));
    ad->rslora = json_is_true(json_object_get(o, "use_rslora"));
    ad->dropout = (float)json_number_value(json_object_get(o, "lora_dropout"));
    json_int_t rank = json_integer_value(json_object_get(o, "r"));
    bool ok = rank >= 1 && rank <= MODEL_MOST_RANK && ad->alpha > 0 && isfinite(ad->alpha) &&
              ad->dropout >= 0 && ad->dropout < 1;
    ad->rank = ok ? (int)rank : 0;
    if (ok) return ST_OK;
    err_set(e, ST_FORMAT, "%s/" PEFT_CONFIG " has no r and lora_alpha of an adapter", p->dir);
    return err_where(e, "%s/" PEFT_CONFIG, p->dir);
}

static status read_config(peft_adapter *p, err *e) {
    json_t *o;
    TRY(json_read_file(&o, path_join(p->a, p->dir, PEFT_CONFIG), JSON_FILE_MAX_BYTES, e));
    status st = peft_take_config(p, o, e);
    json_decref(o);
    return st;
}

/* ---- the tensors ---- */

static status bad_tensor(const st_view *v, const char *what, err *e) {
    return err_at(e, ST_FORMAT, v->path, "tensor %s %s", v->name, what);
}

/* Embeddings and heads by the names of the families (model/families). */
static bool is_embedding(const char *name) {
    static const char *const ends[] = {".embed_tokens.weight", ".wte.weight", ".embed_in.weight",
                                       ".shared.weight", ".token_embeddings.weight"};
    for (int i = 0; i < ARRAY_LEN(ends); i++)
        if (text_ends_with(name, ends[i])) return true;
    return false;
}

static bool is_head(const char *name) {
    return text_ends_with(name, ".lm_head.weight") || text_ends_with(name, ".embed_out.weight");
}

static status take_tensor(peft_adapter *p, const st_view *v, const char **targets, err *e) {
    model_adapters *ad = &p->adapters;
    if (strncmp(v->name, PEFT_PREFIX, strlen(PEFT_PREFIX)) != 0)
        return bad_tensor(v, "is none of PEFT: its name begins otherwise", e);
    if (v->dt != DT_F32 && v->dt != DT_BF16 && v->dt != DT_F16)
        return bad_tensor(v, "is stored in a format that no adapter has", e);
    const char *name = v->name + strlen(PEFT_PREFIX);
    bool down = text_ends_with(name, LORA_A), up = text_ends_with(name, LORA_B);
    if (v->rank != 2 || (!down && !up && !is_embedding(v->name) && !is_head(v->name))) {
        bad_tensor(v, "is trained, but neither adapter, embedding nor head", e);
        return hint_merge(e);
    }
    if (down || up) {
        if (v->dims[up ? 1 : 0] != ad->rank)
            return bad_tensor(v, "has another rank than " PEFT_CONFIG " says", e);
        if (down)
            targets[ad->n_targets++] =
                arena_printf(p->a, "%.*s", (int)(strlen(name) - strlen(LORA_A)), name);
        return ST_OK;
    }
    if (is_head(v->name)) ad->head = true;
    if (!is_embedding(v->name)) return ST_OK;
    ad->embedding = true;
    p->vocab = v->dims[0];
    return ST_OK;
}

static status read_tensors(peft_adapter *p, err *e) {
    TRY(st_open(&p->file, path_join(p->a, p->dir, PEFT_WEIGHTS), e));
    const char **targets = ARENA_ARRAY(p->a, const char *, (int)st_count(p->file) + 1);
    p->adapters.targets = targets;
    for (int64_t i = 0; i < st_count(p->file); i++)
        TRY(take_tensor(p, st_get(p->file, i), targets, e));
    if (p->adapters.n_targets) return ST_OK;
    return err_at(e, ST_FORMAT, p->dir, "%s/" PEFT_WEIGHTS " holds no adapter", p->dir);
}

status peft_open(peft_adapter *p, const char *dir, err *e) {
    *p = (peft_adapter){.a = arena_new("adapter")};
    p->dir = arena_strdup(p->a, dir);
    TRY(read_config(p, e));
    return read_tensors(p, e);
}

void peft_close(peft_adapter *p) {
    st_close(p->file);
    arena_free(p->a);
    *p = (peft_adapter){0};
}

/* ---- the base model ---- */

/* The folder that a folder is in, by its name; "." and ".." do not say it. */
static const char *folder_above(arena *a, const char *dir) {
    dir = path_plain(a, dir);
    const char *last = path_base(dir);
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) return path_join(a, dir, "..");
    return last > dir ? arena_strndup(a, dir, (size_t)(last - dir)) : ".";
}

status peft_find_base(peft_adapter *p, const char *hint, const char **base, err *e) {
    *base = p->base;
    if (p->base && file_exists(p->base)) return ST_OK;
    *base = p->base ? path_join(p->a, folder_above(p->a, p->dir), p->base) : NULL;
    if (*base && p->base[0] != '/' && file_exists(*base)) return ST_OK;
    if (p->base)
        err_set(e, ST_USAGE, "the base model %s of the adapter %s is no folder here", p->base,
                p->dir);
    else
        err_set(e, ST_USAGE, "the adapter %s names no base model", p->dir);
    err_where(e, "%s/" PEFT_CONFIG, p->dir);
    return err_hint(e, "%s", hint);
}

static const st_view *find_by_end(const st_reader *r, bool (*is)(const char *name)) {
    for (int64_t i = 0; i < st_count(r); i++)
        if (is(st_get(r, i)->name)) return st_get(r, i);
    return NULL;
}

/* Where head and embedding are one parameter, both tensors must be the same. Of an embedding alone PEFT trains a copy, beside
 * which the head stays as it was, unless the config ties the two. */
static status check_tied(const peft_adapter *p, const param_store *s, err *e) {
    if (!p->adapters.embedding && !p->adapters.head) return ST_OK;
    for (int i = 0; i < param_count(s); i++)
        if (param_at(s, i)->part == PART_HEAD && param_at(s, i)->rank == 2) return ST_OK;
    const st_view *head = find_by_end(p->file, is_head);
    const st_view *table = find_by_end(p->file, is_embedding);
    bool differs = head && !table;
    if (head && table) TRY(hf_head_differs(p->file, head, table, &differs, e));
    if (!head && !p->ties) {
        bad_tensor(table, "is trained without the head, but the base model ties the two", e);
        return err_hint(e,
                        "train it with ensure_weight_tying=True, with which PEFT keeps them one");
    }
    if (!differs) return ST_OK;
    return bad_tensor(head, "is no embedding, but the base model ties the two", e);
}

status peft_load(const peft_adapter *p, const param_store *s, hf_order order, err *e) {
    held_array masters = held_masters(s);
    TRY(check_tied(p, param_store_whole(s), e));
    status st = hf_read_array(&masters, p->file, PEFT_PREFIX, order, e);
    if (st != ST_OK) {
        err_context(e, "the adapter %s", p->dir);
        return err_hint(e, "it belongs to another base model");
    }
    param_refresh_work(s);
    return ST_OK;
}

/* ---- merging ---- */

/* Tensor NAME.SUFFIX of the matrix `p`, which is [rows,cols]. */
static status find_factor(const peft_adapter *p, const param *w, const char *suffix, int64_t rows,
                          int64_t cols, float **out, err *e) {
    const char *end = strstr(w->name, ".weight"), *dot = strchr(w->name, '.');
    int n = (int)(end - w->name), first = (int)(dot + 1 - w->name);
    const st_view *v =
        st_find(p->file, arena_printf(p->a, PEFT_PREFIX "%.*s%s", n, w->name, suffix));
    if (!v)
        v = st_find(p->file, arena_printf(p->a, PEFT_PREFIX "%.*s%s", n - first, dot + 1, suffix));
    if (!v)
        return err_at(e, ST_FORMAT, p->dir, "the adapter %s has no %.*s%s", p->dir, n, w->name,
                      suffix);
    if (v->dims[0] != rows || v->dims[1] != cols) {
        bad_tensor(v, "has another shape than the base model asks for", e);
        return err_hint(e, "it belongs to another base model");
    }
    *out = xmalloc(sizeof **out * (size_t)(rows * cols));
    return st_view_read(v, 0, rows * cols, *out, DT_F32, e);
}

/* W += scale B A. Rows of B are those of the matrix in files. */
static status merge_pair(const peft_adapter *p, const param *w, float *to, err *e) {
    int64_t rank = p->adapters.rank, cols = w->cols;
    float *a = NULL, *b = NULL, *sum = xmalloc(sizeof *sum * (size_t)cols);
    float scale = (float)model_adapters_scale(&p->adapters);
    status st = find_factor(p, w, LORA_A, rank, w->cols, &a, e);
    if (st == ST_OK) st = find_factor(p, w, LORA_B, w->rows, rank, &b, e);
    for (int64_t i = 0; st == ST_OK && i < w->rows; i++, to += cols) {
        const float *row = b + param_file_row(w, i) * rank;
        memset(sum, 0, sizeof *sum * (size_t)cols);
        for (int64_t k = 0; k < rank; k++)
            for (int64_t j = 0; j < cols; j++) sum[j] += row[k] * a[k * cols + j];
        for (int64_t j = 0; j < cols; j++) to[j] += scale * sum[j];
    }
    free(a);
    free(b);
    free(sum);
    return st;
}

static status put_whole(const peft_adapter *p, const param *w, float *to, err *e) {
    const st_view *v = find_by_end(p->file, w->part == PART_HEAD ? is_head : is_embedding);
    if (!v) return ST_OK;
    if (v->dims[0] != w->rows || v->dims[1] != w->cols) {
        bad_tensor(v, "has another shape than the base model asks for", e);
        return err_hint(e, "it belongs to another base model");
    }
    return st_view_read(v, 0, v->numel, to, DT_F32, e);
}

status peft_merge(const peft_adapter *p, const param_store *s, err *e) {
    float *masters = param_host_master(s);
    TRY(model_check_targets(&p->adapters, s, e));
    TRY(check_tied(p, s, e));
    for (int i = 0; i < param_count(s); i++) {
        const param *w = param_at(s, i);
        if (model_has_adapter(&p->adapters, w)) TRY(merge_pair(p, w, masters + w->offset, e));
        if (model_trains_whole(&p->adapters, w)) TRY(put_whole(p, w, masters + w->offset, e));
    }
    return ST_OK;
}

/* ---- writing ---- */

st_tensor *peft_declare(arena *a, const param_store *s, hf_order order) {
    const param_store *whole = param_store_whole(s);
    st_tensor *list = hf_declare(a, s, PEFT_PREFIX, DT_F32, order), *t = list;
    for (int i = 0; i < param_count(whole); i++) {
        const param *p = param_at(whole, i);
        if (p->frozen) continue;
        if (p->part == PART_HEAD && p->rank == 2) t->name = PEFT_PREFIX PEFT_HEAD ".weight";
        t++;
    }
    return list;
}

static json_t *words_json(const char *const *words, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_cstr(words[i]));
    return list;
}

/* The last words of the names of what is trained as a whole. */
static json_t *modules_json(const model_adapters *ad, const model_config *mc) {
    if (!ad->embedding && !ad->head) return json_null();
    const char *embed = mc->family->names[PART_EMBED], *dot = strrchr(embed, '.');
    json_t *list = json_array();
    if (ad->embedding) json_array_append_new(list, json_string(dot ? dot + 1 : embed));
    if (ad->head && !mc->tie_word_embeddings) json_array_append_new(list, json_string(PEFT_HEAD));
    return list;
}

json_t *peft_config(const model_adapters *ad, const param_store *s, const model_config *mc,
                    const char *base) {
    arena *a = arena_new("adapter_config");
    int n = ad->n_targets;
    const char *const *targets =
        n ? ad->targets : model_adapter_names(a, ad, param_store_whole(s), &n);
    json_t *o = json_object();
    json_object_set_new(o, "base_model_name_or_path", json_cstr(base));
    json_object_set_new(o, "bias", json_string("none"));
    json_object_set_new(o, "ensure_weight_tying",
                        json_boolean(ad->embedding && mc->tie_word_embeddings));
    json_object_set_new(o, "fan_in_fan_out", json_boolean(mc->family->transposed));
    json_object_set_new(o, "inference_mode", json_true());
    json_object_set_new(o, "lora_alpha", json_f64(ad->alpha));
    json_object_set_new(o, "lora_dropout", json_f32((double)ad->dropout));
    json_object_set_new(o, "modules_to_save", modules_json(ad, mc));
    json_object_set_new(o, "peft_type", json_string("LORA"));
    json_object_set_new(o, "r", json_integer(ad->rank));
    json_object_set_new(o, "target_modules", words_json(targets, n));
    json_object_set_new(o, "task_type",
                        json_string(mc->num_encoder_layers ? "SEQ_2_SEQ_LM" : "CAUSAL_LM"));
    json_object_set_new(o, "use_rslora", json_boolean(ad->rslora));
    arena_free(a);
    return o;
}
