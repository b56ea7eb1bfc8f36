/* What a model wrote, and the answer in it. */
#ifndef EVAL_ANSWER_H
#define EVAL_ANSWER_H

#include "eval/task.h"

/* Applies the filters of the task to d->written and fills d->answer. */
status eval_find_answers(eval_task *t, eval_doc *d, err *e) ATH_MUST_USE;
/* Whether an answer is a target, by the rules of the task. */
bool eval_match_exactly(const eval_match *m, eval_text answer, eval_text target);

#endif
