#include "interchange/interchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "infer/settings.h"
#include "interchange/card.h"
#include "interchange/ledger.h"
#include "interchange/unfinished.h"
#include "model/config_file.h"

/* ---- formats ---- */

typedef struct target {
    dtype dt;        /* of a folder; DT_COUNT: as stored */
    quant_type type; /* of a GGUF file */
} target;

static status find_format(const interchange_options *opt, target *t, err *e) {
    static const char *const folder[] = {"F32", "F16", "BF16"};
    static const char *const file[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"};
    *t = (target){.dt = DT_COUNT, .type = QUANT_F16};
    if (!opt->format) return ST_OK;
    char upper[16];
    snprintf(upper, sizeof upper, "%s", opt->format);
    for (char *c = upper; *c; c++)
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
    const char *const *names = opt->gguf ? file : folder;
    int n = opt->gguf ? ARRAY_LEN(file) : ARRAY_LEN(folder);
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], upper) != 0) continue;
        const quant_format *q = quant_by_name(upper);
        t->type = (quant_type)q->type;
        t->dt = q->dt;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "weights in %s cannot be written %s", opt->format,
            opt->gguf ? "into a GGUF file" : "into a folder");
    err_hint(e, opt->gguf ? "use F32, F16, BF16, Q8_0, Q4_0 or Q4_1" : "use F32, F16 or BF16");
    return err_where(e, "--dtype");
}

status interchange_check_format(const interchange_options *opt, err *e) {
    target t;
    return find_format(opt, &t, e);
}

/* ---- writing ---- */

static status write_folder(const model_source *s, const char *dir, const interchange_options *opt,
                           dtype dt, interchange_report *r, dtype *rounded, err *e) {
    model_folder_options fo = {.dt = dt, .max_shard_bytes = opt->max_shard_bytes};
    model_folder_report f;
    TRY(model_folder_write(s, dir, &fo, &f, e));
    snprintf(r->format, sizeof r->format, "%s",
             quant_by_dtype(f.dt) ? quant_by_dtype(f.dt)->name : dtype_name(f.dt));
    r->params = f.n_params;
    r->bytes = f.bytes;
    r->files = f.n_files;
    *rounded = f.lossy ? f.dt : DT_F32;
    return ST_OK;
}

/* Ids that end a text, and the template: what a folder says beside the tokenizer. */
static void read_settings(const model_source *s, gguf_model_source *g, char **template) {
    generation_settings settings;
    err ignored;
    size_t len;
    if (s->kind == MODEL_SOURCE_GGUF) {
        gguf_model_end_ids(&s->gguf, &g->end);
        return;
    }
    if (s->kind != MODEL_SOURCE_HF && s->kind != MODEL_SOURCE_ADAPTER) return;
    if (generation_settings_read(&settings, s->path, &ignored) == ST_OK)
        for (int64_t i = 0; i < settings.end.n; i++) tok_ids_push(&g->end, settings.end.id[i]);
    generation_settings_free(&settings);
    char *path = path_join(s->a, s->path, "chat_template.jinja");
    if (file_exists(path) &&
        file_read_part(path, FILE_PART_MAX_BYTES, template, &len, &ignored) == ST_OK)
        g->chat_template = *template;
}

/* The format of most numbers of a file: rows that are no whole blocks have another than was asked
 * for. */
static status put_format(const char *path, quant_type asked, interchange_report *r, err *e) {
    gguf_reader *file;
    TRY(gguf_open(&file, path, e));
    int64_t of[64] = {0}, most = 0;
    for (int64_t i = 0; i < gguf_count(file); i++) {
        const gguf_view *v = gguf_get(file, i);
        uint32_t type = v->format->type;
        if (type >= ARRAY_LEN(of)) continue;
        of[type] += v->rows * v->cols;
        if (of[type] <= most) continue;
        most = of[type];
        snprintf(r->format, sizeof r->format, "%s", v->format->name);
    }
    gguf_close(file);
    const char *name = quant_by_type(asked)->name;
    if (strcmp(r->format, name) != 0)
        strbuf_printf(&r->notes, "Most weights are %s: their rows are no whole blocks of %s.\n",
                      r->format, name);
    return ST_OK;
}

