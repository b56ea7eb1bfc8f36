/* What the makers of a model say about generating with it, in its folder of Hugging Face: which ids end a text, and
 * which sampling they advise. generation_config.json says both; config.json says the ids where that is silent.
 *
 * Read once when a model is opened (open_model.h, which adds the tokenizer's end of text). Conversations use
 * the ids and, unless options say otherwise, the sampling; `athanor generate` uses the ids only. */
#ifndef INFER_SETTINGS_H
#define INFER_SETTINGS_H

#include "infer/sample.h"
#include "tok/tok.h"

typedef struct generation_settings {
    tok_ids end;  /* eos_token_id, a number or a list */
    bool samples; /* do_sample is true: use `sample` */
    sample_options
        sample; /* what the file leaves out is as in transformers: top-k 50, the rest off */
} generation_settings;

/* From a folder. All stays zero without these files, or where `dir` is no folder. ST_FORMAT names the file and the
 * key whose value is wrong or out of range. Free with generation_settings_free. */
status generation_settings_read(generation_settings *s, const char *dir, err *e) ATH_MUST_USE;
/* The same from the texts of the two files, each NULL when there is none. */
status generation_settings_parse(generation_settings *s, const char *generation_config,
                                 const char *config, err *e) ATH_MUST_USE;
void generation_settings_free(generation_settings *s);
/* Adds an id to those that end a text; none that is negative (no such token) or there already. */
void generation_add_end(tok_ids *end, int32_t id);

#endif
