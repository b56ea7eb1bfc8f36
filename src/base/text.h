/* Small readers of what people type: numbers with suffixes, the nearest of some known words; and what
 * strangers say, made harmless. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Length of the number [+-]digits[.digits][e[+-]digits] at s; 0 when there is none. */
size_t text_number_span(const char *s);
/* "10B", "0.5M", "64k" (decimal K M B T, k = K, G = B) and "64Ki", "8Gi" (binary Ki Mi Gi Ti), or a
 * plain number. The whole text must match; infinities and NaN are refused. */
bool text_parse_number(const char *s, double *value);
/* The same where the result must be an integer that an int64 holds exactly. */
bool text_parse_int(const char *s, int64_t *value);

/* The same of a variable of the environment: one reader for all, so that each is checked in the
 * same way. One that is not set leaves *value as it is, which is its default. One that is set to
 * anything but a number of the range (an empty text, "nan", "1e300") is ST_USAGE, with the variable
 * as where. */
status env_int(const char *name, int64_t least, int64_t most, int64_t *value, err *e) ATH_MUST_USE;
status env_num(const char *name, double least, double most, double *value, err *e) ATH_MUST_USE;
/* The number of the word that it is, of n; an empty text is as one that is not set. Any other text is ST_USAGE, and the
 * error lists the words. */
status env_word(const char *name, const char *const *words, int n, int *which, err *e) ATH_MUST_USE;

/* Makes one plain line of a text from the network, in place: control characters (also those of C1)
 * and bytes that are not UTF-8 become '?', so that no log or terminal obeys them. */
void text_make_plain(char *s);

/* Edit distance (insert, delete, replace, swap of neighbours), case counted as half a change less
 * than another letter; words longer than 64 bytes are cut. Result in half changes. */
int text_distance(const char *a, const char *b);
/* Index of the nearest word, or -1 when none is near enough to be meant (about a third of it). */
int text_nearest(const char *word, const char *const *words, int n);

/* Also where it is all of the text. */
bool text_ends_with(const char *s, const char *end);

/* What a word for n things ends with: "1 file", "2 files". */
static inline const char *text_s(int64_t n) {
    return n == 1 ? "" : "s";
}

/* Three digits with the suffix that configs take: "12.3M", "1.85T". Returns out. */
const char *text_short_number(double x, char out[16]);

#endif
