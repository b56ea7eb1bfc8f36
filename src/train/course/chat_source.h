/* Sources that are files of conversations (data/chat), or of labelled texts where the objective learns from these: the token shards that are made of them.
 *
 * They lie in RUN/data/DIGEST. The digest names the files (by name, size and time), the tokenizer, the chat
 * template and all else that decides the set: while it stays, later starts find the set there. A stage that has begun goes
 * on with the set that it began with, whatever became of the files. Of several ranks the first builds,
 * the others wait at a lock. */
#ifndef TRAIN_CHAT_SOURCE_H
#define TRAIN_CHAT_SOURCE_H

#include "data/order/loader.h"
#include "train/course/stage_data.h"

/* *out: where the shards of a path of data.train or data.valid are: the path itself where it is no file of
 * conversations; else in the arena. `began`: where they were when the stage began; NULL: it begins now. ST_USAGE: they are not built and d->builds is false. Errors of
 * chat_build. */
status chat_source_find(const stage_data *d, const config *c, const char *path, const char *began,
                        arena *a, const char **out, err *e) ATH_MUST_USE;
/* ST_USAGE: of some source more conversations are cut than data.max_truncated, which names the first. */
status chat_source_check(const config *c, const loader *l, err *e) ATH_MUST_USE;
/* Tells of conversations that are cut before their first trained token: they teach nothing. */
status chat_source_warn(const loader *l, err *e) ATH_MUST_USE;

#endif
