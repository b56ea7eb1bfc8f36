/* Shared by the files of the command-line frame. */
#ifndef APP_CLI_INT_H
#define APP_CLI_INT_H

#include "app/frame/cli.h"

extern const cli_command *const cli_commands[];
extern const int cli_n_commands;

/* Parses argv after the command's name; args->inputs and overrides are heap arrays. */
status cli_parse(cli_args *args, const cli_command *command, int argc, char **argv,
                 err *e) ATH_MUST_USE;
void cli_args_free(cli_args *args);
/* Whether a word stands among a command's words, other than as the value of an option or after
 * "--". The command may be NULL: then no option is known. */
bool cli_has_word(const cli_command *c, int argc, char **argv, const char *word);

/* The command that argv[1..] names, how many words its name has; NULL when none. */
const cli_command *cli_find_command(int argc, char **argv, int *words);

void cli_print_help(void);
void cli_print_command_help(const cli_command *c);
/* The commands whose names start with `word`; false when there are none. */
bool cli_print_group_help(const char *word);

#endif
