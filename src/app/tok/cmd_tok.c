/* athanor tok encode|decode: text to ids and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "tok/tok.h"

/* ---- lines of JSON ---- */

/* Does its work with the JSON value of a line, and prints a line. */
typedef status line_fn(const cli_args *args, const tok *t, const json_t *in, err *e);

static status do_line(const cli_args *args, const tok *t, const char *line, size_t len,
                      line_fn *each, err *e) {
    json_error_t je;
    json_t *in = json_loadb(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!in) return err_set(e, ST_FORMAT, "not JSON: %s", je.text);
    status st = each(args, t, in, e);
    json_decref(in);
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

/* Numbers go to standard output in blocks: printf and JSON values take longer than encoding. */
enum { BLOCK_BYTES = 64 << 10 };

static void put_number(strbuf *b, int32_t value) {
    char digits[10];
    int at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    strbuf_append(b, digits + at, sizeof digits - (size_t)at);
}

static void write_block(strbuf *b, size_t least) {
    if (b->len < least) return;
    fwrite(strbuf_cstr(b), 1, b->len, stdout);
    strbuf_clear(b);
}

static void put_ids(strbuf *b, const tok_ids *ids, const char *between) {
    for (int64_t i = 0; i < ids->n; i++) {
        if (i > 0) strbuf_puts(b, between);
        put_number(b, ids->id[i]);
        write_block(b, BLOCK_BYTES);
    }
}

static void put_spans(strbuf *b, const tok_spans *v) {
    for (int64_t i = 0; i < v->n; i++) {
        strbuf_puts(b, i > 0 ? ", [" : "[");
        put_number(b, v->span[i].start);
        strbuf_puts(b, ", ");
        put_number(b, v->span[i].end);
        strbuf_putc(b, ']');
        write_block(b, BLOCK_BYTES);
    }
}

/* As JSON: "offsets" in characters, as Hugging Face tokenizers counts, "byte_offsets" in bytes. */
static void put_places(strbuf *b, tok_spans *v, const char *text, size_t len) {
    tok_spans bytes = {.n = v->n, .span = xmalloc(sizeof *v->span * (size_t)(v->n + 1))};
    if (v->n > 0) memcpy(bytes.span, v->span, sizeof *v->span * (size_t)v->n);
    tok_spans_to_chars(v, text, len);
    strbuf_puts(b, ", \"offsets\": [");
    put_spans(b, v);
    strbuf_puts(b, "], \"byte_offsets\": [");
    put_spans(b, &bytes);
    strbuf_putc(b, ']');
    tok_spans_free(&bytes);
}

/* Encodes a text and prints a line: ids, or {"ids"}, with --offsets also where each lies. */
static status encode_text(const cli_args *args, const tok *t, const char *text, size_t len,
                          bool json, err *e) {
    tok_ids ids = {0};
    tok_spans spans = {0};
    strbuf out = {0};
    bool offsets = cli_has(args, "offsets");
    unsigned flags = cli_has(args, "special") ? TOK_ADD_SPECIAL : 0;
    status st = offsets ? tok_encode_spans(t, text, len, flags, &ids, &spans, e)
                        : tok_encode(t, text, len, flags, &ids, e);
    if (st == ST_OK) {
        if (json) strbuf_puts(&out, "{\"ids\": [");
        put_ids(&out, &ids, json ? ", " : " ");
        if (json) strbuf_putc(&out, ']');
        if (offsets) put_places(&out, &spans, text, len);
        strbuf_puts(&out, json ? "}\n" : "\n");
        write_block(&out, 0);
        fflush(stdout);
    }
    strbuf_free(&out);
    tok_ids_free(&ids);
    tok_spans_free(&spans);
    return st;
}

static status encode_line(const cli_args *args, const tok *t, const json_t *in, err *e) {
    const json_t *text = json_is_object(in) ? json_object_get(in, "text") : in;
    if (!json_is_string(text)) {
        err_set(e, ST_FORMAT, "the line is neither a JSON string nor an object with \"text\"");
        return err_hint(e, "leave --jsonl out to encode the file as one text");
    }
    return encode_text(args, t, json_string_value(text), json_string_length(text), true, e);
}

static status encode_whole(const cli_args *args, const tok *t, const char *text, size_t len,
                           const char *file, err *e) {
    bool json = args->json || cli_has(args, "offsets");
    status st = encode_text(args, t, text, len, json, e);
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

static status read_ids(const json_t *list, tok_ids *out, err *e) {
    const json_t *id;
    size_t i;
    if (!json_is_array(list)) {
        return err_set(e, ST_FORMAT,
                       "the line is neither a list of ids nor an object with \"ids\"");
    }
    json_array_foreach((json_t *)list, i, id) {
        json_int_t n = json_integer_value(id);
        if (!json_is_integer(id) || n < 0 || n > INT32_MAX)
            return err_set(e, ST_FORMAT, "element %zu of the list is no token id", i);
        tok_ids_push(out, (int32_t)n);
    }
    return ST_OK;
}

static status decode_line(const cli_args *args, const tok *t, const json_t *in, err *e) {
    tok_ids ids = {0};
    strbuf text = {0};
    status st = read_ids(json_is_object(in) ? json_object_get(in, "ids") : in, &ids, e);
    if (st == ST_OK) st = tok_decode(t, ids.id, ids.n, cli_has(args, "skip-special"), &text, e);
    if (st == ST_OK) cli_print_json(json_text(strbuf_cstr(&text), text.len));
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
    if (list && (cli_has(args, "jsonl") || args->n_inputs > 1)) {
        err_set(e, ST_USAGE, "tok decode is given ids twice: --ids and a file");
        return err_hint(e, "leave one of them out");
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
