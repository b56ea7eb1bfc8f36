/* Learning from the logits of a larger model, the teacher (Hinton et al. 2015): distill.teacher. The loss of a token is
 *
 *   (1 - w) (cross-entropy of the next token) + w T^2 KL(p, q),   p = softmax(teacher / T), q = softmax(student / T)
 *
 * with w distill.weight and T distill.temperature, and the loss of a step is its mean over the targets. The teacher is another
 * model of the plan: it goes forward over each micro-batch, and its logits [B*T,V] become an input of the student's
 * head (HEAD_DISTILL). With distill.top_k only the likeliest tokens of the teacher count; the others have p = 0. With
 * distill.store what it says of these is stored before the first step (lessons.h). Validation is without a teacher. */
#ifndef TRAIN_DISTILL_H
#define TRAIN_DISTILL_H

#include "train/batch.h"
#include "train/setup.h"

/* Of the config of a run or a stage; weight 0: there is no teacher. */
model_lesson distill_lesson(const config *c, int64_t vocab);
/* Reads what the teacher is into u->reference; its weights are loaded later. ST_USAGE names what cannot be combined; another
 * tokenizer or vocabulary is refused. */
status distill_open(setup *u, err *e) ATH_MUST_USE;
/* Gives the teacher's store its weights. */
status distill_load(const setup *u, const param_store *store, err *e) ATH_MUST_USE;
/* The k largest of V numbers, of equal ones the first, in their order. heap: memory for k numbers. */
void distill_best(const float *row, int64_t V, int k, float *heap, int32_t *best);
/* Gives what the teacher has just said of a micro-batch to the program of the student, if that has a head. heap, best: memory
 * for top_k numbers each. */
void distill_give(dev *d, const batch_ports *teacher, const batch_ports *student, int frame,
                  int64_t top_k, float *heap, int32_t *best);

#endif
