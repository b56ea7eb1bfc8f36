/* What a teacher (distill.h) says of a run's training data, stored before the first step, so that the teacher is not in memory
 * while the student is trained (distill.store).
 *
 * Of each token the file has the distill.top_k likeliest next ones with their log-probabilities, rounded to fp16. The loss is
 * that of a live teacher with the same top_k, which these renormalise: their softmax over the temperature does not change with
 * what all have in common. So are the targets of Gemma 3 (2025, section 2.2) and of Peng et al. 2024 (arXiv 2410.16215,
 * section 3). Every epoch has the same sequences (loader_config.cut_once).
 *
 * A stage has a file of records in the folder, one for each sequence: [T,k] log-probabilities, [T,k] ids of 2 or 4 bytes, and a
 * checksum. NAME is made of the data and how they are cut; NAME.json says how many records there are, of which teacher. A
 * store that was killed goes on where NAME.json ends, and a record whose checksum is wrong stops the run. */
#ifndef TRAIN_LESSONS_H
#define TRAIN_LESSONS_H

#include "train/batch.h"
#include "train/sequence_index.h"

/* How a record looks. */
typedef struct lesson_format {
    int T, k;
    int id_bytes;
    size_t bytes;
} lesson_format;

typedef struct lesson_set {
    lesson_format format;
    sequence_index index;
    const char *path;
    int fd;        /* of the records; -1: there are none */
    uint8_t *room; /* for one */
    err *fault;    /* the first error of lessons_take; its code ST_OK: there was none */
} lesson_set;

struct session;
struct setup;
struct config;
/* How many tokens are stored of each; 0: nothing is. vocab: the model's. */
int lessons_stored(const struct config *c, int64_t vocab);
lesson_format lesson_format_of(int T, int k, int64_t vocab);
/* Bytes on the host for micro-batches of B sequences, with the room of a record. */
int64_t lessons_host_bytes(const struct config *c, int64_t vocab, int B, int T);
/* Logits [T,vocab] of a sequence into a record, and that into what a student's head reads: [T,k]. ST_FORMAT: the record is
 * not what was written, or has ids outside of the vocabulary. */
void lessons_pack(const lesson_format *f, const float *logits, int64_t vocab, uint8_t *record);
status lessons_unpack(const lesson_format *f, const uint8_t *record, int64_t vocab, float *logp,
                      int32_t *tokens, err *e) ATH_MUST_USE;

/* Fills setup.lessons for all stages, if the config wants it. As reference_prepare: all ranks call it, before memory for the
 * run is reserved. */
status lessons_prepare(struct session *s, err *e) ATH_MUST_USE;
void lessons_close(struct setup *u);
/* Reads what the teacher said of samples first .. first + B - 1 of a loader into rows. */
void lessons_take(const lesson_set *set, const loader *l, uint64_t first, const batch_rows *rows,
                  int64_t vocab);
/* The first error that lessons_take met, or other data than the records are of; set, l may be NULL. */
status lessons_check(const lesson_set *set, const loader *l, err *e) ATH_MUST_USE;

#endif
