/* One command's words: options by its table, key=value pairs, -o, inputs. */
#include "app/frame/cli_int.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"

/* Length of the key in "key.path=value"; 0 when the word is no such pair. A path with '=' in a
 * folder's name is none, as keys have no '/'. */
static size_t key_length(const char *word) {
    size_t n = strcspn(word, "=");
    if (word[n] != '=' || !(isalpha((unsigned char)*word) || *word == '_')) return 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)word[i]) && !strchr("_.-", word[i])) return 0;
    return n;
}

static int find_option(const cli_command *c, const char *name, size_t len) {
    for (int i = 0; c->options && c->options[i].name; i++)
        if (strlen(c->options[i].name) == len && strncmp(c->options[i].name, name, len) == 0)
            return i;
    return -1;
}

static status unknown_option(const cli_command *c, const char *word, err *e) {
    const char *names[CLI_MAX_OPTIONS + 2];
    int n = 0;
    for (; c->options && c->options[n].name; n++) names[n] = c->options[n].name;
    names[n++] = "json";
    names[n++] = "help";
    int near = word[1] == '-' ? text_nearest(word + 2, names, n) : -1;
    err_set(e, ST_USAGE, "'athanor %s' has no option '%s'", c->name, word);
    if (near >= 0) return err_hint(e, "did you mean '--%s'?", names[near]);
    if (!c->takes_keys || word[1] != '-' || !isalpha((unsigned char)word[2]))
        return err_hint(e, "athanor %s --help lists its options", c->name);
    return err_hint(e, "athanor %s --help lists its options; a key is given as %.*s=VALUE", c->name,
                    (int)strcspn(word + 2, "="), word + 2);
}

static status add_override(cli_args *args, const char *pair, err *e) {
    if (!args->command->takes_keys) {
        err_set(e, ST_USAGE, "'athanor %s' takes no key=value, such as '%s'", args->command->name,
                pair);
        return err_hint(e, "a file of that name is given after --");
    }
    args->overrides[args->n_overrides++] = pair;
    return ST_OK;
}

typedef struct word_list {
    int argc, next;
    char **argv;
} word_list;

static status take_value(word_list *w, const char *option, const char **value, err *e) {
    if (w->next == w->argc) return err_set(e, ST_USAGE, "%s needs a value", option);
    *value = w->argv[w->next++];
    return ST_OK;
}

/* A number in brackets may be left out. */
static bool is_left_out(const cli_option *o, const word_list *w) {
    int64_t number;
    return *o->value == '[' && (w->next == w->argc || !text_parse_int(w->argv[w->next], &number));
}

static void join_list(cli_args *args, int option, const char *before) {
    if (!args->mem) args->mem = arena_new("arguments");
    args->values[option] = arena_printf(args->mem, "%s,%s", before, args->values[option]);
}

/* --name, --name value, --name=value, --key.path=value. */
static status parse_long(cli_args *args, word_list *w, const char *word, err *e) {
    const char *name = word + 2;
    size_t len = strcspn(name, "=");
    bool inline_value = name[len] == '=';
    bool is_json = len == 4 && strncmp(name, "json", 4) == 0;
    bool is_help = len == 4 && strncmp(name, "help", 4) == 0;
    if (inline_value && (is_json || is_help)) /* nor are they keys */
        return err_set(e, ST_USAGE, "--%.4s takes no value", name);
    if (is_json) {
        args->json = true;
        return ST_OK;
    }
    int i = find_option(args->command, name, len);
    if (i < 0) {
        bool key = key_length(name) > 0 && (args->command->takes_keys || memchr(name, '.', len));
        return key ? add_override(args, name, e) : unknown_option(args->command, word, e);
    }
    const cli_option *o = &args->command->options[i];
    if (!o->value && inline_value) return err_set(e, ST_USAGE, "--%s takes no value", o->name);
    const char *before = args->values[i];
    args->values[i] = inline_value ? name + len + 1 : "";
    if (o->value && !inline_value && !is_left_out(o, w))
        TRY(take_value(w, word, &args->values[i], e));
    if (before && o->value && strchr(o->value, ',')) join_list(args, i, before);
    return ST_OK;
}

static bool takes_output(const cli_command *c) {
    return c->takes_output || c->needs_output;
}

static status parse_output(cli_args *args, word_list *w, err *e) {
    if (!takes_output(args->command))
        return err_set(e, ST_USAGE, "'athanor %s' has no output, so it takes no -o",
                       args->command->name);
    if (args->output) return err_set(e, ST_USAGE, "-o is given twice");
    return take_value(w, "-o", &args->output, e);
}

/* "-" is no name of a file that is written. What is printed without -o is printed with -o -, too; elsewhere standard
 * output has other lines, or the result is a folder. */
