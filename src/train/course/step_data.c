#include "train/course/step_data.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "io/checkpoint/checkpoint.h"
#include "model/config_file.h"
#include "model/layer.h"
#include "train/course/stage_data.h"

typedef struct opening {
    arena *mem;
    config *c;
    course *course;
    watch watch;
    stage_data data;
} opening;

/* Reads from the newest checkpoint which samples rewinds left out. */
static status read_gaps(opening *o, const char *run, err *e) {
    char *dir;
    int64_t step;
    json_t *guard;
    TRY(checkpoint_find_newest(o->mem, run, &dir, &step, NULL, NULL, e));
    if (!dir) return ST_OK;
    const char *path = path_join(o->mem, dir, "state/guard.json");
    TRY(json_read_file(&guard, path, JSON_FILE_MAX_BYTES, e));
    status st = watch_from_json(&o->watch, guard, e);
    json_decref(guard);
    return st;
}

/* Whether the run's rows have sources. A model whose base (model.from) is gone says nothing of it: no data needs
 * it but those of an encoder. */
static void read_encoder(opening *o, const step_data *d) {
    model_config mc;
    err unused = {0};
    if (model_config_read(o->mem, o->c->model, tok_vocab_size(d->tok), &mc, &unused) != ST_OK)
        return;
    o->data.has_encoder = mc.num_encoder_layers > 0;
    if (o->data.has_encoder) o->data.decoder_start = model_decoder_start(&mc);
}

static status read_run(opening *o, step_data *d, const char *run, err *e) {
    TRY(run_load_config(&o->c, run, e));
    watch_init(&o->watch, o->c);
    TRY(read_gaps(o, run, e));
    TRY(tok_load(&d->tok, o->c->tokenizer, e));
    o->data = (stage_data){.tok = d->tok, .run = run, .watch = &o->watch};
    read_encoder(o, d);
    return stage_data_read(&o->data.record, run, e);
}

/* Stages that have not begun are added to the record in memory only, in order: a stage may begin
 * with samples behind those that the stage before it will use. */
static status open_stage(opening *o, int stage, loader **out, err *e) {
    int begun = stage_data_begun(o->data.record);
    for (int i = begun < stage ? begun : stage; i <= stage; i++) {
        bool is_new;
        loader_close(*out);
        TRY(stage_data_open(&o->data, o->course->stage[i].c, i, out, &is_new, e));
    }
    return ST_OK;
}

static status fill(opening *o, step_data *d, const char *run, int64_t step, err *e) {
    uint64_t sequences;
    TRY(read_run(o, d, run, e));
    TRY(stage_data_count(&o->data, o->c, &sequences, e));
    course_origin origin = stage_data_origin(o->data.record);
    TRY(course_new(&o->course, o->c, sequences, &origin, e));
    o->data.course = o->course;
    d->total_steps = o->course->total_steps;
    if (step < 1 || step > d->total_steps || step <= origin.step) {
        err_set(e, ST_USAGE, "%s has no step %" PRId64, run, step);
        err_where(e, "--step %" PRId64, step);
        return err_hint(e, "its steps are %" PRId64 " to %" PRId64, origin.step + 1,
                        d->total_steps);
    }
    const course_part *p = course_part_of(o->course, step);
    const course_stage *k = &o->course->stage[p->stage];
    d->stage = p->stage;
    d->stage_name = xstrdup(k->name);
    d->T = k->T;
    d->n_samples = p->batch;
    d->document_mask = k->c->data.document_mask;
    d->first_sample = watch_move(&o->watch, p->stage, course_first_sample(o->course, step));
    return open_stage(o, p->stage, &d->loader, e);
}

status step_data_open(step_data **out, const char *run, int64_t step, err *e) {
    step_data *d = xcalloc(1, sizeof *d);
    opening o = {.mem = arena_new("data of a step")};
    status st = fill(&o, d, run, step, e);
    json_decref(o.data.record);
    watch_free(&o.watch);
    course_free(o.course);
    config_free(o.c);
    arena_free(o.mem);
    if (st == ST_OK)
        *out = d;
    else
        step_data_close(d);
    return st;
}

void step_data_close(step_data *d) {
    if (!d) return;
    loader_close(d->loader);
    tok_free(d->tok);
    free((char *)d->stage_name);
    free(d);
}
