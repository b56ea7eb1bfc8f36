/* libFuzzer target: generation_config.json, and what stands behind a newline byte as config.json.
 * What is read must be in range and each end there once. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "infer/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const generation_settings *s) {
    for (int64_t i = 0; i < s->end.n; i++) {
        CHECK(s->end.id[i] >= 0, "an end that is no id");
        for (int64_t k = 0; k < i; k++) CHECK(s->end.id[i] != s->end.id[k], "an end twice");
    }
    CHECK(s->sample.top_k >= 0 && s->sample.temperature >= 0 && s->sample.temperature <= 100,
          "settings out of range");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    generation_settings s;
    err e = {0};
    char *first = xmalloc(size + 1);
    memcpy(first, data, size);
    first[size] = '\0';
    char *second = strchr(first, '\n');
    if (second) *second++ = '\0';
    if (generation_settings_parse(&s, first, second, &e) == ST_OK) {
        use(&s);
        generation_settings_free(&s);
    } else {
        CHECK(e.message[0], "a failure without a message");
    }
    free(first);
    return 0;
}
