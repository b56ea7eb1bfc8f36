/* Where pieces of a SentencePiece vocabulary may not go on: before every "▁", around a newline, and
 * between writing systems (letters of one script, everything that is no letter; combining marks go
 * with what stands before them). SentencePiece trains under the same rules. */
#ifndef TOK_TRAIN_PIECES_H
#define TOK_TRAIN_PIECES_H

#include <stdbool.h>
#include <stddef.h>

/* End of the stretch that begins at `at`; with `digits`, each digit is one of its own. Valid UTF-8.
 */
size_t pieces_end(const char *s, size_t len, size_t at, bool digits);

#endif
