/* The weights of a merge, written tensor by tensor, so that a merge that was killed goes on.
 *
 *     DIR/.part-NAME/           becomes DIR/NAME when it is complete; files of full length from the start
 *     DIR/.part-NAME.journal    JSON lines: {"plan"}, then {"tensor", "xxh3", "part"} for each that is written
 *
 * A tensor counts as written when the bytes in the file have the digest of its line: so neither an order
 * of writes nor a sync is needed on the way, and a torn last line costs one tensor. Another plan
 * (config, inputs) begins afresh. One process at a time: it holds a lock of the journal. */
#ifndef INTERCHANGE_MERGE_WRITE_H
#define INTERCHANGE_MERGE_WRITE_H

#include "io/hf/model_folder.h"

typedef struct merge_output {
    arena *a;
    staged to;
    const char *journal;
    int journal_fd;
    const st_tensor *tensors;
    int n;
    shard_cut cut;
    uint64_t *at;  /* [n] first byte in its file */
    json_t **part; /* [n] what merge_output_put was given; NULL: not written yet */
} merge_output;

/* plan: names what is made, by a digest. The tensors have no data. Free with merge_output_close. */
status merge_output_open(merge_output *o, arena *a, const char *path, bool force, const char *plan,
                         const st_tensor *tensors, int n, uint64_t max_bytes, err *e) ATH_MUST_USE;
/* Writes tensor i; `part` (taken over) is kept with it and found in o->part[i] after a restart. */
status merge_output_put(merge_output *o, int i, const void *bytes, json_t *part,
                        err *e) ATH_MUST_USE;
/* The folder gets its name. */
status merge_output_commit(merge_output *o, err *e) ATH_MUST_USE;
/* Removes the journal of a result that is complete, which a kill in the last moment leaves. */
void merge_output_tidy(arena *a, const char *path);
/* Removes what was written so far. */
status merge_output_discard(merge_output *o, err *e) ATH_MUST_USE;
void merge_output_close(merge_output *o);

#endif
