/* Which files a split of a data set has, in a folder of data: one file, or the shards of the
 * Parquet files of the Hugging Face hub. */
#ifndef EVAL_SPLIT_FILES_H
#define EVAL_SPLIT_FILES_H

#include "base/arena.h"
#include "base/status.h"

/* In the order of their names, in the arena. */
typedef struct split_files {
    char **path;
    int n; /* 0: there are none */
} split_files;

/* The files of a split of a task whose set has a part (a "config" of the hub) of that name, which
 * may be NULL. The first folder that has any of them gives them:
 *
 *   DATA/TASK, DATA/TASK/PART, DATA/TASK/data, DATA/PART, DATA, DATA/data
 *
 * and in it the first of SPLIT.jsonl (.json, .csv, .tsv, .parquet, ...),
 * SPLIT-00000-of-00002.parquet and so on, SPLIT/0000.parquet and so on. ST_FORMAT: a shard is missing. */
status eval_split_files(split_files *out, arena *a, const char *data, const char *task,
                        const char *part, const char *split, err *e) ATH_MUST_USE;
/* The files whose names fit a path; its last component may have *, ? and [...]. ST_FORMAT: a shard
 * is missing. */
status eval_match_files(split_files *out, arena *a, const char *path, err *e) ATH_MUST_USE;

#endif
