/* Small readers of what people type: numbers with suffixes, the nearest of some known words; and what
 * strangers say, made harmless. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* "10B", "0.5M", "64k" (decimal K M B T, k = K, G = B) and "64Ki", "8Gi" (binary Ki Mi Gi Ti), or a
 * plain number. The whole text must match; infinities and NaN are refused. */
bool text_parse_number(const char *s, double *value);
/* The same where the result must be an integer that an int64 holds exactly. */
bool text_parse_int(const char *s, int64_t *value);

/* Makes one plain line of a text from the network, in place: control characters (also those of C1)
 * and bytes that are not UTF-8 become '?', so that no log or terminal obeys them. */
void text_make_plain(char *s);

/* Edit distance (insert, delete, replace, swap of neighbours), case counted as half a change less
 * than another letter; words longer than 64 bytes are cut. Result in half changes. */
int text_distance(const char *a, const char *b);
/* Index of the nearest word, or -1 when none is near enough to be meant (about a third of it). */
int text_nearest(const char *word, const char *const *words, int n);

#endif
