/* athanor tok report: tokenizers side by side on texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "app/frame/cli.h"
#include "app/frame/progress.h"
#include "app/tok/doc_feed.h"
#include "app/tok/tok_view.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

enum { MAX_GROUPS = 100 };

typedef struct job {
    const cli_args *args;
    arena *mem;
    tok_view view;
    tok_report *report;
    const tok **toks;
    const char **files;
    int n_files;
    int all_row; /* -1: one file only */
    bool split_groups;
} job;

/* ---- which inputs are tokenizers ---- */

/* Files by their names, folders by what they hold. */
static bool looks_like_tokenizer(arena *a, const char *path) {
    static const char *const NAMES[] = {"tokenizer.json", "tokenizer.model", "tokenizer.bin",
                                        "vocab.json", "vocab.txt"};
    static const char *const SUFFIXES[] = {".json", ".model", ".tiktoken", ".bin", ".gguf"};
    bool dir = file_is_dir(path);
    for (int i = 0; i < ARRAY_LEN(NAMES); i++) {
        if (dir ? file_exists(path_join(a, path, NAMES[i]))
                : strcmp(path_base(path), NAMES[i]) == 0)
            return true;
    }
    for (int i = 0; i < ARRAY_LEN(SUFFIXES) && !dir; i++)
        if (text_ends_with(path, SUFFIXES[i])) return true;
    return false;
}

static status split_inputs(job *j, int *n_toks, err *e) {
    const cli_args *args = j->args;
    int n = 1;
    while (n < args->n_inputs && looks_like_tokenizer(j->mem, args->inputs[n])) n++;
    *n_toks = n;
    j->files = args->inputs + n;
    j->n_files = args->n_inputs - n;
    if (j->n_files > 0) return ST_OK;
    err_set(e, ST_USAGE, "tok report needs texts after the tokenizers");
    return err_hint(e, "athanor tok report tok.json my.txt");
}

/* ---- names ---- */

/* The file's name without its suffix, or the folder's where every file has the same name. */
static const char *short_name(arena *a, const char *path) {
    char *copy = path_plain(a, path);
    const char *base = path_base(copy);
    bool generic = strncmp(base, "tokenizer.", 10) == 0 || strncmp(base, "vocab.", 6) == 0;
    if (generic && base > copy + 1) {
        copy[base - copy - 1] = '\0';
        return path_base(copy);
    }
    char *dot = strrchr(base, '.');
    if (dot && dot > base) *dot = '\0';
    return base;
}

static bool name_is_taken(const tok_view *v, int tok_index, const char *name) {
    for (int k = 0; k < v->n_toks; k++)
        if (k != tok_index && strcmp(v->tok[k].name, name) == 0) return true;
    return false;
}

/* Where short names clash the file's whole name, where those do the path. */
static void name_tokenizers(job *j) {
    tok_view *v = &j->view;
    for (int i = 0; i < v->n_toks; i++) v->tok[i].name = short_name(j->mem, v->tok[i].path);
    for (int i = v->n_toks - 1; i > 0; i--) {
        view_tok *t = &v->tok[i];
        if (name_is_taken(v, i, t->name)) t->name = path_base(t->path);
        if (name_is_taken(v, i, t->name)) t->name = t->path;
    }
}

static status load_tokenizers(job *j, err *e) {
    tok_view *v = &j->view;
    int n;
    TRY(split_inputs(j, &n, e));
    v->tok = ARENA_ARRAY(j->mem, view_tok, n);
    j->toks = ARENA_ARRAY(j->mem, const tok *, n);
    for (int i = 0; i < n; i++) {
        tok *t;
        v->tok[i].path = j->args->inputs[i];
        TRY(tok_load(&t, v->tok[i].path, e));
        v->tok[i].t = j->toks[i] = t;
        v->n_toks++;
    }
    name_tokenizers(j);
    return ST_OK;
}

/* ---- rows ---- */

static int add_row(job *j, view_kind kind, const char *name) {
    tok_view *v = &j->view;
    view_row row = {kind, arena_strdup(j->mem, name)};
    VEC_PUSH(v->row, v->n_rows, v->cap_rows, row);
    return tok_report_row(j->report);
}

/* The row of a group by its name; beyond MAX_GROUPS all are one. */
static int group_row(job *j, const char *name) {
    tok_view *v = &j->view;
    int n = 0;
    for (int k = 0; k < v->n_rows; k++) {
        if (v->row[k].kind != VIEW_GROUP) continue;
        if (strcmp(v->row[k].name, name) == 0) return k;
        n++;
    }
    return n < MAX_GROUPS || strcmp(name, "(more)") == 0 ? add_row(j, VIEW_GROUP, name)
                                                         : group_row(j, "(more)");
}

static void make_rows(job *j) {
    for (int i = 0; i < j->n_files; i++) {
        bool input = strcmp(j->files[i], "-") == 0;
        add_row(j, VIEW_FILE, input ? "standard input" : path_base(j->files[i]));
    }
    j->all_row = j->n_files > 1 ? add_row(j, VIEW_ALL, "all") : -1;
}

static const char *group_name(const job *j, const feed_doc *d) {
    if (!cli_has(j->args, "by")) return tok_dominant_script(d->text, d->len);
    return d->label ? d->label : "(none)";
}

