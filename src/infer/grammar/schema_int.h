/* What the files of the schema compiler share (see schema.h).
 *
 * Reading order: schema_check.c (keywords), schema.c (lists and their rules), then a file for each
 * kind of value. */
#ifndef INFER_GRAMMAR_SCHEMA_INT_H
#define INFER_GRAMMAR_SCHEMA_INT_H

#include "base/arena.h"
#include "infer/grammar/schema.h"
#include "tok/text/map.h"

typedef enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOL = 2,
    TYPE_INT = 4,      /* a whole number */
    TYPE_FRACTION = 8, /* a number that is not whole */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127
} schema_type;

/* A schema that applies. Of its anyOf, or oneOf, a branch may have been chosen, which stands in the
 * same list. */
typedef struct schema_item {
    const json_t *schema; /* an object */
    bool any_chosen, one_chosen;
} schema_item;

/* All apply to one value. Initialise with {0}; items are of the compiler's arena. */
typedef struct schema_list {
    schema_item *item;
    int32_t n, cap;
    bool never; /* one of them is `false` */
} schema_list;

typedef struct schema {
    json_rules *json;
    network *net;
    const json_t *root;
    arena *mem;
    str_map rules;   /* bytes of a list's items -> rule */
    str_map checked; /* bytes of a pointer: its keywords are known */
    /* What a hostile schema could have too much of. */
    int depth, patterns, searches;
} schema;

/* ---- schema_check.c ---- */

/* ST_USAGE at a keyword of a schema: "where" is its pointer. */
status schema_refuse(const schema *c, err *e, const json_t *at, const char *keyword,
                     const char *fmt, ...) ATH_PRINTF(5, 6);
/* Checks all keywords of a schema, but not of those in it. */
status schema_check(schema *c, const json_t *s, err *e) ATH_MUST_USE;

/* ---- schema.c ---- */

/* Adds a schema, and what it refers to, to a list. */
status schema_add(schema *c, schema_list *l, schema_item s, err *e) ATH_MUST_USE;
/* The rule of a list, made if there is none yet. */
status schema_rule(schema *c, const schema_list *l, int32_t *rule, err *e) ATH_MUST_USE;
/* What a `type` allows. */
unsigned schema_types(const schema_item *s);
/* The least or the most that the schemas of a list say for a count; `none` where none does. */
int64_t schema_least(const schema_list *l, const char *keyword, int64_t none);
int64_t schema_most(const schema_list *l, const char *keyword, int64_t none);

/* ---- a file for each; *start is a state that leads to NET_END ---- */

status schema_object(schema *c, const schema_list *l, int32_t *start, err *e) ATH_MUST_USE;
status schema_array(schema *c, const schema_list *l, int32_t *start, err *e) ATH_MUST_USE;
status schema_string(schema *c, const schema_list *l, int32_t *start, err *e) ATH_MUST_USE;
/* whole: only whole numbers. */
status schema_number(schema *c, const schema_list *l, bool whole, int32_t *start,
                     err *e) ATH_MUST_USE;
/* *found: some schema has an enum or a const; then *start is all of what is allowed. */
status schema_enum(schema *c, const schema_list *l, bool *found, int32_t *start,
                   err *e) ATH_MUST_USE;
/* Whether a value could be valid by both lists, by what is plain to see. */
bool schema_overlap(schema *c, const schema_list *a, const schema_list *b);
/* The type of a value. */
schema_type schema_type_of(const json_t *value);

/* pattern.c: a JSON string of min to max characters (max -1: any number) in which the pattern is found. */
status pattern_string(schema *c, const char *pattern, int64_t min, int64_t max, int32_t *start,
                      err *e) ATH_MUST_USE;
/* The pattern of a format; NULL: it is not known. */
const char *pattern_of_format(const char *format);

#endif
