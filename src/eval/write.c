/* Writing answers (see write.h).
 *
 * Reading order: eval_write_answers, eval_write, write_rest. */
#include "eval/write.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "eval/answer.h"
#include "eval/encode.h"
#include "eval/ifeval.h"

/* ---- wanted texts ---- */

/* What decides a text: the prompt, how it is sampled, and where it ends. */
static void key_of(const eval_journal *j, const eval_want *want, char key[17]) {
    const sample_options *s = &want->sample;
    strbuf all = {0};
    strbuf_append(&all, want->prompt->id, (size_t)want->prompt->n * sizeof *want->prompt->id);
    strbuf_printf(&all, "%c%ld", 0, (long)want->max_new);
    if (s->temperature > 0)
        strbuf_printf(&all, "%c%.17g %d %.17g %.17g %lu", 0, s->temperature, s->top_k, s->top_p,
                      s->min_p, (unsigned long)s->seed);
    for (int i = 0; i < want->n_until; i++) strbuf_printf(&all, "%c%s", 0, want->until[i]);
    eval_journal_key(j, all.data, all.len, key);
    strbuf_free(&all);
}

static bool is_known(const eval_writer *w, eval_task *t, eval_want *want) {
    char key[17];
    if (!w->journal) return false;
    key_of(w->journal, want, key);
    const json_t *known = eval_journal_find(w->journal, key), *text = json_array_get(known, 0);
    if (!json_is_string(text)) return false;
    want->text = eval_keep_result(t, json_string_value(text), json_string_length(text));
    want->ended = json_integer_value(json_array_get(known, 1));
    return true;
}

/* What is written of the list, and what it belongs to. */
typedef struct page {
    const eval_writer *w;
    eval_task *t;
    eval_want **want; /* [n] */
    write_item *item; /* [n] */
    int64_t n, done, all;
} page;

/* Characters: the last one may have been cut. */
static eval_text keep_written(eval_task *t, const strbuf *text) {
    strbuf whole = {0};
    utf8_append(&whole, strbuf_cstr(text), text->len);
    eval_text kept = eval_keep_result(t, strbuf_cstr(&whole), whole.len);
    strbuf_free(&whole);
    return kept;
}

static status take_written(void *ctx, int64_t i, err *e) {
    page *p = ctx;
    const write_item *item = &p->item[i];
    eval_want *want = p->want[i];
    char key[17];
    want->text = keep_written(p->t, &item->text);
    want->ended = item->result.finish == FINISH_END || item->result.finish == FINISH_STOP;
    if (p->w->progress) p->w->progress(p->w->progress_ctx, ++p->done, p->all);
    if (!p->w->journal) return ST_OK;
    key_of(p->w->journal, want, key);
    eval_journal_put(p->w->journal, key, "written",
                     json_pack("[o,i]", json_text(want->text.s, want->text.len), want->ended));
    return eval_journal_flush(p->w->journal, e);
}

static generate_request request_of(const eval_writer *w, const eval_want *want) {
    return (generate_request){.prompt = want->prompt->id,
                              .n_prompt = want->prompt->n,
                              .max_new = want->max_new,
                              .sample = want->sample,
                              .end = want->end->id,
                              .n_end = want->end->n,
                              .tok = w->tok,
                              .stop = (const char *const *)want->until,
                              .n_stop = want->n_until,
                              .interrupt = w->interrupt};
}

status eval_write(const eval_writer *w, eval_task *t, eval_want *wants, int64_t n, err *e) {
    page p = {.w = w, .t = t, .all = n};
    p.want = xcalloc((size_t)n + 1, sizeof *p.want);
    p.item = xcalloc((size_t)n + 1, sizeof *p.item);
    for (int64_t i = 0; i < n; i++) {
        if (is_known(w, t, &wants[i])) continue;
        p.item[p.n].rq = request_of(w, &wants[i]);
        p.want[p.n++] = &wants[i];
    }
    p.done = n - p.n;
    status st = w->write(w->ctx, &w->limits, p.item, p.n, take_written, &p, e);
    write_items_free(p.item, p.n);
    free(p.want);
    return st;
}

