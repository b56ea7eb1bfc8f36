/* Spare ranks (athanor launch --spares): processes that wait beside a run, each with a copy of its
 * newest checkpoint in a folder of its own. When a rank was lost, a spare gives its copy to the rank
 * that is started in its place, and only if every checksum of the copy is that of the checkpoint. */
#ifndef APP_SPARES_H
#define APP_SPARES_H

#include <stdbool.h>

#include "base/status.h"
#include "base/strbuf.h"

typedef struct spares spares;

/* How long a spare that was asked is waited for: one whose disk is dead or slow is passed over then, and
 * removes its copy when the disk lets it. */
typedef struct spares_patience {
    double limit_s;          /* 0: no limit */
    bool (*ends)(void *ctx); /* asked now and then: whether the caller wants no answer any more */
    void *ctx;
} spares_patience;

/* Starts n of them for the run in that folder, which need not exist yet. */
status spares_open(spares **out, int n, const char *run, const spares_patience *patience,
                   err *e) ATH_MUST_USE;
/* Asks those that are left, until `want` are ready; dir[i] is the folder with the copy of the i-th.
 * told: a sentence about each. Returns how many are ready. */
int spares_take(spares *s, int want, const char **dir, strbuf *told);
/* Ends them and removes their copies; NULL is fine. */
void spares_free(spares *s);

#endif
