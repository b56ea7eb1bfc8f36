/* What the data commands share. */
#ifndef APP_DATA_VIEW_H
#define APP_DATA_VIEW_H

#include <jansson.h>

#include "app/data/inspect.h"
#include "app/frame/cli.h"
#include "data/chat/chat.h"
#include "data/shard/shards.h"

/* Totals of a shard set. */
json_t *data_totals_json(const shard_totals *t);
/* One line; the set is named by its folder and what follows it ("/train"). */
void data_print_totals(const char *dir, const char *sub, const shard_totals *t);

/* cmd_data_show.c: what is known of a document; with t also the beginning of its text. */
status data_document_json(const shards *s, const tok *t, const shard_place *p, json_t **out,
                          err *e) ATH_MUST_USE;
/* What is known of a set; takes its documents over. */
json_t *data_set_json(const shards *s, json_t *documents);

/* How samples are looked at, token by token. */
typedef struct data_look {
    int64_t from, limit; /* samples, or documents of a list */
    const char *html;    /* the page to write; NULL: none */
    const char *title;   /* the conversations that the set was made of for this look; NULL: none */
    bool json, render;
    inspect_style style;
} data_look;

/* data_show_set.c: samples of a set. t NULL: ids only, in JSON. */
status data_show_set(const shards *s, const tok *t, const data_look *look, err *e) ATH_MUST_USE;
/* Where document `number` begins; without an index it is found from the first one on. The end of the
 * set where there is no such document and no index; with one the number must be below their count. */
status data_find_document(const shards *s, arena *a, uint64_t number, uint64_t *at,
                          err *e) ATH_MUST_USE;
/* The title of a document: where its text came from, or else its shard. */
const char *data_title(arena *a, const shard_place *p, const char *file);
/* What document number `which` of a sample is in it, of a set of pairs or of answers with labels. */
inspect_label data_label(const shards *s, int which, const uint8_t *marks, int64_t n);
/* Writes the page of an inspection to look->html, and says so where standard output is not for JSON. */
status data_write_page(const inspection *x, const data_look *look, err *e) ATH_MUST_USE;

/* data_show_chats.c: samples of conversations (args->inputs[0]) of which no set was made yet: one is
 * made for the look, with every hard stop accepted, and removed. */
status data_show_chats(const cli_args *args, data_look *look, err *e) ATH_MUST_USE;

/* data_show_step.c: documents of each sequence of the step, at most look->limit of them; with
 * look->render their text, where what is not learned stands out. */
status data_show_step(const char *run, int64_t step, const data_look *look, err *e) ATH_MUST_USE;

/* cmd_data_build.c: how text is read, by keys of any command that takes text. */
#define DATA_TEXT_KEYS "format", "field", "template", "charset", "max_bad"
#define DATA_TEXT_HELP                                                                             \
    "  format=auto        text, jsonl, csv, tsv or parquet, instead of going by the name\n"        \
    "  field=text         the field of a record that holds the text (meta.body goes deep)\n"       \
    "  template=TEXT      joins fields instead: '{title}\\n\\n{text}'\n"                           \
    "  charset=NAME       of all files, instead of finding it out for each\n"                      \
    "  max_bad=0.01       share of unreadable records above which reading stops\n"
struct reader_options;
status data_text_options(const cli_args *args, arena *a, struct reader_options *opt,
                         err *e) ATH_MUST_USE;

/* cmd_data_build.c: the file of tokenizer=FILE, without which nothing is built. Asked for behind the other keys: one
 * of them may be this one, misspelt. */
status data_get_tokenizer(const cli_args *args, const char **out, err *e) ATH_MUST_USE;

/* cmd_data_build.c: the value of key=WORD as its place in `words`; *out stays without the key. */
status data_get_word(const cli_args *args, const char *key, const char *const *words, int n,
                     int *out, err *e) ATH_MUST_USE;

/* data_build_chat.c: whether `data build` has conversations before it, by --chat or by the inputs. */
status data_build_is_chat(const cli_args *args, bool *out, err *e) ATH_MUST_USE;
status data_build_chat(const cli_args *args, err *e) ATH_MUST_USE;
/* Its keys and options; *variables, which opt refers to, is the caller's. */
status data_chat_options(const cli_args *args, chat_build_options *opt, json_t **variables,
                         err *e) ATH_MUST_USE;
/* One line of what a set of conversations is made of, from its chat.json. */
void data_print_chat(const json_t *report);

/* cmd_data_build.c: numbers of keys; *out stays without the key. A share is from 0 to below 1, or to 1. */
status data_get_share(const cli_args *args, const char *key, bool may_be_all, double *out,
                      err *e) ATH_MUST_USE;
status data_get_count(const cli_args *args, const char *key, int64_t hi, uint64_t *out,
                      err *e) ATH_MUST_USE;

#endif
