/* `athanor plan MODEL|CONFIG --model formula|widget|predictor`: what others' published formulas say of a config. */
#ifndef APP_BY_FORMULA_H
#define APP_BY_FORMULA_H

#include "app/frame/cli.h"

status plan_by_formula(const cli_args *args, err *e) ATH_MUST_USE;

#endif
