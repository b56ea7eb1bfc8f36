/* athanor tok train: a tokenizer from text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "app/frame/progress.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "data/text/reader.h"
#include "tok/tok.h"

/* ---- options ---- */

static const char *const TRAIN_KEYS[] = {DATA_TEXT_KEYS, NULL};

static const char *const KINDS[] = {[TOK_BPE] = "bpe",
                                    [TOK_UNIGRAM] = "unigram",
                                    [TOK_WORDPIECE] = "wordpiece",
                                    [TOK_CHAR] = "char",
                                    [TOK_BYTE] = "byte"};

static status parse_kind(const char *name, tok_kind *kind, err *e) {
    *kind = TOK_BPE;
    for (int i = 0; i < ARRAY_LEN(KINDS); i++) {
        if (name && strcmp(name, KINDS[i]) != 0) continue;
        *kind = (tok_kind)i;
        return ST_OK;
    }
    err_at(e, ST_USAGE, "--kind", "tokenizer kind \"%.40s\" is not known", name);
    return err_hint(e, "use bpe, unigram, wordpiece, char or byte");
}

/* Options that say nothing to a kind. */
static void warn_of_idle(const cli_args *args, const tok_train_options *o) {
    bool list = o->kind == TOK_CHAR || o->kind == TOK_BYTE, bpe = o->kind == TOK_BPE;
    bool pieces = bpe && o->pattern && strcmp(o->pattern, "sentencepiece") == 0;
    const struct {
        const char *option;
        bool counts;
    } table[] = {{"vocab-size", !list},
                 {"pattern", !list},
                 {"min-frequency", bpe || o->kind == TOK_WORDPIECE},
                 {"coverage", !list && (!bpe || pieces)},
                 {"byte-fallback", o->kind == TOK_UNIGRAM},
                 {"ram", !list}};
    for (int i = 0; i < ARRAY_LEN(table); i++) {
        if (!cli_has(args, table[i].option) || table[i].counts) continue;
        log_warn("--%s changes nothing with kind %s%s", table[i].option, KINDS[o->kind],
                 pieces ? " and pattern sentencepiece" : "");
    }
}

static status train_options(const cli_args *args, arena *a, tok_train_options *opt, err *e) {
    int64_t vocab_size, min_frequency;
    const double gib = 1024.0 * 1024 * 1024;
    double ram_bytes;
    TRY(parse_kind(cli_value(args, "kind"), &opt->kind, e));
    TRY(cli_int(args, "vocab-size", 32768, 1, 1 << 24, &vocab_size, e));
    TRY(cli_int(args, "min-frequency", 2, 1, INT32_MAX, &min_frequency, e));
    TRY(cli_num(args, "coverage", 0, 0.5, 1, &opt->coverage, e));
    TRY(cli_num(args, "ram", 0, 0.1875 * gib, 1e15, &ram_bytes, e));
    opt->byte_fallback = cli_has(args, "byte-fallback");
    opt->ram_bytes = (int64_t)ram_bytes;
    opt->vocab_size = (int32_t)vocab_size;
    opt->min_frequency = min_frequency;
    opt->pattern = cli_value(args, "pattern");
    if (cli_has(args, "special")) {
        opt->special = cli_split_tokens(a, cli_value(args, "special"), &opt->n_special);
    }
    warn_of_idle(args, opt);
    return ST_OK;
}

/* ---- progress ---- */

/* What is being done, how far it is and when it will be done: one line on a terminal, drawn anew
 * ten times a second. */
typedef struct train_view {
    reader *r;
    bool live;
    const char *what;
    int64_t began_ns, shown_ns; /* of `what` */
    size_t doc_bytes;           /* of the document being read */
} train_view;

/* While documents are read, `fraction` is that of the one being read; the part that is done need
 * not stay in memory. */
static double fraction_of_input(const train_view *v, double fraction) {
    uint64_t total = reader_bytes_total(v->r), done = reader_bytes_done(v->r);
    double open = (1 - fraction) * (double)v->doc_bytes;
    return total > 0 ? ((double)done - open) / (double)total : 0;
}

static void show_line(train_view *v, double fraction, double read_mb) {
    double seconds = clock_since_s(v->began_ns);
    char eta[24] = "?";
    if (fraction > 0) progress_format_duration(seconds / fraction * (1 - fraction), eta);
    strbuf line = {0};
    strbuf_puts(&line, v->what);
    if (fraction > 0) strbuf_printf(&line, "  %.0f %%", 100 * fraction);
    if (read_mb > 0) strbuf_printf(&line, "  %.1f MB/s", read_mb / seconds);
    if (fraction > 0) strbuf_printf(&line, "  eta %s", eta);
    progress_show(stderr, line.data);
    strbuf_free(&line);
}

static void on_progress(void *ctx, double fraction, const char *what) {
    train_view *v = ctx;
    bool reading = strcmp(what, "reading") == 0;
    double read_mb = 0;
    if (reading) {
        reader_forget(v->r, (size_t)(fraction * (double)v->doc_bytes));
        fraction = fraction_of_input(v, fraction);
        read_mb = fraction * 1e-6 * (double)reader_bytes_total(v->r);
    }
    int64_t now = clock_now_ns();
    bool same = v->what && strcmp(v->what, what) == 0;
    if (!v->live || (same && now - v->shown_ns < 100000000)) return;
    if (!same) v->began_ns = now;
    v->what = what;
    v->shown_ns = now;
    show_line(v, fraction, read_mb);
}

