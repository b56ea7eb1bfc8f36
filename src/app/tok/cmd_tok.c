/* athanor tok encode|decode: text to ids and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "tok/tok.h"

/* ---- lines of JSON ---- */

/* Calls `each` with the JSON value of every line of a text; prints what it gives, a line each. */
typedef status line_fn(const cli_args *args, const tok *t, const json_t *in, json_t **out, err *e);

static status do_line(const cli_args *args, const tok *t, const char *line, size_t len,
                      line_fn *each, err *e) {
    json_error_t je;
    json_t *out = NULL;
    json_t *in = json_loadb(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!in) return err_set(e, ST_FORMAT, "not JSON: %s", je.text);
    status st = each(args, t, in, &out, e);
    json_decref(in);
    if (st == ST_OK) cli_print_json(out);
    return st;
}

static status do_lines(const cli_args *args, const tok *t, const char *text, size_t len,
                       const char *file, line_fn *each, err *e) {
    int64_t number = 0;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        number++;
        if (n > 0 && do_line(args, t, text + at, n, each, e) != ST_OK) {
            return err_where(e, "%s:%lld", file, (long long)number);
        }
        at += n + 1;
    }
    return ST_OK;
}

/* ---- encode ---- */

static json_t *id_list(const tok_ids *ids) {
    json_t *list = json_array();
    for (int64_t i = 0; i < ids->n; i++) json_array_append_new(list, json_integer(ids->id[i]));
    return list;
}

static json_t *span_list(const tok_spans *v) {
    json_t *list = json_array();
    for (int64_t i = 0; i < v->n; i++) {
        json_array_append_new(list, json_pack("[i, i]", v->span[i].start, v->span[i].end));
    }
    return list;
}

static void print_plain(const tok_ids *ids) {
    for (int64_t i = 0; i < ids->n; i++) printf(i ? " %d" : "%d", (int)ids->id[i]);
    printf("\n");
}

/* {"ids"} of a text, with --offsets also where each lies: "offsets" in characters, as Hugging Face
 * tokenizers counts, "byte_offsets" in bytes. */
static status encode_json(const cli_args *args, const tok *t, const char *text, size_t len,
                          json_t **out, err *e) {
    tok_ids ids = {0};
    tok_spans spans = {0};
    bool offsets = cli_has(args, "offsets");
    unsigned flags = cli_has(args, "special") ? TOK_ADD_SPECIAL : 0;
    status st = offsets ? tok_encode_spans(t, text, len, flags, &ids, &spans, e)
                        : tok_encode(t, text, len, flags, &ids, e);
    if (st == ST_OK) *out = json_pack("{s:o}", "ids", id_list(&ids));
    if (st == ST_OK && offsets) {
        json_t *bytes = span_list(&spans);
        tok_spans_to_chars(&spans, text, len);
        json_object_set_new(*out, "offsets", span_list(&spans));
        json_object_set_new(*out, "byte_offsets", bytes);
    }
    tok_ids_free(&ids);
    tok_spans_free(&spans);
    return st;
}

static status encode_line(const cli_args *args, const tok *t, const json_t *in, json_t **out,
                          err *e) {
    const json_t *text = json_is_object(in) ? json_object_get(in, "text") : in;
    if (!json_is_string(text)) {
        err_set(e, ST_FORMAT, "the line is neither a JSON string nor an object with \"text\"");
        return err_hint(e, "leave --jsonl out to encode the file as one text");
    }
    return encode_json(args, t, json_string_value(text), json_string_length(text), out, e);
}

static status encode_whole(const cli_args *args, const tok *t, const char *text, size_t len,
                           const char *file, err *e) {
    status st;
    if (args->json || cli_has(args, "offsets")) {
        json_t *out = NULL;
        st = encode_json(args, t, text, len, &out, e);
        if (st == ST_OK) cli_print_json(out);
    } else {
        tok_ids ids = {0};
        st = tok_encode(t, text, len, cli_has(args, "special") ? TOK_ADD_SPECIAL : 0, &ids, e);
        if (st == ST_OK) print_plain(&ids);
        tok_ids_free(&ids);
    }
    return st == ST_OK ? st : err_where(e, "%s", file);
}

