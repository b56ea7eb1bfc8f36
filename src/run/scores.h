/* Scores of tasks in JSON, as `athanor eval --json` and `eval` events have them:
 *
 *   {"alias": "sums", "acc,none": 0.5, "acc_stderr,none": 0.1, ..., "sample_len": 24, "chance": 0.5}
 *
 * A key is METRIC,FILTER. Chance is what guessing scores; tasks without choices have none. */
#ifndef RUN_SCORES_H
#define RUN_SCORES_H

#include <jansson.h>
#include <stdbool.h>

enum { SCORE_NAME_BYTES = 160 };

/* Whether a key is that of a score, and not of its error or of something else. */
bool score_is_key(const char *key);
/* The key by which a task is shown where there is room for one: bits per byte, else the first one.
 * NULL: the object has no score. */
const char *score_main_key(const json_t *scores);
/* NaN: there is none. */
double score_value(const json_t *scores, const char *key);
double score_error(const json_t *scores, const char *key);
double score_chance(const json_t *scores);
/* "acc"; of a filter with a name "exact_match, strict-match". */
void score_name(const char *key, char out[SCORE_NAME_BYTES]);

#endif
