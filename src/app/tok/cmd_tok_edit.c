/* athanor tok add|prune|extend: changes to a vocabulary, and what they do to texts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/data/data_view.h"
#include "app/frame/cli.h"
#include "app/frame/cli_ids.h"
#include "app/frame/progress.h"
#include "app/tok/doc_feed.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "tok/chat/template.h"
#include "tok/tok_edit.h"
#include "tok/tok_report.h"

/* There is a place for the result, and it is none of the tokenizers (the first `n_toks` inputs). */
static status check_output(const cli_args *args, int n_toks, err *e) {
    for (int i = 0; args->output && i < n_toks; i++)
        TRY(cli_check_tok_apart(args->output, args->inputs[i], e));
    if (args->output) return ST_OK;
    err_set(e, ST_USAGE, "'athanor %s' needs a place for its result", args->command->name);
    return err_hint(e, "add -o new.json");
}

/* One file has no place for a chat template. */
static void warn_of_template(const cli_args *args) {
    chat_template *c = NULL;
    err none;
    if (chat_template_find(&c, args->inputs[0], NULL, NULL, &none) == ST_OK && c)
        log_warn("%s is one file, and the chat template of %s stays behind: -o %s/ makes a folder "
                 "with both",
                 args->output, args->inputs[0], args->output);
    chat_template_free(c);
}

static status save(const cli_args *args, const tok *t, err *e) {
    const char *path = args->output;
    if (file_is_dir(path) || (*path && path[strlen(path) - 1] == '/'))
        return tok_save_dir(t, path, 0, e);
    warn_of_template(args);
    return tok_save_file(t, path, e);
}

static json_t *sizes_json(const tok *before, const tok *after) {
    return json_pack("{s:i, s:i}", "vocab_size", (int)tok_vocab_size(after), "old_vocab_size",
                     (int)tok_vocab_size(before));
}

static void print_sizes(const cli_args *args, const tok *before, const tok *after) {
    printf("%s: %d tokens (%d before)\n", args->output, (int)tok_vocab_size(after),
           (int)tok_vocab_size(before));
}

static double growth(int64_t before, int64_t after) {
    return before ? 100.0 * ((double)after / (double)before - 1) : 0;
}

/* ---- tok add ---- */

typedef struct new_tokens {
    arena *mem;
    tok_new_token *token;
    int n, cap;
} new_tokens;

static void read_list(const cli_args *args, const char *option, bool special, new_tokens *out) {
    int n;
    const char *list = cli_value(args, option);
    const char **part = cli_split_tokens(out->mem, list ? list : "", &n);
    for (int i = 0; i < n; i++) {
        tok_new_token t = {.content = part[i],
                           .special = special,
                           .lstrip = cli_has(args, "lstrip"),
                           .rstrip = cli_has(args, "rstrip"),
                           .single_word = cli_has(args, "single-word"),
                           .normalized = cli_has(args, "normalized")};
        VEC_PUSH(out->token, out->n, out->cap, t);
    }
}

/* What a new token's text was before; it has no ids where the old vocabulary could not say it. */
static tok_ids ids_before(const tok *t, const char *content) {
    tok_ids ids = {0};
    if (tok_encode(t, content, strlen(content), 0, &ids, NULL) != ST_OK) ids.n = 0;
    return ids;
}

static void print_added_json(const tok *before, const tok *after, const new_tokens *new) {
    json_t *o = sizes_json(before, after), *list = json_array();
    int known = 0;
    for (int i = 0; i < new->n; i++) {
        const tok_new_token *k = &new->token[i];
        tok_ids ids = ids_before(before, k->content);
        json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:o}", "id",
                                              (int)tok_id(after, k->content), "content", k->content,
                                              "special", k->special, "ids_before",
                                              cli_id_list(ids.id, ids.n)));
        known += tok_id(before, k->content) >= 0;
        tok_ids_free(&ids);
    }
    int reserved = tok_vocab_size(after) - tok_vocab_size(before) - (new->n - known);
    json_object_set_new(o, "added", list);
    json_object_set_new(o, "reserved", json_integer(reserved));
    cli_print_json(o);
}

