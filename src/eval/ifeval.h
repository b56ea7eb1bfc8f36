/* IFEval (Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models"): prompts
 * whose instructions can be checked by a program, such as "answer in less than 50 words".
 *
 * A row of its public file has the members prompt, instruction_id_list (of 25 instructions) and
 * kwargs, an object of arguments for each. An answer follows an instruction strictly, as it stands,
 * or loosely: so does one of its eight variants without the first line, the last line, both, and
 * without asterisks. Blank answers follow nothing.
 *
 * The checks are those of the authors' program, as in lm-evaluation-harness. Two of them need what
 * other projects have learned from texts, where these have rules of their own, so that they can
 * differ: which language it is (language.h; langdetect there), and where sentences end (text_units.h;
 * NLTK's Punkt there). */
#ifndef EVAL_IFEVAL_H
#define EVAL_IFEVAL_H

#include "eval/task.h"

enum { IFEVAL_MOST = 16 }; /* instructions of a prompt */

typedef struct eval_instruction {
    int check;   /* number of the check */
    int64_t n;   /* how many */
    bool less;   /* fewer than n, else n at least */
    int64_t nth; /* of the paragraph, from 1 */
    char **text; /* words, patterns, a phrase */
    int n_texts;
} eval_instruction;

typedef struct eval_ifeval {
    eval_instruction item[IFEVAL_MOST];
    int n;
} eval_ifeval;

/* The instructions of a row. ST_FORMAT: one is unknown, or lacks an argument. */
status eval_ifeval_read(eval_task *t, eval_doc *d, const json_t *row, err *e) ATH_MUST_USE;
/* Which instructions an answer follows, as bits. */
status eval_ifeval_judge(const eval_ifeval *f, eval_text answer, uint32_t *strict, uint32_t *loose,
                         err *e) ATH_MUST_USE;
const char *eval_instruction_name(const eval_instruction *k);

#endif
