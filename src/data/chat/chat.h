/* Conversations to token shards with marks: which tokens are trained, and whose they are.
 *
 * Files of records (records.h), each of a form (sample.h: messages, ShareGPT, Alpaca, pairs, KTO), become
 * conversations; the chat template of the tokenizer renders them, and ids and marks come of that (encode.h).
 * Hard stops (checks.h) end the build at data that would teach something else than was meant. Beside
 * the shards lie tokenizer.json, chat_template.jinja, and chat.json: what the set is made of (audit.h).
 *
 * Documents of the set: a conversation; or, for pairs, the chosen one and the rejected one; or, for
 * labelled answers, the conversation and its prompt with the next sample's answer (the last one has the
 * first's), from which KTO estimates its KL term.
 *
 * Nothing in OUT changes until the new set is complete (place.h); a build that was interrupted begins
 * anew. All threads render and encode; the set does not depend on their number. Memory: a few hundred
 * records, and 16 bytes for each conversation that reasons or says that it does not.
 *
 * Reading order: records.h, sample.h, encode.h, checks.h, audit.h, build.c. */
#ifndef DATA_CHAT_CHAT_H
#define DATA_CHAT_CHAT_H

#include "data/chat/audit.h"
#include "data/chat/encode.h"

typedef struct chat_build_options {
    const char *form;          /* of the records; NULL: found out, from each record */
    const char *template_file; /* or "chatml", "plain"; NULL: that of the tokenizer */
    const json_t *variables;   /* of the template; NULL: none */
    chat_train train;
    uint32_t allowed;      /* bits of checks */
    double valid_fraction; /* of the samples; 0: no split */
    uint64_t seed;         /* of the split */
    uint64_t shard_tokens; /* 0: default */
    int threads;           /* 0: all that OpenMP would use */
    /* Called about four times a second by the calling thread. May be NULL. */
    void (*progress)(uint64_t samples, uint64_t tokens, double seconds);
} chat_build_options;

typedef struct chat_build_result {
    shard_totals train, valid;
    json_t *report; /* chat.json; the caller's */
    double seconds;
} chat_build_result;

/* Whether these inputs are conversations: JSON or Parquet whose first record has one of the forms, and
 * no text of its own in "text". Errors of reading are left to who reads. Pipes are not looked at, and so not taken for
 * conversations. */
bool chat_is(const char *const *inputs, int n);
/* Whether all are files of JSON or Parquet, by their names. */
bool chat_may_be(const char *const *inputs, int n);
/* Changes when a file's name, size or time does. */
uint64_t chat_inputs_fingerprint(const char *const *inputs, int n);
/* `tokenizer`: where the template is found, and the tokenizer t was read from. Errors: as above; ST_USAGE: records of
 * several kinds, and the hard stops, which name file and line. */
status chat_build(const char *const *inputs, int n, const char *out_dir, const char *tokenizer,
                  const tok *t, const chat_build_options *opt, chat_build_result *result,
                  err *e) ATH_MUST_USE;
/* What decides the set, but the inputs: template, its variables, what is trained, what is allowed. */
status chat_build_digest(const char *tokenizer, const tok *t, const chat_build_options *opt,
                         uint64_t *out, err *e) ATH_MUST_USE;

#endif
