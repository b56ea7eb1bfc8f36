#include "app/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "app/frame/cli.h"

void ranks_set_timeout(comm_world *w, const config *c) {
    if (!getenv("ATHANOR_TIMEOUT")) comm_set_timeout(w, c->parallel.timeout_s);
}

status ranks_end(comm_world *w, status st, err *e, bool json) {
    if (st == ST_OK || !w || comm_world_size(w) == 1 || !e->message[0]) return st;
    e->code = st;
    bool speaks = comm_speaks(w, e);
    if (comm_world_rank(w) > 0 && strcmp(comm_world_kind(w), "processes") != 0)
        err_context(e, "rank %d", comm_world_rank(w));             /* only athanor launch says it */
    if (st == ST_RANK && getenv("ATHANOR_RESTARTS")) json = false; /* no result yet: it may go on */
    if (speaks) cli_report(e, json);
    *e = (err){0};
    return st;
}

void ranks_end_early(status st, err *e, bool json) {
    if (!getenv("ATHANOR_RANK")) return;
    comm_world *w;
    err none = {0};
    if (comm_open_environment(&w, &none) != ST_OK) return;
    ranks_end(w, st, e, json);
    comm_close(w);
}
