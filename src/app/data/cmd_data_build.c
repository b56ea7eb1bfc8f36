/* athanor data build: text into token shards. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "app/data/data_view.h"
#include "app/frame/progress.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "data/build/build.h"

static const char *const BUILD_KEYS[] = {DATA_TEXT_KEYS, "tokenizer", "id",           "score",
                                         "valid",        "split",     "seed",         "eos",
                                         "append",       "threads",   "shard_tokens", NULL};

static const char *const FORMATS[] = {"auto", "text", "jsonl", "csv", "tsv", "parquet"};
static const char *const BOOLS[] = {"false", "true"};

static status bad_key(const char *key, const char *value, const char *hint, err *e) {
    err_at(e, ST_USAGE, key, "%s=%s is not a value that %s can have", key, value, key);
    return err_hint(e, "%s", hint);
}

status data_get_share(const cli_args *args, const char *key, bool may_be_all, double *out, err *e) {
    const char *value = cli_override(args, key);
    if (!value) return ST_OK;
    if (text_parse_number(value, out) && *out >= 0 && (*out < 1 || (may_be_all && *out == 1)))
        return ST_OK;
    return bad_key(key, value,
                   may_be_all ? "give a number from 0 to 1" : "give a number from 0 to below 1", e);
}

status data_get_count(const cli_args *args, const char *key, int64_t hi, uint64_t *out, err *e) {
    const char *value = cli_override(args, key);
    int64_t n;
    char hint[96] = "give a whole number, not negative";
    if (!value) return ST_OK;
    if (hi < INT64_MAX) snprintf(hint, sizeof hint, "give a whole number from 0 to %ld", (long)hi);
    if (!text_parse_int(value, &n) || n < 0 || n > hi) return bad_key(key, value, hint, e);
    *out = (uint64_t)n;
    return ST_OK;
}

/* "a, b or c" in the hint, or the word that is nearest. */
status data_get_word(const cli_args *args, const char *key, const char *const *words, int n,
                     int *out, err *e) {
    const char *value = cli_override(args, key);
    strbuf hint = {0};
    if (!value) return ST_OK;
    for (int i = 0; i < n; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i;
            strbuf_free(&hint);
            return ST_OK;
        }
        strbuf_printf(&hint, "%s%s", i == 0 ? "it is " : i + 1 < n ? ", " : " or ", words[i]);
    }
    int near = text_nearest(value, words, n);
    if (near >= 0) {
        strbuf_clear(&hint);
        strbuf_printf(&hint, "did you mean %s?", words[near]);
    }
    status st = bad_key(key, value, strbuf_cstr(&hint), e);
    strbuf_free(&hint);
    return st;
}

/* A shell passes \\n on as two characters. */
static char *unescape(arena *a, const char *s) {
    char *out = s ? arena_strdup(a, s) : NULL, *to = out;
    for (; s && *s; s++) {
        bool escape = *s == '\\' && s[1] && strchr("nt\\", s[1]);
        if (escape) s++;
        *to++ = !escape ? *s : *s == 'n' ? '\n' : *s == 't' ? '\t' : '\\';
    }
    if (out) *to = '\0';
    return out;
}

status data_text_options(const cli_args *args, arena *a, reader_options *opt, err *e) {
    opt->field = cli_override(args, "field");
    opt->template = unescape(a, cli_override(args, "template"));
    opt->charset = cli_override(args, "charset");
    opt->max_bad = -1; /* the reader's own */
    int format = READER_AUTO;
    TRY(data_get_word(args, "format", FORMATS, ARRAY_LEN(FORMATS), &format, e));
    opt->format = (reader_format)format;
    return data_get_share(args, "max_bad", true, &opt->max_bad, e);
}

/* Keys that do nothing without valid=. */
static status check_effects(const cli_args *args, err *e) {
    static const char *const OF_VALID[] = {"split", "seed"};
    for (int i = 0; i < ARRAY_LEN(OF_VALID); i++) {
        if (!cli_override(args, OF_VALID[i]) || cli_override(args, "valid")) continue;
        err_at(e, ST_USAGE, OF_VALID[i], "%s= does nothing without valid=", OF_VALID[i]);
        return err_hint(e, "leave it out, or add valid=0.1, the share that is kept for validation");
    }
    return ST_OK;
}

