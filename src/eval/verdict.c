/* What dialogues say of a model (see dialogue.h).
 *
 * A model that was taught reasoning with dialogues of one turn follows its switch in 69.8 % of
 * first turns, 27.0 % of second and 6.3 % of third ones; one that was taught with dialogues of
 * several turns in 89.0, 91.1 and 91.2 %, and Qwen3-1.7B in 97.1, 96.5 and 95.4 % (Smol Training
 * Playbook, multi-turn reasoning). So a fall of more than ten points is taken for a fault: healthy
 * models lose less than two, sick ones more than forty. An average of turns would hide it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "eval/dialogue.h"
#include "eval/metric.h"

double eval_turn_passed(const eval_dialogue *d, int filter) {
    if (d->left_out) return NAN;
    if (filter < d->n_turns) return d->turn[filter].failed < 0;
    for (int i = 0; i < d->n_turns; i++)
        if (d->turn[i].failed >= 0) return 0;
    return 1;
}

bool eval_rates_hold(const double *rate, int n, int *at) {
    *at = 0;
    if (!(rate[0] >= EVAL_RATE_LEAST)) return false;
    for (*at = 1; *at < n; ++*at)
        if (rate[*at] < rate[0] - EVAL_RATE_FALL - 1e-9) return false;
    return true;
}

/* ---- causes ---- */

static int first_failure(const eval_dialogue *d) {
    for (int i = 0; i < d->n_turns; i++)
        if (d->turn[i].failed >= 0) return i;
    return -1;
}

/* Why a dialogue failed, where it can be told. */
static void put_cause(json_t *list, const eval_doc *doc) {
    const eval_dialogue *d = doc->dialogue;
    int at = first_failure(d);
    if (at < 0 && !d->lost) return;
    strbuf s = {0};
    char *id = json_dumps(doc->id, JSON_ENCODE_ANY);
    strbuf_printf(&s, "%s: ", id);
    free(id);
    if (d->lost)
        strbuf_printf(&s, "the chat template %s at turn %d", d->lost, d->lost_at + 1);
    else if (at > 0)
        strbuf_printf(&s, "%s is lost at turn %d", d->about, at + 1);
    else
        strbuf_printf(&s, "%s is not followed at turn 1", d->about);
    if (at >= 0) {
        strbuf_puts(&s, " (");
        eval_rule_words(&d->turn[at].rule[d->turn[at].failed], &s);
        strbuf_putc(&s, ')');
    }
    json_array_append_new(list, json_text(s.data, s.len));
    strbuf_free(&s);
}

static void put_rates(const eval_task *t, json_t *causes, bool *pass) {
    int turns = t->n_filters - 1, at;
    double *rate = xmalloc(sizeof *rate * (size_t)turns);
    strbuf s = {0};
    for (int i = 0; i < turns; i++) rate[i] = eval_measure(t, METRIC_PASS, i).value;
    bool hold = eval_rates_hold(rate, turns, &at);
    if (isnan(rate[0]))
        strbuf_puts(&s, "all dialogues were left out");
    else if (!hold && at == 0)
        strbuf_printf(&s, "at turn 1 only %.1f %% pass", 100 * rate[0]);
    else if (!hold)
        strbuf_printf(&s,
                      "the share that passes falls from %.1f %% at turn 1 to %.1f %% at turn %d",
                      100 * rate[0], 100 * rate[at], at + 1);
    if (!hold) json_array_append_new(causes, json_text(s.data, s.len));
    *pass = *pass && hold;
    strbuf_free(&s);
    free(rate);
}

void eval_put_verdict(const eval_task *t, json_t *o) {
    json_t *causes = json_array(), *left_out = json_array();
    bool pass = true;
    put_rates(t, causes, &pass);
    for (int32_t i = 0; i < t->n; i++) {
        const eval_dialogue *d = t->doc[i].dialogue;
        pass = pass && !d->lost;
        put_cause(causes, &t->doc[i]);
        if (!d->left_out) continue;
        char *id = json_dumps(t->doc[i].id, JSON_ENCODE_ANY);
        strbuf s = {0};
        strbuf_printf(&s, "%s: %s", id, d->left_out);
        json_array_append_new(left_out, json_text(s.data, s.len));
        strbuf_free(&s);
        free(id);
    }
    json_object_set_new(o, "verdict", json_string(pass ? "pass" : "fail"));
    json_object_set_new(o, "causes", causes);
    json_object_set_new(o, "left_out", left_out);
}

void eval_put_dialogue(const eval_dialogue *d, json_t *o) {
    json_t *turns = json_array();
    for (int i = 0; i < d->n_turns && !d->left_out; i++) {
        const eval_turn *k = &d->turn[i];
        strbuf rule = {0};
        if (k->failed >= 0) eval_rule_words(&k->rule[k->failed], &rule);
        json_array_append_new(
            turns, json_pack("{s:o,s:o,s:b,s:b,s:o}", "prompt", json_text(k->seen.s, k->seen.len),
                             "answer", json_text(k->written.s, k->written.len), "ended", k->ended,
                             "pass", k->failed < 0, "failed",
                             k->failed < 0 ? json_null() : json_text(rule.data, rule.len)));
        strbuf_free(&rule);
    }
    json_object_set_new(o, "turns", turns);
    if (d->left_out) json_object_set_new(o, "left_out", json_cstr(d->left_out));
}
