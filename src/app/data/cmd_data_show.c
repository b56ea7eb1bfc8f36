/* athanor data show: what is in token shards, or in a step of a run (data_show_step.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/data/data_view.h"
#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/shard/shards.h"
#include "run/config/config.h"
#include "tok/tok.h"

enum { PREVIEW_BYTES = 200, PREVIEW_TOK = 128, SHOWN_DOCUMENTS = 10 };

/* ---- totals ---- */

json_t *data_totals_json(const shard_totals *t) {
    return json_pack("{s:I,s:I,s:I}", "tokens", (json_int_t)t->tokens, "documents",
                     (json_int_t)t->documents, "text_bytes", (json_int_t)t->text_bytes);
}

void data_print_totals(const char *dir, const char *sub, const shard_totals *t) {
    printf("%s%s: %" PRIu64 " token%s, %" PRIu64 " document%s, %" PRIu64
           " byte%s of text (%.2f bytes per token)\n",
           dir, sub, t->tokens, text_s(t->tokens), t->documents, text_s(t->documents),
           t->text_bytes, text_s(t->text_bytes), (double)t->text_bytes / (double)t->tokens);
}

/* ---- what is read, and how ---- */

static const char *const KEYS[] = {"format", "dtype", "tokenizer", NULL};

static const char *const FORMATS[] = {SHARDS_FORMATS(LIST_WORD)};
static const char *const DTYPES[] = {CONFIG_SET_TOKEN_DTYPE(LIST_WORD)};

/* The tokenizer that was given, else the folder's, else NULL with a warning: counts are worth
 * showing without texts. */
static tok *load_tokenizer(const shards *s, tok *given) {
    if (given) return given;
    arena *a = arena_new("data show");
    err e = {0};
    tok *t = NULL;
    const char *path = path_join(a, s->dir, "tokenizer.json");
    status st = ST_OK;
    if (!file_exists(path))
        st = err_set(&e, ST_USAGE, "there is no tokenizer; tokenizer=FILE gives one");
    if (st == ST_OK) st = tok_load(&t, path, &e);
    if (st == ST_OK) st = shards_check_tokenizer(s, tok_hash(t), &e);
    if (st != ST_OK) {
        log_warn("texts are not shown: %s", e.message);
        tok_free(t);
        t = NULL;
    }
    arena_free(a);
    return t;
}

/* ---- documents of a set ---- */

/* The first bytes of a document's text; where they are cut, the last character is whole. */
static status decode_preview(const shards *s, const tok *t, const shard_place *r, strbuf *out,
                             err *e) {
    int32_t ids[PREVIEW_TOK];
    uint64_t n = r->end_tok - r->first_tok;
    bool cut = n > PREVIEW_TOK;
    if (cut) n = PREVIEW_TOK;
    TRY(shards_copy(s, r->first_tok, (int64_t)n, ids, NULL, e));
    TRY(tok_decode(t, ids, (int64_t)n, true, out, e));
    if (cut) strbuf_truncate(out, out->len - (size_t)utf8_open_tail(out->data, out->len));
    if (out->len > PREVIEW_BYTES) strbuf_truncate(out, utf8_cut(out->data, PREVIEW_BYTES));
    return ST_OK;
}

status data_document_json(const shards *s, const tok *t, const shard_place *p, json_t **out,
                          err *e) {
    strbuf text = {0};
    status st = t ? decode_preview(s, t, p, &text, e) : ST_OK;
    if (st == ST_OK) {
        bool numbered = p->document != UINT64_MAX;
        json_t *o =
            json_pack("{s:o,s:o,s:I,s:o,s:o,s:I,s:I}", "document",
                      numbered ? json_integer((json_int_t)p->document) : json_null(), "source",
                      json_cstr(p->source), "line", (json_int_t)p->line, "id", json_cstr(p->id),
                      "shard", json_cstr(s->shard[p->shard].file), "first_tok",
                      (json_int_t)p->first_tok, "tokens", (json_int_t)(p->end_tok - p->first_tok));
        if (s->has_scores) json_object_set_new(o, "score", json_f32(p->score));
        json_object_set_new(o, "text", t ? json_text(strbuf_cstr(&text), text.len) : json_null());
        *out = o;
    }
    strbuf_free(&text);
    return st;
}

