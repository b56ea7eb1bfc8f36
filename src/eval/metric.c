/* Metrics (see metric.h). */
#include "eval/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "base/sort.h"
#include "eval/answer.h"
#include "eval/dialogue.h"
#include "eval/ifeval.h"
#include "eval/similarity.h"
#include "eval/slices.h"
#include "jinja/jinja.h"

bool eval_is_mean(eval_metric metric) {
    return metric != METRIC_PERPLEXITY && metric != METRIC_WORD_PERPLEXITY &&
           metric != METRIC_BYTE_PERPLEXITY && metric != METRIC_BITS_PER_BYTE &&
           metric != METRIC_INST_STRICT && metric != METRIC_INST_LOOSE && metric != METRIC_BLEU;
}

bool eval_is_loss(eval_metric metric) {
    return metric == METRIC_PERPLEXITY || metric == METRIC_WORD_PERPLEXITY ||
           metric == METRIC_BYTE_PERPLEXITY || metric == METRIC_BITS_PER_BYTE;
}

/* ---- choices ---- */

static double characters(eval_text s) {
    int64_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((uint8_t)s.s[i] & 0xC0) != 0x80;
    return (double)n;
}

static double score_of(const eval_choice *c, eval_metric metric) {
    double loglik = c->pair.loglik;
    switch (metric) {
        case METRIC_ACC_NORM: return loglik / characters(c->label);
        case METRIC_ACC_BYTES: return loglik / (double)c->label.len;
        case METRIC_ACC_TOKENS: return loglik / (double)c->pair.n_tokens;
        case METRIC_ACC_MUTUAL_INFO: return loglik - c->alone->loglik;
        default: return loglik;
    }
}

int eval_best_choice(const eval_doc *d, eval_metric metric) {
    int best = 0;
    for (int i = 1; i < d->n_choices; i++)
        if (score_of(&d->choice[i], metric) > score_of(&d->choice[best], metric)) best = i;
    return best;
}

static bool is_gold(const eval_doc *d, int choice) {
    for (int i = 0; i < d->n_gold; i++)
        if (d->gold[i] == choice) return true;
    return false;
}

static bool is_right(const eval_task *t, const eval_doc *d, eval_text answer) {
    for (int i = 0; i < d->n_targets; i++)
        if (eval_match_exactly(&t->match, answer, d->target[i])) return true;
    return false;
}

/* Of the attempts those that follow all instructions. */
static double follow_all(const eval_task *t, const eval_doc *d, bool loose) {
    uint32_t all = (uint32_t)((1ull << d->ifeval->n) - 1);
    double n = 0;
    for (int k = 0; k < t->repeats; k++)
        n += (loose ? d->attempt[k].loose : d->attempt[k].strict) == all;
    return n / t->repeats;
}

/* Of the right answers the one that is most alike; the mean of all attempts. */
static double best_rouge(const eval_task *t, const eval_doc *d, eval_metric metric, int filter) {
    rouge_kind kind = metric == METRIC_ROUGE_1   ? ROUGE_1
                      : metric == METRIC_ROUGE_2 ? ROUGE_2
                                                 : ROUGE_L;
    double sum = 0;
    for (int k = 0; k < t->repeats; k++) {
        double best = 0;
        for (int i = 0; i < d->n_targets; i++)
            best = fmax(best, eval_rouge(kind, d->attempt[k].answer[filter], d->target[i]));
        sum += best;
    }
    return sum / t->repeats;
}

double eval_doc_score(const eval_task *t, const eval_doc *d, eval_metric metric, int filter) {
    CHECK(eval_is_mean(metric), "%s is of all documents", eval_metric_names[metric]);
    if (t->kind == EVAL_LIKELIHOOD) return d->greedy;
    if (t->kind == EVAL_DIALOGUE) return eval_turn_passed(d->dialogue, filter);
    if (metric == METRIC_PROMPT_STRICT || metric == METRIC_PROMPT_LOOSE)
        return follow_all(t, d, metric == METRIC_PROMPT_LOOSE);
    if (metric >= METRIC_ROUGE_1 && metric <= METRIC_ROUGE_L)
        return best_rouge(t, d, metric, filter);
    if (metric != METRIC_EXACT_MATCH) return is_gold(d, eval_best_choice(d, metric));
    double right = 0;
    for (int k = 0; k < t->repeats; k++) right += is_right(t, d, d->attempt[k].answer[filter]);
    return right / t->repeats;
}

