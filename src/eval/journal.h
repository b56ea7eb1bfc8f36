/* What an evaluation has computed so far, in a file, so that it goes on after it was stopped or
 * killed.
 *
 * A line is a score or an answer under the hash of all that decides it: the model's files, in what it
 * computes, and what is asked.
 *   {"key": "1f0e...", "loglik": -3.25}   {"key": "92ab...", "written": ["#### 4", 1]}
 *   {"key": "0b35...", "greedy": 1}   {"key": "77de...", "nll": [0.5, 3.25]}
 * What was written has beside it whether it ended by itself.
 * Scores do not depend on what else is scored, so an evaluation that goes on gives the bits of one
 * that was not stopped. A last line that was not written to its end is passed over. */
#ifndef EVAL_JOURNAL_H
#define EVAL_JOURNAL_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

typedef struct eval_journal {
    json_t *known; /* key -> value */
    FILE *out;     /* NULL: it is only read */
    const char *path;
    uint64_t model; /* hash of what names the model */
} eval_journal;

/* Opens the file, which may be absent, and reads what is there. ST_FAILED: it cannot be written. */
status eval_journal_open(eval_journal *j, const char *path, uint64_t model, err *e) ATH_MUST_USE;
/* The same, only to read: what is put is forgotten. */
status eval_journal_read(eval_journal *j, const char *path, uint64_t model, err *e) ATH_MUST_USE;
/* The key of some bytes, for this model. */
void eval_journal_key(const eval_journal *j, const void *bytes, size_t n, char out[17]);
/* NULL: not there. */
const json_t *eval_journal_find(const eval_journal *j, const char *key);
/* Appends a value, which is given up. what: "loglik", "nll", "written" or "greedy". */
void eval_journal_put(eval_journal *j, const char *key, const char *what, json_t *value);
/* Writes what was put. ST_FAILED: the disk is full, say. */
status eval_journal_flush(eval_journal *j, err *e) ATH_MUST_USE;
/* The file stays. */
void eval_journal_close(eval_journal *j);

#endif
