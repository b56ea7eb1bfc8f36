/* The rules of JSON itself (RFC 8259), made when they are first asked for.
 *
 * What is written is bounded where JSON is not: white space is nothing, one space, or a line break with up to
 * 24 spaces, and stands behind { [ and commas and before } and ]; behind a colon is at most one space. Integers have
 * up to 18 digits, other numbers up to 15 before the point, 15 behind it and 2 in the exponent. Strings are UTF-8;
 * \u escapes of surrogates come in pairs. */
#ifndef INFER_GRAMMAR_JSON_RULES_H
#define INFER_GRAMMAR_JSON_RULES_H

#include "infer/grammar/network.h"

enum { JSON_INT_DIGITS = 18, JSON_DIGITS = 15 };

typedef enum json_rule {
    RULE_SPACE, /* one or more, as above */
    RULE_CHAR,  /* a character of a string, as it is or escaped */
    RULE_PLAIN, /* a character that needs no escape, not escaped */
    RULE_STRING,
    RULE_INTEGER,
    RULE_NUMBER,
    RULE_ARRAY,
    RULE_OBJECT,
    RULE_VALUE,
    RULE_N_RULES
} json_rule;

typedef struct json_rules {
    network *net;
    int32_t rule[RULE_N_RULES]; /* 0: not made yet, else the number + 1 */
    int64_t comparisons;        /* of names and values that the schemas may still take */
} json_rules;

int32_t json_rule_of(json_rules *j, json_rule which);
int32_t json_call(json_rules *j, json_rule which, int32_t next);
/* Perhaps white space; behind a colon perhaps one. */
int32_t json_space(json_rules *j, int32_t next);
int32_t json_colon(json_rules *j, int32_t next);
/* A character of lo..hi: as it is, but where JSON asks for an escape that has one letter, so. Other
 * control characters are left out. */
int32_t json_char(network *n, uint32_t lo, uint32_t hi, int32_t next);

#endif
