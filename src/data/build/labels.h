#ifndef DATA_LABELS_H
#define DATA_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Labels of texts: each becomes a number, which stands as the document's score. Texts are then encoded with what the tokenizer's
 * post-processor adds, as transformers' tokenizers give them. */
typedef struct text_labels {
    bool are_wanted;
    int64_t classes;          /* a label is the number or the name of one; 0: it is any number */
    const char *const *names; /* [classes]; NULL: there are none */
} text_labels;
/* ST_USAGE: the text is no such label. NULL: there is none. */
status text_label_read(const text_labels *l, const char *text, float *out, err *e) ATH_MUST_USE;

#endif
