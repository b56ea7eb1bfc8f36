/* The side stream: one thread that runs collectives in the order they were started. */
#ifndef COMM_QUEUE_H
#define COMM_QUEUE_H

#include "comm/comm.h"

typedef struct queue queue;

queue *queue_new(void);
/* Runs all calls that were added, then ends the thread. NULL is fine. */
void queue_free(queue *q);
/* Adds a call; waits while the queue is full. */
comm_ticket queue_add(queue *q, comm *c, const comm_call *call);
void queue_wait(queue *q, comm_ticket t);

#endif
