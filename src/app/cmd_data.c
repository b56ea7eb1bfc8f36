/* athanor data build|show: text into token shards, and what is in them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/cli.h"
#include "app/cli_ids.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/build.h"

enum { PREVIEW_BYTES = 200, PREVIEW_TOK = 128, SHOWN_DOCUMENTS = 10 };

/* ---- data build ---- */

static const char *const BUILD_KEYS[] = {"tokenizer", "valid",        "field", "format", "split",
                                         "seed",      "shard_tokens", "eos",   NULL};

static status bad_key(const char *key, const char *value, const char *hint, err *e) {
    err_set(e, ST_USAGE, "%s=%s is not a value that %s can have", key, value, key);
    err_where(e, "%s", key);
    err_hint(e, "%s", hint);
    return ST_USAGE;
}

static status get_number(const cli_args *args, const char *key, double lo, double hi, double *out,
                         err *e) {
    const char *value = cli_override(args, key);
    if (!value) return ST_OK;
    if (text_parse_number(value, out) && *out >= lo && *out < hi) return ST_OK;
    char hint[96];
    snprintf(hint, sizeof hint, "give a number from %g to below %g", lo, hi);
    return bad_key(key, value, hint, e);
}

static status get_count(const cli_args *args, const char *key, uint64_t *out, err *e) {
    const char *value = cli_override(args, key);
    int64_t n;
    if (!value) return ST_OK;
    if (!text_parse_int(value, &n) || n < 0)
        return bad_key(key, value, "give a whole number, not negative", e);
    *out = (uint64_t)n;
    return ST_OK;
}

static status get_format(const cli_args *args, reader_format *out, err *e) {
    static const char *const NAMES[] = {"auto", "text", "jsonl"};
    const char *value = cli_override(args, "format");
    if (!value) return ST_OK;
    for (int i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(value, NAMES[i]) == 0) {
            *out = (reader_format)i;
            return ST_OK;
        }
    return bad_key("format", value, "it is auto, text or jsonl", e);
}

static status read_build_options(const cli_args *args, data_build_options *opt, err *e) {
    TRY(cli_check_overrides(args, BUILD_KEYS, e));
    opt->reader.field = cli_override(args, "field");
    TRY(get_format(args, &opt->reader.format, e));
    TRY(get_number(args, "valid", 0, 1, &opt->valid_fraction, e));
    TRY(get_count(args, "seed", &opt->seed, e));
    TRY(get_count(args, "shard_tokens", &opt->shard_tokens, e));
    const char *eos = cli_override(args, "eos");
    if (eos && strcmp(eos, "true") != 0 && strcmp(eos, "false") != 0)
        return bad_key("eos", eos, "it is true or false", e);
    opt->no_eos = eos && strcmp(eos, "false") == 0;
    const char *split = cli_override(args, "split");
    if (split && !data_split_parse(split, &opt->split))
        return bad_key("split", split, "it is auto, documents, lines or tail", e);
    return ST_OK;
}

static status need(const char *value, const char *key, const char *hint, err *e) {
    if (value) return ST_OK;
    err_set(e, ST_USAGE, "data build needs %s", key);
    err_where(e, "%s", key);
    err_hint(e, "%s", hint);
    return ST_USAGE;
}

static void show_progress(void *ctx, const data_progress *p) {
    (void)ctx;
    double rate = p->seconds > 0 ? (double)p->bytes_done / p->seconds * 1e-6 : 0;
    fprintf(stderr, "\r%.1f MB", (double)p->bytes_done * 1e-6);
    if (p->bytes_total)
        fprintf(stderr, " (%.0f %%)", 100.0 * (double)p->bytes_done / (double)p->bytes_total);
    fprintf(stderr, "  %" PRIu64 " documents  %" PRIu64 " tokens  %.1f MB/s   ", p->documents,
            p->tokens, rate);
}

static json_t *totals_json(const shard_totals *t) {
    return json_pack("{s:I,s:I,s:I}", "tokens", (json_int_t)t->tokens, "documents",
                     (json_int_t)t->documents, "text_bytes", (json_int_t)t->text_bytes);
}

/* Appends the shards of one folder, as read back from it. */
static status append_shards(json_t *list, const char *dir, err *e) {
    shards *s;
    TRY(shards_open(&s, dir, e));
    arena *a = arena_new("data build");
    for (int i = 0; i < s->n_shards; i++) {
        json_t *o = totals_json(&s->shard[i].totals);
        json_object_set_new(o, "path", json_string(path_join(a, dir, s->shard[i].file)));
        json_array_append_new(list, o);
    }
    arena_free(a);
    shards_close(s);
    return ST_OK;
}

