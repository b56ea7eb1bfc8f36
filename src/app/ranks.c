#include "app/ranks.h"

#include <stdlib.h>
#include <string.h>

void ranks_set_timeout(comm_world *w, const config *c) {
    if (!getenv("ATHANOR_TIMEOUT")) comm_set_timeout(w, c->parallel.timeout_s);
}

status ranks_end(comm_world *w, status st, err *e) {
    if (st == ST_OK || !w || !e->message[0]) return st;
    e->code = st;
    if (!comm_speaks(w, e))
        *e = (err){0};
    else if (comm_world_rank(w) > 0 && strcmp(comm_world_kind(w), "mpi") == 0)
        err_context(e, "rank %d", comm_world_rank(w)); /* who starts the ranks does not say it */
    return st;
}

status ranks_end_early(status st, err *e) {
    if (st == ST_OK || !getenv("ATHANOR_RANK")) return st;
    comm_world *w;
    err none = {0};
    if (comm_open_environment(&w, &none) != ST_OK) return st;
    ranks_end(w, st, e);
    comm_close(w);
    return st;
}
