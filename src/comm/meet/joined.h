/* Ranks that another program started, and that know the address of rank 0 (torchrun, scripts,
 * cluster operators). They meet over TCP (rendezvous.h), then share a segment of memory like the
 * ranks of athanor launch. Ranks on several machines are refused; the error says which is where. */
#ifndef COMM_JOINED_H
#define COMM_JOINED_H

#include "comm/comm.h"
#include "comm/meet/rendezvous.h"

status joined_open(comm_world **out, const rendezvous_plan *plan, err *e) ATH_MUST_USE;

#endif
