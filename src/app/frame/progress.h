/* Training events as text for people: on a terminal one live line with a bar, rate and ETA, and a
 * lasting line for each validation, sample, checkpoint, stage and alarm; in a file or pipe one line
 * per logged step. */
#ifndef APP_PROGRESS_H
#define APP_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- a live line: it is written over until progress_clear ---- */

/* Whether out is a terminal on which a line can be written over: TERM=dumb is none. */
bool progress_is_live(FILE *out);
/* Whether it may have colours, too: NO_COLOR says no (no-color.org). */
bool progress_has_colours(FILE *out);
/* Lines of a text or table; where a terminal is too narrow for one it is broken between words. */
void progress_put_rows(FILE *out, const char *text);
/* Cut to the width of the terminal, since a line that wraps cannot be cleared. */
void progress_show(FILE *out, const char *line);
void progress_clear(FILE *out);

/* ---- the events of a run ---- */

typedef struct progress {
    FILE *out;
    bool live; /* progress_is_live(out) */
    bool colours;
    bool line_open; /* the live line is on screen */
    int64_t total_steps, first_step;
    int64_t began_ns, shown_ns;
} progress;

void progress_init(progress *p, FILE *out);
/* For train_options.on_event and on_plan; ctx is the progress. */
void progress_event(void *ctx, const json_t *event);
void progress_plan(void *ctx, const char *table);
/* For train_options.on_task: a live line. */
void progress_task(void *ctx, const char *task, int64_t done, int64_t all);
void progress_end(progress *p);

/* "3m07s", "1h02m", "12s" */
void progress_format_duration(double seconds, char out[24]);

#endif
