/* What filters and methods of texts share; the tables are in filters.c and methods_str.c. */
#ifndef JINJA_STR_H
#define JINJA_STR_H

#include "jinja/run.h"

/* methods_str.c */
jbuiltin_fn jstr_strip;
/* To `width` characters with `fill` before (side 1), behind (-1) or around it (0). */
status jstr_pad(jrun *r, jv s, int64_t width, int side, jv fill, jv *out) ATH_MUST_USE;
status jstr_replace(jrun *r, jv s, jv old, jv with, int64_t count, jv *out) ATH_MUST_USE;
/* str_case.c */
jbuiltin_fn jstr_upper, jstr_lower, jstr_capitalize, jstr_title, jstr_title_words, jstr_swapcase;
jbuiltin_fn jstr_isalpha, jstr_isalnum, jstr_isnumeric, jstr_isdecimal, jstr_isspace, jstr_isascii,
    jstr_islower, jstr_isupper;
bool jtext_is_alnum(uint32_t cp); /* a letter or a digit */
/* str_find.c */
jbuiltin_fn jstr_find, jstr_count, jstr_affix;
status jstr_has_affix(jrun *r, jv s, jv affix, bool at_end, bool *yes) ATH_MUST_USE;
/* str_split.c */
jbuiltin_fn jstr_split, jstr_splitlines, jstr_partition;
status jstr_lines(jrun *r, jv s, bool keep_ends, jseq **out) ATH_MUST_USE; /* s.splitlines() */
/* str_format.c */
status jstr_format(jrun *r, jv format, jv args, jv *out) ATH_MUST_USE; /* format % args */
status jstr_braces(jrun *r, jv format, const jargs *args, jv *out) ATH_MUST_USE;
/* filters.c */
status jstr_escape_html(jrun *r, jv s, jv *out) ATH_MUST_USE;
/* value_json.c */
jbuiltin_fn jfilter_tojson;

#endif