static status print_build_json(const char *out, const data_build_result *r, err *e) {
    arena *a = arena_new("data build");
    json_t *list = json_array();
    bool split = r->valid.tokens > 0;
    status st = append_shards(list, split ? path_join(a, out, "train") : out, e);
    if (st == ST_OK && split) st = append_shards(list, path_join(a, out, "valid"), e);
    if (st == ST_OK) {
        shard_totals all = {r->train.tokens + r->valid.tokens,
                            r->train.documents + r->valid.documents,
                            r->train.text_bytes + r->valid.text_bytes};
        json_t *o = totals_json(&all);
        json_object_set(o, "shards", list);
        if (split) {
            json_object_set_new(o, "train", totals_json(&r->train));
            json_object_set_new(o, "valid", totals_json(&r->valid));
        }
        json_object_set_new(o, "seconds", json_f64(r->seconds));
        cli_print_json(o);
    }
    json_decref(list);
    arena_free(a);
    return st;
}

static void print_totals(const char *dir, const char *sub, const shard_totals *t) {
    printf("%s%s: %" PRIu64 " tokens, %" PRIu64 " documents, %" PRIu64
           " bytes of text (%.2f bytes per token)\n",
           dir, sub, t->tokens, t->documents, t->text_bytes,
           (double)t->text_bytes / (double)t->tokens);
}

static status run_build(const cli_args *args, err *e) {
    data_build_options opt = {0};
    TRY(need(args->output, "-o", "name the folder to write: -o shards", e));
    const char *tokenizer = cli_override(args, "tokenizer");
    TRY(read_build_options(args, &opt, e));
    TRY(need(tokenizer, "tokenizer",
             "give tokenizer=FILE; train one with `athanor tok train IN -o tok.json`", e));
    bool live = !args->json && isatty(STDERR_FILENO);
    if (live) opt.progress = show_progress;
    tok *t;
    TRY(tok_load(&t, tokenizer, e));
    data_build_result r;
    status st = data_build(args->inputs, args->n_inputs, args->output, t, &opt, &r, e);
    if (live) fputc('\n', stderr);
    cli_warn_of_lost_bytes(t);
    tok_free(t);
    TRY(st);
    if (args->json) return print_build_json(args->output, &r, e);
    bool split = r.valid.tokens > 0;
    print_totals(args->output, split ? "/train" : "", &r.train);
    if (split) print_totals(args->output, "/valid", &r.valid);
    return ST_OK;
}

static char *build_help(void) {
    return xstrdup(
        "IN is a text file (one document), a .jsonl file (one document a line), a folder of\n"
        "such files, or - for standard input. The shards go to SHARDS, or with valid= to\n"
        "SHARDS/train and SHARDS/valid.\n"
        "\n"
        "Keys:\n"
        "  tokenizer=FILE     tokenizer.json, or a folder that holds one\n"
        "  valid=0.1          share kept for validation (default 0: no split)\n"
        "  split=auto         what the split cuts: documents (whole ones, by a hash),\n"
        "                     lines (the tail of each file, at a line end), tail (the tail\n"
        "                     at the exact byte); auto: lines for few files, else documents\n"
        "  field=text         the field of a JSONL object that holds the text\n"
        "  format=auto        text or jsonl, instead of going by the file's name\n"
        "  eos=true           put the tokenizer's end-of-text token after each document\n"
        "  seed=0             of the split by documents\n"
        "  shard_tokens=100M  size of one shard file\n");
}

const cli_command command_data_build = {
    .name = "data build",
    .summary = "turn text into token shards",
    .usage = "IN... -o SHARDS tokenizer=FILE [valid=0.1] [key=value...]",
    .run = run_build,
    .min_inputs = 1,
    .max_inputs = -1,
    .takes_output = true,
    .takes_keys = true,
    .details = build_help,
};

/* ---- data show ---- */

/* The folder's tokenizer, or NULL with a warning: counts are worth showing without texts. */
static tok *load_tokenizer(const shards *s) {
    arena *a = arena_new("data show");
    err e;
    tok *t = NULL;
    status st = tok_load(&t, path_join(a, s->dir, "tokenizer.json"), &e);
    if (st == ST_OK) st = shards_check_tokenizer(s, tok_hash(t), &e);
    if (st != ST_OK) {
        log_warn("texts are not shown: %s", e.message);
        tok_free(t);
        t = NULL;
    }
    arena_free(a);
    return t;
}

/* The first bytes of a document's text, cut at a whole character. */
static status decode_preview(const shards *s, const tok *t, const shard_range *r, strbuf *out,
                             err *e) {
    int32_t ids[PREVIEW_TOK];
    uint64_t n = r->end_tok - r->first_tok;
    if (n > PREVIEW_TOK) n = PREVIEW_TOK;
    shards_copy(s, r->first_tok, (int64_t)n, ids);
    TRY(tok_decode(t, ids, (int64_t)n, true, out, e));
    size_t keep = out->len < PREVIEW_BYTES ? out->len : PREVIEW_BYTES;
    while (keep > 0 && keep < out->len && ((uint8_t)out->data[keep] & 0xc0) == 0x80) keep--;
    if (keep < out->len) {
        out->len = keep;
        out->data[keep] = '\0';
    }
    return ST_OK;
}

