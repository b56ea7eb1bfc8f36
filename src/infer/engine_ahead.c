/* The model's own module of multi-token prediction (model/ahead.c) tries the next token of texts.
 *
 * Its cache has a row for each position of a text whose next token is known. A pass brings such rows, and they go
 * through the module as soon as the pass has been looked at: what it says after the last of a text is the token
 * behind the one that was picked just now. Further modules are not asked.
 *
 * Reading order: pass_look_ahead, keep_known, guess. */
#include "infer/engine_int.h"

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
        if (last && draft_next_length(&t->by_module) > 0) rows[n++] = i;
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

void pass_look_ahead(engine *en, const engine_program *body) {
    pass *p = &en->pass;
    int32_t *rows = p->wanted; /* what it held has been looked at */
    keep_known(en, rows);
    if (p->n == 0) return;
    const engine_program *g = pass_program(en->ahead_body, p->n);
    pass_rows_to(en, g->p, g->x, body, rows, p->n);
    pass_pad(p, g->rows);
    pass_put(en, g);
    pass_replay(en, g);
    int n = choose(en, rows);
    if (n > 0) guess(en, g, rows, n);
}
