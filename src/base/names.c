/* A table with open addressing; see names.h. It has twice as many places as names at least. */
#include "base/names.h"

#include <string.h>

#include "base/file.h"

typedef struct named {
    const char *name; /* NULL: the place is free */
    int number;
} named;

/* Where `name` is, or the place that is free for it. */
static named *place_of(const names *t, const char *name) {
    uint64_t at = hash_bytes(name, strlen(name));
    for (;; at++) {
        named *place = &t->place[at & (uint64_t)(t->places - 1)];
        if (!place->name || strcmp(place->name, name) == 0) return place;
    }
}

int names_find(const names *t, const char *name) {
    const named *found = t->n ? place_of(t, name) : NULL;
    return found && found->name ? found->number : -1;
}

static void grow(names *t, arena *a) {
    names old = *t;
    t->places = old.places ? 2 * old.places : 64;
    t->place = ARENA_ARRAY(a, named, t->places);
    for (int i = 0; i < old.places; i++)
        if (old.place[i].name) *place_of(t, old.place[i].name) = old.place[i];
}

void names_add(names *t, arena *a, const char *name, int number) {
    if (2 * (t->n + 1) > t->places) grow(t, a);
    named *place = place_of(t, name);
    if (place->name) return;
    *place = (named){name, number};
    t->n++;
}
