/* What commands of several ranks share: their world as the config wants it, and one voice. */
#ifndef APP_RANKS_H
#define APP_RANKS_H

#include "comm/comm.h"
#include "run/config.h"

/* The timeout of the config, unless who started the ranks has set one. */
void ranks_set_timeout(comm_world *w, const config *c);
/* A command ends with st: where another rank tells people why, this one's words are taken away;
 * where only this one does, they say which it is. Returns st. */
status ranks_end(comm_world *w, status st, err *e);
/* The same for a rank of a launch that ends before any command has opened its world. */
status ranks_end_early(status st, err *e);

#endif