static status document_json(const shards *s, const tok *t, uint64_t doc, json_t **out, err *e) {
    shard_range r;
    if (!shards_document(s, doc, &r)) {
        err_set(e, ST_FORMAT, "%s is corrupt: document %" PRIu64 " has impossible bounds", s->dir,
                doc);
        err_where(e, "%s", s->dir);
        err_hint(e, "rebuild the folder with `athanor data build`");
        return ST_FORMAT;
    }
    strbuf text = {0};
    status st = t ? decode_preview(s, t, &r, &text, e) : ST_OK;
    if (st == ST_OK) {
        json_t *o = json_pack("{s:I,s:s,s:I,s:I}", "document", (json_int_t)doc, "source",
                              s->source[r.source], "line", (json_int_t)r.line, "tokens",
                              (json_int_t)(r.end_tok - r.first_tok));
        /* Bytes that are not UTF-8 cannot stand in JSON: then the text is null. */
        json_t *shown = t ? json_string(strbuf_cstr(&text)) : NULL;
        json_object_set_new(o, "text", shown ? shown : json_null());
        *out = o;
    }
    strbuf_free(&text);
    return st;
}

static status list_documents(const shards *s, int64_t limit, json_t **out, err *e) {
    tok *t = load_tokenizer(s);
    json_t *list = json_array();
    status st = ST_OK;
    for (uint64_t d = 0; st == ST_OK && d < s->totals.documents && d < (uint64_t)limit; d++) {
        json_t *o = NULL;
        st = document_json(s, t, d, &o, e);
        if (st == ST_OK) json_array_append_new(list, o);
    }
    tok_free(t);
    if (st == ST_OK)
        *out = list;
    else
        json_decref(list);
    return st;
}

static json_t *set_json(const shards *s, json_t *documents) {
    json_t *o = totals_json(&s->totals), *sources = json_array(), *list = json_array();
    char hex[17];
    hash_format(s->tok_hash, hex);
    for (int i = 0; i < s->n_sources; i++)
        json_array_append_new(sources, json_string(s->source[i]));
    for (int i = 0; i < s->n_shards; i++) {
        json_t *row = totals_json(&s->shard[i].totals);
        json_object_set_new(row, "file", json_string(s->shard[i].file));
        json_array_append_new(list, row);
    }
    json_object_set_new(o, "n_documents", json_integer((json_int_t)s->totals.documents));
    json_object_set_new(o, "tokenizer_hash", json_string(hex));
    json_object_set_new(o, "vocab_size", json_integer(s->vocab_size));
    json_object_set_new(o, "sources", sources);
    json_object_set_new(o, "shards", list);
    json_object_set(o, "documents", documents);
    return o;
}

static void print_preview(const char *text) {
    for (; *text; text++) putchar((unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text);
    putchar('\n');
}

static void print_set(const shards *s, const json_t *documents) {
    print_totals(s->dir, "", &s->totals);
    printf("%d shards, %d sources, ids of %d bits, vocabulary %d\n", s->n_shards, s->n_sources,
           s->width_bytes * 8, s->vocab_size);
    size_t i;
    json_t *d;
    json_array_foreach(documents, i, d) {
        json_int_t line = json_integer_value(json_object_get(d, "line"));
        printf("\n#%zu  %s", i, json_string_value(json_object_get(d, "source")));
        if (line) printf(":%" JSON_INTEGER_FORMAT, line);
        printf("  %" JSON_INTEGER_FORMAT " tokens\n",
               json_integer_value(json_object_get(d, "tokens")));
        const char *text = json_string_value(json_object_get(d, "text"));
        if (text) print_preview(text);
    }
    if (s->totals.documents > json_array_size(documents))
        printf("\n... and %" PRIu64 " more (--limit N shows N)\n",
               s->totals.documents - json_array_size(documents));
}

static status show_set(const cli_args *args, const shards *s, err *e) {
    int64_t limit;
    TRY(cli_int(args, "limit", SHOWN_DOCUMENTS, 0, INT32_MAX, &limit, e));
    if (cli_has(args, "verify")) TRY(shards_verify(s, e));
    json_t *documents;
    TRY(list_documents(s, limit, &documents, e));
    if (args->json)
        cli_print_json(set_json(s, documents));
    else
        print_set(s, documents);
    json_decref(documents);
    return ST_OK;
}

static status run_show(const cli_args *args, err *e) {
    shards *s;
    TRY(shards_open(&s, args->inputs[0], e));
    status st = show_set(args, s, e);
    shards_close(s);
    return st;
}

static const cli_option SHOW_OPTIONS[] = {
    {"limit", "N", "documents to show (default 10)"},
    {"verify", NULL, "also check every checksum, token id and document bound"},
    {0},
};

const cli_command command_data_show = {
    .name = "data show",
    .summary = "what is in a shard folder",
    .usage = "SHARDS [--limit N] [--verify]",
    .run = run_show,
    .options = SHOW_OPTIONS,
    .min_inputs = 1,
    .max_inputs = 1,
};
