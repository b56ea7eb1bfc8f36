/* The program's frame: finds the command, runs it, reports its failure in text or JSON. */
#include "app/frame/cli_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/frame/progress.h"
#include "app/ranks/ranks.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "op/op.h"

#ifndef CLI_COMMANDS /* a program with fewer names another table */
#define CLI_COMMANDS "app/frame/commands.def"
#endif

#define COMMAND(symbol) extern const cli_command symbol;
#include CLI_COMMANDS
#undef COMMAND

#define COMMAND(symbol) &symbol,
static const cli_command *const commands[] = {
#include CLI_COMMANDS
};
#undef COMMAND

void cli_print_text(FILE *stream, const char *text, size_t len) {
    strbuf visible = {0};
    if (isatty(fileno(stream))) {
        strbuf_append_visible(&visible, text, len);
        text = strbuf_cstr(&visible);
        len = visible.len;
    }
    fwrite(text, 1, len, stream);
    fflush(stream);
    strbuf_free(&visible);
}

void cli_print_name(const char *name, int width) {
    int most = width < 0 ? -width : width, n = (int)strnlen(name, most ? (size_t)most : SIZE_MAX);
    for (int i = n; i < width; i++) putchar(' ');
    cli_print_text(stdout, name, (size_t)n);
    for (int i = n; i < -width; i++) putchar(' ');
}

void cli_print_piece(void *unused, const char *text, size_t len) {
    (void)unused;
    cli_print_text(stdout, text, len);
}

static void print_json(json_t *value, int indent) {
    strbuf out = {0};
    json_format(&out, value, indent);
    strbuf_putc(&out, '\n');
    fwrite(out.data, 1, out.len, stdout);
    fflush(stdout);
    strbuf_free(&out);
    json_decref(value);
}

void cli_print_json(json_t *value) {
    print_json(value, 0);
}

void cli_print_json_pretty(json_t *value) {
    print_json(value, 2);
}

/* The command that argv[1..] names, and how many words its name has; NULL when there is none. */
static const cli_command *find_command(int argc, char **argv, int *words) {
    const cli_command *found = NULL;
    char two[256] = "";
    if (argc > 2) snprintf(two, sizeof two, "%.100s %.100s", argv[1], argv[2]);
    for (int i = 0; i < ARRAY_LEN(commands); i++) {
        if (argc > 2 && strcmp(commands[i]->name, two) == 0) {
            *words = 2;
            return commands[i];
        }
        if (argc > 1 && strcmp(commands[i]->name, argv[1]) == 0) {
            *words = 1;
            found = commands[i];
        }
    }
    return found;
}

/* ---- help ---- */

/* A row of two columns. */
static void put_columns(strbuf *out, const char *left, int width, const char *text) {
    strbuf_printf(out, "  %-*s %s\n", width, left, text);
}

static void put_command(strbuf *out, const cli_command *c) {
    put_columns(out, c->name, 17, c->summary);
}

static void print_text(strbuf *text) {
    progress_put_rows(stdout, strbuf_cstr(text));
    strbuf_free(text);
}

static void print_help(void) {
    strbuf out = {0};
    strbuf_puts(&out,
                "athanor " ATHANOR_VERSION
                ": trains language models, from text to a model that writes\n\n"
                "usage: athanor COMMAND INPUT... [-o OUT] [key.path=value...] [--option value] "
                "[--json]\n       athanor help [COMMAND]\n\ncommands:\n");
    for (int i = 0; i < ARRAY_LEN(commands); i++) put_command(&out, commands[i]);
    strbuf_puts(&out,
                "\nathanor COMMAND --help says more about each. Exit status: 0 done, 1 failed, "
                "2 wrong usage or\nconfig, 3 bad file, 4 does not fit in memory, 5 NaN or "
                "divergence, 6 a rank failed, 75 stopped\non a signal with its state saved.\n");
    print_text(&out);
}

static void put_option(strbuf *out, const char *name, const char *value, const char *help) {
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", name, value ? " " : "", value ? value : "");
    put_columns(out, left, 22, help);
}