static status no_document(const shards *s, int64_t number, err *e) {
    err_at(e, ST_USAGE, "--from", "there is no document %" PRId64, number);
    if (!s->has_index) return err_hint(e, "%s has fewer", s->dir);
    return err_hint(e, "the last is %" PRIu64 ", counted from 0", s->totals.documents - 1);
}

/* Found one behind the other, as sets without an index know no numbers. */
static status list_documents(const shards *s, const tok *t, const data_look *look, json_t *list,
                             err *e) {
    uint64_t at = 0, from = (uint64_t)look->from;
    if (from && s->has_index && from >= s->totals.documents) return no_document(s, look->from, e);
    arena *a = arena_new("data show");
    status st = data_find_document(s, a, from, &at, e);
    if (st == ST_OK && from && at >= s->totals.tokens) st = no_document(s, look->from, e);
    for (int64_t i = 0; st == ST_OK && i < look->limit && at < s->totals.tokens; i++) {
        shard_place p;
        json_t *o = NULL;
        st = shards_locate(s, at, a, &p, e);
        if (st == ST_OK) st = data_document_json(s, t, &p, &o, e);
        if (st == ST_OK) json_array_append_new(list, o);
        at = st == ST_OK ? p.end_tok : at;
        arena_reset(a);
    }
    arena_free(a);
    return st;
}

/* ---- output ---- */

json_t *data_set_json(const shards *s, json_t *documents) {
    json_t *o = data_totals_json(&s->totals), *sources = json_array(), *list = json_array();
    char hex[17];
    hash_format(s->tok_hash, hex);
    for (int i = 0; i < s->n_sources; i++) json_array_append_new(sources, json_cstr(s->source[i]));
    for (int i = 0; i < s->n_shards; i++) {
        json_t *row = data_totals_json(&s->shard[i].totals);
        json_object_set_new(row, "file", json_string(s->shard[i].file));
        json_array_append_new(list, row);
    }
    json_object_set_new(o, "n_documents", json_integer((json_int_t)s->totals.documents));
    json_object_set_new(o, "tokenizer_hash", json_string(hex));
    json_object_set_new(o, "vocab_size", json_integer(s->vocab_size));
    json_object_set_new(o, "sources", sources);
    json_object_set_new(o, "shards", list);
    json_object_set_new(o, "documents", documents);
    return o;
}

/* A text of the data on one line, which no terminal obeys. */
static void print_plain(const json_t *text) {
    strbuf line = {0};
    strbuf_append_visible(&line, json_string_value(text), json_string_length(text));
    for (size_t i = 0; i < line.len; i++)
        putchar(strchr("\n\t", line.data[i]) ? ' ' : line.data[i]);
    strbuf_free(&line);
}

static void print_documents(const json_t *documents, int64_t from) {
    size_t i;
    json_t *d;
    json_array_foreach(documents, i, d) {
        const json_t *source = json_object_get(d, "source");
        json_int_t line = json_integer_value(json_object_get(d, "line"));
        printf("\n#%" PRId64 "  ", from + (int64_t)i);
        print_plain(json_string_length(source) ? source : json_object_get(d, "shard"));
        if (line) printf(":%" JSON_INTEGER_FORMAT, line);
        printf("  %" JSON_INTEGER_FORMAT " tokens",
               json_integer_value(json_object_get(d, "tokens")));
        const json_t *id = json_object_get(d, "id");
        if (json_is_string(id)) printf("  id ");
        print_plain(id);
        const json_t *score = json_object_get(d, "score");
        if (json_is_number(score)) printf("  score %g", json_number_value(score));
        putchar('\n');
        const json_t *text = json_object_get(d, "text");
        print_plain(text);
        if (json_is_string(text)) putchar('\n');
    }
}

static void print_foreign(const shards *s) {
    printf("%s: %" PRIu64 " tokens in %d file%s (%s), ids of %d bits, ", s->dir, s->totals.tokens,
           s->n_shards, text_s(s->n_shards), FORMATS[s->format], s->width_bytes * 8);
    if (s->has_index)
        printf("%" PRIu64 " document%s\n", s->totals.documents, text_s(s->totals.documents));
    else
        printf("no index of documents\n");
}

