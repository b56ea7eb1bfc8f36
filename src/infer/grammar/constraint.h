/* A constraint says which tokens may follow what has been written, so that the whole text is of a
 * form: JSON, an instance of a JSON Schema, a tool call (grammar.h makes them).
 *
 * It is the state of one text: made anew for each, told of every token in order. Whoever picks asks
 * allow, picks, and tells take; when must_end holds, the text is complete and nothing may follow. */
#ifndef INFER_GRAMMAR_CONSTRAINT_H
#define INFER_GRAMMAR_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct constraint constraint;

typedef struct constraint_class {
    /* Sets bit id of mask[(n_ids + 63) / 64], all zero, for each id that may follow. `left`
     * tokens can still be picked, the next one included: where the text can be complete within them,
     * only what keeps it so is allowed. False: no token of the vocabulary can follow. */
    bool (*allow)(constraint *c, int64_t left, uint64_t *mask);
    /* One that was allowed. */
    void (*take)(constraint *c, int32_t id);
    bool (*may_end)(const constraint *c);  /* the text so far is complete */
    bool (*must_end)(const constraint *c); /* and nothing may follow */
    void (*free)(constraint *c);
} constraint_class;

struct constraint {
    const constraint_class *class;
};

/* NULL is fine. */
static inline void constraint_free(constraint *c) {
    if (c) c->class->free(c);
}

#endif