/* The commands whose first word that is, under a title; false when there are none. */
static bool put_group(strbuf *out, const char *title, const char *word) {
    size_t n = strlen(word);
    bool any = false;
    for (int i = 0; i < ARRAY_LEN(commands); i++) {
        const char *name = commands[i]->name;
        if (strncmp(name, word, n) != 0 || name[n] != ' ') continue;
        if (!any) strbuf_puts(out, title);
        any = true;
        put_command(out, commands[i]);
    }
    return any;
}

static void print_command_help(const cli_command *c) {
    strbuf out = {0};
    strbuf_printf(&out, "athanor %s: %s\n\nusage: athanor %s %s\n\noptions:\n", c->name, c->summary,
                  c->name, c->usage);
    for (int i = 0; c->options && c->options[i].name; i++)
        put_option(&out, c->options[i].name, c->options[i].value, c->options[i].help);
    if (c->takes_output || c->needs_output)
        put_columns(&out, "-o OUT", 22, "where the result goes");
    put_option(&out, "json", NULL, "standard output carries only JSON");
    put_option(&out, "help", NULL, "this text");
    (void)put_group(&out, "\nfurther commands:\n", c->name);
    if (c->about) strbuf_printf(&out, "\n%s", c->about);
    char *details = c->details ? c->details() : NULL;
    if (details) strbuf_printf(&out, "\n%s", details);
    free(details);
    print_text(&out);
}

static bool print_group_help(const char *word) {
    strbuf out = {0};
    bool any = put_group(&out, "commands:\n", word);
    print_text(&out);
    return any;
}

/* "athanor help COMMAND" as "athanor COMMAND --help"; a word fewer, and one more. */
static void turn_help(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "help") != 0) return;
    for (int i = 1; i + 1 < argc; i++) argv[i] = argv[i + 1];
    argv[argc - 1] = "--help";
}

/* Whether argv[i] is one more word of a command's name, known or not. */
static bool is_name(int argc, char **argv, int i) {
    return i < argc && argv[i][0] != '-';
}

/* --help and --version, before anything else is looked at; false when neither is asked for, or the help of a command
 * that is not there. */
static bool answer_help(const cli_command *command, int argc, char **argv) {
    if (strcmp(argv[1], "--version") == 0) {
        printf("athanor %s\n", ATHANOR_VERSION);
        return true;
    }
    if (!cli_has_word(command, argc - 1, argv + 1, "--help") &&
        !cli_has_word(command, argc - 1, argv + 1, "-h"))
        return false;
    if (command)
        print_command_help(command);
    else if (!is_name(argc, argv, 1))
        print_help();
    else
        return !is_name(argc, argv, 2) && print_group_help(argv[1]);
    return true;
}

/* ---- failures ---- */

enum { MOST_WORDS = 128 };

/* The second words of commands after a first one; returns how many. */
static int words_after(const char *first, const char *words[MOST_WORDS]) {
    int n = 0;
    size_t len = strlen(first);
    for (int i = 0; i < ARRAY_LEN(commands) && n < MOST_WORDS; i++) {
        const char *name = commands[i]->name;
        if (strncmp(name, first, len) == 0 && name[len] == ' ') words[n++] = name + len + 1;
    }
    return n;
}

/* An input too many, where the first may be the second word of another command, misspelt. */
static status misspelt_second(char **argv, err *e) {
    const char *words[MOST_WORDS];
    int near = text_nearest(argv[2], words, words_after(argv[1], words));
    if (near >= 0) (void)err_hint(e, "did you mean 'athanor %s %s'?", argv[1], words[near]);
    return ST_USAGE;
}