/* ---- means ---- */

/* Documents that were left out have NaN: they do not count. Returns how many stay, moved to the
 * front. */
static int64_t without_missing(double *x, int64_t n) {
    int64_t stay = 0;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i])) x[stay++] = x[i];
    return stay;
}

static eval_score mean_of(double *x, int64_t n) {
    double sum = 0, squares = 0;
    n = without_missing(x, n);
    if (n == 0) return (eval_score){NAN, NAN, 0};
    for (int64_t i = 0; i < n; i++) sum += x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    double s = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
    return (eval_score){mean, s / sqrt((double)n), n};
}

/* ---- perplexities ---- */

/* Words as Python's len(re.split(r"\s+", text)): runs of white space, plus one. */
static double words(eval_text s) {
    double n = 1;
    const char *at = s.s;
    for (size_t left = s.len; left > 0;) {
        const char *before = at;
        size_t before_left = left;
        jinja_strip(&at, &left, true, false);
        n += left != before_left;
        if (left == 0 || at != before) continue;
        at++, left--;
        while (left > 0 && ((uint8_t)*at & 0xC0) == 0x80) at++, left--;
    }
    return n;
}

/* Mean of y over mean of x, and its standard error by the delta method. */
eval_score eval_ratio(const double *y, const double *x, int64_t n) {
    double sum_y = 0, sum_x = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum_y += y[i], sum_x += x[i];
    double ratio = sum_y / sum_x;
    for (int64_t i = 0; i < n; i++) squares += (y[i] - ratio * x[i]) * (y[i] - ratio * x[i]);
    double s = n > 1 ? sqrt(squares / (double)(n - 1) * (double)n) / sum_x : NAN;
    return (eval_score){ratio, s, n};
}

/* By what a document counts. */
static double size_of(const eval_doc *d, eval_metric metric) {
    if (metric == METRIC_PERPLEXITY) return 1;
    return metric == METRIC_WORD_PERPLEXITY ? words(d->text) : (double)d->text.len;
}

static eval_score perplexity(const eval_task *t, eval_metric metric) {
    double *nll = xmalloc(sizeof *nll * 2 * (size_t)t->n), *size = nll + t->n;
    for (int32_t i = 0; i < t->n; i++) {
        const eval_doc *d = &t->doc[i];
        nll[i] = -(t->kind == EVAL_LIKELIHOOD ? d->choice->pair.loglik : d->loglik);
        size[i] = size_of(d, metric);
    }
    eval_score s = eval_ratio(nll, size, t->n);
    free(nll);
    double bits = 1 / log(2.0), value = exp(s.value);
    if (metric == METRIC_BITS_PER_BYTE) return (eval_score){s.value * bits, s.stderr_ * bits, s.n};
    return (eval_score){value, value * s.stderr_, s.n};
}

/* Of all instructions those that are followed; the prompts vary together. */
static eval_score instructions(const eval_task *t, bool loose) {
    double *followed = xcalloc(2 * (size_t)t->n, sizeof *followed), *all = followed + t->n;
    for (int32_t i = 0; i < t->n; i++) {
        const eval_doc *d = &t->doc[i];
        all[i] = (double)d->ifeval->n * t->repeats;
        for (int k = 0; k < t->repeats; k++)
            followed[i] += __builtin_popcount(loose ? d->attempt[k].loose : d->attempt[k].strict);
    }
    eval_score s = eval_ratio(followed, all, t->n);
    free(followed);
    return s;
}

/* ---- BLEU ---- */

static void add_counts(bleu_counts *sum, const bleu_counts *c) {
    for (int g = 0; g < BLEU_N; g++) sum->found[g] += c->found[g], sum->all[g] += c->all[g];
    sum->words += c->words;
    sum->reference_words += c->reference_words;
}

