/* Checkpoints that several ranks write, each what it holds of the tensors. Ranks write in the
 * background, where they cannot call each other, so they meet in the temporary folder:
 *
 *     RUN/checkpoints/.tmp-step-N-ATTEMPT/    made by the first rank
 *         .begun          the files of tensors stand at full length: fill them; taken away by a
 *                         rank that has failed and can make no file to say so
 *         .done-R         the part of rank R is on disk
 *         .failed-R       it is not, and why
 *     RUN/checkpoints/.tmp-step-N-ATTEMPT.failed    the first rank has given up, as it has when
 *                                                   the folder is gone
 *
 * When all are done the first rank hashes the files and commits, as one rank alone does. The others
 * have succeeded once step-N is the very folder that they wrote into. Whoever waits in vain fails
 * after a limit; nothing that stood before is touched by that.
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
/* All files of tensors are created: the others may write. */
status checkpoint_writer_call_team(checkpoint_writer *w, err *e) ATH_MUST_USE;
/* This rank's part is written, too: waits for the others', and adds the created files. Then other
 * files may be added, and the checkpoint committed. */
status checkpoint_writer_await_team(checkpoint_writer *w, err *e) ATH_MUST_USE;

/* ---- the other ranks ---- */

typedef struct checkpoint_part checkpoint_part;

/* Waits for checkpoint_writer_call_team. */
status checkpoint_part_begin(checkpoint_part **p, const char *run_dir, int64_t step,
                             const checkpoint_team *team, err *e) ATH_MUST_USE;
/* Of a file that rank 0 created; valid until checkpoint_part_end. */
const char *checkpoint_part_path(checkpoint_part *p, const char *name);
/* st: what came of this rank's part, with e if it failed. Tells rank 0, and waits for what becomes
 * of the checkpoint. Frees p in any case. */
status checkpoint_part_end(checkpoint_part *p, status st, err *e) ATH_MUST_USE;

#endif