/* The first words of the commands' names, or their second words after a given first one. */
static status unknown_command(int argc, char **argv, err *e) {
    const char *words[MOST_WORDS], *first = argv[1];
    int n = words_after(first, words);
    bool second = n > 0;
    if (second && !is_name(argc, argv, 2)) {
        err_set(e, ST_USAGE, "'athanor %s' needs one more word", first);
        return err_hint(e, "athanor %s --help lists them", first);
    }
    char heads[MOST_WORDS][104];
    for (int i = 0; !second && i < ARRAY_LEN(commands) && n < ARRAY_LEN(words); i++) {
        snprintf(heads[n], sizeof heads[n], "%.100s", commands[i]->name);
        heads[n][strcspn(heads[n], " ")] = '\0';
        words[n] = heads[n];
        n++;
    }
    int near = text_nearest(second ? argv[2] : first, words, n);
    err_set(e, ST_USAGE, "unknown command '%s%s%s'", first, second ? " " : "",
            second ? argv[2] : "");
    if (near < 0) return err_hint(e, "athanor --help lists all commands");
    return err_hint(e, "did you mean 'athanor %s%s%s'?", second ? first : "", second ? " " : "",
                    words[near]);
}

static void report_json(const err *e) {
    cli_print_json(json_pack("{s:{s:s, s:o, s:o, s:o}}", "error", "kind", status_kind(e->code),
                             "message", json_cstr(e->message), "hint", json_cstr(e->hint), "where",
                             json_cstr(e->where)));
}

static void report_text(const err *e) {
    strbuf text = {0};
    strbuf_printf(&text, "athanor: error: %s\n", e->message);
    if (e->where[0]) strbuf_printf(&text, "  where: %s\n", e->where);
    if (e->hint[0]) strbuf_printf(&text, "  hint: %s\n", e->hint);
    cli_print_text(stderr, text.data, text.len);
    strbuf_free(&text);
}

void cli_report(const err *e, bool json) {
    if (!e->message[0]) return;
    if (json) report_json(e);
    if (!json || ferror(stdout)) report_text(e); /* where nobody can be told otherwise */
}

/* ---- the program ---- */

status cli_check_apart(const char *output, const char *input, err *e) {
    if (!output || !input || !file_is_same(output, input)) return ST_OK;
    err_at(e, ST_USAGE, output, "the result would be written over the input %.200s", input);
    return err_hint(e, "give the result another name");
}

/* A word that nobody knows would else be passed over where a command has no use for its variable, or takes another way
 * on this machine. */
static status check_environment(err *e) {
    TRY(dev_check_environment(e));
    TRY(op_check_environment(e));
    return comm_check_environment(e);
}

static status flush_output(err *e) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return ST_OK;
    err_at(e, ST_FAILED, "standard output",
           "cannot write standard output"); /* errno may be long gone */
    return err_hint(e, "its disk may be full, or its reader gone");
}

static status run_command(const cli_command *command, int words, int argc, char **argv, err *e) {
    if (!command) return unknown_command(argc, argv, e);
    cli_args args;
    status st = cli_parse(&args, command, argc - 1 - words, argv + 1 + words, e);
    if (st == ST_USAGE && words == 1 && args.n_inputs > 1 && args.inputs[0] == argv[2])
        st = misspelt_second(argv, e);
    for (int i = 0; st == ST_OK && i < args.n_inputs; i++)
        st = cli_check_apart(args.output, args.inputs[i], e);
    if (st == ST_OK) st = check_environment(e);
    if (st == ST_OK) st = command->run(&args, e);
    cli_args_free(&args);
    status written = flush_output(st == ST_OK ? e : NULL);
    return st == ST_OK ? written : st;
}

int cli_main(int argc, char **argv) {
    err e = {0};
    int words = 0;
    if (argc < 2) {
        print_help();
        return ST_USAGE;
    }
    turn_help(argc, argv);
    const cli_command *command = find_command(argc, argv, &words);
    bool json = cli_has_word(command, argc - 1, argv + 1, "--json");
    arena_end_in_json(json);
    status st = answer_help(command, argc, argv) ? flush_output(&e)
                                                 : run_command(command, words, argc, argv, &e);
    if (st == ST_OK || !e.message[0]) return (int)st; /* the command has said it itself */
    e.code = st;
    if (st == ST_USAGE && !e.where[0]) err_where(&e, "command line");
    ranks_end_early(st, &e, json);
    cli_report(&e, json);
    return (int)st;
}