static status write_file(const model_source *s, const char *path, const char *name, quant_type type,
                         interchange_report *r, err *e) {
    model_config mc = model_source_folder_config(s);
    arena *a = arena_new("export");
    param_store *store = param_store_new(a, DT_F32);
    model_declare(&mc, store);
    param_sizes sizes = param_store_sizes(store);
    float *masters = xcalloc((size_t)sizes.flat_elems, sizeof *masters);
    char *template = NULL;
    param_store_bind(store, NULL, &(param_arrays){.master = masters});
    gguf_model_source g = {.config = &mc, .store = store, .tok = s->tok, .name = name};
    read_settings(s, &g, &template);
    status st = gguf_model_check(&g, e);
    if (st == ST_OK) st = model_source_load_folder(s, store, e);
    if (st == ST_OK) st = gguf_model_write(path, &g, type, e);
    int64_t ahead = model_ahead_params(&mc, store);
    if (ahead)
        strbuf_printf(&r->notes,
                      "The file has no modules of multi-token prediction: %ld parameters are left "
                      "out.\n",
                      (long)ahead);
    r->params = sizes.elems - ahead;
    r->bytes = st == ST_OK ? (uint64_t)file_size(path) : 0;
    r->files = 1;
    if (st == ST_OK) st = put_format(path, type, r, e);
    tok_ids_free(&g.end);
    free(template);
    free(masters);
    arena_free(a);
    return st;
}

/* ---- the model card ---- */

static void describe_check(const interchange_report *r, strbuf *out) {
    const model_comparison *c = &r->verified;
    if (c->positions == 0) {
        strbuf_puts(out, "It was not compared with its source.\n");
        return;
    }
    strbuf_printf(
        out,
        "Compared with its source on %lld position%s: the largest difference of a logit is "
        "%.3g (%.3g of the largest logit), the mean KL divergence %.3g nats, and the most "
        "likely token is the same in %.2f %%.",
        (long long)c->positions, text_s(c->positions), c->max_abs_diff, c->max_relative, c->mean_kl,
        100 * c->top1);
    if (c->texts > 0)
        strbuf_printf(out, " Both tokenizers give the same ids for %lld text%s.",
                      (long long)c->texts, text_s(c->texts));
    strbuf_puts(out, "\n");
}

static json_t *checked_json(const model_comparison *c) {
    if (c->positions == 0) return json_null();
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "positions", (json_int_t)c->positions,
                     "max_abs_logit_diff", json_f64(c->max_abs_diff), "max_rel_logit_diff",
                     json_f64(c->max_relative), "mean_kl", json_f64(c->mean_kl), "top1",
                     json_f64(c->top1));
}

/* The ledger of the result: its source is its only parent. */
static status make_ledger(const model_source *s, const staged *to, const interchange_options *opt,
                          const interchange_report *r, json_t **out, err *e) {
    json_t *parent, *files;
    TRY(ledger_read_files(to->temp, &files, e));
    if (opt->gguf)
        json_object_set_new(json_array_get(files, 0), "name", json_cstr(path_base(to->path)));
    status st = ledger_read_parent("source", s->path, r->kind, &parent, e);
    if (st != ST_OK) {
        json_decref(files);
        return st;
    }
    *out = ledger_new(opt->kind ? opt->kind : "export");
    json_object_set_new(*out, "model",
                        json_pack("{s:s, s:I, s:s, s:o}", "model_type", r->model_type, "params",
                                  (json_int_t)r->params, "format", r->format, "files", files));
    ledger_add_parent(*out, parent);
    json_object_set_new(*out, "checked", checked_json(&r->verified));
    json_object_set_new(*out, "license", json_cstr(opt->license));
    if (opt->evaluations) json_object_set(*out, "evaluations", (json_t *)opt->evaluations);
    return ST_OK;
}

