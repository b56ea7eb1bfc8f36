#include "app/data/data_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

json_t *data_totals_json(const shard_totals *t) {
    return json_pack("{s:I,s:I,s:I}", "tokens", (json_int_t)t->tokens, "documents",
                     (json_int_t)t->documents, "text_bytes", (json_int_t)t->text_bytes);
}

void data_print_totals(const char *dir, const char *sub, const shard_totals *t) {
    printf("%s%s: %" PRIu64 " tokens, %" PRIu64 " documents, %" PRIu64
           " bytes of text (%.2f bytes per token)\n",
           dir, sub, t->tokens, t->documents, t->text_bytes,
           (double)t->text_bytes / (double)t->tokens);
}
