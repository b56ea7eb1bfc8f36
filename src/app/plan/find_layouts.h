/* The best layouts of a config on its cluster, as `plan search` and `plan` ask for them. */
#ifndef APP_PLAN_FIND_LAYOUTS_H
#define APP_PLAN_FIND_LAYOUTS_H

#include "app/frame/cli.h"
#include "plan/clock/search.h"
#include "train/course/course.h"

typedef struct finding {
    config *c;
    course *course;
    search_phase *phase; /* [n_phases] of the course */
    int n_phases;
    search_kept kept;
    unsigned contexts;       /* in which its tokens can be shared: a bit for each context_kind */
    bool pipelines, experts; /* whether stages can share it, and ranks its experts */
    strbuf given;            /* "parallel.tp=2, ..." */
    cluster on;
    double usable_bytes; /* of a device */
    plan *p;
    dev *meta;
    arena *a;
    search_result found;
    json_t *plans; /* of found: what plan --json says of the config with it */
    double seconds;
} finding;

typedef struct finding_wish {
    int most;   /* how many are wanted */
    bool exact; /* none with a pipeline */
} finding_wish;

/* Of the config that the command's first input names, with its keys; what it says about the layout is kept. ST_MEMORY: none
 * fits. ST_USAGE: there is no cluster, or none can be as it is given. To be freed whatever comes. */
status layouts_find(finding *f, const cli_args *args, finding_wish w, err *e) ATH_MUST_USE;
void layouts_free(finding *f);
/* The config has the layout from now on. */
void layouts_take(config *c, const sketch_layout *l);
/* "none", "optimizer", ... of sketch_layout.offload. */
const char *layouts_offload_word(unsigned what);

#endif