/* An event of a run, in words; a score as the task has it. */
static void put_evaluation(const json_t *v, strbuf *out) {
    const json_t *loss = json_object_get(v, "val_loss"), *bpb = json_object_get(v, "val_bpb");
    const json_t *metrics = json_object_get(v, "metrics");
    const char *task = json_string_value(json_object_get(v, "task"));
    long step = (long)json_integer_value(json_object_get(v, "step"));
    if (json_is_number(loss)) {
        strbuf_printf(out, "- validation at step %ld: loss %.4f", step, json_number_value(loss));
        if (json_is_number(bpb)) /* of texts; that of preferences has no unit */
            strbuf_printf(out, " nats per token, %.4f bits per byte", json_number_value(bpb));
        strbuf_puts(out, "\n");
        return;
    }
    if (task && metrics)
        strbuf_printf(out, "- %s at step %ld: `", task, step);
    else
        strbuf_puts(out, "- `");
    json_format(out, task && metrics ? metrics : v, 0);
    strbuf_puts(out, "`\n");
}

static void put_evaluations(const json_t *list, strbuf *out) {
    size_t i;
    json_t *v;
    if (json_array_size(list) == 0) return;
    strbuf_puts(out, "\n## Evaluated\n\n");
    json_array_foreach((json_t *)list, i, v) put_evaluation(v, out);
}

static status write_card(const model_source *s, const staged *to, const interchange_options *opt,
                         const interchange_report *r, const json_t *ledger, err *e) {
    arena *a = arena_new("card");
    model_config mc = model_source_folder_config(s);
    strbuf text = {0};
    strbuf_puts(&text, "## Checked\n\n");
    describe_check(r, &text);
    if (r->notes.len) strbuf_printf(&text, "\n%s", strbuf_cstr(&r->notes));
    put_evaluations(opt->evaluations, &text);
    card c = {.name = path_base(to->path),
              .config = &mc,
              .params = r->params,
              .format = r->format,
              .bytes = r->bytes,
              .files = r->files,
              .made = arena_printf(a, "written from %s", r->kind),
              .license = opt->license ? opt->license : card_license_of(a, s->path),
              .ledger = ledger,
              .sections = strbuf_cstr(&text),
              .where = &r->where};
    status st = card_write(&c, to->temp, to->replace ? to->path : NULL, e);
    strbuf_free(&text);
    arena_free(a);
    return st;
}

/* The ledger, and of a folder the card. */
static status write_origins(const model_source *s, const staged *to, const interchange_options *opt,
                            const interchange_report *r, err *e) {
    json_t *ledger;
    TRY(make_ledger(s, to, opt, r, &ledger, e));
    status st = ledger_write(to->temp, ledger, e);
    if (st == ST_OK && !opt->gguf) st = write_card(s, to, opt, r, ledger, e);
    json_decref(ledger);
    return st;
}

/* ---- the whole ---- */

static status check_same(const model_comparison *c, dtype rounded, const char *result, err *e) {
    const char *exact = rounded == DT_F32 ? "" : "--dtype F32 keeps all numbers, and ";
    if (c->verified) return ST_OK;
    if (!c->ids_equal)
        err_set(e, ST_FAILED,
                "the tokenizer of the result gives other ids than that of the source");
    else
        err_set(e, ST_FAILED,
                "the result computes something else: logits differ by up to %g (%g of the largest; "
                "at most %g is right), KL %g (%g)",
                c->max_abs_diff, c->max_relative, c->limits.relative, c->mean_kl, c->limits.kl);
    err_hint(e, "nothing was left at %s; %s--no-verify writes it all the same", result, exact);
    return err_where(e, "%s", result);
}

static status ask_rounding(const model_source *s, const char *result, interchange_report *r,
                           err *e) {
    TRY(compare_rounding(s, result, &r->verified, e));
    if (r->verified.by_rounding)
        strbuf_printf(
            &r->notes,
            "Rounding to %s alone changes what this model computes by more than is usual: "
            "see the figures, or take --dtype F32.\n",
            r->format);
    return ST_OK;
}