static void print_set(const shards *s, const json_t *documents, int64_t from) {
    if (s->format == SHARDS_OWN) {
        data_print_totals(s->dir, "", &s->totals);
        printf("%d shard%s, %d source%s, ids of %d bits, vocabulary %d\n", s->n_shards,
               text_s(s->n_shards), s->n_sources, text_s(s->n_sources), s->width_bytes * 8,
               s->vocab_size);
    } else {
        print_foreign(s);
    }
    print_documents(documents, from);
    if (!s->has_index && json_array_size(documents) > 0)
        printf("\n... (--limit N shows N documents)\n");
    else if (s->totals.documents > (uint64_t)from + json_array_size(documents))
        printf("\n... and %" PRIu64 " more (--limit N shows N)\n",
               s->totals.documents - (uint64_t)from - json_array_size(documents));
}

static status read_look(const cli_args *args, int64_t limit, data_look *look, err *e) {
    *look = (data_look){.html = cli_value(args, "html"), .json = args->json};
    look->style.color = progress_has_colours(stdout);
    look->style.tokens = cli_has(args, "tokens");
    TRY(cli_int(args, "from", 0, 0, INT64_MAX, &look->from, e));
    return cli_int(args, "limit", limit, 0, INT32_MAX, &look->limit, e);
}

/* Whether tokens are shown, rather than a line of each document. */
static bool looks_closely(const cli_args *args, const shards *s) {
    return s->chat.marks || cli_has(args, "render") || cli_has(args, "html") ||
           cli_has(args, "tokens");
}

static status need_tokenizer(const shards *s, const tok *t, const data_look *look, err *e) {
    if (t || (look->json && !look->html)) return ST_OK;
    err_set(e, ST_USAGE, "%s has no tokenizer beside it, so its tokens have no text", s->dir);
    return err_hint(e, "give tokenizer=FILE, or --json for the ids");
}

static status list_set(const shards *s, const tok *t, const data_look *look, err *e) {
    json_t *documents = json_array();
    status st = list_documents(s, t, look, documents, e);
    if (st == ST_OK && look->json) cli_print_json(data_set_json(s, json_incref(documents)));
    if (st == ST_OK && !look->json) print_set(s, documents, look->from);
    json_decref(documents);
    return st;
}

static status show_set(const cli_args *args, const shards *s, tok *given, err *e) {
    data_look look;
    TRY(read_look(args, SHOWN_DOCUMENTS, &look, e));
    if (cli_has(args, "verify")) TRY(shards_verify(s, e));
    tok *t = load_tokenizer(s, given);
    bool closely = looks_closely(args, s);
    status st = closely ? need_tokenizer(s, t, &look, e) : list_set(s, t, &look, e);
    if (st == ST_OK && closely) st = data_show_set(s, t, &look, e);
    if (t != given) tok_free(t);
    return st;
}

static status run_show_set(const cli_args *args, err *e) {
    int format = 0, dtype = 0;
    tok *given = NULL;
    TRY(cli_check_overrides(args, KEYS, e));
    TRY(data_get_word(args, "format", FORMATS, ARRAY_LEN(FORMATS), &format, e));
    TRY(data_get_word(args, "dtype", DTYPES, ARRAY_LEN(DTYPES), &dtype, e));
    if (cli_override(args, "tokenizer")) TRY(tok_load(&given, cli_override(args, "tokenizer"), e));
    shards_spec spec = {.path = args->inputs[0],
                        .format = (shards_format)format,
                        .width_bytes = 2 * dtype,
                        .vocab_size = given ? tok_vocab_size(given) : 0,
                        .eos = given ? tok_eos(given) : -1};
    shards *s;
    status st = shards_open(&s, &spec, e);
    if (st == ST_OK && given) st = shards_check_tokenizer(s, tok_hash(given), e);
    if (st == ST_OK) st = show_set(args, s, given, e);
    shards_close(s);
    tok_free(given);
    return st;
}

/* ---- the command ---- */

