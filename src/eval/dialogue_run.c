/* Running dialogues: each turn of all of them is written together (see dialogue.h, write.h).
 *
 * Beside the rules stands what can be known without a model: whether the chat template hands on what
 * a dialogue is about. A word that is added to the system prompt must show in what the model sees,
 * and a switch that is turned over (/think to /no_think, a variable from true to false) must change
 * it, at every turn.
 *
 * Reading order: eval_write_dialogues, write_turn, talk_until, look_at_template. */
#include <stdlib.h>
#include <string.h>

#include "eval/answer.h"
#include "eval/dialogue.h"
#include "eval/write.h"
#include "infer/conversation.h"

/* ---- the conversation so far ---- */

typedef enum variant { AS_IS, MARKED_SYSTEM, TURNED_SWITCHES } variant;
static const char mark[] = "QUOXABEL";

/* Appends a text with /think for /no_think and the other way round; false: it has none. */
static bool turn_switches(const char *s, strbuf *out) {
    bool found = false;
    while (*s) {
        bool off = strncmp(s, "/no_think", 9) == 0, on = strncmp(s, "/think", 6) == 0;
        if (!off && !on) {
            strbuf_putc(out, *s++);
            continue;
        }
        strbuf_puts(out, off ? "/think" : "/no_think");
        s += off ? 9 : 6;
        found = true;
    }
    return found;
}

static bool set_system(conversation *c, const char *system, variant v) {
    strbuf s = {0};
    bool turned = false;
    if (!system) return false;
    if (v == TURNED_SWITCHES)
        turned = turn_switches(system, &s);
    else
        strbuf_printf(&s, "%s%s%s", system, v == MARKED_SYSTEM ? " " : "",
                      v == MARKED_SYSTEM ? mark : "");
    conversation_set_system(c, strbuf_cstr(&s));
    strbuf_free(&s);
    return turned;
}

static bool set_variables(conversation *c, const json_t *variables, variant v) {
    const char *key;
    json_t *value;
    bool turned = false;
    json_object_foreach((json_t *)variables, key, value) {
        bool turn = v == TURNED_SWITCHES && json_is_boolean(value);
        json_object_set_new(c->variables, key,
                            turn ? json_boolean(!json_is_true(value)) : json_incref(value));
        turned |= turn;
    }
    return turned;
}

/* The conversation up to what is said in turn `last`. *turned: it has switches. */
static void talk_until(const eval_writer *w, const eval_dialogue *d, int last, variant v,
                       conversation *c, bool *turned) {
    conversation_init(c, NULL, w->tok, w->template, w->settings);
    c->Tmax = w->limits.Tmax;
    *turned = set_system(c, d->system, v);
    *turned |= set_variables(c, d->variables, v);
    for (int i = 0; i <= last; i++) {
        const eval_turn *k = &d->turn[i];
        *turned |= set_variables(c, k->variables, v);
        conversation_add(c, k->role, k->said.s, k->said.len);
        if (i < last) conversation_add(c, "assistant", k->written.s, k->written.len);
    }
}

/* What the model sees at a turn. *fits: all turns before it are there. */
static status see(const eval_writer *w, const eval_task *t, const eval_dialogue *d, int last,
                  tok_ids *ids, strbuf *text, tok_ids *end, bool *fits, err *e) {
    conversation c;
    int64_t dropped = 0;
    bool turned;
    talk_until(w, d, last, AS_IS, &c, &turned);
    status st = conversation_prompt(&c, t->max_new, ids, text, &dropped, e);
    *fits = dropped == 0;
    if (end) *end = c.end, c.end = (tok_ids){0};
    conversation_free(&c);
    return st;
}

/* ---- templates ---- */

static status render(const eval_writer *w, const eval_dialogue *d, int last, variant v,
                     strbuf *text, bool *turned, err *e) {
    conversation c;
    talk_until(w, d, last, v, &c, turned);
    status st = conversation_render(&c, text, e);
    conversation_free(&c);
    return st;
}

/* What of the dialogue the template does not hand on at this turn. */
static status look_at_template(const eval_writer *w, eval_dialogue *d, int turn, err *e) {
    strbuf text = {0};
    bool turned = false;
    status st = ST_OK;
    if (d->lost) return ST_OK;
    d->lost_at = turn;
    if (d->system) {
        st = render(w, d, turn, MARKED_SYSTEM, &text, &turned, e);
        if (st == ST_OK && !strstr(strbuf_cstr(&text), mark)) d->lost = "drops the system prompt";
    }
    if (st == ST_OK && !d->lost) {
        st = render(w, d, turn, TURNED_SWITCHES, &text, &turned, e);
        eval_text seen = d->turn[turn].seen;
        bool same = text.len == seen.len && memcmp(strbuf_cstr(&text), seen.s, seen.len) == 0;
        if (st == ST_OK && turned && same) d->lost = "loses the switch";
    }
    strbuf_free(&text);
    return st;
}

static bool knows_thinking(const chat_template *t) {
    static const char *const words[] = {"enable_thinking", "/no_think", "/think", "<think>"};
    for (int i = 0; i < ARRAY_LEN(words); i++)
        if (chat_mentions(t, words[i])) return true;
    return false;
}