static void print_added(const cli_args *args, const tok *before, const tok *after,
                        const new_tokens *new) {
    int fresh = 0;
    print_sizes(args, before, after);
    for (int i = 0; i < new->n; i++) {
        const tok_new_token *k = &new->token[i];
        tok_ids ids = ids_before(before, k->content);
        printf("  %d  %s", (int)tok_id(after, k->content), k->content);
        if (!k->special || tok_id(before, k->content) >= 0)
            printf("  texts that hold it get other ids: it was %" PRId64 " token%s", ids.n,
                   text_s(ids.n));
        printf("\n");
        fresh += tok_id(before, k->content) < 0;
        tok_ids_free(&ids);
    }
    int reserved = tok_vocab_size(after) - tok_vocab_size(before) - fresh;
    if (reserved)
        printf("  and %d reserved token%s up to the multiple\n", reserved, text_s(reserved));
}

static status add_tokens(const cli_args *args, new_tokens *new, tok *before, tok **after, err *e) {
    int64_t multiple;
    TRY(cli_int(args, "multiple", 0, 1, 1 << 20, &multiple, e));
    read_list(args, "special", true, new);
    read_list(args, "token", false, new);
    static const char *const FLAGS[] = {"lstrip", "rstrip", "single-word", "normalized"};
    for (int i = 0; new->n == 0 && i < ARRAY_LEN(FLAGS); i++)
        if (cli_has(args, FLAGS[i])) log_warn("--%s changes nothing: no token is named", FLAGS[i]);
    if (new->n == 0 && multiple == 0) {
        err_set(e, ST_USAGE, "tok add is given nothing to add");
        return err_hint(e, "name tokens: --special A,B or --token A,B");
    }
    tok_add_options opt = {.token = new->token,
                           .n = new->n,
                           .multiple = (int32_t)multiple,
                           .allow = cli_has(args, "allow")};
    TRY(tok_edit_add(before, &opt, after, e));
    return save(args, *after, e);
}

static status run_add(const cli_args *args, err *e) {
    tok *before, *after = NULL;
    TRY(check_output(args, 1, e));
    TRY(tok_load(&before, args->inputs[0], e));
    new_tokens new = {.mem = arena_new("tok add")};
    status st = add_tokens(args, &new, before, &after, e);
    if (st == ST_OK && args->json) print_added_json(before, after, &new);
    if (st == ST_OK && !args->json) print_added(args, before, after, &new);
    free(new.token);
    arena_free(new.mem);
    tok_free(after);
    tok_free(before);
    return st;
}

/* ---- tok prune ---- */

/* One pass over the corpus; a report of one row. */
static status read_corpus(const cli_args *args, const reader_options *reading,
                          const tok *const *toks, int n_toks, tok_report **out, err *e) {
    const feed_doc *docs;
    doc_feed *feed;
    bool show = !args->json && progress_is_live(stderr);
    TRY(doc_feed_open(&feed, args->inputs + 1, args->n_inputs - 1, reading, show, e));
    *out = tok_report_new(toks, n_toks, false);
    int row = tok_report_row(*out), n = 1;
    tok_report_doc *batch = NULL;
    status st = ST_OK;
    while (st == ST_OK && n > 0) {
        TRY_GOTO(st, doc_feed_next(feed, &docs, &n, e), out);
        batch = xrealloc(batch, sizeof *batch * (size_t)(n + 1));
        for (int i = 0; i < n; i++)
            batch[i] = (tok_report_doc){docs[i].text, docs[i].len, {row, -1, -1}};
        st = tok_report_add(*out, batch, n, e);
    }
out:
    free(batch);
    doc_feed_close(feed);
    return st;
}

static status prune_options(const cli_args *args, tok_prune_options *o, err *e) {
    int64_t keep, min_count;
    TRY(cli_int(args, "keep", 0, 1, INT32_MAX, &keep, e));
    TRY(cli_int(args, "min-count", 1, 1, INT64_MAX / 2, &min_count, e));
    o->keep = (int32_t)keep;
    o->min_count = min_count;
    for (int i = 0; i < args->n_inputs; i++)
        TRY(cli_check_apart(cli_value(args, "map"), args->inputs[i], e));
    if (!cli_has(args, "keep") && !cli_has(args, "min-count")) {
        err_set(e, ST_USAGE, "tok prune needs to know how much stays");
        return err_hint(e, "give --keep N tokens, or --min-count 1 for all that the corpus uses");
    }
    for (int i = 1; i < args->n_inputs; i++) {
        if (strcmp(args->inputs[i], "-") != 0) continue;
        err_set(e, ST_USAGE, "the corpus is read twice, which standard input cannot be");
        return err_hint(e, "write it to a file");
    }
    return ST_OK;
}

