/* The data of a run's stages, and RUN/data.json, the record of what each stage began with.
 *
 * A stage's sources are opened when it begins. What they were then (fingerprint, tokens, how many
 * of their samples earlier stages had taken) is written down, and from then on holds: shards that
 * are appended later are for later stages, and data that was changed is refused. So the data of
 * stages to come may still be built while the run goes on. */
#ifndef TRAIN_STAGE_DATA_H
#define TRAIN_STAGE_DATA_H

#include "data/order/loader.h"
#include "run/folder.h"
#include "tok/tok.h"
#include "train/course/course.h"
#include "train/guard/watch.h"

typedef struct stage_data {
    const course *course; /* NULL: of a run whose length is not known yet */
    const tok *tok;
    int32_t vocab_size; /* of the model */
    const watch *watch; /* samples that were left out */
    json_t *record;     /* {"origin", "stages": [{"name", "sources": [...]}]} */
    bool record_is_new; /* it knows of a stage that RUN/data.json does not */
    void (*progress)(void *ctx, const char *what, double share);
} stage_data;

/* The record of a run; an empty one when there is none. The caller owns it. */
status stage_data_read(json_t **record, const char *run, err *e) ATH_MUST_USE;
/* Stages that have begun. */
int stage_data_begun(const json_t *record);
course_origin stage_data_origin(const json_t *record);
void stage_data_set_origin(json_t *record, const course_origin *o);

/* Opens the sources of stage `stage` whose config is `c`. When the record does not know the stage,
 * it is entered (*is_new): the caller writes the record before it trains. ST_FORMAT: a source is
 * not what it was, naming it. */
status stage_data_open(const stage_data *d, const config *c, int stage, loader **out, bool *is_new,
                       err *e) ATH_MUST_USE;
/* Opens the validation set; *out NULL when the config has none. */
status stage_data_open_valid(const stage_data *d, const config *c, loader **out,
                             err *e) ATH_MUST_USE;
/* Looks at the data of a stage to come: what is there must be usable; what is not there yet is a
 * warning. */
status stage_data_probe(const stage_data *d, const config *c, err *e) ATH_MUST_USE;

/* Source i of a stage, for those who tell people. */
typedef struct stage_source {
    const char *path;
    double weight, share;  /* as configured; of the mixture */
    uint64_t tokens;       /* that it has */
    uint64_t consumed;     /* samples that earlier stages took */
    double passes, budget; /* over it by the end of the stage, and how many were allowed (epochs) */
} stage_source;
stage_source stage_data_source(const stage_data *d, const loader *l, const config *c, int stage,
                               int i);

#endif
