/* A parsed template: a tree in the arena of the template, never changed after parsing. */
#ifndef JINJA_AST_H
#define JINJA_AST_H

#include "base/arena.h"
#include "jinja/value.h"

typedef enum jnode_kind {
    /* statements */
    JN_BLOCK,        /* kid: statements */
    JN_TEXT,         /* value */
    JN_PRINT,        /* a */
    JN_IF,           /* kid: condition, block, condition, block ... [, else block] */
    JN_FOR,          /* a target, b items, c filter or NULL, d block, kid: [else block] */
    JN_SET,          /* a target, b expression */
    JN_SET_BLOCK,    /* a target, b filters over JN_HOLE or NULL, d block */
    JN_FILTER_BLOCK, /* b filters over JN_HOLE, d block */
    JN_WITH,         /* kid: target, expression ...; d block */
    JN_MACRO,        /* macro */
    JN_GENERATION,   /* d block */
    JN_BREAK,
    JN_CONTINUE,
    /* expressions: where there is an a, it is evaluated first */
    JN_CONST,   /* value */
    JN_NAME,    /* symbol */
    JN_NS_ATTR, /* symbol, value: attribute; only as a target */
    JN_LIST,    /* kid */
    JN_TUPLE,   /* kid; a target, too */
    JN_DICT,    /* kid: key, value ... */
    JN_NEG,     /* a */
    JN_POS,     /* a */
    JN_NOT,     /* a */
    JN_AND,     /* a, b */
    JN_OR,      /* a, b */
    JN_BINARY,  /* a, b; op: JT_ADD ... */
    JN_CONCAT,  /* kid */
    JN_COMPARE, /* a, kid: JN_OPERAND */
    JN_OPERAND, /* a; op: JT_EQ ..., JN_OP_IN, JN_OP_NOT_IN */
    JN_CHOICE,  /* b if a else c (or NULL) */
    JN_ATTR,    /* a, value: name */
    JN_ITEM,    /* a, b */
    JN_SLICE,   /* a, b, c (each may be NULL); only in JN_ITEM */
    JN_CALL,    /* a, args */
    JN_FILTER,  /* a, value: name, builtin, args */
    JN_TEST,    /* a, value: name, builtin, args */
    JN_HOLE,    /* the text of a set or filter block */
} jnode_kind;

enum { JN_OP_IN = 200, JN_OP_NOT_IN };

/* A growing list of nodes. */
typedef struct jkids {
    struct jnode **item;
    int32_t n, cap;
} jkids;

/* Arguments of a call. */
typedef struct jcall_args {
    jkids pos, kw;
    jv *kw_name;                    /* [kw.n] */
    struct jnode *star, *star_star; /* *list, **mapping; may be NULL */
} jcall_args;

typedef struct jnode {
    uint8_t kind, op;
    uint32_t at; /* byte of the source, for errors */
    int32_t symbol;
    struct jnode *a, *b, *c, *d;
    jkids kid;
    jv value;
    const struct jbuiltin *builtin; /* NULL: unknown, in a branch that may not be taken */
    jcall_args *args;               /* NULL: none */
    struct jmacro_def *macro;
} jnode;

typedef struct jmacro_def {
    jv name;
    int32_t symbol;
    int32_t *param; /* symbols */
    jv *param_name;
    jkids fallback; /* NULL: undefined when not given */
    int32_t n_params;
    bool takes_varargs, takes_kwargs;
    jnode *body;
} jmacro_def;

struct jinja_template {
    arena *mem;
    const char *src;
    const char *text; /* as it was given */
    jnode *root;
    jv *symbol; /* names by number */
    int32_t n_symbols;
    bool has_generation;
    bool strict; /* jinja_parse_strict */
    int32_t sym_loop, sym_varargs, sym_kwargs;
};

#endif
