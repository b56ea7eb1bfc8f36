/* Whether to train, and what: the training compass of the Smol Training Playbook as a table of questions and a walk through them.
 *
 * First comes what is cheapest. What prompting does is not trained; what tuning does is not pretrained; and pretraining has a reason
 * only as research, as a product that nothing else can be, or as a gap among open models. Then where it runs, who trains it and
 * how soon decide the architecture: on a device memory counts, so it is dense; a first model is dense; experts and linear layers
 * are for teams that know dense ones. */
#ifndef APP_COMPASS_H
#define APP_COMPASS_H

#include "base/status.h"
#include "base/strbuf.h"

typedef enum compass_question {
    ASK_PROMPTING,
    ASK_TUNING,
    ASK_EXAMPLES,
    ASK_REASON,
    ASK_QUESTION,
    ASK_NEED,
    ASK_GAP,
    ASK_RUNS_ON,
    ASK_TEAM,
    ASK_TIME,
    ASK_LANGUAGES,
    ASK_CONTEXT,
    ASK_COUNT
} compass_question;

enum { COMPASS_CHOICES = 7, COMPASS_REASONS = 8, COMPASS_NEXT = 4, COMPASS_LINE = 256 };

typedef struct compass_entry {
    const char *name; /* of the option: "runs-on" */
    const char *text; /* what is asked */
    struct {
        const char *word, *means;
    } choice[COMPASS_CHOICES]; /* a NULL word behind the last */
} compass_entry;
extern const compass_entry compass_questions[ASK_COUNT];

/* An answer is the number of its choice; NO_ANSWER: none yet. */
enum { NO_ANSWER = -1 };
typedef struct compass {
    int answer[ASK_COUNT];
    double device_hours; /* of one H100, for the run; 0: not said */
} compass;
void compass_init(compass *c);
/* ST_USAGE: it is none of the choices. */
status compass_answer(compass *c, compass_question q, const char *word, err *e) ATH_MUST_USE;
/* What has to be asked next; ASK_COUNT: nothing, the verdict stands. */
compass_question compass_next(const compass *c);
/* ST_USAGE: two answers contradict each other, or one is to a question that is not asked. */
status compass_check(const compass *c, err *e) ATH_MUST_USE;

typedef struct compass_verdict {
    const char *
        name; /* "prompt", "try", "collect", "tune", "prefer", "continue", "keep", "pretrain", "too-small" */
    const char *
        architecture; /* of a pretraining: "dense", "dense or hybrid", "moe", "moe or hybrid"; else NULL */
    char reason[COMPASS_REASONS][COMPASS_LINE];
    int reasons;
    char next[COMPASS_NEXT][COMPASS_LINE]; /* commands, the first one at once */
    int nexts;
    double flops, params,
        tokens; /* of the budget: compute-optimal, 20 tokens for a parameter; 0: none was said */
} compass_verdict;

/* Of answers for which compass_next has nothing to ask. */
compass_verdict compass_decide(const compass *c);

#endif