static status write_map(const char *path, const tok_prune_result *r, err *e) {
    strbuf text = {0};
    json_t *o = json_pack("{s:o}", "rows", cli_id_list(r->row, r->n));
    json_format(&text, o, 0);
    strbuf_putc(&text, '\n');
    json_decref(o);
    status st = file_write_atomic(path, text.data, text.len, e);
    strbuf_free(&text);
    return st;
}

/* A document that came back exactly before must do so now. */
static status check_lossless(const tok_tally *before, const tok_tally *after, err *e) {
    if (after->exact_documents >= before->exact_documents &&
        after->refused_documents <= before->refused_documents)
        return ST_OK;
    return err_set(e, ST_FAILED,
                   "the pruned tokenizer loses text: %" PRId64 " documents decode exactly, "
                   "%" PRId64 " did before",
                   after->exact_documents, before->exact_documents);
}

static void print_pruned(const cli_args *args, const tok *const *toks, const tok_prune_result *r,
                         const tok_tally *before, const tok_tally *after) {
    const char *map = cli_value(args, "map");
    if (args->json) {
        json_t *o = sizes_json(toks[0], toks[1]);
        json_t *more =
            json_pack("{s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I}", "required", r->n_required, "used",
                      r->n_used, "parts", r->n_parts, "documents", (json_int_t)after->documents,
                      "exact_documents", (json_int_t)after->exact_documents, "refused_documents",
                      (json_int_t)after->refused_documents, "tokens_before",
                      (json_int_t)before->tokens, "tokens_after", (json_int_t)after->tokens);
        json_object_update(o, more);
        json_decref(more);
        cli_print_json(o);
        return;
    }
    print_sizes(args, toks[0], toks[1]);
    printf("  %d added or needed for any text, %d used by the corpus, %d parts of their merges\n",
           (int)r->n_required, (int)r->n_used, (int)r->n_parts);
    printf("the corpus: %" PRId64 " tokens (%" PRId64 " before, %+.2f%%); %" PRId64 " of %" PRId64
           " documents decode exactly\n",
           after->tokens, before->tokens, growth(before->tokens, after->tokens),
           after->exact_documents, after->documents);
    if (after->refused_documents)
        printf("  %" PRId64 " document%s refused, by the old tokenizer too\n",
               after->refused_documents, after->refused_documents == 1 ? " is" : "s are");
    if (map) printf("%s: the old row of each new id\n", map);
}

/* Counts, prunes, and looks at the corpus again with both. */
static status prune(const cli_args *args, tok *before, tok **after, err *e) {
    const tok *toks[2] = {before, NULL};
    tok_report *count = NULL, *check = NULL;
    arena *mem = arena_new("tok prune");
    reader_options reading = {0};
    tok_prune_options opt = {0};
    tok_prune_result r = {0};
    status st;
    TRY_GOTO(st, prune_options(args, &opt, e), out);
    TRY_GOTO(st, doc_feed_options(args, mem, &reading, e), out);
    TRY_GOTO(st, read_corpus(args, &reading, toks, 1, &count, e), out);
    opt.count = tok_report_counts(count, 0);
    TRY_GOTO(st, tok_edit_prune(before, &opt, after, &r, e), out);
    toks[1] = *after;
    TRY_GOTO(st, read_corpus(args, &reading, toks, 2, &check, e), out);
    tok_tally was = tok_report_tally(check, 0, 0), is = tok_report_tally(check, 1, 0);
    TRY_GOTO(st, check_lossless(&was, &is, e), out);
    TRY_GOTO(st, save(args, *after, e), out);
    if (cli_has(args, "map")) TRY_GOTO(st, write_map(cli_value(args, "map"), &r, e), out);
    print_pruned(args, toks, &r, &was, &is);
out:
    arena_free(mem);
    free(r.row);
    tok_report_free(count);
    tok_report_free(check);
    return st;
}

