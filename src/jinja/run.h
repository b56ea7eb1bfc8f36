/* One render: its state, and what evaluation, filters and methods ask of each other.
 *
 * Everything is counted: each value looked at costs a step, and so does work that grows with bytes,
 * so that the number of steps bounds the time; memory is that of the arena, depth that of nested
 * calls; beyond a limit the render fails with a sentence. Files:
 *   run.c        entry, statements, scopes     run_loop.c   for
 *   run_expr.c   expressions                   run_ops.c    + - * / % ~ and their like
 *   run_attr.c   a.b, a[b], slices             run_call.c   arguments, macros
 *   value.c, value_ops.c, value_text.c, value_json.c   values: building, comparing, printing */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include "base/strbuf.h"
#include "jinja/ast.h"
#include "jinja/builtin.h"
#include "jinja/jinja.h"

/* Variables of a block. A macro keeps the scope it was defined in. */
typedef struct jscope {
    struct jscope *parent;
    int32_t *symbol;
    jv *value;
    int32_t n, symbol_cap, value_cap;
    bool kept; /* a macro was defined here */
} jscope;

typedef struct jmacro {
    const jmacro_def *def;
    jscope *scope;
} jmacro;

/* A global function, or a method with its object. */
typedef struct jbound {
    const jbuiltin *fn;
    jv self;
} jbound;

/* The state of a for loop, and the value `loop`. Items are filtered as they are asked for. */
typedef struct jloop {
    const jnode *node;
    jscope *scope; /* around the loop, where the filter looks */
    const jseq *source;
    int32_t next;  /* of the source, to be filtered */
    jseq *got;     /* what passed */
    int32_t index; /* of the current item in `got` */
    bool finished; /* some item to the end of the block: as in Jinja, else runs unless one was */
    jv changed;    /* what loop.changed() last saw; JV_ABSENT: nothing yet */
} jloop;

typedef enum jflow { JFLOW_NEXT, JFLOW_BREAK, JFLOW_CONTINUE } jflow;

typedef struct jrun {
    const jinja_template *t;
    const json_t *context;
    jinja_limits limits; /* with defaults filled in */
    arena *mem;
    int64_t left;  /* quarters of a step */
    int32_t depth; /* so far */
    uint32_t at;   /* the node being evaluated */
    jscope *scope;
    jscope root;
    jflow flow;
    strbuf *out;
    size_t out_start;
    int32_t captures;    /* macros and blocks around this place whose text is a value */
    int32_t generations; /* generation blocks around this place */
    jv hole;             /* the text of the block whose filters are being run */
    jinja_spans *spans;
    strbuf scratch; /* texts being built, one behind the other */
    bool full;      /* one of them became too long */
    err *e;
} jrun;

/* ---- limits and errors ---- */

/* ST_FORMAT with the line of the node being evaluated. */
status jrun_fail(jrun *r, const char *fmt, ...) ATH_PRINTF(2, 3);
/* Takes steps, of some 20 ns each, off what is left; fails when nothing is, or when the arena has grown beyond its
 * limit. Whatever has a loop calls it, before the work where its size is known; building a text (jtext_add) counts
 * by itself. */
status jrun_spend(jrun *r, int64_t steps) ATH_MUST_USE;
/* Steps of work on bytes: copied or compared as a whole; searched for something; read character by character. */
static inline int64_t jcost_copy(int64_t bytes) {
    return bytes / 64;
}
static inline int64_t jcost_search(int64_t bytes) {
    return bytes / 16;
}
static inline int64_t jcost_walk(int64_t bytes) {
    return bytes / 8;
}
status jrun_enter(jrun *r) ATH_MUST_USE; /* undone with r->depth-- */
/* The error of using an undefined value; ST_OK for any other. */
status jrun_require(jrun *r, jv v) ATH_MUST_USE;
/* The same in strict templates, and nothing in others, where an undefined value is false, empty and no text. */
status jrun_use(jrun *r, jv v) ATH_MUST_USE;
/* Whether a value that is used is true. */
status jrun_truth(jrun *r, jv v, bool *yes) ATH_MUST_USE;