/* ---- training ---- */

static status add_documents(tok_trainer *tr, train_view *v, err *e) {
    document doc;
    bool more;
    for (;;) {
        TRY(reader_next(v->r, &doc, &more, e));
        if (!more) return ST_OK;
        v->doc_bytes = doc.len;
        if (tok_trainer_add(tr, doc.text, doc.len, e) != ST_OK) {
            return err_context(e, "%s", doc.source);
        }
    }
}

static status read_and_train(const cli_args *args, const reader_options *opt, tok_trainer *tr,
                             train_view *v, tok **out, err *e) {
    TRY(reader_open(&v->r, args->inputs, args->n_inputs, opt, e));
    v->began_ns = clock_now_ns();
    v->what = "reading";
    status st = ST_OK;
    for (int i = 0; st == ST_OK && i < reader_n_files(v->r); i++)
        st = cli_check_tok_apart(args->output, reader_file(v->r, i), e);
    if (st == ST_OK) st = add_documents(tr, v, e);
    if (st == ST_OK) st = tok_trainer_finish(tr, out, e);
    if (v->live) progress_clear(stderr);
    reader_warn_of_broken_text(reader_get_report(v->r));
    reader_warn_of_bad_records(reader_get_report(v->r));
    reader_close(v->r);
    return st;
}

static status save(const tok *t, const char *path, arena *a, err *e) {
    const char *name = path_base(path);
    if (name > path) TRY(file_make_dirs(arena_strndup(a, path, (size_t)(name - path)), e));
    return file_is_dir(path) ? tok_save_dir(t, path, 0, e) : tok_save_file(t, path, e);
}

/* Fewer tokens than were asked for are no error, but the model gets another size by it. */
static void warn_of_fewer(const cli_args *args, const tok_train_options *opt, const tok *t) {
    int32_t got = tok_vocab_size(t);
    bool listed = opt->kind == TOK_CHAR || opt->kind == TOK_BYTE; /* nothing was chosen */
    if (!cli_has(args, "vocab-size") || listed || got >= opt->vocab_size) return;
    log_warn("%d tokens were asked for, and this text gives %d: take more text",
             (int)opt->vocab_size, (int)got);
}

static status run_train(const cli_args *args, err *e) {
    if (!args->output) {
        err_set(e, ST_USAGE, "tok train needs a place for its result");
        return err_hint(e, "add -o tok.json");
    }
    arena *a = arena_new("tok train");
    train_view view = {.live = progress_is_live(stderr) && !args->json};
    tok_train_options opt = {.progress = on_progress, .progress_ctx = &view};
    reader_options reading = {0};
    tok_trainer *tr = NULL;
    tok *t = NULL;
    int64_t start = clock_now_ns();
    status st;
    TRY_GOTO(st, train_options(args, a, &opt, e), out);
    TRY_GOTO(st, cli_check_overrides(args, TRAIN_KEYS, e), out);
    TRY_GOTO(st, data_text_options(args, a, &reading, e), out);
    TRY_GOTO(st, tok_trainer_new(&tr, &opt, e), out);
    TRY_GOTO(st, read_and_train(args, &reading, tr, &view, &t, e), out);
    TRY_GOTO(st, save(t, args->output, a, e), out);
    warn_of_fewer(args, &opt, t);
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
    {"kind", "KIND", "bpe (the default), unigram, wordpiece, char or byte"},
    {"vocab-size", "N", "tokens, special ones included (default 32768; not for char and byte)"},
    {"pattern", "NAME", "bpe: how text is cut before merging (default llama3)"},
    {"special", "A,B", "special tokens, the first ids (\"\" for none)"},
    {"min-frequency", "N", "pairs rarer than this are not merged (default 2)"},
    {"coverage", "X", "share of the text whose characters get tokens (default 0.9995 or 1)"},
    {"byte-fallback", NULL, "unigram: tokens for bytes, so that nothing is unknown"},
    {"ram", "N", "memory to stay below, such as 1.5G (default a quarter, at most 2 GiB)"},
    {NULL, NULL, NULL},
};

static char *train_help(void) {
    return xstrdup(
        "An existing folder as OUT also gets tokenizer_config.json and special_tokens_map.json.\n"
        "Pattern sentencepiece makes BPE over characters with a token for every byte, as Llama 2\n"
        "has it; all other patterns make byte-level BPE. Special tokens by default: "
        "<|endoftext|>;\n"
        "<unk> <s> </s> with sentencepiece; <pad> </s> <unk> for unigram; [PAD] [UNK] [CLS] [SEP]\n"
        "[MASK] for wordpiece. The result does not depend on the number of threads.\n"
        "\n"
        "Keys:\n" DATA_TEXT_HELP);
}

const cli_command command_tok_train = {
    .name = "tok train",
    .summary = "train a tokenizer on text and JSONL, files or folders",
    .usage = "IN... -o OUT.json [--kind KIND] [--vocab-size N] [--pattern NAME] [key=value...]",
    .run = run_train,
    .options = train_option_table,
    .min_inputs = 1,
    .max_inputs = -1,
    .takes_output = true,
    .takes_keys = true,
    .details = train_help,
};
