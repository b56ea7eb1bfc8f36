/* Pictures of pipeline schedules that have their times (step/schedule.h). */
#ifndef APP_PLAN_SCHEDULE_PICTURE_H
#define APP_PLAN_SCHEDULE_PICTURE_H

#include "base/strbuf.h"
#include "step/schedule.h"

/* Letters of a line of schedule_draw, where `unit` of time has two. */
int schedule_letters(const schedule *s, double unit);
/* Of the stage that keeps most: passes of a chunk whose activations it has at a time. */
int schedule_most_kept(const schedule *s);
/* A line for each stage. */
void schedule_draw(strbuf *out, const schedule *s, double unit);
/* A picture of n schedules of as many stages, on one scale: what each stage does, and under it what its activations take. */
void schedule_put_svg(strbuf *out, const schedule *s, int n);
/* A trace of n schedules, a process each, in the form of Chrome's trace viewer; a unit of time is a millisecond. */
void schedule_put_trace(strbuf *out, const schedule *s, int n);

#endif
