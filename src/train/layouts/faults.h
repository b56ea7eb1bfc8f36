/* Deliberate mistakes of a rank, for the tests of `verify layouts`. */
#ifndef TRAIN_LAYOUT_FAULTS_H
#define TRAIN_LAYOUT_FAULTS_H

#include "train/layouts/layouts.h"
#include "train/session.h"

/* In the weights that a trial begins with, or in the layout itself. */
void layout_fault_weights(session *s, layout_fault f);
/* Before step i, from 0. */
void layout_fault_step(session *s, layout_fault f, int i);

#endif
