/* The two halves of `athanor decide`. */
#ifndef APP_DECIDE_H
#define APP_DECIDE_H

#include "app/frame/cli.h"

/* --try MODEL: scores it as it is, with examples in the prompt, and after an adapter; says what reaches the target. */
status decide_try(const cli_args *args, err *e) ATH_MUST_USE;

#endif
