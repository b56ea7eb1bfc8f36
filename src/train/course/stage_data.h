/* The data of a run's stages, and RUN/data.json, the record of what each stage began with.
 *
 * A stage's sources are opened when the stage begins. The record then says of each source: its
 * fingerprint, its tokens, and how many of its samples earlier stages have used. A resumed run
 * opens the same data by the record: shards that were appended since are ignored until the next
 * stage, and data that was changed is refused (ST_FORMAT). So the data of later stages may still be
 * built while the run trains.
 *
 * A source that an earlier stage has used goes on after the samples that were used. */
#ifndef TRAIN_STAGE_DATA_H
#define TRAIN_STAGE_DATA_H

#include "data/build/labels.h"
#include "data/order/loader.h"
#include "run/folder.h"
#include "tok/tok.h"
#include "train/course/course.h"
#include "train/guard/watch.h"

typedef struct stage_data {
    const course *course; /* NULL: of a run whose length is not known yet */
    const tok *tok;
    const char *run; /* the folder that files of conversations become shards in (chat_source.h) */
    bool builds;     /* they may be built now */
    bool speaks;     /* of several ranks the one that warns of what all find */
    int32_t vocab_size; /* of the model */
    text_labels labels; /* of labelled texts, by the model's head */
    bool has_encoder;   /* the model: rows have sources */
    bool texts_alone;   /* the model mixes all tokens of a row (soft experts) */
    int32_t decoder_start;
    const watch *watch; /* has the samples that rewinds left out */
    json_t *record;     /* {"origin", "stages": [{"name", "sources": [...]}]} */
    bool record_is_new; /* it has a stage that RUN/data.json does not have yet */
} stage_data;

/* RUN/data.json; an empty record when there is no such file. The caller owns it. */
status stage_data_read(json_t **record, const char *run, err *e) ATH_MUST_USE;
/* Tokens of a source in a row; 0: there are no sources. */
int stage_source_len(const config *c, bool has_encoder);
/* Number of stages that have begun. */
int stage_data_begun(const json_t *record);
/* Of the sequences that a stage has drawn (resample.h); 0: it has all. */
uint64_t stage_data_drawn(const json_t *record, int stage);
course_origin stage_data_origin(const json_t *record);
void stage_data_set_origin(json_t *record, const course_origin *o);

/* Opens the sources of stage `stage`, whose config is `c`. A stage that the record does not know
 * yet is added to it (*is_new): the caller must write the record before it trains on the data.
 * ST_FORMAT: a source is not what it was when the stage began; the error names it. */
status stage_data_open(const stage_data *d, const config *c, int stage, loader **out, bool *is_new,
                       err *e) ATH_MUST_USE;
/* The same sources, as the record has them if the stage has begun, but their sequences in order, each
 * once. Sequence numbers are those of the stage's own loader where samples are whole documents. */
status stage_data_open_in_order(const stage_data *d, const config *c, int stage, loader **out,
                                err *e) ATH_MUST_USE;
/* The sequences of that loader, each once (loader_config.in_turn). */
status stage_data_open_in_turn(const stage_data *d, const config *c, int stage, loader **out,
                               err *e) ATH_MUST_USE;
/* Sequences in one pass over the data of the first stage, for train.epochs; 0 when the config does
 * not set that. The record stays as it is. */
status stage_data_count(const stage_data *d, const config *c, uint64_t *n, err *e) ATH_MUST_USE;
/* Whether data of a stage whose config is c are files of which sets are still to be made. */
bool stage_data_makes(const stage_data *d, const config *c);
/* Opens the validation set; *out NULL when the config has none. */
status stage_data_open_valid(const stage_data *d, const config *c, loader **out,
                             err *e) ATH_MUST_USE;
/* Checks the data of a later stage: what exists must be usable, what does not exist yet is a
 * warning. */
status stage_data_probe(const stage_data *d, const config *c, err *e) ATH_MUST_USE;

/* What events say of source i of a stage. */
typedef struct stage_source {
    const char *path;
    double weight, share;  /* weight in the config; share of the samples */
    uint64_t tokens;       /* of the whole source */
    uint64_t consumed;     /* samples that earlier stages took */
    double passes, budget; /* passes over it by the end of the stage; how many `epochs` allows */
} stage_source;
stage_source stage_data_source(const stage_data *d, const loader *l, const config *c, int stage,
                               int i);

#endif
