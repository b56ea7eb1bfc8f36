/* The checks of IFEval, by number. */
#ifndef EVAL_IFEVAL_CHECKS_H
#define EVAL_IFEVAL_CHECKS_H

#include "eval/ifeval.h"

typedef struct ifeval_check {
    const char *name;                            /* "keywords:existence" */
    const char *number, *relation, *nth, *texts; /* its arguments; NULL: it has none */
    /* ST_FORMAT: a text of the instruction is a pattern, and it is none. */
    status (*follows)(const eval_instruction *k, eval_text s, bool *out, err *e);
} ifeval_check;

int ifeval_find(const char *name); /* -1: there is none */
const ifeval_check *ifeval_get(int number);

#endif
