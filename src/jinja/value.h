/* Values of a template: Python's, as far as templates see them.
 *
 * A value is 16 bytes; what it points to lives in the arena of the render and is never changed,
 * except namespaces and the position of generators and loops. */
#ifndef JINJA_VALUE_H
#define JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum jv_kind {
    JV_ABSENT, /* an argument that was not given; never seen by a template */
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STRING,
    JV_SEQ,
    JV_DICT,
    JV_NAMESPACE,
    JV_LOOP,
    JV_MACRO,
    JV_FUNCTION, /* a global, or a method with its object */
} jv_kind;

typedef enum jseq_kind {
    JSEQ_LIST,
    JSEQ_TUPLE,
    JSEQ_RANGE,
    JSEQ_KEYS, /* views of a mapping */
    JSEQ_VALUES,
    JSEQ_ITEMS,
    JSEQ_GENERATOR, /* gives its items once */
} jseq_kind;

typedef struct jv {
    uint8_t kind;
    bool safe;  /* string: marked by the filter `safe` (Markup) */
    uint32_t n; /* string: bytes */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s; /* UTF-8, not NUL-terminated */
        struct jseq *seq;
        struct jdict *dict; /* of a namespace, too */
        const struct jundef *undef;
        struct jloop *loop;
        const struct jmacro *macro;
        const struct jbound *bound;
    } u;
} jv;

typedef struct jrange {
    int64_t start, stop, step;
} jrange;

typedef struct jseq {
    jv *item;
    int32_t n, cap;
    int32_t at; /* generator: items already given */
    jseq_kind kind;
    jrange range; /* of JSEQ_RANGE */
} jseq;

/* In the order of first insertion. */
typedef struct jdict {
    jv *key, *value;
    int32_t n, key_cap, value_cap;
} jdict;

/* Why a value is undefined, put into words when it matters. */
typedef struct jundef {
    const char *why; /* a sentence; NULL: the name, or the name as a part of `of` */
    jv name, of;
    bool forbidden; /* exists, but the sandbox keeps it back */
    bool lenient;   /* may be used in strict templates, too, as an empty text */
} jundef;

static inline jv jv_none(void) {
    return (jv){.kind = JV_NONE};
}
static inline jv jv_undefined(void) {
    return (jv){.kind = JV_UNDEFINED};
}
static inline jv jv_bool(bool b) {
    return (jv){.kind = JV_BOOL, .u.b = b};
}
static inline jv jv_int(int64_t i) {
    return (jv){.kind = JV_INT, .u.i = i};
}
static inline jv jv_float(double f) {
    return (jv){.kind = JV_FLOAT, .u.f = f};
}
static inline jv jv_bytes(const char *s, size_t n) {
    return (jv){.kind = JV_STRING, .n = (uint32_t)n, .u.s = s};
}
/* The arguments of a "%.*s" that shows a text in a message. */
#define JV_SHOWN(v) ((v).n < 80 ? (int)(v).n : 80), (v).u.s
#define JV_WORD(literal) jv_bytes("" literal, sizeof(literal) - 1)
static inline jv jv_seq(jseq *s) {
    return (jv){.kind = JV_SEQ, .u.seq = s};
}
static inline jv jv_dict(jdict *d) {
    return (jv){.kind = JV_DICT, .u.dict = d};
}

static inline bool jv_is_seq(jv v, jseq_kind kind) {
    return v.kind == JV_SEQ && v.u.seq->kind == kind;
}
/* bool is an int in Python. */
static inline bool jv_is_int(jv v) {
    return v.kind == JV_INT || v.kind == JV_BOOL;
}
static inline bool jv_is_number(jv v) {
    return jv_is_int(v) || v.kind == JV_FLOAT;
}
static inline int64_t jv_as_int(jv v) {
    return v.kind == JV_BOOL ? v.u.b : v.u.i;
}
static inline double jv_as_float(jv v) {
    return v.kind == JV_FLOAT ? v.u.f : (double)jv_as_int(v);
}
bool jv_is_word(jv v, const char *word);
bool jv_truth(jv v);
/* The name of its type: "str", "dict", "Undefined". */
const char *jv_type(jv v);
/* len(): -1 when it has none. */
int64_t jv_length(jv v);

/* Characters of a string, and the byte at which character `index` begins (its length beyond). */
int64_t jv_chars(jv s);
size_t jv_byte_of(jv s, int64_t index);
/* A part of a string, in bytes. */
static inline jv jv_part(jv s, size_t from, size_t to) {
    return (jv){.kind = JV_STRING, .safe = s.safe, .n = (uint32_t)(to - from), .u.s = s.u.s + from};
}
/* Whether a string is a number of up to nine digits, and which. */
bool jv_is_index(jv s, int64_t *index);
/* The string without white space at its ends. */
jv jv_trimmed(jv s, bool left, bool right);

#endif
