/* Numbers by name, found in a time that does not depend on how many there are: a table of hashes. */
#ifndef BASE_NAMES_H
#define BASE_NAMES_H

#include "base/arena.h"

typedef struct names {
    struct named *place; /* [places] */
    int places, n;
} names;

/* The number of a name; -1: absent. */
int names_find(const names *t, const char *name);
/* The name must live as long as the arena. Of equal names the first stays. */
void names_add(names *t, arena *a, const char *name, int number);

#endif
