/* What a model wrote, and the answer in it. */
#ifndef EVAL_ANSWER_H
#define EVAL_ANSWER_H

#include "eval/task.h"

/* Applies the filters of the task to what was written and fills the answers of the attempt. */
status eval_find_answers(eval_task *t, const eval_doc *d, eval_attempt *a, err *e) ATH_MUST_USE;

/* What a model thought, in marks such as <think> and </think>, and what it answered after that,
 * white space at its beginning left out. */
typedef struct eval_thought {
    eval_text reasoning; /* without its marks; of white space alone if it did not think */
    eval_text answer;    /* all of it if there are no marks; nothing if the thought has no end */
    bool has_marks;
} eval_thought;
/* prompt: what the model saw; templates may open the thought there. */
eval_thought eval_split_thought(eval_text prompt, eval_text written);
bool eval_is_blank(eval_text s);

/* Calls `take` with the start and end, in bytes, of each match of a pattern of Python's re that
 * findall would give, until it says no. ST_FORMAT: the pattern is none; it gives up on the text. */
typedef bool (*eval_take_match)(void *ctx, size_t start, size_t end);
status eval_each_match(const char *pattern, eval_text s, eval_take_match take, void *ctx,
                       err *e) ATH_MUST_USE;
/* How many there are. */
status eval_count_matches(const char *pattern, eval_text s, int64_t *n, err *e) ATH_MUST_USE;
/* Whether an answer is a target, by the rules of the task. */
bool eval_match_exactly(const eval_match *m, eval_text answer, eval_text target);

#endif
