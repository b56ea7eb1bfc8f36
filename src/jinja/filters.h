/* Filters that stand in a file of their own. */
#ifndef JINJA_FILTERS_H
#define JINJA_FILTERS_H

#include "jinja/run.h"

status jfilter_tojson(jrun *r, const jcall *c, jv *out) ATH_MUST_USE; /* value_json.c */
/* methods_str.c: the string methods that are filters, too, of any value made a string */
status jstr_upper(jrun *r, jv s, jv *out) ATH_MUST_USE;
status jstr_lower(jrun *r, jv s, jv *out) ATH_MUST_USE;
status jstr_title_words(jrun *r, jv s, jv *out) ATH_MUST_USE;
status jstr_capitalize(jrun *r, jv s, jv *out) ATH_MUST_USE;
bool jtext_is_alnum(uint32_t cp); /* a letter or a digit */
status jstr_strip(jrun *r, jv s, jv chars, bool left, bool right, jv *out) ATH_MUST_USE;
status jstr_pad(jrun *r, jv s, int64_t width, int side, jv fill, jv *out) ATH_MUST_USE;

#endif
