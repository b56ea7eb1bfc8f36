/* A micro-batch on its way between the host and the programs that read it. */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include "prog/prog.h"

/* The rows of a micro-batch on the host, [B,T] each. */
typedef struct batch_rows {
    int B, T;
    int32_t *ids, *targets, *pos;
    int32_t *start;     /* first position that a token may see; NULL: no document mask */
    float *nll, *d_nll; /* of each target, and its gradient where an objective gives it */
    float *ref_nll;     /* by the reference */
} batch_rows;

batch_rows batch_rows_new(arena *a, int B, int T, bool start);
int64_t batch_rows_bytes(int B, int T);

/* What a language-model program, or a chunk of one, takes and gives. */
typedef struct batch_ports {
    const prog *p; /* NULL: there is no such program */
    prog_port ids, targets, pos, start, nll, d_nll;
    prog_port x, y, d_x, d_y; /* activations between chunks, and their gradients */
} batch_ports;

batch_ports batch_ports_of(const prog *p); /* p may be NULL */

/* Gives a program its inputs. */
void batch_put(const batch_ports *io, int frame, const batch_rows *rows);
/* Fills rows->nll and returns the sum in double, in order. */
double batch_take_nll(const batch_ports *io, int frame, const batch_rows *rows);
/* Activations from a chunk to the next one; gradients from that one back. */
void batch_pass_on(dev *d, const batch_ports *chunk, const batch_ports *next, int frame);
void batch_pass_back(dev *d, const batch_ports *chunk, const batch_ports *next, int frame);

#endif
