/* Normalizers: what is done to a text before it is cut. Each step maps a piece of valid UTF-8 to
 * another, with the place of every byte when the piece has places. */
#ifndef TOK_NORMALIZE_NORMALIZE_H
#define TOK_NORMALIZE_NORMALIZE_H

#include "base/arena.h"
#include "tok/text/piece.h"

typedef enum norm_kind { NORM_NFC } norm_kind;

typedef struct norm_step {
    norm_kind kind;
} norm_step;

/* Scratch of one encode call: the text before and after a step. Initialise with {0}. */
typedef struct norm_work {
    tok_text text[2];
} norm_work;
void norm_work_free(norm_work *w);

/* Runs steps[0..n) on `in`. *out points into `w` (valid until its next use) or is `in` itself when
 * nothing changed. ST_FORMAT: a pattern gave up. */
status norm_run(const norm_step *steps, int n, const tok_piece *in, norm_work *w, tok_piece *out,
                err *e) ATH_MUST_USE;
void norm_step_free(norm_step *s);

#endif
