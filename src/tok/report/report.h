/* What the files of a report share. */
#ifndef TOK_REPORT_REPORT_H
#define TOK_REPORT_REPORT_H

#include "tok/tok_report.h"

typedef struct report_row {
    tok_tally sums;
    uint8_t *used; /* [vocabulary / 8 + 1], a bit an id */
} report_row;

typedef struct report_tok {
    const tok *t;
    int64_t *count; /* [vocabulary] */
    report_row *row;
} report_tok;

struct tok_report {
    report_tok *tok;
    bool count_words;
    int n_toks, n_threads, n_rows, cap_rows;
    struct known_word **words; /* [threads, tokenizers], made on first use */
};

#endif
