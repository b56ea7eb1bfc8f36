/* See origins.h. */
#include "train/save/origins.h"

#include "base/json.h"
#include "interchange/card.h"
#include "interchange/ledger.h"
#include "io/checkpoint/checkpoint.h"
#include "io/safetensors/safetensors.h"

static status add_model(json_t *parents, const char *role, const char *path, err *e) {
    json_t *parent;
    if (!path) return ST_OK;
    TRY(ledger_read_parent(role, path, "a Hugging Face folder", &parent, e));
    json_array_append_new(parents, parent);
    return ST_OK;
}

status origins_open(session *s, err *e) {
    const setup *u = &s->setup;
    const char *from = u->models[0].from, *reference = u->c->train.reference;
    if (s->at.step > 0) {
        json_t *old = ledger_read(checkpoint_path(u->a, u->c->run, s->at.step));
        s->parents = json_incref(json_object_get(old, "parents"));
        json_decref(old);
        if (s->parents) return ST_OK;
    }
    s->parents = json_array();
    TRY(add_model(s->parents, "base", from, e));
    if (u->c->distill.teacher) return add_model(s->parents, "teacher", u->c->distill.teacher, e);
    return u->objective->reference ? add_model(s->parents, "reference", reference, e) : ST_OK;
}

/* A stage that has begun, as far as it has come. */
static json_t *stage_json(const session *s, int i) {
    const course_stage *k = &s->setup.course->stage[i];
    const json_t *record = json_array_get(json_object_get(s->data.record, "stages"), (size_t)i);
    json_t *sources = json_deep_copy(json_object_get(record, "sources"));
    for (int j = 0; j < k->c->data.train.n; j++) {
        json_t *source = json_array_get(sources, (size_t)j);
        if (!source) continue;
        const config_source *given = &k->c->data.train.items[j];
        json_object_set_new(source, "weight", json_f64(given->weight));
        json_object_set_new(source, "given", json_cstr(given->path));
    }
    int64_t last = k->last_step < s->at.step ? k->last_step : s->at.step;
    return json_pack("{s:s, s:I, s:I, s:s, s:o}", "name", k->name[0] ? k->name : "training",
                     "first_step", (json_int_t)k->first_step, "last_step", (json_int_t)last,
                     "objective", s->setup.objective->name, "sources",
                     sources ? sources : json_array());
}

json_t *origins_ledger(const session *s) {
    const setup *u = &s->setup;
    json_t *ledger = ledger_new("run"), *stages = json_array(), *c = config_to_json(u->c);
    for (int i = 0; i < stage_data_begun(s->data.record) && i < u->course->n_stages; i++)
        if (u->course->stage[i].first_step <= s->at.step)
            json_array_append_new(stages, stage_json(s, i));
    json_object_del(c, "parallel"); /* says where it ran, not what was computed */
    if (s->parents) json_object_set_new(ledger, "parents", json_deep_copy(s->parents));
    json_t *run = json_pack("{s:I, s:I, s:o, s:o, s:o}", "steps", (json_int_t)s->at.step, "tokens",
                            (json_int_t)s->at.tokens, "val_loss", json_f32(s->at.val_loss),
                            "stages", stages, "config", c);
    json_object_set_new(ledger, "run", run);
    return ledger;
}

status origins_write_card(const save_job *j, const char *dir, err *e) {
    card c = {.name = arena_printf(j->mem, "%s, step %lld", path_base(path_plain(j->mem, j->run)),
                                   (long long)j->step),
              .config = &j->model,
              .params = param_store_sizes(param_store_whole(j->store)).elems,
              .format = st_format_name(j->compute),
              .made = "trained",
              .ledger = j->ledger};
    return card_write(&c, dir, NULL, e);
}
