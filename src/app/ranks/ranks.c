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
    bool speaks = comm_speaks(w, e), launched = strcmp(comm_world_kind(w), "processes") == 0;
    int rank = comm_world_rank(w);
    if (rank > 0 && !launched) err_context(e, "rank %d", rank); /* only athanor launch says it */
    /* The one object is the launcher's where ranks are lost: it may start others. It hears only rank 0's. */
    if (launched && (st == ST_RANK || rank > 0)) json = false;
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
