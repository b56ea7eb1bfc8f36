/* What templates call by name: filters, tests, methods and global functions, all of one shape.
 *
 * Each is a row of a table: a function of the value it stands behind and of its arguments, which
 * are bound to the named parameters before. */
#ifndef JINJA_BUILTIN_H
#define JINJA_BUILTIN_H

#include "base/status.h"
#include "jinja/value.h"

enum { JBUILTIN_MAX_PARAMS = 5, OF_TEXT = 16 };

/* Arguments as they were given. */
typedef struct jargs {
    const jv *pos, *kw_name, *kw;
    int32_t n_pos, n_kw;
} jargs;

struct jrun;

typedef struct jcall {
    jv self;                   /* the filtered or tested value, or the object of a method */
    jv p[JBUILTIN_MAX_PARAMS]; /* by parameter; JV_ABSENT: not given */
    const jargs *args;
    const char *name; /* of the row: functions that serve several rows tell them apart by it */
} jcall;

typedef status jbuiltin_fn(struct jrun *r, const jcall *c, jv *out);

typedef struct jbuiltin {
    const char *name;
    jbuiltin_fn *fn;    /* NULL: a method that changes its object, which the sandbox forbids */
    const char *params; /* "a,b,c"; NULL: looks at the arguments itself */
    int needs; /* arguments at least; with OF_TEXT, the value becomes a text first, as by str() */
} jbuiltin;

/* Rows end with a NULL name. */
typedef struct jbuiltin_table {
    const char *what; /* "filter", for messages */
    const jbuiltin *rows[3];
} jbuiltin_table;

extern const jbuiltin_table jbuiltin_filters, jbuiltin_tests;
extern const jbuiltin jfilter_rows[], jfilter_seq_rows[], jtest_rows[], jglobal_rows[];
extern const jbuiltin jmethod_dict_rows[], jmethod_list_rows[], jmethod_tuple_rows[],
    jmethod_loop_rows[], jmethod_str_rows[];

const jbuiltin *jbuiltin_row(const jbuiltin *rows, jv name);
/* NULL: no row has the name. */
const jbuiltin *jbuiltin_find(const jbuiltin_table *t, jv name);
/* Binds the arguments and calls. */
status jbuiltin_call(struct jrun *r, const jbuiltin *b, jv self, const jargs *args, jv *out);

#endif
