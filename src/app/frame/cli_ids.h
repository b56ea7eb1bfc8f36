/* Tokens on the command line: --ids 1,2,3 and --special A,B, and what encoding has to say. */
#ifndef APP_CLI_IDS_H
#define APP_CLI_IDS_H

#include "base/arena.h"
#include "tok/tok.h"

/* Appends the ids of a list separated by commas or spaces. ST_USAGE names the word that is none:
 * between two commas, too, there must be one. */
status cli_parse_ids(const char *list, tok_ids *out, err *e) ATH_MUST_USE;
/* "a,b" into its parts, in the arena; an empty list is no token at all. */
const char **cli_split_tokens(arena *a, const char *list, int *n);
/* Bytes without a token are left out as other programs do it, but not in silence. */
void cli_warn_of_lost_bytes(const tok *t);

#endif
