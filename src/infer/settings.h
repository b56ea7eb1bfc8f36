/* What a model's own files say about generation: generation_config.json, else config.json, of a
 * Hugging Face folder. */
#ifndef INFER_SETTINGS_H
#define INFER_SETTINGS_H

#include "infer/sample.h"
#include "tok/tok.h"

typedef struct generation_settings {
    tok_ids end;           /* eos_token_id, a number or a list */
    bool samples;          /* do_sample: `sample` is what the model's makers advise */
    sample_options sample; /* the members that the file leaves out are those of transformers */
} generation_settings;

/* A folder without these files, or a path that is no folder, leaves all zero. ST_FORMAT names the
 * file and the key. Free with generation_settings_free. */
status generation_settings_read(generation_settings *s, const char *dir, err *e) ATH_MUST_USE;
/* The same from the texts of the two files; either may be NULL. */
status generation_settings_parse(generation_settings *s, const char *generation_config,
                                 const char *config, err *e) ATH_MUST_USE;
void generation_settings_free(generation_settings *s);
/* Adds an id that ends a text, unless it is negative or there already. */
void generation_add_end(tok_ids *end, int32_t id);

#endif
