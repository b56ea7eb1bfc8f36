/* Small readers of what people type: numbers with suffixes, and the nearest of some known words. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* "10B", "0.5M", "64k" (decimal K M B T, k = K, G = B) and "64Ki", "8Gi" (binary Ki Mi Gi Ti), or a
 * plain number. The whole text must match; infinities and NaN are refused. */
bool text_parse_number(const char *s, double *value);
/* The same where the result must be an integer that an int64 holds exactly. */
bool text_parse_int(const char *s, int64_t *value);

/* Edit distance (insert, delete, replace, swap of neighbours), case counted as half a change less
 * than another letter; words longer than 64 bytes are cut. Result in half changes. */
int text_distance(const char *a, const char *b);
/* Index of the nearest word, or -1 when none is near enough to be meant (about a third of it). */
int text_nearest(const char *word, const char *const *words, int n);

#endif
