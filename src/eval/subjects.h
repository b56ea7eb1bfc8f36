/* Subjects of Chinese sets. */
#ifndef EVAL_SUBJECTS_H
#define EVAL_SUBJECTS_H

#include <stdbool.h>
#include <stddef.h>

/* The name in Chinese of a subject of C-Eval, or else of CMMLU, of *len bytes; NULL: there is no such
 * subject. */
const char *eval_subject_name(bool of_ceval, const char *subject, size_t *len);

#endif
