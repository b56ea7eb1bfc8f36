/* Ranks that somebody started and told where rank 0 is (torchrun, scripts, cluster operators): they
 * meet over TCP (rendezvous.h), then share the memory of one machine as those of athanor launch
 * do. Ranks of several machines are refused with a sentence that says which is where. */
#ifndef COMM_JOINED_H
#define COMM_JOINED_H

#include "comm/comm.h"
#include "comm/meet/rendezvous.h"

status joined_open(comm_world **out, const rendezvous_plan *plan, err *e) ATH_MUST_USE;

#endif