/* ---- building values ---- */

/* A text is built at the end of r->scratch: begin, add, take; the last begun is taken first. Each
 * piece costs a quarter of a step, and its bytes. When that is too much, or the text too long,
 * r->full is set, further pieces are dropped, and taking it fails. */
static inline size_t jtext_begin(const jrun *r) {
    return r->scratch.len;
}
void jtext_add(jrun *r, const char *s, size_t n);
static inline void jtext_add_str(jrun *r, jv s) {
    jtext_add(r, s.u.s, s.n);
}
static inline void jtext_putc(jrun *r, char c) {
    jtext_add(r, &c, 1);
}
void jtext_puts(jrun *r, const char *s);
void jtext_add_times(jrun *r, jv s, int64_t times);
/* Adds a text in which some characters stand as something else: `escape` gives what, NULL for a
 * character that stays. It may write to buf. */
typedef const char *jtext_escape(const void *how, uint32_t cp, char buf[16]);
void jtext_add_escaped(jrun *r, jv s, jtext_escape *escape, const void *how);
status jtext_check(jrun *r) ATH_MUST_USE; /* fails when the text being built is not whole */
status jtext_take(jrun *r, size_t start, jv *out) ATH_MUST_USE;

jseq *jseq_new(jrun *r, jseq_kind kind);
void jseq_push(jrun *r, jseq *s, jv v);
jv jseq_pair(jrun *r, jv a, jv b); /* a tuple */
/* s[from], s[from + step], ... (n items), of the same kind. */
status jseq_pick(jrun *r, const jseq *s, int64_t from, int64_t step, int64_t n,
                 jv *out) ATH_MUST_USE;
jdict *jdict_new(jrun *r);
/* The value of a key, NULL when absent. */
status jdict_find(jrun *r, const jdict *d, jv key, jv **value) ATH_MUST_USE;
status jdict_set(jrun *r, jdict *d, jv key, jv value) ATH_MUST_USE;
jv jundef_of(jrun *r, jv of, jv name, bool forbidden);
jv jundef_why(jrun *r, const char *why, bool lenient);
jv jbound_new(jrun *r, const jbuiltin *fn, jv self);
status jv_from_json(jrun *r, const json_t *j, jv *out) ATH_MUST_USE;

/* ---- what Python does with values ---- */

/* Items in order: of what can be iterated; a generator gives its rest and is empty then. */
status jv_iterate(jrun *r, jv v, const jseq **out) ATH_MUST_USE;
status jv_equal(jrun *r, jv a, jv b, bool *equal) ATH_MUST_USE;
/* The same of two texts, for loops that count their steps themselves. */
status jtext_equal(jrun *r, jv a, jv b, bool *equal) ATH_MUST_USE;
/* The first or last byte at which `one` stands in `all`, -1 when it does not. */
status jtext_find(jrun *r, jv all, jv one, bool last, int64_t *at) ATH_MUST_USE;
/* Negative, 0 or positive as a stands to b; fails for what has no order. */
status jv_order(jrun *r, jv a, jv b, int *order) ATH_MUST_USE;
status jv_contains(jrun *r, jv all, jv one, bool *yes) ATH_MUST_USE;
/* A stable sort of `n` items by keys beside them. */
status jv_sort(jrun *r, jv *key, jv *item, int32_t n, bool reverse) ATH_MUST_USE;
/* Adds str(v) and repr(v) to the text being built. */
status jv_add_str(jrun *r, jv v) ATH_MUST_USE;
status jv_add_repr(jrun *r, jv v) ATH_MUST_USE;
void jtext_add_float(jrun *r, double f);
enum { JFLOAT_STEPS = 32 }; /* what it costs to write or read a float */
/* str(v) as a value. */
status jv_to_str(jrun *r, jv v, jv *out) ATH_MUST_USE;

/* ---- evaluation ---- */

