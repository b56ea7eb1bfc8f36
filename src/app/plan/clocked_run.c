#include "app/plan/clocked_run.h"

#include <math.h>
#include <stdlib.h>

/* The step of a part: in its stage's phase of the plan, with as many micro-batches as its batch has. */
static clock_time step_of(plan *p, const course_part *x, const cluster *on) {
    plan_select(p, x->stage);
    int64_t dp = p->spec.ranks ? p->spec.ranks->size[MESH_DP] : 1;
    clock_time t = clock_step_of(p, on, (int)(x->batch / (dp * p->spec.train_B)));
    plan_select(p, 0);
    return t;
}

/* ---- a batch that grows ---- */

typedef struct clocking {
    plan *p;
    const course *k;
    const cluster *on;
    clock_time *step; /* [n_parts] */
} clocking;

static clock_time on_line(const clocking *c, int from, int to, int at) {
    const course_part *x = c->k->part;
    const clock_time *a = &c->step[from], *b = &c->step[to];
    double share = (double)(x[at].batch - x[from].batch) / (double)(x[to].batch - x[from].batch);
    clock_time t = *a;
    t.step_s += share * (b->step_s - a->step_s);
    t.model_flops += share * (b->model_flops - a->model_flops);
    return t;
}

/* Parts between two of one stage, which were clocked. The batch of a ramp may grow a thousand times, and steps grow with it
 * nearly on a line: where the middle lies on it, the others are not clocked. */
static void clock_between(clocking *c, int from, int to) {
    enum { NEAR = 10000 };
    int middle = from + (to - from) / 2;
    if (to - from < 2) return;
    clock_time line = on_line(c, from, to, middle), *t = &c->step[middle];
    *t = step_of(c->p, &c->k->part[middle], c->on);
    bool near = NEAR * fabs(line.step_s - t->step_s) < t->step_s;
    for (int i = from + 1; near && i < to; i++)
        if (i != middle)
            c->step[i] = i < middle ? on_line(c, from, middle, i) : on_line(c, middle, to, i);
    if (near) return;
    clock_between(c, from, middle);
    clock_between(c, middle, to);
}

/* Returns the part after the last one of the stage that `first` begins. */
static int clock_stage(clocking *c, int first) {
    const course_part *x = c->k->part;
    int last = first;
    while (last + 1 < c->k->n_parts && x[last + 1].stage == x[first].stage) last++;
    c->step[first] = step_of(c->p, &x[first], c->on);
    if (last > first) c->step[last] = step_of(c->p, &x[last], c->on);
    clock_between(c, first, last);
    return last + 1;
}

clocked_run clocked_run_of(plan *p, const course *k, const cluster *on) {
    clocking c = {p, k, on, xcalloc((size_t)k->n_parts, sizeof *c.step)};
    for (int i = 0; i < k->n_parts;) i = clock_stage(&c, i);
    clocked_run r = {.peak_flops = c.step->peak_flops, .devices = c.step->ranks};
    double flops = 0;
    for (int i = 0; i < k->n_parts; i++) {
        double steps = (double)(k->part[i].last_step - k->part[i].first_step + 1);
        r.seconds += steps * c.step[i].step_s;
        flops += steps * c.step[i].model_flops;
    }
    r.mfu = flops / r.seconds / r.peak_flops;
    free(c.step);
    return r;
}
