#include "run/scores.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double number(const json_t *scores, const char *key) {
    const json_t *v = json_object_get(scores, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

bool score_is_key(const char *key) {
    static const char error[] = "_stderr";
    const char *comma = strchr(key, ',');
    size_t n = comma ? (size_t)(comma - key) : 0, m = sizeof error - 1;
    return n > 0 && !(n > m && memcmp(comma - m, error, m) == 0);
}

const char *score_main_key(const json_t *scores) {
    static const char best[] = "bits_per_byte,";
    const char *key, *first = NULL;
    json_t *value;
    json_object_foreach((json_t *)scores, key, value) {
        if (!score_is_key(key)) continue;
        if (strncmp(key, best, sizeof best - 1) == 0) return key;
        if (!first) first = key;
    }
    return first;
}

double score_value(const json_t *scores, const char *key) {
    return number(scores, key);
}

double score_error(const json_t *scores, const char *key) {
    const char *comma = strchr(key, ',');
    char name[256];
    if (!comma) return NAN;
    snprintf(name, sizeof name, "%.*s_stderr%s", (int)(comma - key), key, comma);
    return number(scores, name);
}

double score_chance(const json_t *scores) {
    return number(scores, "chance");
}

void score_name(const char *key, char out[SCORE_NAME_BYTES]) {
    const char *comma = strchr(key, ',');
    if (!comma || strcmp(comma, ",none") == 0)
        snprintf(out, SCORE_NAME_BYTES, "%.*s", comma ? (int)(comma - key) : 100, key);
    else
        snprintf(out, SCORE_NAME_BYTES, "%.*s, %s", (int)(comma - key), key, comma + 1);
}
