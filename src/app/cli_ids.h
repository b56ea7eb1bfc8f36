/* Token ids on the command line: --ids 1,2,3. */
#ifndef APP_CLI_IDS_H
#define APP_CLI_IDS_H

#include "tok/tok.h"

/* Appends the ids of a list separated by commas or spaces. ST_USAGE names the word that is none. */
status cli_parse_ids(const char *list, tok_ids *out, err *e) ATH_MUST_USE;

#endif
