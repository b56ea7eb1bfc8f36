/* Totals of a shard set as JSON and as a line of text, for the commands that show one. */
#ifndef APP_DATA_VIEW_H
#define APP_DATA_VIEW_H

#include <jansson.h>

#include "data/shard/shards.h"

json_t *data_totals_json(const shard_totals *t);
/* One line; the set is named by its folder and what follows it ("/train"). */
void data_print_totals(const char *dir, const char *sub, const shard_totals *t);

#endif
