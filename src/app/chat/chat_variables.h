/* key=value on the command line as variables of a chat template. */
#ifndef APP_CHAT_VARIABLES_H
#define APP_CHAT_VARIABLES_H

#include "app/frame/cli.h"

/* Sets each in the object `variables`: JSON where the value is that, otherwise a text. */
void chat_read_variables(const cli_args *args, json_t *variables);

#endif