static status run_show_step(const cli_args *args, err *e) {
    int64_t step;
    data_look look;
    bool more = args->n_inputs || args->n_overrides || cli_has(args, "verify");
    if (more || !cli_has(args, "step")) {
        err_set(e, ST_USAGE, "--run shows one step of a run, and needs --step N and nothing else");
        return err_hint(e, "athanor data show --run %s --step 1", cli_value(args, "run"));
    }
    TRY(cli_int(args, "step", 1, 1, INT64_MAX, &step, e));
    TRY(read_look(args, INT32_MAX, &look, e));
    look.render = cli_has(args, "render") || look.style.tokens || look.html;
    return data_show_step(cli_value(args, "run"), step, &look, e);
}

static status run_show_input(const cli_args *args, err *e) {
    bool chats = false;
    data_look look;
    if (!file_is_dir(args->inputs[0])) TRY(data_build_is_chat(args, &chats, e));
    const char *of_chats = cli_has(args, "chat")       ? "--chat"
                           : cli_has(args, "template") ? "--template"
                                                       : NULL;
    if (!chats && of_chats) {
        err_at(e, ST_USAGE, of_chats, "%s does nothing here: %s is no file of conversations",
               of_chats, args->inputs[0]);
        return err_hint(e, "leave it out");
    }
    if (!chats) return run_show_set(args, e);
    TRY(read_look(args, SHOWN_DOCUMENTS, &look, e));
    return data_show_chats(args, &look, e);
}

static status run_show(const cli_args *args, err *e) {
    if (cli_has(args, "run")) return run_show_step(args, e);
    if (args->n_inputs == 1) return run_show_input(args, e);
    err_set(e, ST_USAGE, "data show needs token shards, or --run RUN --step N");
    return err_hint(e, "athanor data show SHARDS");
}

static const cli_option SHOW_OPTIONS[] = {
    {"limit", "N", "documents or samples to show (default 10; with --run all)"},
    {"from", "N", "of a set: the first document or sample to show, from 0"},
    {"verify", NULL, "also check every checksum, token id and document bound"},
    {"run", "RUN", "show what this run reads"},
    {"step", "N", "in this step, from 1"},
    {"render", NULL, "with the text and the loss mask (conversations are always shown so)"},
    {"tokens", NULL, "with the text of each token by itself"},
    {"html", "OUT", "as a page: one file, no network"},
    {"chat", "FORM", "of conversations that no set was made of yet; as in data build"},
    {"template", "FILE", "for these: another chat template than the tokenizer's"},
    {0},
};

static const cli_rule SHOW_RULES[] = {
    {"run", CLI_EXCLUDES, "from|chat|template",
     "these are of sets and conversations; --run shows one step of a run"},
    {"step", CLI_NEEDS, "run", "athanor data show --run RUN --step N"},
    {0},
};

const cli_command command_data_show = {
    .name = "data show",
    .summary = "what is in token shards, or in a training step",
    .usage = "SHARDS [key=value...] [--limit N] [--html OUT] | --run RUN --step N [--render]",
    .run = run_show,
    .options = SHOW_OPTIONS,
    .rules = SHOW_RULES,
    .max_inputs = 1,
    .takes_keys = true,
    .about =
        "SHARDS is a folder that `data build` wrote, or token files of another program (a file, a\n"
        "folder or a glob). It may also be a file of conversations: they are shown as `data "
        "build`\n"
        "would make a set of them, with the hard stops at which it would end.\n"
        "\n"
        "Keys, for token files of others:\n"
        "  format=auto      athanor, nanogpt, llm.c, megatron, nanotron or olmo\n"
        "  dtype=auto       u16 or u32, where the file does not say\n"
        "  tokenizer=FILE   shows texts, and where documents end\n"
        "\n"
        "--run shows which documents each sequence of a step holds: record of the source, shard,\n"
        "number in the set, tokens, and the positions of the row. --render adds the text; what is\n"
        "not learned (the first token, beginnings behind a document mask) is dim on a terminal,\n"
        "else in [[ ]].\n"
        "\n"
        "Of conversations every token is shown, with who wrote it: what is learned is underlined "
        "on a\n"
        "terminal, elsewhere what is not learned stands in [[ ]] and special tokens in « ». Bytes\n"
        "that are no character, and characters that cannot be seen, stand as numbers in ‹ ›.\n",
};