static status run_prune(const cli_args *args, err *e) {
    tok *before, *after = NULL;
    TRY(check_output(args, 1, e));
    TRY(tok_load(&before, args->inputs[0], e));
    status st = prune(args, before, &after, e);
    tok_free(after);
    tok_free(before);
    return st;
}

/* ---- tok extend ---- */

/* In many scripts, with code, for comparing tokenizers where no other text is given. */
static const char PROBE_TEXT[] =
    "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.\n"
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Tous les êtres humains "
    "naissent libres et égaux. Todos los seres humanos nacen libres e iguales.\n"
    "Все люди рождаются свободными и равными в своём достоинстве и правах. Όλοι οι άνθρωποι "
    "γεννιούνται ελεύθεροι. Tất cả mọi người sinh ra đều được tự do.\n"
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. כל בני האדם נולדו בני חורין.\n"
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। "
    "মানুষ স্বাধীনভাবে জন্মগ্রহণ করে। மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.\n"
    "人人生而自由,在尊严和权利上一律平等。すべての人間は、生まれながらにして自由である。"
    "모든 인간은 태어날 때부터 자유롭다. มนุษย์ทั้งหลายเกิดมามีอิสระ\n"
    "int main(void) {\n    for (int i = 0; i < 42; i++)\n        printf(\"%d\\n\", i * 1234567);\n"
    "    return 0;\n}\n"
    "def f(x):\n\treturn [y ** 2 for y in x if y != 3.14159]  # e-mail: a@b.example\n"
    "\xf0\x9f\x98\x80 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x80 2026-11-21 10:30 \xe2\x82\xac"
    "1,999.00   \n\n\n";

typedef struct probe {
    const char *name;
    size_t n_bytes;
    int64_t before, after; /* tokens */
} probe;

static status measure_probe(const tok *before, const tok *after, const char *text, probe *p,
                            err *e) {
    tok_ids ids = {0};
    status st = tok_encode(before, text, p->n_bytes, 0, &ids, e);
    p->before = ids.n;
    ids.n = 0;
    if (st == ST_OK) st = tok_encode(after, text, p->n_bytes, 0, &ids, e);
    p->after = ids.n;
    tok_ids_free(&ids);
    return st == ST_OK ? st : err_context(e, "%s", p->name);
}

static status read_probe(const cli_args *args, const tok *before, const tok *after, probe *p,
                         err *e) {
    const char *path = cli_value(args, "probe");
    char *text = NULL;
    p->name = path ? path : "the built-in text";
    p->n_bytes = strlen(PROBE_TEXT);
    if (path) TRY(file_read_all(path, &text, &p->n_bytes, e));
    status st = measure_probe(before, after, text ? text : PROBE_TEXT, p, e);
    free(text);
    return st;
}

static void print_extended(const cli_args *args, const tok *before, const tok *after,
                           const tok_extend_result *r, const probe *p) {
    if (args->json) {
        json_t *o = sizes_json(before, after);
        json_t *more =
            json_pack("{s:i, s:i, s:i, s:i, s:i, s:{s:I, s:I, s:I}}", "tokens", r->n_tokens,
                      "added_tokens", r->n_added, "merges", r->n_merges, "known", r->n_known,
                      "left_ordinary", r->n_left, "probe", "bytes", (json_int_t)p->n_bytes,
                      "tokens_before", (json_int_t)p->before, "tokens_after", (json_int_t)p->after);
        json_object_update(o, more);
        json_decref(more);
        cli_print_json(o);
        return;
    }
    print_sizes(args, before, after);
    printf("  %d new token%s, %d of them added; %d new merge%s; %d known before\n", r->n_tokens,
           text_s(r->n_tokens), r->n_added, r->n_merges, text_s(r->n_merges), r->n_known);
    if (r->n_left)
        printf("  %d added tokens of the second are ordinary in the first and stay so\n",
               r->n_left);
    printf("%s: %" PRId64 " tokens (%" PRId64 " before, %+.2f%%)\n", p->name, p->after, p->before,
           growth(p->before, p->after));
    printf("ids that existed mean what they did; texts may be cut otherwise\n");
}

