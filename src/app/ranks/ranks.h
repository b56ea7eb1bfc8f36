/* What commands of several ranks share: their world as the config wants it, and one voice. */
#ifndef APP_RANKS_H
#define APP_RANKS_H

#include "comm/comm.h"
#include "run/config/config.h"

/* The timeout of the config, unless who started the ranks has set one. */
void ranks_set_timeout(comm_world *w, const config *c);
/* A command ends with st. One rank tells people what all found, each what only it did; e has no
 * words afterwards. Before the world is closed: MPI may take all ranks down then. Returns st. */
status ranks_end(comm_world *w, status st, err *e, bool json);
/* The same for a rank of a launch that ends before any command has opened its world; elsewhere
 * nothing. */
void ranks_end_early(status st, err *e, bool json);

#endif
