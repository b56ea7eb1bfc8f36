/* The frame of the command line: a table of commands, one parser for all, one way to fail.
 *
 * A command is a `const cli_command command_NAME` in its own cmd_*.c and one line in commands.def.
 * Its name may be two words ("config print"); the longest match wins. The form is
 *
 *     athanor COMMAND INPUT... [-o OUT] [key.path=value...] [--option value] [--json]
 *
 * where --key.path=value is key.path=value, and everything after "--" is an input; "athanor help COMMAND" is
 * "athanor COMMAND --help". cli_main finds the command and parses its words: what the command's tables do not
 * allow is refused here. Then it calls `run`, prints the error that comes back, if any, and returns its status as the exit status. What a
 * command prints goes to standard output; with --json that is JSON and nothing else. */
#ifndef APP_CLI_H
#define APP_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/status.h"

enum { CLI_MAX_OPTIONS = 32 };

/* `value` names what follows ("N", "FILE"); NULL for a flag. One in brackets ("[N]") is a number that may
 * be left out: the value is then "". One with a comma ("A,B") is a list: what is given again is added. A table ends with a NULL name. */
typedef struct cli_option {
    const char *name; /* without the dashes */
    const char *value;
    const char *help;
} cli_option;

/* Of commands that open a model: what open_model_read_on takes. */
#define CLI_OPTION_THREADS                                                                         \
    { "threads", "N", "of the processor (all cores)" }
#define CLI_OPTION_DEVICE                                                                          \
    { "device", "WORD", "cpu, cuda, or auto: cuda where there is a GPU (cpu)" }

/* What the options of a command need of each other; the parser refuses the rest, so that none is
 * passed over in silence. A table ends with a NULL option. */
typedef enum cli_rule_kind {
    CLI_NEEDS,    /* without one of `others` the option would do nothing */
    CLI_EXCLUDES, /* with one of `others` it cannot be given */
} cli_rule_kind;

typedef struct cli_rule {
    const char *option;
    cli_rule_kind kind;
    const char *others; /* names without dashes: "logits", or "dump-grads|trace" */
    const char *hint;   /* NULL: the command's usage */
} cli_rule;

typedef struct cli_args cli_args;

typedef struct cli_command {
    const char *name;
    const char *summary;
    const char *usage; /* what follows the name: "CONFIG [key=value...] [--dry-run]" */
    status (*run)(const cli_args *args, err *e);
    const cli_option *options;  /* NULL for none; --json, --help and -o are known to all */
    const cli_rule *rules;      /* NULL for none */
    int min_inputs, max_inputs; /* 0, 0: exactly one; max_inputs < 0: no bound */
    bool takes_output;          /* -o OUT may be given */
    bool needs_output;          /* -o OUT must be given */
    bool prints_output;         /* without -o the result goes to standard output, as with -o - */
    bool takes_keys;            /* key.path=value */
    const char *about;          /* more text for --help; NULL for none */
    char *(*details)(void);     /* the same where it is computed, on the heap */
} cli_command;

struct cli_args {
    const cli_command *command;
    const char **inputs;
    int n_inputs;
    const char *output;     /* -o, or NULL */
    const char **overrides; /* "key.path=value", in order, without dashes */
    int n_overrides;
    bool json;
    const char *values[CLI_MAX_OPTIONS]; /* by index in command->options; "" for a flag */
    arena *mem; /* of options that are lists and were given in parts; NULL: there are none */
};

/* The program: parses, runs, reports; returns the exit status. */
int cli_main(int argc, char **argv);

/* Whether --name was given, and its value (NULL when it was not). The command must declare it. */
bool cli_has(const cli_args *args, const char *name);
const char *cli_value(const cli_args *args, const char *name);
/* The value as a number (suffixes allowed) in [lo, hi], or `fallback` when it was not given. */
status cli_int(const cli_args *args, const char *name, int64_t fallback, int64_t lo, int64_t hi,
               int64_t *out, err *e) ATH_MUST_USE;
status cli_num(const cli_args *args, const char *name, double fallback, double lo, double hi,
               double *out, err *e) ATH_MUST_USE;
/* --threads; 0 when it was not given: all cores. */
status cli_threads(const cli_args *args, int *out, err *e) ATH_MUST_USE;
/* --max-shard-size: "5GB", "500MB", or a number with the usual suffixes; 5 GB when it was not given. */
status cli_shard_bytes(const cli_args *args, uint64_t *out, err *e) ATH_MUST_USE;
/* The value of an override by key, the last one given; NULL when absent. */
const char *cli_override(const cli_args *args, const char *key);
/* Sets each override in an object: JSON where the value is that, otherwise a text. */
void cli_put_overrides(const cli_args *args, json_t *object);
/* Refuses overrides whose key is not in `keys` (ended by NULL), for commands that take a few. */
status cli_check_overrides(const cli_args *args, const char *const *keys, err *e) ATH_MUST_USE;

/* Refuses any override, as it would do nothing: "'a=b' does nothing: WHY". */
status cli_refuse_overrides(const cli_args *args, const char *why, err *e) ATH_MUST_USE;

/* ST_USAGE if an output is one and the same file as an input, also through links: writing it would
 * destroy what is read. cli_main asks so of -o and the inputs; a command asks it of what it finds in
 * folders and of files that its options name. NULL: there is none. */
status cli_check_apart(const char *output, const char *input, err *e) ATH_MUST_USE;

/* Writes what comes from a model or a file to a stream and flushes it; a terminal gets control
 * characters in a form that can be seen. */
void cli_print_text(FILE *stream, const char *text, size_t len);
/* The same for a name of one column of a table, on standard output: of `width` characters, -width to
 * the left; longer ones are cut. 0: as long as it is. */
void cli_print_name(const char *name, int width);
/* The same to standard output, for generate_request.on_text. */
void cli_print_piece(void *unused, const char *text, size_t len);
/* Prints one JSON value and a newline to standard output and flushes; gives up the value. */
void cli_print_json(json_t *value);
/* The same over several lines, for people. */
void cli_print_json_pretty(json_t *value);
/* Reports a failure: text on standard error, or JSON on standard output. An error without a message
 * was reported before: nothing is printed. What cannot be written to standard output is told as text. */
void cli_report(const err *e, bool json);

#endif
