/* How much of a text is that of references: BLEU and ROUGE, as sacrebleu and rouge_score count them.
 *
 * BLEU (Papineni et al. 2002) is of a corpus: n-grams of up to 4 words, found in a reference, are counted over all texts
 * before anything is divided. Words are those of WMT's mteval-v13a; where no n-gram of a length is
 * found, smoothing is exponential (Chen & Cherry 2014, method 3).
 * ROUGE (Lin 2004) is of one text: F1 of words (ROUGE-1), pairs of words (ROUGE-2), or of the longest common
 * subsequence (ROUGE-L). Words are runs of a-z and 0-9, in small letters, not stemmed. */
#ifndef EVAL_SIMILARITY_H
#define EVAL_SIMILARITY_H

#include "eval/task.h"

enum { BLEU_N = 4 };

typedef struct bleu_counts {
    double found[BLEU_N], all[BLEU_N]; /* n-grams of the text */
    double words, reference_words;     /* of the reference that is nearest in length */
} bleu_counts;

void eval_bleu_add(bleu_counts *sum, eval_text text, const eval_text *references, int n);
double eval_bleu(const bleu_counts *sum); /* 0 to 100 */

typedef enum rouge_kind { ROUGE_1 = 1, ROUGE_2 = 2, ROUGE_L } rouge_kind;
double eval_rouge(rouge_kind kind, eval_text text, eval_text reference); /* F1, 0 to 1 */

#endif