/* s: what is written; source: what its logits are compared with, where these should be the same. */
static status write_and_verify(const model_source *s, const model_source *source, const staged *to,
                               const interchange_options *opt, const target *t,
                               interchange_report *r, err *e) {
    dtype rounded = t->dt == DT_COUNT ? DT_F16 : t->dt;
    if (opt->gguf)
        TRY(write_file(s, to->temp, path_base(to->path), t->type, r, e));
    else
        TRY(write_folder(s, to->temp, opt, t->dt, r, &rounded, e));
    if (opt->verify) {
        TRY(compare_weights(s, to->temp, rounded, e));
        if (!opt->inherit || !opt->inherit->map) /* else its ids are others */
            TRY(compare_models(source, to->temp, compare_limits_of(rounded), &r->verified, e));
        bool other = opt->inherit || (opt->upcycle && opt->upcycle->noise > 0);
        bool narrow = rounded == DT_F16 || rounded == DT_BF16; /* blocks cost what they cost */
        if (s == source && narrow && !r->verified.verified) TRY(ask_rounding(s, to->temp, r, e));
        if (!other) TRY(check_same(&r->verified, rounded, to->path, e));
    }
    TRY(write_origins(s, to, opt, r, e));
    unfinished_hold();
    status st = staged_commit(to, e);
    unfinished_release();
    return st;
}

/* What an adapter was trained beside, if not beside the weights into which it is merged. A folder that is in 4 bits itself has none in full. */
static void note_base(const model_source *s, strbuf *notes) {
    json_t *ledger = s->kind == MODEL_SOURCE_ADAPTER ? ledger_read(s->path) : NULL;
    const json_t *run = json_object_get(json_object_get(ledger, "run"), "config");
    const json_t *dt = json_object_get(json_object_get(run, "lora"), "base_dtype");
    bool full = !config_is_nf4(json_object_get(s->keys, "quantization_config"));
    if (full && json_is_string(dt) && strcmp(json_string_value(dt), "nf4") == 0)
        strbuf_puts(notes, "The adapter was trained beside its base model in 4 bits (NF4), and is "
                           "merged into the weights in full.\n");
    json_decref(ledger);
}

status interchange_run(const char *source, const char *result, const interchange_options *opt,
                       interchange_report *out, err *e) {
    model_source s, made;
    const model_source *written = &s;
    staged to = {0};
    target t;
    *out = (interchange_report){0};
    TRY(find_format(opt, &t, e));
    unfinished_begin(&to.temp, &to.beside_temp);
    status st = model_source_open_on(&s, source, opt->base, opt->ignore, opt->n_ignore, e);
    if (st == ST_OK && (opt->upcycle || opt->inherit)) {
        st = opt->upcycle ? upcycle_source(&s, opt->upcycle, &made, e)
                          : inherit_source(&s, opt->inherit, &made, e);
        written = &made;
    }
    if (st == ST_OK) {
        model_config mc = model_source_folder_config(written);
        out->kind = model_source_kind_name(s.kind);
        out->model_type = mc.family->model_type;
        out->where = where_runs_of(&mc, s.tok);
        strbuf_append(&out->notes, strbuf_cstr(&s.notes), s.notes.len);
        note_base(&s, &out->notes);
        if (opt->gguf && !s.tok)
            strbuf_puts(&out->notes, "There is no tokenizer: llama.cpp will take and give ids "
                                     "alone.\n");
        st = staged_begin(&to, s.a, result, !opt->gguf, opt->force, e);
        if (st == ST_OK && opt->gguf) staged_add_beside(&to, s.a, LEDGER_BESIDE);
    }
    if (st == ST_OK) {
        st = write_and_verify(written, &s, &to, opt, &t, out, e);
        if (st != ST_OK) staged_abandon(&to, e);
    }
    unfinished_end();
    model_source_close(&s);
    return st;
}

void interchange_report_free(interchange_report *r) {
    strbuf_free(&r->notes);
}
