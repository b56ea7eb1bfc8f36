/* The parser, for the frame alone. */
#ifndef APP_CLI_INT_H
#define APP_CLI_INT_H

#include "app/frame/cli.h"

/* Parses argv after the command's name; args->inputs and overrides are heap arrays. */
status cli_parse(cli_args *args, const cli_command *command, int argc, char **argv,
                 err *e) ATH_MUST_USE;
void cli_args_free(cli_args *args);
/* Whether a word stands among a command's words, other than as the value of an option or after
 * "--". The command may be NULL: then no option is known. */
bool cli_has_word(const cli_command *c, int argc, char **argv, const char *word);

#endif