static status run_encode(const cli_args *args, err *e) {
    const char *file = args->n_inputs > 1 ? args->inputs[1] : "-";
    char *text;
    size_t len;
    tok *t;
    TRY(tok_load(&t, args->inputs[0], e));
    status st = file_read_all(file, &text, &len, e);
    if (st == ST_OK) {
        st = cli_has(args, "jsonl") ? do_lines(args, t, text, len, file, encode_line, e)
                                    : encode_whole(args, t, text, len, file, e);
        free(text);
    }
    cli_warn_of_lost_bytes(t);
    tok_free(t);
    return st;
}

/* ---- decode ---- */

static status decode_line(const cli_args *args, const tok *t, const json_t *in, json_t **out,
                          err *e) {
    tok_ids ids = {0};
    strbuf text = {0};
    const json_t *list = json_is_object(in) ? json_object_get(in, "ids") : in, *id;
    size_t i;
    if (!json_is_array(list)) {
        return err_set(e, ST_FORMAT,
                       "the line is neither a list of ids nor an object with \"ids\"");
    }
    json_array_foreach((json_t *)list, i, id) {
        tok_ids_push(&ids, json_is_integer(id) ? (int32_t)json_integer_value(id) : -1);
    }
    status st = tok_decode(t, ids.id, ids.n, cli_has(args, "skip-special"), &text, e);
    if (st == ST_OK) *out = json_text(strbuf_cstr(&text), text.len);
    tok_ids_free(&ids);
    strbuf_free(&text);
    return st;
}

static status decode_list(const cli_args *args, const tok *t, const char *list, err *e) {
    tok_ids ids = {0};
    strbuf text = {0};
    status st = cli_parse_ids(list, &ids, e);
    if (st == ST_OK) st = tok_decode(t, ids.id, ids.n, cli_has(args, "skip-special"), &text, e);
    if (st == ST_OK && args->json) {
        cli_print_json(json_pack("{s:o}", "text", json_text(strbuf_cstr(&text), text.len)));
    } else if (st == ST_OK && fwrite(strbuf_cstr(&text), 1, text.len, stdout) != text.len) {
        st = err_errno(e, "standard output", "cannot write the text");
    }
    strbuf_free(&text);
    tok_ids_free(&ids);
    return st;
}

static status decode_file(const cli_args *args, const tok *t, const char *file, err *e) {
    char *text;
    size_t len;
    TRY(file_read_all(file, &text, &len, e));
    status st = do_lines(args, t, text, len, file, decode_line, e);
    free(text);
    return st;
}

static status run_decode(const cli_args *args, err *e) {
    const char *list = cli_value(args, "ids");
    if (!list && !cli_has(args, "jsonl")) {
        err_set(e, ST_USAGE, "tok decode needs ids");
        return err_hint(e, "add --ids 1,2,3");
    }
    tok *t;
    TRY(tok_load(&t, args->inputs[0], e));
    status st = list ? decode_list(args, t, list, e)
                     : decode_file(args, t, args->n_inputs > 1 ? args->inputs[1] : "-", e);
    tok_free(t);
    return st;
}

/* ---- the table ---- */

static const cli_option encode_option_table[] = {
    {"special", NULL, "add what the post-processor adds, such as a begin token"},
    {"offsets", NULL, "also where each token lies in the text, in characters and in bytes"},
    {"jsonl", NULL, "each line is a text: a JSON string, or an object with \"text\""},
    {NULL, NULL, NULL},
};

const cli_command command_tok_encode = {
    .name = "tok encode",
    .summary = "text to ids; the whole input is one text",
    .usage = "TOKENIZER [FILE|-] [--special] [--offsets] [--jsonl]",
    .run = run_encode,
    .options = encode_option_table,
    .min_inputs = 1,
    .max_inputs = 2,
};

static const cli_option decode_option_table[] = {
    {"ids", "1,2,3", "the ids"},
    {"skip-special", NULL, "leave special tokens out"},
    {"jsonl", NULL, "each line of FILE is a list of ids, or an object with \"ids\""},
    {NULL, NULL, NULL},
};

const cli_command command_tok_decode = {
    .name = "tok decode",
    .summary = "ids to text; without --json the bytes and nothing else",
    .usage = "TOKENIZER --ids 1,2,3 | TOKENIZER [FILE|-] --jsonl",
    .run = run_decode,
    .options = decode_option_table,
    .min_inputs = 1,
    .max_inputs = 2,
};