status jrun_eval(jrun *r, const jnode *n, jv *out) ATH_MUST_USE;
status jrun_block(jrun *r, const jnode *block) ATH_MUST_USE;
status jrun_for(jrun *r, const jnode *n) ATH_MUST_USE;
status jrun_assign(jrun *r, const jnode *target, jv value) ATH_MUST_USE;
jscope *jscope_in(jrun *r, jscope *parent); /* a new one */
status jscope_set(jrun *r, jscope *s, int32_t symbol, jv value) ATH_MUST_USE;
/* Runs a block in a scope of its own and gives what it wrote instead of writing it. */
status jrun_capture(jrun *r, const jnode *block, jscope *scope, jv *out) ATH_MUST_USE;
status jrun_lookup(jrun *r, int32_t symbol, jv *out) ATH_MUST_USE;

status jrun_unary(jrun *r, jnode_kind op, jv a, jv *out) ATH_MUST_USE;
status jrun_binary(jrun *r, int op, jv a, jv b, jv *out) ATH_MUST_USE;
/* op: JT_EQ ... JT_GE, JN_OP_IN, JN_OP_NOT_IN. */
status jrun_compare(jrun *r, int op, jv a, jv b, bool *yes) ATH_MUST_USE;
status jrun_attr(jrun *r, jv of, jv name, jv *out) ATH_MUST_USE;
status jrun_item(jrun *r, jv of, jv key, jv *out) ATH_MUST_USE;
status jrun_slice(jrun *r, jv of, jv start, jv stop, jv step, jv *out) ATH_MUST_USE;
/* Where a slice begins and how many items it has. */
status jslice_range(jrun *r, int64_t len, jv start, jv stop, int64_t step, int64_t *from,
                    int64_t *n) ATH_MUST_USE;
status jrun_args(jrun *r, const jcall_args *a, jargs *out) ATH_MUST_USE;
status jrun_call(jrun *r, jv callee, const jargs *args, jv *out) ATH_MUST_USE;
status jloop_attr(jrun *r, jloop *l, jv name, jv *out, bool *found) ATH_MUST_USE;

/* ---- shared by filters and methods ---- */

/* The argument, or a default when it is absent; fails when its type is another. */
status jarg_int(jrun *r, const jcall *c, int i, int64_t fallback, int64_t *out) ATH_MUST_USE;
status jarg_str(jrun *r, const jcall *c, int i, jv fallback, jv *out) ATH_MUST_USE;
static inline bool jarg_truth(const jcall *c, int i) {
    return c->p[i].kind != JV_ABSENT && jv_truth(c->p[i]);
}

/* methods_str.c */
jbuiltin_fn jstr_strip;
/* To `width` characters with `fill` before (side 1), behind (-1) or around it (0). */
status jstr_pad(jrun *r, jv s, int64_t width, int side, jv fill, jv *out) ATH_MUST_USE;
status jstr_replace(jrun *r, jv s, jv old, jv with, int64_t count, jv *out) ATH_MUST_USE;
status jstr_lines(jrun *r, jv s, bool keep_ends, jseq **out) ATH_MUST_USE; /* s.splitlines() */
/* str_case.c */
jbuiltin_fn jstr_upper, jstr_lower, jstr_capitalize, jstr_title, jstr_title_words, jstr_swapcase,
    jstr_casefold;
jbuiltin_fn jstr_isalpha, jstr_isalnum, jstr_isnumeric, jstr_isdecimal, jstr_isspace, jstr_isascii,
    jstr_islower, jstr_isupper;
bool jtext_is_alnum(uint32_t cp); /* a letter or a digit */
/* str_format.c */
status jstr_format(jrun *r, jv format, jv args, jv *out) ATH_MUST_USE; /* format % args */
status jstr_braces(jrun *r, jv format, const jargs *args, jv *out) ATH_MUST_USE;
/* filters.c */
status jstr_escape_html(jrun *r, jv s, jv *out) ATH_MUST_USE;
/* value_json.c */
jbuiltin_fn jfilter_tojson;

#endif