static status read_build_options(const cli_args *args, arena *a, data_build_options *opt, err *e) {
    uint64_t threads = 0;
    int eos = true, append = false;
    TRY(cli_check_overrides(args, BUILD_KEYS, e));
    TRY(check_effects(args, e));
    TRY(data_text_options(args, a, &opt->reader, e));
    opt->reader.id = cli_override(args, "id");
    opt->reader.score = cli_override(args, "score");
    TRY(data_get_share(args, "valid", false, &opt->valid_fraction, e));
    TRY(data_get_count(args, "threads", 1024, &threads, e));
    TRY(data_get_count(args, "seed", INT64_MAX, &opt->seed, e));
    TRY(data_get_count(args, "shard_tokens", INT64_MAX, &opt->shard_tokens, e));
    TRY(data_get_word(args, "eos", BOOLS, ARRAY_LEN(BOOLS), &eos, e));
    TRY(data_get_word(args, "append", BOOLS, ARRAY_LEN(BOOLS), &append, e));
    opt->append = append;
    opt->threads = (int)threads;
    opt->no_eos = !eos;
    const char *split = cli_override(args, "split");
    if (split && !data_split_parse(split, &opt->split))
        return bad_key("split", split, "it is auto, documents, lines or tail", e);
    return ST_OK;
}

static void show_progress(const data_progress *p) {
    double done = (double)(p->bytes_done - p->bytes_begun), mb = (double)p->bytes_done * 1e-6;
    double rate = p->seconds > 0 ? done / p->seconds : 0;
    strbuf line = {0};
    strbuf_printf(&line, "%.1f MB", mb);
    if (p->bytes_total)
        strbuf_printf(&line, " (%.0f%%)", 100.0 * (double)p->bytes_done / (double)p->bytes_total);
    strbuf_printf(&line, "  %" PRIu64 " documents  %.2fM tokens  %.1f MB/s", p->documents,
                  (double)p->tokens * 1e-6, rate * 1e-6);
    if (p->bytes_total > p->bytes_done && rate > 0) {
        char left[24];
        progress_format_duration((double)(p->bytes_total - p->bytes_done) / rate, left);
        strbuf_printf(&line, "  eta %s", left);
    }
    progress_show(stderr, line.data);
    strbuf_free(&line);
}

/* Appends the shards of one folder, as read back from it. */
static status append_shards(json_t *list, const char *dir, err *e) {
    shards *s;
    TRY(shards_open(&s, &(shards_spec){.path = dir, .eos = -1}, e));
    arena *a = arena_new("data build");
    for (int i = 0; i < s->n_shards; i++) {
        json_t *o = data_totals_json(&s->shard[i].totals);
        json_object_set_new(o, "path", json_cstr(path_join(a, dir, s->shard[i].file)));
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
        json_t *o = data_totals_json(&all), *report = data_report_json(&r->report);
        json_object_update_missing(o, report);
        json_decref(report);
        json_object_set(o, "shards", list);
        if (split) {
            json_object_set_new(o, "train", data_totals_json(&r->train));
            json_object_set_new(o, "valid", data_totals_json(&r->valid));
        }
        json_object_set_new(o, "resumed", json_boolean(r->resumed));
        json_object_set_new(o, "seconds", json_f64(r->seconds));
        cli_print_json(o);
    }
    json_decref(list);
    arena_free(a);
    return st;
}

/* Charsets when there is another than the usual one, and bad records. */
static void print_report(const reader_report *r) {
    bool usual = r->n_charsets == 0 || (r->n_charsets == 1 && !strcmp(r->charset[0].name, "UTF-8"));
    for (int i = 0; !usual && i < r->n_charsets; i++)
        printf("%s %s (%d file%s)", i ? "," : "charsets:", r->charset[i].name, r->charset[i].files,
               text_s(r->charset[i].files));
    if (!usual) putchar('\n');
    if (r->bad == 0) return;
    printf("%" PRIu64 " of %" PRIu64 " records were bad and left out:\n", r->bad, r->records);
    for (int i = 0; i < r->n_samples; i++)
        printf("  %s:%u %s: %s\n", r->sample[i].source, r->sample[i].line, r->sample[i].why,
               r->sample[i].start);
    if (r->bad > (uint64_t)r->n_samples)
        printf("  ... and %" PRIu64 " more\n", r->bad - (uint64_t)r->n_samples);
}

static void print_result(const char *out, const data_build_result *r) {
    bool split = r->valid.tokens > 0;
    data_print_totals(out, split ? "/train" : "", &r->train);
    if (split) data_print_totals(out, "/valid", &r->valid);
    print_report(&r->report);
}

