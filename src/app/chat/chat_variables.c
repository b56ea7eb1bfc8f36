#include "app/chat/chat_variables.h"

#include <string.h>

#include "base/json.h"

void chat_read_variables(const cli_args *args, json_t *variables) {
    for (int i = 0; i < args->n_overrides; i++) {
        const char *value = strchr(args->overrides[i], '=') + 1;
        json_t *j = json_loads(value, JSON_DECODE_ANY, NULL);
        json_object_setn_new(variables, args->overrides[i],
                             (size_t)(value - args->overrides[i]) - 1, j ? j : json_cstr(value));
    }
}
