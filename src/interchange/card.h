/* README.md of a model folder: a model card with the front matter of Hugging Face, made from what the
 * program knows: the config, the files, the ledger. What it cannot know (the license) is said to be unknown.
 *
 * A card of ours has a line that says so. A README.md without that line is a person's and is not
 * replaced. */
#ifndef INTERCHANGE_CARD_H
#define INTERCHANGE_CARD_H

#include "interchange/where_runs.h"
#include "model/config.h"

typedef struct card {
    const char *name; /* of the model */
    const model_config *config;
    int64_t params;
    const char *format; /* of the weights: "BF16" */
    uint64_t bytes;     /* of the weights; 0: not said */
    int files;
    const char *made;        /* "written from a GGUF file", "merged by slerp" */
    const char *license;     /* NULL: unknown */
    const char *tags;        /* more tags, separated by spaces; NULL: none */
    const json_t *ledger;    /* parents become `base_model`; NULL: none */
    const char *sections;    /* more Markdown, before the origins; NULL: none */
    const where_runs *where; /* NULL: not said */
} card;

void card_put(const card *c, strbuf *out);
/* Writes DIR/README.md. keep: a folder whose README.md is taken over instead if a person wrote it; NULL:
 * there is none. */
status card_write(const card *c, const char *dir, const char *keep, err *e) ATH_MUST_USE;
/* What the front matter of DIR/README.md says is the license, in the arena; NULL: nothing. */
const char *card_license_of(arena *a, const char *dir);

#endif
