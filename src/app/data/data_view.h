/* What the data commands share. */
#ifndef APP_DATA_VIEW_H
#define APP_DATA_VIEW_H

#include <jansson.h>

#include "app/frame/cli.h"
#include "data/shard/shards.h"

/* Totals of a shard set. */
json_t *data_totals_json(const shard_totals *t);
/* One line; the set is named by its folder and what follows it ("/train"). */
void data_print_totals(const char *dir, const char *sub, const shard_totals *t);

/* data_show_step.c: documents of each sequence of the step, at most `limit` of them; with `render`
 * their text, where what is not learned stands out. */
status data_show_step(const char *run, int64_t step, int64_t limit, bool render, bool json,
                      err *e) ATH_MUST_USE;

/* cmd_data_build.c: the value of key=WORD as its place in `words`; *out stays without the key. */
status data_get_word(const cli_args *args, const char *key, const char *const *words, int n,
                     int *out, err *e) ATH_MUST_USE;

/* data_build_chat.c: whether `data build` has conversations before it, by --chat or by the inputs. */
status data_build_is_chat(const cli_args *args, bool *out, err *e) ATH_MUST_USE;
status data_build_chat(const cli_args *args, const char *tokenizer, err *e) ATH_MUST_USE;
/* One line of what a set of conversations is made of, from its chat.json. */
void data_print_chat(const json_t *report);

/* cmd_data_build.c: numbers of keys; *out stays without the key. */
status data_get_number(const cli_args *args, const char *key, double hi, double *out,
                       err *e) ATH_MUST_USE;
status data_get_count(const cli_args *args, const char *key, int64_t hi, uint64_t *out,
                      err *e) ATH_MUST_USE;

#endif