/* The deviation of BLEU over corpora of as many documents, drawn from these. */
static double bleu_deviation(const bleu_counts *c, int32_t n) {
    enum { SAMPLES = 1000 };
    double sum = 0, squares = 0;
    uint64_t draws = 0;
    for (int k = 0; k < SAMPLES; k++) {
        bleu_counts all = {0};
        for (int32_t i = 0; i < n; i++) add_counts(&all, &c[mix64(draws++) % (uint64_t)n]);
        double x = eval_bleu(&all);
        sum += x, squares += x * x;
    }
    double mean = sum / SAMPLES, variance = squares / SAMPLES - mean * mean;
    return n > 1 ? sqrt(fmax(variance, 0) * SAMPLES / (SAMPLES - 1)) : NAN;
}

static eval_score bleu(const eval_task *t, int filter) {
    bleu_counts *c = xcalloc((size_t)t->n, sizeof *c), all = {0};
    for (int32_t i = 0; i < t->n; i++) {
        const eval_doc *d = &t->doc[i];
        for (int k = 0; k < t->repeats && d->n_targets; k++)
            eval_bleu_add(&c[i], d->attempt[k].answer[filter], d->target, d->n_targets);
        add_counts(&all, &c[i]);
    }
    eval_score s = {eval_bleu(&all), bleu_deviation(c, t->n), t->n};
    free(c);
    return s;
}

/* What sacrebleu calls these settings. */
static json_t *bleu_signature(const eval_task *t) {
    int refs = t->n ? t->doc[0].n_targets : 0;
    for (int32_t i = 1; i < t->n; i++)
        if (t->doc[i].n_targets != refs) refs = -1;
    return refs < 0 ? json_string("nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp")
                    : json_sprintf("nrefs:%d|case:mixed|eff:no|tok:13a|smooth:exp", refs);
}

eval_score eval_measure(const eval_task *t, eval_metric metric, int filter) {
    if (metric == METRIC_BLEU) return bleu(t, filter);
    if (metric == METRIC_INST_STRICT || metric == METRIC_INST_LOOSE)
        return instructions(t, metric == METRIC_INST_LOOSE);
    if (!eval_is_mean(metric)) return perplexity(t, metric);
    double *x = xmalloc(sizeof *x * (size_t)t->n);
    for (int32_t i = 0; i < t->n; i++) x[i] = eval_doc_score(t, &t->doc[i], metric, filter);
    eval_score s = mean_of(x, t->n);
    free(x);
    return s;
}

/* ---- two models ---- */

/* Of the differences d[n] with the mean of r. */
static void resample(const double *d, int64_t n, eval_difference *r) {
    enum { SAMPLES = 10000 };
    double *mean = xmalloc(sizeof *mean * SAMPLES);
    int64_t far = 0, draws = 0;
    for (int k = 0; k < SAMPLES; k++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += d[mix64((uint64_t)draws++) % (uint64_t)n];
        mean[k] = sum / (double)n;
        far += fabs(mean[k] - r->value) >= fabs(r->value);
    }
    sort_doubles(mean, SAMPLES);
    r->low = mean[SAMPLES / 40], r->high = mean[SAMPLES - 1 - SAMPLES / 40];
    r->p = (double)(far + 1) / (SAMPLES + 1);
    free(mean);
}

eval_difference eval_compare(const double *a, const double *b, int64_t n) {
    double *d = xmalloc(sizeof *d * (size_t)n);
    for (int64_t i = 0; i < n; i++) d[i] = a[i] - b[i];
    eval_score s = mean_of(d, n);
    eval_difference r = {s.value, s.stderr_, NAN, NAN, NAN};
    if (s.n > 0) resample(d, s.n, &r);
    free(d);
    return r;
}

/* ---- JSON ---- */

static void put_score(json_t *o, const char *metric, const char *filter, eval_score s) {
    char key[256];
    snprintf(key, sizeof key, "%s,%s", metric, filter);
    json_object_set_new(o, key, json_f64(s.value));
    snprintf(key, sizeof key, "%s_stderr,%s", metric, filter);
    json_object_set_new(o, key, json_f64(s.stderr_));
}

/* What guessing scores. */
static double chance(const eval_task *t) {
    double sum = 0;
    for (int32_t i = 0; i < t->n; i++) sum += (double)t->doc[i].n_gold / t->doc[i].n_choices;
    return sum / t->n;
}

