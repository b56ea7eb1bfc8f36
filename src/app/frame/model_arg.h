/* MODEL|CONFIG on the command line, for commands that need no weights. */
#ifndef APP_MODEL_ARG_H
#define APP_MODEL_ARG_H

#include "app/frame/cli.h"
#include "run/config/config.h"

/* A preset name, a Hugging Face folder or its config.json, and a run folder (its newest good
 * checkpoint) become a config whose `model:` they are; anything else is a config file, and so is a
 * run's config.json. The command's key=value pairs apply to either. */
status model_arg_load(const char *input, const cli_args *args, config **out, err *e) ATH_MUST_USE;

#endif