static status measure(job *j, doc_feed *feed, err *e) {
    const feed_doc *docs;
    tok_report_doc *batch = NULL;
    status st;
    for (int n;;) {
        TRY_GOTO(st, doc_feed_next(feed, &docs, &n, e), out);
        if (n == 0) break;
        batch = xrealloc(batch, sizeof *batch * (size_t)n);
        for (int i = 0; i < n; i++)
            batch[i] = (tok_report_doc){
                docs[i].text,
                docs[i].len,
                {docs[i].input, group_row(j, group_name(j, &docs[i])), j->all_row}};
        TRY_GOTO(st, tok_report_add(j->report, batch, n, e), out);
    }
out:
    free(batch);
    return st;
}

/* ---- results ---- */

static void finish_view(job *j) {
    tok_view *v = &j->view;
    v->tally = ARENA_ARRAY(j->mem, tok_tally, v->n_toks * v->n_rows);
    for (int i = 0; i < v->n_toks; i++) {
        for (int k = 0; k < v->n_rows; k++)
            v->tally[i * v->n_rows + k] = tok_report_tally(j->report, i, k);
        tok_report_vocabulary(j->report, i, &v->tok[i].vocab);
        /* A vocabulary without digits has no way to split them. */
        tok_ids *ids = &v->tok[i].digits;
        if (tok_encode(v->tok[i].t, VIEW_DIGITS, strlen(VIEW_DIGITS), 0, ids, NULL)) ids->n = 0;
    }
}

static status print(const job *j, err *e) {
    const tok_view *v = &j->view;
    const char *svg = cli_value(j->args, "svg");
    strbuf text = {0};
    status st = ST_OK;
    if (svg) {
        tok_view_svg(&text, v);
        st = file_write_atomic(svg, text.data, text.len, e);
        strbuf_clear(&text);
    }
    if (st == ST_OK && j->args->json) {
        cli_print_json(tok_view_json(v, cli_has(j->args, "lists")));
    } else if (st == ST_OK) {
        tok_view_table(&text, v, progress_has_colours(stdout));
        fwrite(text.data + 1, 1, text.len - 1, stdout); /* without the first empty line */
    }
    strbuf_free(&text);
    return st;
}

static status run_job(job *j, err *e) {
    const cli_args *args = j->args;
    int64_t start = clock_now_ns();
    reader_options opt = {.label = cli_value(args, "by")};
    doc_feed *feed;
    TRY(doc_feed_options(args, j->mem, &opt, e));
    for (int i = 0; i < args->n_inputs; i++)
        TRY(cli_check_apart(cli_value(args, "svg"), args->inputs[i], e));
    if (cli_has(args, "lists") && !args->json) log_warn("--lists changes nothing without --json");
    TRY(load_tokenizers(j, e));
    j->view.group = opt.label ? opt.label : "script";
    j->report = tok_report_new(j->toks, j->view.n_toks, true);
    make_rows(j);
    bool show = !args->json && progress_is_live(stderr);
    TRY(doc_feed_open(&feed, j->files, j->n_files, &opt, show, e));
    status st = measure(j, feed, e);
    doc_feed_close(feed);
    if (st != ST_OK) return st;
    finish_view(j);
    j->view.seconds = clock_since_s(start);
    return print(j, e);
}

static status run_report(const cli_args *args, err *e) {
    job j = {.args = args, .mem = arena_new("tok report")};
    status st = run_job(&j, e);
    tok_report_free(j.report);
    for (int i = 0; i < j.view.n_toks; i++) {
        tok_vocab_report_free(&j.view.tok[i].vocab);
        tok_ids_free(&j.view.tok[i].digits);
        tok_free((tok *)j.toks[i]);
    }
    free(j.view.row);
    arena_free(j.mem);
    return st;
}

/* ---- the table ---- */

static const cli_option report_option_table[] = {
    {"by", "FIELD", "groups documents by a field of their JSONL object, such as lang"},
    {"field", "NAME", "the field of a JSONL object that holds the text (default text)"},
    {"svg", "OUT.svg", "also draws fertility and bytes per token"},
    {"lists", NULL, "with --json: the ids that are unused, unreachable, parts of characters"},
    {NULL, NULL, NULL},
};

static char *report_help(void) {
    return xstrdup(
        "Tokenizers come first: files named .json, .model, .tiktoken, .bin or .gguf, and\n"
        "folders that hold one; all other inputs are texts. A folder of texts is one row.\n"
        "Without --by, documents are grouped by the script that most of their letters belong\n"
        "to. Documents beyond 8 MiB are cut at line ends.\n"
        "\n"
        "fertility        tokens per word; words are encoded one by one, without special tokens\n"
        "PCW              share of words that take two or more tokens\n"
        "coverage, unk    share of the text that did not, and that did, become the unknown token\n"
        "unreachable      tokens that neither the texts nor their own text produce; they are\n"
        "                 never trained\n"
        "\n"
        "A word is the longest run of letters, marks and numbers; in Han, Kana, Thai, Lao, Khmer\n"
        "and Myanmar, which are written without spaces, one letter with its marks.\n"
        "\n"
        "Keys:\n" DATA_TEXT_HELP);
}

const cli_command command_tok_report = {
    .name = "tok report",
    .summary = "compare tokenizers on texts: fertility, bytes per token, coverage",
    .usage = "TOKENIZER... FILE... [--by FIELD] [--field NAME] [--svg FILE] [key=value...]",
    .run = run_report,
    .options = report_option_table,
    .min_inputs = 2,
    .max_inputs = -1,
    .takes_keys = true,
    .details = report_help,
};
