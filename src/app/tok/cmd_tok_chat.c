/* athanor tok chat: conversations through the chat template of a tokenizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "tok/chat/template.h"
#include "tok/tok.h"

/* ---- what is rendered ---- */

typedef struct chat_job {
    json_t *file;  /* of the messages */
    json_t *tools; /* of --tools */
    json_t *extra; /* of key=value */
    struct tm now;
    chat_request request;
} chat_job;

static status read_json(const char *path, json_t **out, err *e) {
    char *text;
    size_t len;
    json_error_t je;
    TRY(file_read_input(path, JSON_FILE_MAX_BYTES, &text, &len, e));
    *out = json_loadb(text, len, JSON_ALLOW_NUL, &je);
    free(text);
    if (*out) return ST_OK;
    err_set(e, ST_FORMAT, "%s: not JSON: %s", path, je.text);
    return err_where(e, "%s:%d", path, je.line);
}

static const json_t *member(const json_t *file, const char *key) {
    const json_t *j = json_object_get(file, key);
    return json_is_null(j) ? NULL : j;
}

/* The file is a list of messages, or an object with "messages" and perhaps tools and documents. */
static status read_job(const cli_args *args, chat_job *job, err *e) {
    TRY(read_json(args->inputs[1], &job->file, e));
    if (cli_has(args, "tools")) TRY(read_json(cli_value(args, "tools"), &job->tools, e));
    job->extra = json_object();
    cli_put_overrides(args, job->extra);
    time_t now = (time_t)clock_wall_s();
    localtime_r(&now, &job->now);
    bool list = json_is_array(job->file);
    job->request = (chat_request){
        .messages = list ? job->file : member(job->file, "messages"),
        .tools = job->tools ? job->tools : member(job->file, "tools"),
        .documents = member(job->file, "documents"),
        .extra = job->extra,
        .name = cli_value(args, "name"),
        .continue_field = cli_has(args, "continue") ? "content" : NULL,
        .add_generation_prompt =
            !cli_has(args, "no-generation-prompt") && !cli_has(args, "continue"),
        .now = &job->now,
    };
    if (job->request.messages) return ST_OK;
    return err_at(e, ST_FORMAT, args->inputs[1],
                  "%s: neither a list of messages nor an object with \"messages\"",
                  args->inputs[1]);
}

static void job_free(chat_job *job) {
    json_decref(job->file);
    json_decref(job->tools);
    json_decref(job->extra);
}

/* ---- ids and what the assistant wrote ---- */

typedef struct chat_output {
    strbuf text;
    jinja_spans marks;
    tok_ids ids;
    tok_spans places; /* beside ids */
} chat_output;

static void output_free(chat_output *o) {
    strbuf_free(&o->text);
    free(o->marks.span);
    tok_ids_free(&o->ids);
    tok_spans_free(&o->places);
}

/* Whether token i holds some byte that the assistant wrote. */
static bool is_marked(const chat_output *o, int64_t i) {
    tok_span t = o->places.span[i];
    for (int64_t k = 0; k < o->marks.n; k++) {
        jinja_span m = o->marks.span[k];
        if ((size_t)t.start < m.end && (size_t)t.end > m.start) return true;
    }
    return false;
}

static status encode(const cli_args *args, chat_output *o, err *e) {
    tok *t;
    TRY(tok_load(&t, args->inputs[0], e));
    status st = tok_encode_spans(t, strbuf_cstr(&o->text), o->text.len, 0, &o->ids, &o->places, e);
    cli_warn_of_lost_bytes(t);
    tok_free(t);
    return st;
}

/* ---- printing ---- */

static void print_marks(const chat_output *o) {
    size_t at = 0;
    for (int64_t k = 0; k < o->marks.n; k++) {
        jinja_span m = o->marks.span[k];
        if (m.start < at || m.end <= m.start) continue;
        fwrite(o->text.data + at, 1, m.start - at, stdout);
        printf("\x1b[32m");
        fwrite(o->text.data + m.start, 1, m.end - m.start, stdout);
        printf("\x1b[0m");
        at = m.end;
    }
    fwrite(strbuf_cstr(&o->text) + at, 1, o->text.len - at, stdout);
}