static status check_output(cli_args *args, err *e) {
    const cli_command *c = args->command;
    const char *option = args->output && strcmp(args->output, "-") == 0 ? "-o" : NULL;
    if (option && c->prints_output) args->output = option = NULL;
    for (int i = 0; !option && c->options && c->options[i].name; i++) {
        const char *what = c->options[i].value, *value = args->values[i];
        bool is_output = what && strncmp(what, "OUT", 3) == 0;
        if (is_output && value && strcmp(value, "-") == 0) option = c->options[i].name;
    }
    if (!option) return ST_OK;
    const char *dashes = *option == '-' ? "" : "--";
    err_set(e, ST_USAGE, "%s%s of 'athanor %s' cannot be standard output", dashes, option, c->name);
    return err_hint(e, "give it a name; ./- is a file of the name -");
}

static status parse_words(cli_args *args, word_list *w, err *e) {
    bool only_inputs = false;
    while (w->next < w->argc) {
        const char *word = w->argv[w->next++];
        if (only_inputs || strcmp(word, "-") == 0) {
            args->inputs[args->n_inputs++] = word;
        } else if (strcmp(word, "--") == 0) {
            only_inputs = true;
        } else if (strcmp(word, "-o") == 0) {
            TRY(parse_output(args, w, e));
        } else if (strncmp(word, "--", 2) == 0) {
            TRY(parse_long(args, w, word, e));
        } else if (word[0] == '-') {
            return unknown_option(args->command, word, e);
        } else if (key_length(word) > 0) {
            TRY(add_override(args, word, e));
        } else {
            args->inputs[args->n_inputs++] = word;
        }
    }
    return ST_OK;
}

static status check_inputs(const cli_args *args, err *e) {
    const cli_command *c = args->command;
    int most = c->max_inputs ? c->max_inputs : 1, least = c->max_inputs ? c->min_inputs : 1;
    if (args->n_inputs < least)
        return err_set(e, ST_USAGE, "'athanor %s' needs %s", c->name,
                       least == 1 ? "an input" : "more inputs");
    if (most >= 0 && args->n_inputs > most)
        return err_set(e, ST_USAGE, "'athanor %s' has no use for '%s'", c->name,
                       args->inputs[most]);
    if (c->needs_output && !(args->output && *args->output))
        return err_set(e, ST_USAGE, "'athanor %s' needs -o", c->name);
    return ST_OK;
}

/* The first of "a|b|c" that was given; NULL when none was. */
static const char *first_given(const cli_args *args, const char *names) {
    for (const char *p = names; *p; p += strspn(p, "|")) {
        size_t len = strcspn(p, "|");
        int i = find_option(args->command, p, len);
        bool json = len == 4 && strncmp(p, "json", len) == 0;
        if (json && args->json) return "json";
        CHECK(i >= 0 || json, "%s has a rule about an option it lacks: %s", args->command->name, p);
        if (i >= 0 && args->values[i]) return args->command->options[i].name;
        p += len;
    }
    return NULL;
}

/* "a|b" as "--a or --b". */
static void list_options(const char *names, char *out, size_t size) {
    size_t n = 0;
    for (const char *p = names; *p && n < size; p += strspn(p, "|")) {
        size_t len = strcspn(p, "|");
        n += (size_t)snprintf(out + n, size - n, "%s--%.*s", n ? " or " : "", (int)len, p);
        p += len;
    }
}

static status check_rules(const cli_args *args, err *e) {
    for (const cli_rule *r = args->command->rules; r && r->option; r++) {
        char others[256] = "";
        if (!cli_has(args, r->option)) continue;
        const char *given = first_given(args, r->others);
        if ((given != NULL) == (r->kind == CLI_NEEDS)) continue;
        list_options(r->others, others, sizeof others);
        if (given)
            err_set(e, ST_USAGE, "--%s and --%s exclude each other", r->option, given);
        else
            err_set(e, ST_USAGE, "--%s does nothing without %s", r->option, others);
        if (r->hint) err_hint(e, "%s", r->hint);
        return err_where(e, "command line (--%s)", r->option);
    }
    return ST_OK;
}

/* Whether the word after this one is its value. */
static bool takes_next(const cli_command *c, const char *word) {
    if (!c) return false;
    if (strcmp(word, "-o") == 0) return takes_output(c);
    int i = strncmp(word, "--", 2) == 0 ? find_option(c, word + 2, strlen(word + 2)) : -1;
    return i >= 0 && c->options[i].value && *c->options[i].value != '[';
}

bool cli_has_word(const cli_command *c, int argc, char **argv, const char *word) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], word) == 0) return true;
        if (takes_next(c, argv[i])) i++;
    }
    return false;
}