static status extend(const cli_args *args, const tok *a, const tok *b, tok **out, err *e) {
    tok_extend_result r;
    probe p = {0};
    TRY(tok_edit_extend(a, b, cli_has(args, "allow"), out, &r, e));
    TRY(read_probe(args, a, *out, &p, e));
    TRY(save(args, *out, e));
    print_extended(args, a, *out, &r, &p);
    return ST_OK;
}

static status run_extend(const cli_args *args, err *e) {
    tok *a, *b = NULL, *out = NULL;
    TRY(check_output(args, 2, e));
    TRY(tok_load(&a, args->inputs[0], e));
    status st = tok_load(&b, args->inputs[1], e);
    if (st == ST_OK) st = extend(args, a, b, &out, e);
    tok_free(out);
    tok_free(b);
    tok_free(a);
    return st;
}

/* ---- the table ---- */

static const cli_option add_option_table[] = {
    {"special", "A,B", "special tokens, such as <|user|>"},
    {"token", "A,B", "ordinary tokens: texts that hold them get other ids"},
    {"multiple", "N", "reserved tokens fill the vocabulary up to a multiple of N"},
    {"lstrip", NULL, "the new tokens take white space before them"},
    {"rstrip", NULL, "the new tokens take white space after them"},
    {"single-word", NULL, "the new tokens are found only between other words"},
    {"normalized", NULL, "the new tokens are looked for after normalization"},
    {"allow", NULL, "also tokens that exist in the model, or that hide an added one"},
    {NULL, NULL, NULL},
};

static char *edit_help(void) {
    return xstrdup(
        "The old tokenizer stays as it is. Shards and checkpoints of the old one are "
        "not taken for the\nnew one's. A folder as OUT (new/) also gets tokenizer_config.json and "
        "the chat template.\n");
}

const cli_command command_tok_add = {
    .name = "tok add",
    .summary = "add tokens to a tokenizer; ids that exist stay",
    .usage = "TOKENIZER --special A,B | --token A,B -o OUT [--multiple 64]",
    .run = run_add,
    .options = add_option_table,
    .min_inputs = 1,
    .max_inputs = 1,
    .takes_output = true,
    .details = edit_help,
};

static const cli_option prune_option_table[] = {
    {"keep", "N", "at most so many tokens, the most frequent ones"},
    {"min-count", "K", "tokens that the corpus has K times or more"},
    {"map", "OUT.json",
     "JSON {\"rows\": [...]}: the old row of each new id, for embedding matrices"},
    {"field", "NAME", "the field of a JSONL object that holds the text (default text)"},
    {NULL, NULL, NULL},
};

static char *prune_help(void) {
    return xstrdup("What covers any text stays: added tokens, bytes, characters (with byte "
                   "fallback those that\nthe corpus has), and the parts of merges. Where all its "
                   "tokens stay, a text has the same\ntokens as before. New ids are dense, in the "
                   "order of the old.\n\nKeys:\n" DATA_TEXT_HELP);
}

const cli_command command_tok_prune = {
    .name = "tok prune",
    .summary = "drop tokens that a corpus does not use",
    .usage = "TOKENIZER FILE... -o OUT --keep N | --min-count K [--map rows.json] [key=value...]",
    .run = run_prune,
    .options = prune_option_table,
    .min_inputs = 2,
    .max_inputs = -1,
    .takes_output = true,
    .takes_keys = true,
    .details = prune_help,
};

static const cli_option extend_option_table[] = {
    {"probe", "FILE", "a text for comparing token counts (default: a built-in one)"},
    {"allow", NULL, "also where they differ in normalizer, pre-tokenizer or decoder"},
    {NULL, NULL, NULL},
};

const cli_command command_tok_extend = {
    .name = "tok extend",
    .summary = "extend a tokenizer with the tokens of a second one",
    .usage = "TOKENIZER SECOND -o OUT [--probe FILE] [--allow]",
    .run = run_extend,
    .options = extend_option_table,
    .min_inputs = 2,
    .max_inputs = 2,
    .takes_output = true,
    .details = edit_help,
};
