/* Shortens a config; see the header. Works on its JSON form, where a stage's changes look like the
 * config itself. */
#include "app/verify/resume_trial.h"

#include "data/shard/shards.h"

enum { LEAST_STAGE_STEPS = 2, VALID_BATCHES = 2 };

static int64_t max_int(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* About how many sequences the data have; packings other than concat make another number. */
static status count_sequences(const config *c, uint64_t *n, err *e) {
    *n = 0;
    for (int i = 0; i < c->data.train.n; i++) {
        const config_source *from = &c->data.train.items[i];
        shards_spec spec = {.path = from->path, .format = (shards_format)from->format, .eos = -1};
        shards *s;
        TRY(shards_open(&s, &spec, e));
        *n += s->totals.tokens / (uint64_t)c->train.seq_len;
        shards_close(s);
    }
    return ST_OK;
}

status resume_trial_course(course **out, const config *c, err *e) {
    uint64_t sequences = 0;
    if (c->train.epochs > 0) TRY(count_sequences(c, &sequences, e));
    return course_new(out, c, sequences, NULL, e);
}

int64_t resume_trial_least_steps(const course *whole) {
    return LEAST_STAGE_STEPS * whole->n_stages;
}

/* ---- scaling ---- */

typedef struct trial_scale {
    int64_t steps, length; /* of the trial and of the run */
} trial_scale;

/* A number of steps, scaled to the length of the trial; it stays above zero unless it is zero. */
static int64_t scale_steps(const trial_scale *sc, int64_t steps) {
    if (steps <= 0 || sc->steps >= sc->length) return steps;
    return max_int((int64_t)((double)steps * (double)sc->steps / (double)sc->length + 0.5), 1);
}

static void scale_member(const trial_scale *sc, json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value))
        json_object_set_new(object, key, json_integer(scale_steps(sc, json_integer_value(value))));
}

/* Milestones must increase, also where scaling brings two together. */
static void scale_milestones(const trial_scale *sc, json_t *list) {
    int64_t last = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t step = scale_steps(sc, json_integer_value(json_array_get(list, i)));
        last = max_int(step, last + (i > 0));
        json_array_set_new(list, i, json_integer(last));
    }
}

/* The steps of a config or of a stage's changes. */
static void scale_keys(const trial_scale *sc, const json_t *object) {
    json_t *rate = json_object_get(json_object_get(object, "optim"), "schedule");
    scale_member(sc, rate, "warmup_steps");
    scale_member(sc, rate, "decay_steps");
    scale_milestones(sc, json_object_get(rate, "milestones"));
    scale_member(sc, json_object_get(json_object_get(object, "train"), "batch_ramp"), "every");
}

/* Each stage ends at its scaled last step, but leaves some steps to each stage that follows; the
 * last one ends with the run. Stages that the run does not reach are removed. */
static void scale_stages(const trial_scale *sc, const course *whole, json_t *list) {
    int64_t n = whole->n_stages, last = 0;
    while (json_array_size(list) > (size_t)n) json_array_remove(list, (size_t)n);
    for (int64_t i = 0; i < (int64_t)json_array_size(list); i++) {
        json_t *stage = json_array_get(list, (size_t)i);
        scale_keys(sc, stage);
        int64_t end = scale_steps(sc, whole->stage[i].last_step);
        int64_t most = sc->steps - LEAST_STAGE_STEPS * (n - 1 - i);
        if (sc->steps < sc->length) end = max_int(end, last + LEAST_STAGE_STEPS);
        if (sc->steps < sc->length && end > most) end = most;
        json_object_set_new(stage, "until", json_pack("{s:I}", "steps", (json_int_t)end));
        last = end;
    }
}

/* ---- what decides no weights ---- */

static void put(json_t *root, const char *group, const char *key, json_t *value) {
    json_object_set_new(json_object_get(root, group), key, value);
}

static void set_length(json_t *root, int64_t steps) {
    put(root, "train", "steps", json_integer(steps));
    put(root, "train", "tokens", json_null());
    put(root, "train", "epochs", json_null());
    put(root, "train", "digest_every", json_integer(1));
    put(root, "train", "log_every", json_integer(1));
}

static void set_checkpoints(json_t *root, int64_t save_every) {
    put(root, "checkpoint", "every", json_integer(save_every));
    put(root, "checkpoint", "every_minutes", json_integer(0));
    put(root, "checkpoint", "keep", json_integer(2));
    put(root, "checkpoint", "keep_every", json_integer(0));
    put(root, "checkpoint", "keep_best", json_integer(0));
    put(root, "checkpoint", "upload", json_null());
}

static void quieten(json_t *root, const config *c, int64_t save_every) {
    bool few = c->eval.batches > 0 && c->eval.batches < VALID_BATCHES;
    put(root, "eval", "every", json_integer(2 * save_every));
    put(root, "eval", "batches", json_integer(few ? c->eval.batches : VALID_BATCHES));
    put(root, "eval", "patience", json_integer(0));
    put(root, "sample", "prompts", json_array());
    if (c->guard.action == CONFIG_GUARD_REWIND) put(root, "guard", "action", json_string("log"));
}

json_t *resume_trial_config(const config *c, const course *whole, const char *run, int64_t steps,
                            int64_t save_every) {
    trial_scale sc = {steps, whole->total_steps};
    json_t *root = config_to_json(c);
    json_object_set_new(root, "run", json_string(run));
    scale_keys(&sc, root);
    scale_stages(&sc, whole, json_object_get(root, "stages"));
    set_length(root, steps);
    set_checkpoints(root, save_every);
    quieten(root, c, save_every);
    return root;
}
