/* Pictures of pipeline schedules that have their times (step/schedule.h). */
#ifndef APP_PLAN_SCHEDULE_PICTURE_H
#define APP_PLAN_SCHEDULE_PICTURE_H

#include "base/strbuf.h"
#include "step/schedule.h"

/* Letters of a line of schedule_draw, where `unit` of time has `each`. */
int schedule_letters(const schedule *s, double unit, int each);
/* Of the stage that keeps most: passes of a chunk whose activations it has at a time. */
int schedule_most_kept(const schedule *s);
/* A line for each stage. each: 1: without the numbers of micro-batches. */
void schedule_draw(strbuf *out, const schedule *s, double unit, int each);
/* A picture of n schedules of as many stages, on one scale: what each stage does, and under it what its activations take. */
void schedule_put_svg(strbuf *out, const schedule *s, int n);
/* A trace of n schedules, a process each, in the form of Chrome's trace viewer; a unit of time is a millisecond. */
void schedule_put_trace(strbuf *out, const schedule *s, int n);

#endif
