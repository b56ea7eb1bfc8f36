/* Names in RUN/checkpoints and what the checkpoint files share. Private to them. */
#ifndef IO_CHECKPOINT_LAYOUT_H
#define IO_CHECKPOINT_LAYOUT_H

#include "io/checkpoint/checkpoint.h"

#define CHECKPOINT_DIR "checkpoints"
#define TMP_PREFIX ".tmp-"
#define TRASH_PREFIX ".trash-"
#define OLD_PREFIX ".old-"

/* The step of a folder name "step-N" in the form that we write; -1 for any other name. */
int64_t checkpoint_parse_step(const char *name);
/* A folder is given a trash name first, so that what is half deleted never looks like a checkpoint.
 */
status checkpoint_remove(const char *dir, err *e) ATH_MUST_USE;
/* checkpoint_verify without the look at the siblings. */
status checkpoint_check(const char *dir, checkpoint_kind *kind, err *e) ATH_MUST_USE;

#endif
