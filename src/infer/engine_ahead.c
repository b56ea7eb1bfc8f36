/* The model's own module of multi-token prediction (model/ahead.c) tries the next token of texts.
 *
 * Its cache has a row for each position of a text whose next token is known. A pass brings such rows, and they go
 * through the module as soon as the pass has been looked at: what it says after the last of a text is the token
 * behind the one that was picked just now. Further modules are not asked.
 *
 * A module costs time whether it is right or not. A trial finds out how much: some of the passes over a text go
 * without a guess, and each kind is timed. Where the module does not pay, it rests, and is tried again with a later
 * text. The clock decides only what is tried, never what is written.
 *
 * Reading order: pass_look_ahead, keep_known, guess; trial_time, judge. */
#include "base/clock.h"
#include "infer/engine_int.h"

enum {
    TRIAL_GUESSES = 32,
    TRIAL_PLAIN = 3,    /* one pass of so many goes without a guess */
    TRIAL_EVERY = 2048, /* new tokens from one trial to the next */
};

/* ---- whether it pays ---- */

engine_cost engine_get_cost(const engine *en) {
    return en->trial.last;
}

static void judge(engine *en) {
    ahead_trial *k = &en->trial;
    engine_cost cost = {.plain_ms = (double)k->plain_ns * 1e-6,
                        .tried_ms = (double)k->tried_ns * 1e-6,
                        .module_ms = (double)k->module_ns * 1e-6,
                        .right = (double)k->n_right / k->n_known};
    cost.pays = cost.tried_ms + cost.module_ms < (1 + cost.right) * cost.plain_ms;
    *k = (ahead_trial){.is_over = true,
                       .pays = cost.pays,
                       .again_at = en->load.new_tokens + TRIAL_EVERY,
                       .last = cost};
}

void trial_learn(engine *en, bool right) {
    ahead_trial *k = &en->trial;
    if (k->is_over) return;
    k->n_known++;
    k->n_right += right;
    if (k->n_known >= TRIAL_GUESSES && k->plain_ns && k->tried_ns && k->module_ns) judge(en);
}

static void keep_shortest(int64_t *shortest, int64_t ns) {
    if (*shortest == 0 || ns < *shortest) *shortest = ns;
}

void trial_time(engine *en, int n, bool tried, int64_t ns) {
    ahead_trial *k = &en->trial;
    if (!en->ahead_body[0].p || k->is_over || n != (tried ? 2 : 1)) return;
    keep_shortest(tried ? &k->tried_ns : &k->plain_ns, ns);
    *(tried ? &k->n_tried : &k->n_plain) += 1;
}

static bool rests(const engine *en) {
    return en->size.timed && en->trial.is_over && !en->trial.pays;
}

/* A pass without a guess has its turn in a trial. */
static bool skips(const engine *en) {
    const ahead_trial *k = &en->trial;
    return en->size.timed && !k->is_over && en->n_running == 1 &&
           k->n_plain * (TRIAL_PLAIN - 1) < k->n_tried;
}

/* The row belongs to its text, and the token behind it is known. */
static bool is_known(const engine *en, int n) {
    const text *t = en->pass.of[n];
    if (!t) return false;
    const tok_ids *seq = generation_ids(t->writing);
    int64_t pos = en->pass.pos[n];
    return pos < t->done && pos + 1 < seq->n && seq->id[pos] == en->pass.ids[n];
}

/* Leaves the known rows in the pass, each with the token behind it; rows[] gets where they were. */
static void keep_known(engine *en, int32_t *rows) {
    pass *p = &en->pass;
    int kept = 0;
    for (int n = 0; n < p->n; n++) {
        if (!is_known(en, n)) continue;
        rows[kept] = n;
        p->of[kept] = p->of[n];
        p->pos[kept] = p->pos[n];
        p->at[kept] = p->at[n];
        p->place[2 * kept] = p->place[2 * n], p->place[2 * kept + 1] = p->place[2 * n + 1];
        p->ids[kept] = generation_ids(p->of[n]->writing)->id[p->pos[n] + 1];
        kept++;
    }
    p->n = kept;
}

/* Whether the text's pace has the module asked; in a trial it always is. */
static bool is_asked(const engine *en, text *t) {
    if (t->unseen) return false;
    return (en->size.timed && !en->trial.is_over) || draft_next_length(&t->by_module) > 0;
}

/* Texts whose next token is tried: those that are being written, as long as there is room, at their own pace.
 * Returns how many; rows[] gets their last rows. */
static int choose(engine *en, int32_t *rows) {
    pass *p = &en->pass;
    int room = en->size.draft, n = 0;
    for (int i = 0; i < en->n_running; i++)
        room -= en->running[i]->done >= en->running[i]->rq.rq.n_prompt;
    for (int i = 0; i < p->n && n < room; i++) {
        text *t = p->of[i];
        bool last = p->pos[i] + 1 == t->done && t->done >= t->rq.rq.n_prompt;
        if (last && is_asked(en, t)) rows[n++] = i;
    }
    return n;
}

static void guess(engine *en, const engine_program *body, const int32_t *rows, int n) {
    const engine_program *g = pass_program(en->ahead_head, n);
    pass_rows_to(en, g->p, g->x, body, rows, n);
    pass_replay(en, g);
    const float *logits =
        dev_look(en->dev, prog_port_at(g->p, 0, g->logits), (size_t)g->logits.bytes, &en->room);
    for (int i = 0; i < n; i++) {
        text *t = en->pass.of[rows[i]];
        t->guess = draft_most_likely(logits + (int64_t)i * en->limits.vocab, en->limits.n_ids);
        t->guess_at = generation_ids(t->writing)->n;
    }
}

/* The module knows nothing of texts that it has not followed from their beginning. */
static void pass_by(engine *en) {
    for (int i = 0; i < en->n_running; i++) en->running[i]->unseen = true;
}

static void begin_trial(engine *en) {
    if (en->trial.is_over && en->load.new_tokens >= en->trial.again_at)
        en->trial = (ahead_trial){.last = en->trial.last};
}

void pass_look_ahead(engine *en, const engine_program *body) {
    pass *p = &en->pass;
    int32_t *rows = p->wanted; /* what it held has been looked at */
    int64_t began = clock_now_ns();
    if (rests(en)) pass_by(en);
    begin_trial(en);
    if (rests(en)) return;
    keep_known(en, rows);
    if (p->n == 0) return;
    const engine_program *g = pass_program(en->ahead_body, p->n);
    pass_rows_to(en, g->p, g->x, body, rows, p->n);
    pass_pad(p, g->rows);
    pass_put(en, g);
    pass_replay(en, g);
    int n = skips(en) ? 0 : choose(en, rows);
    if (n == 0) return;
    guess(en, g, rows, n);
    if (p->n <= 2 && !en->trial.is_over)
        keep_shortest(&en->trial.module_ns, clock_now_ns() - began);
}
