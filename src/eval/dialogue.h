/* Dialogues: what a user says in several turns, and rules that each answer must keep.
 *
 * A YAML file of dialogues (a line of a JSONL file is one dialogue):
 *
 *   task: manners
 *   max_gen_toks: 256                      # tokens of an answer at most
 *   dialogues:
 *     - id: ada
 *       about: the persona of the system prompt
 *       needs: thinking                    # or tools: left out if the template knows none
 *       system: You are Ada. /no_think
 *       variables: {enable_thinking: false}
 *       tools: [{type: function, function: {name: add, ...}}]
 *       turns:
 *         - user: Who are you?             # or tool: what a tool gave back
 *           variables: {enable_thinking: true}      # from this turn on
 *           expect: {contains: Ada, lacks: [Bob, Eve], ends: true}
 *
 * Rules of `expect` (texts are compared without regard to the case of ASCII letters):
 *   contains   the answer has the text, or one of a list
 *   lacks      it has none of them
 *   matches    a regular expression of Python, or one of a list, is found in it
 *   reasoning  true: it thought before it answered; false: it did not
 *   ends       true: it ended by itself
 *   calls      {name, arguments}: it calls that tool, with these arguments at least
 *   script     more than half of its letters are of this script (Latin, Han, ...), or of a list
 * All but `reasoning` look at the answer without what was thought before it.
 *
 * All dialogues of a task have as many turns: rates of turns are of the same dialogues then. */
#ifndef EVAL_DIALOGUE_H
#define EVAL_DIALOGUE_H

#include "eval/task.h"

typedef enum eval_rule_kind {
    RULE_CONTAINS,
    RULE_LACKS,
    RULE_MATCHES,
    RULE_REASONING,
    RULE_ENDS,
    RULE_CALLS,
    RULE_SCRIPT,
    RULE_FITS /* of every turn: what was said before it leaves room in the context */
} eval_rule_kind;

typedef struct eval_rule {
    eval_rule_kind kind;
    char **text; /* [n]: texts, a pattern, the name of a tool, scripts */
    int n;
    bool wanted;             /* of reasoning and ends */
    const json_t *arguments; /* of calls; NULL: any */
} eval_rule;

typedef struct eval_turn {
    const char *role; /* "user" or "tool" */
    eval_text said;
    const json_t *variables; /* NULL: none */
    eval_rule *rule;
    int n_rules;
    /* results */
    eval_text seen;    /* the prompt */
    eval_text written; /* what the model wrote */
    bool ended;
    int failed; /* the first rule that is not kept; -1: all are */
} eval_turn;

typedef struct eval_dialogue {
    const char *about, *needs, *system; /* needs, system: NULL: nothing */
    const json_t *variables;            /* with "tools"; NULL: none */
    eval_turn *turn;
    int n_turns;
    /* results */
    const char *left_out; /* why; NULL: it was not */
    const char *lost;     /* what the template does not hand to the model; NULL: nothing */
    int lost_at;          /* the turn, from 0, at which it is lost first */
    bool is_cut;          /* it is longer than the context: the turns that were not asked fail */
} eval_dialogue;

/* A file of dialogues; text NULL: read it, else it is the file's text. */
status eval_dialogues_open(eval_task *t, const char *path, const char *text,
                           const eval_source *from, err *e) ATH_MUST_USE;
/* Whether a YAML file has dialogues; false also if it cannot be read. */
bool eval_has_dialogues(const char *path);
/* The dialogue of a JSON object, which is kept with the task. ST_FORMAT: it is none. */
status eval_dialogue_read(eval_task *t, eval_doc *d, const json_t *o, err *e) ATH_MUST_USE;
/* After the last: names the filters of the task, one for each turn and "all". */
void eval_dialogues_end(eval_task *t);
/* The text of the suite that is known by name ("vibe"), a file of dialogues; NULL: no such. */
const char *eval_suite(const char *name);

/* ---- rules (dialogue_rules.c) ---- */

/* Judges a turn that was written: sets `failed`. */
status eval_judge(eval_turn *turn, err *e) ATH_MUST_USE;
/* Appends a rule in words: contains "Ada". */
void eval_rule_words(const eval_rule *r, strbuf *out);
/* ST_FORMAT: a pattern or script of the rule is none. */
status eval_rule_check(const eval_rule *r, err *e) ATH_MUST_USE;

/* ---- results (verdict.c) ---- */

/* 1 or 0 of turn `filter`, of all turns if filter is their number; NaN: the dialogue was left out.
 */
double eval_turn_passed(const eval_dialogue *d, int filter);
/* Whether rates [n] of turns hold: the first is at least EVAL_RATE_LEAST, and none is more than
 * EVAL_RATE_FALL below it. *at: the turn, from 0, at which they do not. */
#define EVAL_RATE_LEAST 0.5
#define EVAL_RATE_FALL 0.1
bool eval_rates_hold(const double *rate, int n, int *at);
/* Puts "verdict" ("pass" or "fail"), "causes" (texts) and "left_out" (texts). */
void eval_put_verdict(const eval_task *t, json_t *o);
void eval_put_dialogue(const eval_dialogue *d, json_t *o);

#endif