status cli_parse(cli_args *args, const cli_command *command, int argc, char **argv, err *e) {
    word_list w = {.argc = argc, .argv = argv};
    memset(args, 0, sizeof *args);
    args->command = command;
    args->inputs = xcalloc((size_t)argc + 1, sizeof *args->inputs);
    args->overrides = xcalloc((size_t)argc + 1, sizeof *args->overrides);
    status st = parse_words(args, &w, e);
    if (st == ST_OK) st = check_output(args, e);
    if (st == ST_OK) st = check_inputs(args, e);
    if (st == ST_OK) st = check_rules(args, e);
    if (st == ST_OK || !e) return st;
    if (!*e->hint) err_hint(e, "usage: athanor %s %s", command->name, command->usage);
    if (!*e->where) err_where(e, "command line");
    return st;
}

void cli_args_free(cli_args *args) {
    free(args->inputs);
    free(args->overrides);
    arena_free(args->mem);
}

const char *cli_value(const cli_args *args, const char *name) {
    int i = find_option(args->command, name, strlen(name));
    CHECK(i >= 0, "%s does not declare --%s", args->command->name, name);
    return args->values[i];
}

bool cli_has(const cli_args *args, const char *name) {
    return cli_value(args, name) != NULL;
}

status cli_int(const cli_args *args, const char *name, int64_t fallback, int64_t lo, int64_t hi,
               int64_t *out, err *e) {
    const char *text = cli_value(args, name);
    *out = fallback;
    if (!text || (text_parse_int(text, out) && *out >= lo && *out <= hi)) return ST_OK;
    err_set(e, ST_USAGE, "--%s must be an integer from %" PRId64 " to %" PRId64 ", not '%s'", name,
            lo, hi, text);
    return err_where(e, "command line (--%s)", name);
}

status cli_num(const cli_args *args, const char *name, double fallback, double lo, double hi,
               double *out, err *e) {
    const char *text = cli_value(args, name);
    *out = fallback;
    if (!text || (text_parse_number(text, out) && *out >= lo && *out <= hi)) return ST_OK;
    err_set(e, ST_USAGE, "--%s must be a number from %g to %g, not '%s'", name, lo, hi, text);
    return err_where(e, "command line (--%s)", name);
}

status cli_threads(const cli_args *args, int *out, err *e) {
    int64_t threads;
    TRY(cli_int(args, "threads", 0, 1, 1024, &threads, e));
    *out = (int)threads;
    return ST_OK;
}

status cli_shard_bytes(const cli_args *args, uint64_t *out, err *e) {
    const char *text = cli_value(args, "max-shard-size");
    char number[64];
    int64_t bytes = 5000000000;
    if (text) {
        size_t n = strlen(text);
        if (n > 1 && (text[n - 1] == 'B' || text[n - 1] == 'b')) n--; /* 5G and 5GB */
        snprintf(number, sizeof number, "%.*s", (int)n, text);
        if (!text_parse_int(number, &bytes) || bytes <= 0) {
            err_at(e, ST_USAGE, "--max-shard-size", "--max-shard-size %s is no size", text);
            return err_hint(e, "write it like 5GB or 500MB");
        }
    }
    *out = (uint64_t)bytes;
    return ST_OK;
}

const char *cli_override(const cli_args *args, const char *key) {
    size_t n = strlen(key);
    for (int i = args->n_overrides - 1; i >= 0; i--)
        if (strncmp(args->overrides[i], key, n) == 0 && args->overrides[i][n] == '=')
            return args->overrides[i] + n + 1;
    return NULL;
}

void cli_put_overrides(const cli_args *args, json_t *object) {
    for (int i = 0; i < args->n_overrides; i++) {
        const char *value = strchr(args->overrides[i], '=') + 1;
        json_t *j = json_loads(value, JSON_DECODE_ANY, NULL);
        json_object_setn_new(object, args->overrides[i], (size_t)(value - args->overrides[i]) - 1,
                             j ? j : json_cstr(value));
    }
}

status cli_check_overrides(const cli_args *args, const char *const *keys, err *e) {
    int n = 0;
    while (keys[n]) n++;
    for (int i = 0; i < args->n_overrides; i++) {
        const char *pair = args->overrides[i];
        char key[256];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(pair, "="), pair);
        int near = text_nearest(key, keys, n);
        if (near >= 0 && strcmp(keys[near], key) == 0) continue;
        err_set(e, ST_USAGE, "'athanor %s' has no key '%s'", args->command->name, key);
        if (near >= 0) err_hint(e, "did you mean '%s'?", keys[near]);
        if (near < 0)
            err_hint(e, "usage: athanor %s %s", args->command->name, args->command->usage);
        return err_where(e, "command line");
    }
    return ST_OK;
}

status cli_refuse_overrides(const cli_args *args, const char *why, err *e) {
    if (args->n_overrides == 0) return ST_OK;
    err_at(e, ST_USAGE, "command line", "'%s' does nothing: %s", args->overrides[0], why);
    return err_hint(e, "leave it out; keys change a preset, a model's folder or a config");
}
