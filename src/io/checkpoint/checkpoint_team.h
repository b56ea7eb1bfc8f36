/* Checkpoints that several ranks write together, each its shards of the tensors. Ranks write in
 * background threads, which cannot use collectives, so they tell each other by files in the temporary
 * folder:
 *
 *     RUN/checkpoints/.tmp-step-N-ATTEMPT/    made by the first rank
 *         .begun          the files of tensors stand at full length: fill them; taken away by a
 *                         rank that has failed and can make no file to say so
 *         .done-R         the part of rank R is on disk
 *         .failed-R       it is not, and why
 *     RUN/checkpoints/.tmp-step-N-ATTEMPT.failed    the first rank has given up, as it has when
 *                                                   the folder is gone
 *
 * When all are done, the first rank hashes the files and commits, as one rank alone does. The others
 * know that it succeeded when step-N is the folder that they wrote into. A rank that waits longer than
 * limit_s fails; earlier checkpoints stay as they are.
 *
 * Reading order: checkpoint_team; the first rank's calls, in order; checkpoint_part. */
#ifndef IO_CHECKPOINT_TEAM_H
#define IO_CHECKPOINT_TEAM_H

#include "io/checkpoint/checkpoint.h"

typedef struct checkpoint_team {
    int rank, ranks;
    uint64_t attempt;          /* the same on all ranks, and of this save alone */
    double limit_s;            /* of waiting for one thing */
    bool (*failed)(void *ctx); /* whether a rank is known to be gone; may be NULL */
    void *ctx;
} checkpoint_team;

/* ---- rank 0, also where it is the only one ---- */

/* As checkpoint_writer_begin. The team is copied. */
status checkpoint_writer_begin_team(checkpoint_writer **w, const char *run_dir, int64_t step,
                                    uint64_t need_bytes, const checkpoint_team *team,
                                    err *e) ATH_MUST_USE;
/* A file of tensors that the ranks will fill (st_create); what is declared must live until
 * checkpoint_writer_await_team. */
status checkpoint_writer_create_tensors(checkpoint_writer *w, const char *name,
                                        const st_tensor *tensors, int64_t n, err *e) ATH_MUST_USE;
/* Called when all files of tensors are created: the other ranks begin to write. */
status checkpoint_writer_call_team(checkpoint_writer *w, err *e) ATH_MUST_USE;
/* Called when this rank's part is written: waits for those of the other ranks, and adds the created
 * files to the manifest. Then other files may be added, and the checkpoint committed. */
status checkpoint_writer_await_team(checkpoint_writer *w, err *e) ATH_MUST_USE;

/* ---- the other ranks ---- */

typedef struct checkpoint_part checkpoint_part;

/* Waits for checkpoint_writer_call_team. */
status checkpoint_part_begin(checkpoint_part **p, const char *run_dir, int64_t step,
                             const checkpoint_team *team, err *e) ATH_MUST_USE;
/* Of a file that rank 0 created; valid until checkpoint_part_end. */
const char *checkpoint_part_path(checkpoint_part *p, const char *name);
/* st: the result of writing this rank's part, with e if it failed. Tells rank 0, and waits until the
 * checkpoint is complete or given up. Frees p in any case. */
status checkpoint_part_end(checkpoint_part *p, status st, err *e) ATH_MUST_USE;

#endif
