/* A training run that lost ranks goes on with those that are left (athanor launch --restart): which
 * layout they train in. The batch and all that decides what is computed stay; parallel.* changes. */
#ifndef APP_RESTART_H
#define APP_RESTART_H

#include "base/status.h"
#include "base/strbuf.h"

typedef struct restart restart;

enum { RESTART_KEYS = 8, RESTART_KEY_BYTES = 48 };

typedef struct restart_layout {
    int ranks;
    char key[RESTART_KEYS][RESTART_KEY_BYTES]; /* "parallel.dp=3": what is set for it */
    int n_keys;
} restart_layout;

/* Reads what `command` ("train", CONFIG, ...) trains. ST_USAGE: it is another command, or one that
 * does not go on with a run. */
status restart_open(restart **out, const char *const *command, int n_command, err *e) ATH_MUST_USE;
void restart_free(restart *r);             /* NULL is fine */
const char *restart_run(const restart *r); /* the run's folder */
double restart_timeout_s(const restart *r);
/* The newest step with a checkpoint; -1: there is none. */
int64_t restart_newest(const restart *r);

/* Looks whether the config's file is still what it was. Where it is not, the next starts read the config that
 * the run keeps in its folder, and `told` gets a sentence about it. */
void restart_keep_config(restart *r, strbuf *told);
/* What a rank gets for a word of the command: the config of the next start in place of the file. */
const char *restart_word(const restart *r, const char *word);

/* The layout for `most` ranks or fewer, but no fewer than `least`: as many as possible that keep tp,
 * cp and pp and have a smaller dp; else with a smaller pp, cp and at last tp. ep follows. Each is planned, so one
 * that is refused or does not fit in memory is passed over. ST_USAGE: there is none. */
status restart_fit(restart *r, int most, int least, restart_layout *out, err *e) ATH_MUST_USE;

#endif
