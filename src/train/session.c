#include "train/session.h"

#include "train/save/state.h"

status session_open(session *s, err *e) {
    s->at = cursor_start();
    stage_init(&s->stage);
    watch_init(&s->watch, s->setup.c);
    s->journal = (journal){.speaks = setup_leads(&s->setup), .opt = s->opt, .late = json_array()};
    TRY(setup_open_tokenizer(&s->setup, &s->data, e));
    loss_scale_init(&s->scale, s->setup.c); /* the precision is known now */
    s->data.watch = &s->watch;
    return ST_OK;
}

status session_open_course(session *s, uint64_t epoch_sequences, const course_origin *origin,
                           err *e) {
    TRY(setup_open_course(&s->setup, epoch_sequences, origin, e));
    s->data.course = s->setup.course;
    routers_init(&s->routers, s->setup.a, &s->setup.models[0]);
    return ST_OK;
}

void session_close(session *s) {
    if (!s->setup.a) return; /* never opened */
    state_abandon(&s->saving);
    upload_free(s->saving.upload);
    peers_settle(&s->setup.peers);
    trace_free(s->trace);
    metrics_close(s->journal.metrics);
    json_decref(s->journal.late);
    run_close(s->folder);
    stage_close(&s->stage);
    json_decref(s->data.record);
    json_decref(s->parents);
    watch_free(&s->watch);
    setup_close(&s->setup);
}

status journal_open(journal *j, const char *run, int64_t step, err *e) {
    if (!j->speaks) return ST_OK;
    metrics_close(j->metrics);
    j->metrics = NULL;
    TRY(metrics_truncate_after(run, step, e));
    return metrics_open(&j->metrics, run, e);
}