static void leave_out(const eval_writer *w, eval_dialogue *d) {
    d->lost = d->left_out = NULL;
    d->is_cut = false;
    if (!d->needs) return;
    if (strcmp(d->needs, "tools") == 0 && !chat_mentions(w->template, "tools"))
        d->left_out = "the chat template knows no tools";
    if (strcmp(d->needs, "thinking") == 0 && !knows_thinking(w->template))
        d->left_out = "the chat template knows no thinking";
}

/* ---- turns ---- */

/* What is wanted of the dialogues for a turn. */
typedef struct turn_page {
    eval_want *want;
    tok_ids *prompt, *end;
    eval_doc **doc;
    int64_t n;
} turn_page;

static status name_doc(const eval_doc *d, err *e) {
    return *e->where ? e->code : err_where(e, "%s:%ld", d->file, (long)d->line);
}

/* The model has filled its context: it fails this turn and those after it. */
static void cut_short(eval_dialogue *d, int turn) {
    d->is_cut = true;
    for (int i = turn; i < d->n_turns; i++) {
        eval_turn *k = &d->turn[i];
        k->rule[k->n_rules] = (eval_rule){.kind = RULE_FITS}; /* there is room behind the last */
        k->failed = k->n_rules;
    }
}

static status ask(const eval_writer *w, eval_task *t, turn_page *p, int turn, err *e) {
    for (int32_t i = 0; i < t->n; i++) {
        eval_dialogue *d = t->doc[i].dialogue;
        strbuf text = {0};
        bool fits;
        if (d->left_out || d->is_cut) continue;
        int64_t k = p->n++;
        p->doc[k] = &t->doc[i];
        status st = see(w, t, d, turn, &p->prompt[k], &text, &p->end[k], &fits, e);
        if (st == ST_OK && !fits) {
            cut_short(d, turn);
            tok_ids_free(&p->prompt[k]), tok_ids_free(&p->end[k]);
            strbuf_free(&text);
            p->prompt[k] = p->end[k] = (tok_ids){0};
            p->n--;
            continue;
        }
        if (st == ST_OK) d->turn[turn].seen = eval_keep_result(t, strbuf_cstr(&text), text.len);
        strbuf_free(&text);
        if (st == ST_OK) st = look_at_template(w, d, turn, e);
        if (st != ST_OK) return name_doc(&t->doc[i], e);
        p->want[k] = (eval_want){.prompt = &p->prompt[k],
                                 .end = &p->end[k],
                                 .max_new = t->max_new,
                                 .sample = eval_sampling(t, d->turn[turn].seen, 0)};
    }
    return ST_OK;
}

static status take(const turn_page *p, int turn, err *e) {
    for (int64_t i = 0; i < p->n; i++) {
        eval_turn *k = &p->doc[i]->dialogue->turn[turn];
        k->written = p->want[i].text;
        k->ended = p->want[i].ended;
        if (eval_judge(k, e) != ST_OK) return name_doc(p->doc[i], e);
    }
    return ST_OK;
}

static status write_turn(const eval_writer *w, eval_task *t, int turn, err *e) {
    size_t n = (size_t)t->n;
    turn_page p = {.want = xcalloc(n, sizeof *p.want),
                   .prompt = xcalloc(n, sizeof *p.prompt),
                   .end = xcalloc(n, sizeof *p.end),
                   .doc = xcalloc(n, sizeof *p.doc)};
    status st = ask(w, t, &p, turn, e);
    if (st == ST_OK) st = eval_write(w, t, p.want, p.n, e);
    if (st == ST_OK) st = take(&p, turn, e);
    for (size_t i = 0; i < n; i++) tok_ids_free(&p.prompt[i]), tok_ids_free(&p.end[i]);
    free(p.want);
    free(p.prompt);
    free(p.end);
    free(p.doc);
    return st;
}

static status no_template(const eval_task *t, err *e) {
    err_at(e, ST_USAGE, t->name, "the model has no chat template, and dialogues need one");
    return err_hint(e, "put chat_template.jinja into its folder, or give --template FILE");
}

status eval_write_dialogues(const eval_writer *w, eval_task *t, err *e) {
    if (!w->template) return no_template(t, e);
    for (int32_t i = 0; i < t->n; i++) leave_out(w, t->doc[i].dialogue);
    for (int turn = 0; turn < t->n_filters - 1; turn++) TRY(write_turn(w, t, turn, e));
    return ST_OK;
}

/* Bytes that are no character become one of three bytes, so answers may have thrice the tokens when
 * they are read again. */
status eval_dialogue_tokens(const eval_writer *w, const eval_task *t, int64_t *out, err *e) {
    eval_writer wide = *w;
    wide.limits.Tmax = INT32_MAX / 2;
    if (!w->template) return no_template(t, e);
    *out = 0;
    for (int32_t i = 0; i < t->n; i++) {
        eval_dialogue *d = t->doc[i].dialogue;
        tok_ids ids = {0};
        bool fits;
        leave_out(w, d);
        if (d->left_out) continue;
        status st = see(&wide, t, d, d->n_turns - 1, &ids, NULL, NULL, &fits, e);
        int64_t most = ids.n + (3 * d->n_turns - 2) * t->max_new + 16 * d->n_turns;
        tok_ids_free(&ids);
        if (st != ST_OK) return name_doc(&t->doc[i], e);
        if (most > *out) *out = most;
    }
    return ST_OK;
}
