/* Tokens on the command line: --ids 1,2,3 and --special A,B, and what encoding has to say. */
#ifndef APP_CLI_IDS_H
#define APP_CLI_IDS_H

#include <jansson.h>

#include "base/arena.h"
#include "tok/tok.h"

/* Appends the ids of a list separated by commas or spaces. ST_USAGE names the word that is none:
 * between two commas, too, there must be one. */
status cli_parse_ids(const char *list, tok_ids *out, err *e) ATH_MUST_USE;
/* "a,b" into its parts, in the arena; an empty list is no token at all. */
const char **cli_split_tokens(arena *a, const char *list, int *n);
/* A list of ids as JSON. */
json_t *cli_id_list(const int32_t *id, int64_t n);
/* ST_USAGE if a result, a file or a folder for tokenizer.json, would be written over a tokenizer that
 * is read: over the file `input`, or over tokenizer.json or tokenizer.model of the folder. */
status cli_check_tok_apart(const char *output, const char *input, err *e) ATH_MUST_USE;
/* Bytes without a token are left out as other programs do it, but not in silence. */
void cli_warn_of_lost_bytes(const tok *t);

#endif