json_t *eval_result_json(const eval_task *t) {
    json_t *o = json_pack("{s:o}", "alias", json_cstr(t->name));
    for (int m = 0; m < METRIC_COUNT; m++)
        for (int f = 0; f < t->n_filters && (t->metrics >> m & 1); f++)
            put_score(o, eval_metric_names[m], t->filter[f].name,
                      eval_measure(t, (eval_metric)m, f));
    json_object_set_new(o, "sample_len", json_integer(t->n));
    if (t->repeats > 1) json_object_set_new(o, "repeats", json_integer(t->repeats));
    if (t->metrics >> METRIC_BLEU & 1) json_object_set_new(o, "bleu_signature", bleu_signature(t));
    if (t->kind == EVAL_DIALOGUE) eval_put_verdict(t, o);
    if (t->kind == EVAL_TEXT) json_object_set_new(o, "slices", eval_slices_json(t));
    if (t->kind == EVAL_CHOICES) json_object_set_new(o, "chance", json_f64(chance(t)));
    return o;
}

static json_t *text_json(eval_text s) {
    return json_text(s.s, s.len);
}

static void put_choices(json_t *o, const eval_doc *d) {
    json_t *loglik = json_array(), *alone = json_array();
    for (int i = 0; i < d->n_choices; i++) {
        const eval_choice *c = &d->choice[i];
        json_array_append_new(loglik, json_f64(c->pair.loglik));
        if (c->alone) json_array_append_new(alone, json_f64(c->alone->loglik));
    }
    json_object_set_new(o, "gold", json_integer(d->gold[0]));
    json_object_set_new(o, "loglik", loglik);
    if (json_array_size(alone)) json_object_set(o, "loglik_unconditional", alone);
    json_decref(alone);
}

/* A text, or a list of as many as there are attempts. filter -1: what was written. */
static json_t *of_attempts(const eval_task *t, const eval_doc *d, int filter) {
    json_t *list = json_array();
    for (int k = 0; k < t->repeats; k++) {
        const eval_attempt *a = &d->attempt[k];
        json_array_append_new(list, text_json(filter < 0 ? a->written : a->answer[filter]));
    }
    if (t->repeats > 1) return list;
    json_t *only = json_incref(json_array_get(list, 0));
    json_decref(list);
    return only;
}

/* What became of each instruction in the first attempt. */
static json_t *instructions_json(const eval_doc *d) {
    json_t *list = json_array();
    const eval_attempt *a = &d->attempt[0];
    for (int i = 0; i < d->ifeval->n; i++)
        json_array_append_new(list, json_pack("{s:s,s:b,s:b}", "instruction",
                                              eval_instruction_name(&d->ifeval->item[i]), "strict",
                                              a->strict >> i & 1, "loose", a->loose >> i & 1));
    return list;
}

static void put_answer(json_t *o, const eval_task *t, const eval_doc *d) {
    json_t *answers = json_object();
    if (d->n_targets) json_object_set_new(o, "gold", text_json(d->target[0]));
    json_object_set_new(o, "prompt", text_json(d->seen));
    json_object_set_new(o, "written", of_attempts(t, d, -1));
    json_object_set_new(o, "answer", of_attempts(t, d, 0));
    for (int f = 0; f < t->n_filters; f++)
        json_object_set_new(answers, t->filter[f].name, of_attempts(t, d, f));
    json_object_set_new(o, "answers", answers);
    if (d->ifeval) json_object_set_new(o, "instructions", instructions_json(d));
}

json_t *eval_sample_json(const eval_task *t, const eval_doc *d) {
    json_t *o = json_pack("{s:o,s:O}", "task", json_cstr(t->name), "doc_id", d->id);
    if (t->kind == EVAL_CHOICES) put_choices(o, d);
    if (t->kind == EVAL_LIKELIHOOD) {
        json_object_set_new(o, "loglik", json_pack("[o]", json_f64(d->choice->pair.loglik)));
        json_object_set_new(o, "greedy", json_boolean(d->greedy));
    }
    if (t->kind == EVAL_ANSWER) put_answer(o, t, d);
    if (t->kind == EVAL_DIALOGUE) eval_put_dialogue(d->dialogue, o);
    if (t->kind == EVAL_TEXT) {
        json_object_set_new(o, "loglik", json_pack("[o]", json_f64(d->loglik)));
        json_object_set_new(o, "bytes", json_integer((json_int_t)d->text.len));
        json_object_set_new(o, "tokens", json_integer(d->n_tokens));
    }
    return o;
}
