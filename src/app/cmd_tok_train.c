/* athanor tok train: a tokenizer from text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/cli.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "data/reader.h"
#include "tok/tok.h"

/* ---- train ---- */

static status parse_kind(const char *name, tok_kind *kind, err *e) {
    static const char *const NAMES[] = {
        [TOK_BPE] = "bpe", [TOK_CHAR] = "char", [TOK_BYTE] = "byte"};
    *kind = TOK_BPE;
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        if (name && strcmp(name, NAMES[i]) != 0) continue;
        *kind = (tok_kind)i;
        return ST_OK;
    }
    err_set(e, ST_USAGE, "tokenizer kind \"%.40s\" is not known", name);
    err_hint(e, "use bpe, char or byte");
    return err_where(e, "--kind");
}

/* "a,b" into its parts; an empty list is no token at all. */
static const char **split_list(arena *a, const char *list, int *n) {
    const char **parts = ARENA_ARRAY(a, const char *, strlen(list) + 1);
    *n = 0;
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        parts[(*n)++] = arena_strndup(a, p, len);
        p += len + (p[len] == ',');
    }
    return parts;
}

static status train_options(const cli_args *args, arena *a, tok_train_options *opt, err *e) {
    int64_t vocab_size, min_frequency;
    TRY(parse_kind(cli_value(args, "kind"), &opt->kind, e));
    TRY(cli_int(args, "vocab-size", 32768, 1, 1 << 24, &vocab_size, e));
    TRY(cli_int(args, "min-frequency", 2, 1, INT32_MAX, &min_frequency, e));
    opt->vocab_size = (int32_t)vocab_size;
    opt->min_frequency = min_frequency;
    opt->pattern = cli_value(args, "pattern");
    if (cli_has(args, "special")) {
        opt->special = split_list(a, cli_value(args, "special"), &opt->n_special);
    }
    return ST_OK;
}

static status add_documents(tok_trainer *tr, reader *r, err *e) {
    document doc;
    bool more;
    for (;;) {
        TRY(reader_next(r, &doc, &more, e));
        if (!more) return ST_OK;
        if (tok_trainer_add(tr, doc.text, doc.len, e) != ST_OK) {
            return err_context(e, "%s", doc.source);
        }
    }
}

static status read_and_train(const cli_args *args, tok_trainer *tr, tok **out, err *e) {
    reader *r;
    TRY(reader_open(&r, args->inputs, args->n_inputs, NULL, e));
    status st = add_documents(tr, r, e);
    reader_close(r);
    return st == ST_OK ? tok_trainer_finish(tr, out, e) : st;
}

static status save(const tok *t, const char *path, err *e) {
    return file_is_dir(path) ? tok_save_dir(t, path, 0, e) : tok_save_file(t, path, e);
}

static status run_train(const cli_args *args, err *e) {
    if (!args->output) {
        err_set(e, ST_USAGE, "tok train needs a place for its result");
        return err_hint(e, "add -o tok.json");
    }
    arena *a = arena_new("tok train");
    tok_train_options opt = {0};
    tok_trainer *tr = NULL;
    tok *t = NULL;
    int64_t start = clock_now_ns();
    status st;
    TRY_GOTO(st, train_options(args, a, &opt, e), out);
    TRY_GOTO(st, tok_trainer_new(&tr, &opt, e), out);
    TRY_GOTO(st, read_and_train(args, tr, &t, e), out);
    TRY_GOTO(st, save(t, args->output, e), out);
    double seconds = clock_since_s(start);
    if (args->json) {
        cli_print_json(json_pack("{s:i, s:o}", "vocab_size", (int)tok_vocab_size(t), "seconds",
                                 json_f64(seconds)));
    } else {
        printf("%s: %d tokens in %.1f s\n", args->output, (int)tok_vocab_size(t), seconds);
    }
out:
    tok_free(t);
    tok_trainer_free(tr);
    arena_free(a);
    return st;
}

/* ---- the table ---- */

static const cli_option train_option_table[] = {
    {"kind", "KIND", "bpe (byte-level, the default), char or byte"},
    {"vocab-size", "N", "tokens, special ones included (bpe; default 32768)"},
    {"pattern", "NAME", "how text is cut before merging: llama3 (default) or gpt2"},
    {"special", "A,B", "special tokens, the first ids (default <|endoftext|>; \"\" for none)"},
    {"min-frequency", "N", "pairs rarer than this are not merged (default 2)"},
    {NULL, NULL, NULL},
};

static char *train_help(void) {
    return xstrdup("An existing folder as OUT also gets tokenizer_config.json and "
                   "special_tokens_map.json.\n");
}

const cli_command command_tok_train = {
    .name = "tok train",
    .summary = "train a tokenizer on text and JSONL, files or folders",
    .usage = "IN... -o OUT.json [--kind bpe|char|byte] [--vocab-size N] [--pattern NAME]",
    .run = run_train,
    .options = train_option_table,
    .min_inputs = 1,
    .max_inputs = -1,
    .takes_output = true,
    .details = train_help,
};
