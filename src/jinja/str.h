/* Methods of strings that stand in files of their own. */
#ifndef JINJA_STR_H
#define JINJA_STR_H

#include "jinja/filters.h"

/* str_case.c */
status jstr_title(jrun *r, jv s, jv *out) ATH_MUST_USE;
status jstr_swapcase(jrun *r, jv s, jv *out) ATH_MUST_USE;
jbuiltin_fn jstr_isalpha, jstr_isalnum, jstr_isnumeric, jstr_isdecimal, jstr_isspace, jstr_isascii,
    jstr_islower, jstr_isupper;
/* str_find.c */
status jstr_has_affix(jrun *r, jv s, jv affix, bool at_end, bool *yes) ATH_MUST_USE;
jbuiltin_fn jstr_find, jstr_rfind, jstr_index, jstr_rindex, jstr_count, jstr_startswith,
    jstr_endswith;
/* str_split.c */
jbuiltin_fn jstr_split, jstr_rsplit, jstr_splitlines, jstr_partition, jstr_rpartition;

#endif