status data_get_tokenizer(const cli_args *args, const char **out, err *e) {
    *out = cli_override(args, "tokenizer");
    if (*out) return ST_OK;
    err_at(e, ST_USAGE, "tokenizer", "data build needs tokenizer");
    return err_hint(e, "give tokenizer=FILE; train one with `athanor tok train IN -o tok.json`");
}

static status build(const cli_args *args, arena *a, err *e) {
    data_build_options opt = {0};
    const char *tokenizer;
    bool chat;
    TRY(data_build_is_chat(args, &chat, e));
    if (chat) return data_build_chat(args, e);
    TRY(read_build_options(args, a, &opt, e));
    TRY(data_get_tokenizer(args, &tokenizer, e));
    if (args->json) log_set_quiet(true);
    bool live = !args->json && progress_is_live(stderr);
    if (live) opt.progress = show_progress;
    tok *t;
    TRY(tok_load(&t, tokenizer, e));
    data_build_result r;
    status st = data_build(args->inputs, args->n_inputs, args->output, t, &opt, &r, e);
    if (live) progress_clear(stderr);
    cli_warn_of_lost_bytes(t);
    tok_free(t);
    TRY(st);
    /* Almost always a slip of the pen, which would show only when the order or an id is asked for. */
    if (opt.reader.score && r.scored == 0 && !r.resumed)
        log_warn("no record has a number in its field '%s'", opt.reader.score);
    if (opt.reader.id && r.named == 0 && !r.resumed)
        log_warn("no record has an id in its field '%s'", opt.reader.id);
    reader_warn_of_broken_text(&r.report);
    if (args->json) return print_build_json(args->output, &r, e);
    print_result(args->output, &r);
    return ST_OK;
}

static status run_build(const cli_args *args, err *e) {
    arena *a = arena_new("data build");
    status st = build(args, a, e);
    arena_free(a);
    return st;
}

static const cli_option OPTIONS[] = {
    {"chat", "FORM",
     "conversations: messages, sharegpt, alpaca, translation, preference, kto; auto, no"},
    {"template", "FILE",
     "another chat template than the tokenizer's; chatml and plain are built in"},
    {NULL, NULL, NULL}};

const cli_command command_data_build = {
    .name = "data build",
    .summary = "turn text or conversations into token shards",
    .usage = "IN... -o SHARDS tokenizer=FILE [valid=0.1] [key=value...]",
    .run = run_build,
    .options = OPTIONS,
    .min_inputs = 1,
    .max_inputs = -1,
    .needs_output = true,
    .takes_keys = true,
    .about =
        "IN is a text file (one document), a .jsonl, .csv or .tsv file (one document a\n"
        "record), each plain or packed (.gz, .zst), a .parquet file (one document a row), a\n"
        "folder of such files, a glob, or - for standard input. The shards go to SHARDS, or with "
        "valid= to SHARDS/train and\n"
        "SHARDS/valid; what is there stays until the new set is complete. A build that was\n"
        "interrupted goes on when the same command is given again.\n"
        "\n"
        "Conversations (.json, .jsonl, .parquet with messages, questions and answers, or\n"
        "preferences) are known by their columns: the chat template renders them, and only\n"
        "what the assistant says is trained. docs/teaching.md says more.\n"
        "\n"
        "Keys:\n"
        "  tokenizer=FILE     tokenizer.json, or a folder that holds one\n"
        "  valid=0.1          share kept for validation (default 0: no split)\n"
        "  split=auto         what the split cuts: documents (whole ones, by a hash),\n"
        "                     lines (the tail of each file, at a line end), tail (the tail\n"
        "                     at the exact byte); auto: lines for few files, else documents\n"
        "  seed=0             of the split by documents\n"
        "  append=false       true: adds shards to the set in SHARDS\n" DATA_TEXT_HELP
        "  id=FIELD           the field that names a document, kept in the shards\n"
        "  score=FIELD        the field with a number to order documents by, kept likewise\n"
        "  eos=true           put the tokenizer's end-of-text token after each document\n"
        "  shard_tokens=100M  size of one shard file\n"
        "  threads=N          default: all; the shards are the same for any number\n"
        "Keys for conversations: tokenizer, valid, seed, shard_tokens, threads, and\n"
        "  train_on=all       all answers of a conversation; last: the last one; each: every\n"
        "                     answer as a sample of its own\n"
        "  variables=JSON     of the template: '{\"enable_thinking\": false}'\n"
        "  allow=NAMES        hard stops that are accepted: system_dropped,two_bos\n",
};
