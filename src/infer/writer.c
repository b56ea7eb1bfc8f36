/* Writing many texts (see writer.h).
 *
 * Reading order: writer_run, step, begin_next. */
#include "infer/writer.h"

#include <stdlib.h>

#include "base/arena.h"

/* A slot and what is written in it. */
typedef struct lane {
    generation *text; /* NULL: idle */
    int64_t item;
} lane;

typedef struct writing {
    scorer *s;
    const generate_limits *limits;
    write_item *items;
    int64_t n, next; /* the first one that has not begun */
    lane *lanes;     /* [writes]; the first is idle, prompts are computed in its slot */
    int n_lanes, busy;
    pick_rule *rule; /* [n_lanes] */
    int32_t *picked; /* [n_lanes] */
    write_done done;
    void *ctx;
} writing;

static status stopped(err *e) {
    return err_set(e, ST_STOPPED, "stopped by a signal");
}

/* The next prompt, without its last token, into the slot of a lane. */
static status begin_next(writing *w, int i, err *e) {
    lane *l = &w->lanes[i];
    write_item *item = &w->items[w->next];
    l->item = w->next++;
    TRY(generation_begin(&l->text, &item->rq, w->limits, &item->ids, &item->text, &item->result,
                         e));
    w->busy++;
    bool whole =
        scorer_fill_slot(w->s, i, item->rq.prompt, item->rq.n_prompt - 1, item->rq.interrupt);
    return whole ? ST_OK : stopped(e);
}

static status end_text(writing *w, lane *l, err *e) {
    TRY(generation_end(l->text, e));
    generation_free(l->text);
    l->text = NULL;
    w->busy--;
    return w->done ? w->done(w->ctx, l->item, e) : ST_OK;
}

static bool is_interrupted(const writing *w) {
    for (int i = 1; i < w->n_lanes; i++) {
        const lane *l = &w->lanes[i];
        if (l->text && w->items[l->item].rq.interrupt && *w->items[l->item].rq.interrupt)
            return true;
    }
    return false;
}

/* Whether the device may pick for all lanes. */
static bool find_rules(const writing *w) {
    if (!scorer_picks(w->s)) return false;
    for (int i = 0; i < w->n_lanes; i++) {
        const generation *text = w->lanes[i].text;
        w->rule[i] = (pick_rule){.top_p = 1}; /* of an idle lane */
        if (text && !generation_rule(text, generation_ids(text)->n, &w->rule[i])) return false;
    }
    return true;
}

/* The next token of each text. */
static status step(writing *w, err *e) {
    for (int i = 0; i < w->n_lanes; i++) {
        const tok_ids *ids = w->lanes[i].text ? generation_ids(w->lanes[i].text) : NULL;
        scorer_set_next(w->s, i, ids ? ids->id[ids->n - 1] : -1);
    }
    if (is_interrupted(w)) return stopped(e);
    scorer_write(w->s);
    bool by_rule = find_rules(w);
    if (by_rule) scorer_pick(w->s, w->limits->vocab, w->limits->n_ids, w->rule, w->picked);
    float *logits = by_rule ? NULL : scorer_written(w->s);
    for (int i = 1; i < w->n_lanes; i++) {
        bool ended;
        if (!w->lanes[i].text) continue;
        if (by_rule)
            TRY(generation_take_id(w->lanes[i].text, w->picked[i], &ended, e));
        else
            TRY(generation_take(w->lanes[i].text, logits + (int64_t)i * w->limits->vocab, &ended,
                                e));
        if (ended) TRY(end_text(w, &w->lanes[i], e));
    }
    return ST_OK;
}

static status write_all(writing *w, err *e) {
    while (w->next < w->n || w->busy) {
        for (int i = 1; i < w->n_lanes && w->next < w->n; i++)
            if (!w->lanes[i].text) TRY(begin_next(w, i, e));
        TRY(step(w, e));
    }
    return ST_OK;
}

status writer_run(scorer *s, const generate_limits *limits, write_item *items, int64_t n,
                  write_done done, void *ctx, err *e) {
    const scorer_size *size = scorer_get_size(s);
    CHECK(size->writes > 1 && limits->Tmax <= size->longest, "%d lanes, %d tokens", size->writes,
          limits->Tmax);
    writing w = {.s = s,
                 .limits = limits,
                 .items = items,
                 .n = n,
                 .n_lanes = size->writes,
                 .done = done,
                 .ctx = ctx};
    w.lanes = xcalloc((size_t)w.n_lanes, sizeof *w.lanes);
    w.rule = xcalloc((size_t)w.n_lanes, sizeof *w.rule);
    w.picked = xcalloc((size_t)w.n_lanes, sizeof *w.picked);
    status st = write_all(&w, e);
    for (int i = 0; i < w.n_lanes; i++) generation_free(w.lanes[i].text);
    free(w.lanes);
    free(w.rule);
    free(w.picked);
    return st;
}

void write_items_free(write_item *items, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        tok_ids_free(&items[i].ids);
        strbuf_free(&items[i].text);
    }
    free(items);
}
