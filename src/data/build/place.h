/* The exchange of a folder's shard set for one that is complete elsewhere in the same file system,
 * by renames: the old manifest goes first, the new one comes last, so a folder with a manifest is
 * always one whole set. An exchange that was interrupted at any moment is finished by another call.
 */
#ifndef DATA_BUILD_PLACE_H
#define DATA_BUILD_PLACE_H

#include "base/status.h"

/* Makes the folder if need be and keeps other builds out of it until *fd is closed; where locks do not
 * exist nothing is lost. When another build has it: waits until that is over, or ST_FAILED. *fd is -1 on
 * an error. */
status place_lock(const char *dir, bool wait, int *fd, err *e) ATH_MUST_USE;
/* Moves the set in `from` over that in `to`; nothing to do when `from` has no manifest: it was
 * moved before. Files of `to` that belong to no shard set stay. */
status place_set(const char *from, const char *to, err *e) ATH_MUST_USE;
/* Removes shard files that the folder's manifest does not name: remains of a build that was given
 * up. */
status place_remove_strays(const char *dir, err *e) ATH_MUST_USE;

#endif
