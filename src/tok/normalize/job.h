/* One step at work on one piece, and how it writes.
 *
 * What a byte of the result stands for follows from the order of writing, as in tokenizers'
 * NormalizedString: a step writes characters with a `change`, and a cursor goes over the input.
 *   0   the character replaces the one at the cursor, has its place, and the cursor goes on
 *   -N  the same, then the cursor passes N more characters, which are removed
 *   1   the character is new and has the place of the one before the cursor
 * Where a step keeps cursor and text together it copies or adds with the place at hand instead. */
#ifndef TOK_NORMALIZE_JOB_H
#define TOK_NORMALIZE_JOB_H

#include "base/utf8.h"
#include "tok/normalize/normalize.h"
#include "tok/normalize/props.h"

typedef struct norm_job {
    const norm_step *step;
    const tok_piece *in;
    tok_text *out;
    norm_work *work;
    err *e;
    size_t keep;    /* so many bytes at the front surely stay as they are */
    size_t at;      /* the cursor; followed only when places are tracked */
    size_t limit;   /* of bytes in the result */
    int32_t origin; /* where the first piece begins: the place of what is put before everything */
} norm_job;

/* Writes one character of n bytes. */
void job_write(norm_job *j, const char *s, size_t n, int change);
void job_write_cp(norm_job *j, uint32_t cp, int change);
/* ST_FORMAT when n more bytes exceed the limit. */
status job_grow(norm_job *j, size_t n) ATH_MUST_USE;

/* Decodes the character at *i and goes on to the next. */
static inline uint32_t take_char(const char *s, size_t *i) {
    size_t len;
    uint32_t cp = utf8_next(s + *i, &len);
    *i += len;
    return cp;
}
/* End of the ASCII that begins at i. */
size_t ascii_end(const char *s, size_t n, size_t i);
/* End of the stretch from i whose characters beyond ASCII have none of the properties. */
size_t plain_end(const char *s, size_t n, size_t i, unsigned props);

/* The kinds: how much at the front surely stays (all: nothing changes), and the change itself. */
size_t filter_keep(const norm_step *s, const tok_piece *in);
status filter_run(norm_job *j) ATH_MUST_USE;
size_t lowercase_keep(const norm_step *s, const tok_piece *in);
status lowercase_run(norm_job *j) ATH_MUST_USE;
size_t chinese_keep(const norm_step *s, const tok_piece *in);
status chinese_run(norm_job *j) ATH_MUST_USE;
status byte_level_run(norm_job *j) ATH_MUST_USE;
size_t form_keep(const norm_step *s, const tok_piece *in);
status form_run(norm_job *j) ATH_MUST_USE;
status prepend_run(norm_job *j) ATH_MUST_USE;
size_t replace_literal_keep(const norm_step *s, const tok_piece *in);
status replace_literal_run(norm_job *j) ATH_MUST_USE;
status replace_regex_run(norm_job *j) ATH_MUST_USE;
size_t precompiled_keep(const norm_step *s, const tok_piece *in);
status precompiled_run(norm_job *j) ATH_MUST_USE;
status sentencepiece_run(norm_job *j) ATH_MUST_USE;

#endif