static void print_lists(const chat_output *o, bool mask) {
    for (int64_t i = 0; i < o->ids.n; i++) printf(i ? " %d" : "%d", (int)o->ids.id[i]);
    printf("\n");
    for (int64_t i = 0; mask && i < o->ids.n; i++) printf(i ? " %d" : "%d", is_marked(o, i));
    if (mask) printf("\n");
}

static json_t *output_json(const chat_output *o, bool ids, bool mask) {
    json_t *out = json_pack("{s:o}", "text", json_text(strbuf_cstr(&o->text), o->text.len));
    json_t *spans = json_array(), *list = json_array(), *bits = json_array();
    for (int64_t k = 0; k < o->marks.n; k++) {
        json_array_append_new(spans, json_pack("[I, I]", (json_int_t)o->marks.span[k].start,
                                               (json_int_t)o->marks.span[k].end));
    }
    for (int64_t i = 0; i < o->ids.n; i++) {
        json_array_append_new(list, json_integer(o->ids.id[i]));
        json_array_append_new(bits, json_integer(is_marked(o, i)));
    }
    if (mask) json_object_set(out, "byte_spans", spans);
    if (ids) json_object_set(out, "ids", list);
    if (ids && mask) json_object_set(out, "mask", bits);
    json_decref(spans);
    json_decref(list);
    json_decref(bits);
    return out;
}

static status print_output(const cli_args *args, const chat_output *o, err *e) {
    bool ids = cli_has(args, "ids"), mask = cli_has(args, "mask");
    if (args->json) {
        cli_print_json(output_json(o, ids, mask));
    } else if (ids) {
        print_lists(o, mask);
    } else {
        print_marks(o);
    }
    return fflush(stdout) == 0 ? ST_OK : err_errno(e, "standard output", "cannot write the text");
}

/* ---- the command ---- */

static status run_template(const cli_args *args, const chat_template *t, const chat_job *job,
                           err *e) {
    chat_output o = {0};
    bool mask = cli_has(args, "mask");
    if (mask && !chat_marks_generation(t, &job->request)) {
        err_set(e, ST_USAGE, "the chat template does not mark what the assistant writes");
        return err_hint(e, "it needs {%% generation %%} blocks around that");
    }
    status st = chat_render(t, &job->request, &o.text, mask ? &o.marks : NULL, e);
    if (st == ST_OK && cli_has(args, "ids")) st = encode(args, &o, e);
    if (st == ST_OK) st = print_output(args, &o, e);
    output_free(&o);
    return st;
}

static status run_chat(const cli_args *args, err *e) {
    chat_template *t;
    chat_job job = {0};
    TRY(chat_template_load_other(&t, args->inputs[0], cli_value(args, "template"), e));
    status st = read_job(args, &job, e);
    if (st == ST_OK) st = run_template(args, t, &job, e);
    job_free(&job);
    chat_template_free(t);
    return st;
}

static const cli_option option_table[] = {
    {"tools", "FILE", "a JSON list of tools (else the \"tools\" of MESSAGES)"},
    {"no-generation-prompt", NULL, "do not begin an answer"},
    {"continue", NULL, "leave the last message open"},
    {"name", "NAME", "which of several templates"},
    {"template", "FILE", "another template than the tokenizer's"},
    {"ids", NULL, "the ids of the text"},
    {"mask", NULL, "what the assistant wrote: green, or with --ids a line of 0 and 1"},
    {NULL, NULL, NULL},
};

const cli_command command_tok_chat = {
    .name = "tok chat",
    .summary = "a conversation as the text that a model sees",
    .usage = "TOKENIZER|TEMPLATE.jinja MESSAGES.json [variable=value...] [--tools FILE] [--ids] "
             "[--mask]",
    .run = run_chat,
    .options = option_table,
    .min_inputs = 2,
    .max_inputs = 2,
    .takes_keys = true,
};