/* ---- prompts ---- */

/* The prompt as what a user says, in the template of the model. */
static status render_prompt(const eval_writer *w, const eval_doc *d, strbuf *out, err *e) {
    json_t *messages = json_array(), *text = json_text(d->prompt.s, d->prompt.len);
    if (!w->template) {
        json_decref(messages);
        json_decref(text);
        return err_set(e, ST_USAGE, "the model has no chat template, and --chat asks for one");
    }
    if (w->system)
        json_array_append_new(
            messages, json_pack("{s:s,s:o}", "role", "system", "content", json_cstr(w->system)));
    json_array_append_new(messages, json_pack("{s:s,s:o}", "role", "user", "content", text));
    chat_request q = {.messages = messages, .add_generation_prompt = true};
    status st = chat_render(w->template, &q, out, NULL, e);
    json_decref(messages);
    return st;
}

status eval_encode_prompt_of(const eval_writer *w, eval_task *t, eval_doc *d, int64_t most,
                             tok_ids *out, err *e) {
    strbuf text = {0};
    status st;
    d->seen = d->prompt;
    if (!w->chat) return eval_encode_prompt(w->tok, w->eos, d->prompt, most, out, e);
    st = render_prompt(w, d, &text, e);
    if (st == ST_OK) d->seen = eval_keep_result(t, strbuf_cstr(&text), text.len);
    strbuf_free(&text);
    if (st == ST_OK) st = tok_encode(w->tok, d->seen.s, d->seen.len, 0, out, e);
    if (st == ST_OK && out->n > most)
        st = err_set(e, ST_USAGE, "the prompt has %ld tokens, and there is room for %ld",
                     (long)out->n, (long)most);
    return st == ST_OK ? ST_OK : err_where(e, "%s:%ld", d->file, (long)d->line);
}

/* ---- answers ---- */

int64_t eval_texts(const eval_task *t) {
    return (int64_t)t->n * t->repeats;
}

sample_options eval_sampling(const eval_task *t, eval_text seen, int k) {
    sample_options s = t->sample;
    s.seed = sample_seed(hash_bytes(seen.s, seen.len), k + 1);
    return s;
}

static status find_all(eval_task *t, const eval_want *wants, err *e) {
    for (int32_t i = 0; i < t->n; i++) {
        eval_doc *d = &t->doc[i];
        d->attempt = ARENA_ARRAY(t->made, eval_attempt, t->repeats);
        for (int k = 0; k < t->repeats; k++) {
            const eval_want *want = &wants[i * t->repeats + k];
            d->attempt[k] = (eval_attempt){.written = want->text, .ended = want->ended};
            TRY(eval_find_answers(t, d, &d->attempt[k], e));
            if (d->ifeval)
                TRY(eval_ifeval_judge(d->ifeval, *d->attempt[k].answer, &d->attempt[k].strict,
                                      &d->attempt[k].loose, e));
        }
    }
    return ST_OK;
}

status eval_write_answers(const eval_writer *w, eval_task *t, err *e) {
    int64_t n = eval_texts(t);
    tok_ids *prompt = xcalloc((size_t)t->n, sizeof *prompt);
    eval_want *wants = xcalloc((size_t)n, sizeof *wants);
    status st = ST_OK;
    for (int32_t i = 0; st == ST_OK && i < t->n; i++) {
        st = eval_encode_prompt_of(w, t, &t->doc[i], w->limits.Tmax - t->max_new, &prompt[i], e);
        for (int k = 0; k < t->repeats; k++)
            wants[i * t->repeats + k] = (eval_want){.prompt = &prompt[i],
                                                    .end = &w->settings->end,
                                                    .max_new = t->max_new,
                                                    .sample = eval_sampling(t, t->doc[i].seen, k),
                                                    .until = t->until,
                                                    .n_until = t->n_until};
    }
    if (st == ST_OK) st = eval_write(w, t, wants, n, e);
    if (st == ST_OK) st = find_all(t, wants, e);
    for (int32_t i = 0; i < t->n; i++) tok_ids_free(&prompt[i]);
    free(prompt);
    free(wants);
    return st;
}
