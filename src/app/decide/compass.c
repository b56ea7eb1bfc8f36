/* Reading order: compass_questions, compass_next, compass_decide and the branches above it. */
#include "app/decide/compass.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define YES_NO                                                                                     \
    {"yes", ""}, {                                                                                 \
        "no", ""                                                                                   \
    }

const compass_entry compass_questions[ASK_COUNT] = {
    [ASK_PROMPTING] = {"prompting",
                       "Does an existing model do it, with a good prompt and tools?",
                       {YES_NO, {"unknown", "nobody has tried"}}},
    [ASK_TUNING] = {"tuning",
                    "Does one do it after fine-tuning or continued pretraining?",
                    {YES_NO, {"unknown", "nobody has tried"}}},
    [ASK_EXAMPLES] = {"examples",
                      "What have you to teach it with?",
                      {{"none", "nothing yet"},
                       {"conversations", "questions with their answers"},
                       {"preferences", "better and worse answers"},
                       {"text", "a billion tokens or more of your field"}}},
    [ASK_REASON] = {"reason",
                    "Why train a model from the beginning?",
                    {{"research", "to answer a question"},
                     {"production", "a product needs what no other model can be"},
                     {"open-source", "open models lack something"},
                     {"compute", "there are devices that do nothing"},
                     {"others", "everyone does it"},
                     {"future", "it is the future"},
                     {"best", "to have the best model possible"}}},
    [ASK_QUESTION] = {"question",
                      "Is there one question that a training run would answer?",
                      {YES_NO}},
    [ASK_NEED] = {"need",
                  "What does the product need that tuning does not give?",
                  {{"domain",
                    "other symbols or structure than text: DNA, molecules, a law's language"},
                   {"device", "a device that existing models do not fit"},
                   {"governance", "to prove what the model was trained on"},
                   {"none", "none of these"}}},
    [ASK_GAP] = {"gap",
                 "Is there a gap that no open model fills, and that you can fill?",
                 {YES_NO}},
    [ASK_RUNS_ON] = {"runs-on",
                     "Where will the model run?",
                     {{"edge", "a phone, a laptop, a machine without a network"},
                      {"server", "accelerators in a data centre"}}},
    [ASK_TEAM] = {"team",
                  "What has the team trained before?",
                  {{"first", "no language model"},
                   {"dense", "dense models"},
                   {"expert", "mixtures of experts or hybrids, too"}}},
    [ASK_TIME] = {"time", "How is the time?", {{"tight", "weeks"}, {"flexible", "months"}}},
    [ASK_LANGUAGES] = {"languages",
                       "Which languages?",
                       {{"one", "one, and code"}, {"many", "many"}}},
    [ASK_CONTEXT] = {"context",
                     "How long are the texts?",
                     {{"short", "up to 8k tokens"},
                      {"long", "up to 128k"},
                      {"longer", "beyond that"}}},
};

void compass_init(compass *c) {
    *c = (compass){.device_hours = 0};
    for (int i = 0; i < ASK_COUNT; i++) c->answer[i] = NO_ANSWER;
}

static bool is(const compass *c, compass_question q, const char *word) {
    int i = c->answer[q];
    return i != NO_ANSWER && strcmp(compass_questions[q].choice[i].word, word) == 0;
}

static void list_choices(const compass_entry *q, strbuf *out) {
    for (int i = 0; i < COMPASS_CHOICES && q->choice[i].word; i++)
        strbuf_printf(out, "%s%s", i ? ", " : "", q->choice[i].word);
}

status compass_answer(compass *c, compass_question q, const char *word, err *e) {
    const compass_entry *k = &compass_questions[q];
    for (int i = 0; i < COMPASS_CHOICES && k->choice[i].word; i++) {
        if (strcmp(word, k->choice[i].word) != 0) continue;
        c->answer[q] = i;
        return ST_OK;
    }
    strbuf words = {0};
    list_choices(k, &words);
    err_at(e, ST_USAGE, k->name, "'%s' is no answer to: %s", word, k->text);
    err_hint(e, "there are %s", strbuf_cstr(&words));
    strbuf_free(&words);
    return ST_USAGE;
}

/* ---- what is asked ---- */

/* Whether there is a reason to pretrain; *ask: what has to be known for it, or ASK_COUNT. */
static bool is_pretrained(const compass *c, compass_question *ask) {
    const struct {
        const char *reason;
        compass_question asks;
    } all[] = {{"research", ASK_QUESTION}, {"production", ASK_NEED}, {"open-source", ASK_GAP}};
    *ask = ASK_COUNT;
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        if (!is(c, ASK_REASON, all[i].reason)) continue;
        if (c->answer[all[i].asks] == NO_ANSWER) *ask = all[i].asks;
        return c->answer[all[i].asks] != NO_ANSWER && !is(c, all[i].asks, "no") &&
               !is(c, all[i].asks, "none");
    }
    return false;
}

static compass_question next_of_architecture(const compass *c) {
    static const compass_question order[] = {ASK_RUNS_ON, ASK_TEAM, ASK_TIME, ASK_LANGUAGES,
                                             ASK_CONTEXT};
    for (int i = 0; i < ARRAY_LEN(order); i++) {
        if (order[i] == ASK_RUNS_ON && is(c, ASK_NEED, "device")) continue;
        if (order[i] == ASK_TIME && !(is(c, ASK_RUNS_ON, "server") && is(c, ASK_TEAM, "dense")))
            continue;
        if (c->answer[order[i]] == NO_ANSWER) return order[i];
    }
    return ASK_COUNT;
}

compass_question compass_next(const compass *c) {
    compass_question ask;
    if (c->answer[ASK_PROMPTING] == NO_ANSWER) return ASK_PROMPTING;
    if (!is(c, ASK_PROMPTING, "no")) return ASK_COUNT;
    if (c->answer[ASK_TUNING] == NO_ANSWER) return ASK_TUNING;
    if (is(c, ASK_TUNING, "unknown")) return ASK_COUNT;
    if (is(c, ASK_TUNING, "yes"))
        return c->answer[ASK_EXAMPLES] == NO_ANSWER ? ASK_EXAMPLES : ASK_COUNT;
    if (c->answer[ASK_REASON] == NO_ANSWER) return ASK_REASON;
    bool pretrained = is_pretrained(c, &ask);
    if (ask != ASK_COUNT) return ask;
    return pretrained ? next_of_architecture(c) : ASK_COUNT;
}

/* Answers are those that the walk asks for, given in any order: it is walked again with them. */
status compass_check(const compass *c, err *e) {
    compass seen;
    compass_init(&seen);
    if (is(c, ASK_NEED, "device") && is(c, ASK_RUNS_ON, "server")) {
        err_at(e, ST_USAGE, "runs-on", "a model that is trained for a device runs on the device");
        return err_hint(e, "--runs-on edge, or another --need");
    }
    compass_question q = compass_next(&seen);
    while (q != ASK_COUNT && c->answer[q] != NO_ANSWER) {
        seen.answer[q] = c->answer[q];
        q = compass_next(&seen);
    }
    if (q != ASK_COUNT) return ST_OK; /* something is open yet */
    for (int i = 0; i < ASK_COUNT; i++) {
        if (c->answer[i] == seen.answer[i]) continue;
        if (i == ASK_RUNS_ON && is(c, ASK_NEED, "device")) continue;
        err_at(e, ST_USAGE, compass_questions[i].name,
               "--%s does not matter here: after the other answers nobody asks \"%s\"",
               compass_questions[i].name, compass_questions[i].text);
        return err_hint(e, "leave it out, or look at the other answers again");
    }
    compass_question ask;
    if (c->device_hours <= 0 || is_pretrained(c, &ask)) return ST_OK;
    err_at(e, ST_USAGE, "device-hours",
           "--device-hours does not matter here: after the other answers nothing is pretrained");
    return err_hint(e, "leave it out, or look at the other answers again");
}

/* ---- what is said ---- */

static ATH_PRINTF(2, 3) void because(compass_verdict *v, const char *fmt, ...) {
    va_list ap;
    if (v->reasons == COMPASS_REASONS) return;
    va_start(ap, fmt);
    vsnprintf(v->reason[v->reasons++], COMPASS_LINE, fmt, ap);
    va_end(ap);
}

static ATH_PRINTF(2, 3) void then(compass_verdict *v, const char *fmt, ...) {
    va_list ap;
    if (v->nexts == COMPASS_NEXT) return;
    va_start(ap, fmt);
    vsnprintf(v->next[v->nexts++], COMPASS_LINE, fmt, ap);
    va_end(ap);
}

static const char TRY[] =
    "athanor decide --try MODEL --tasks TASKS --target SCORE --examples-file FILE";

static void decide_tuning(const compass *c, compass_verdict *v) {
    because(v, "a model that exists can be taught it, at a small part of what pretraining costs");
    if (is(c, ASK_EXAMPLES, "none")) {
        v->name = "collect";
        because(v, "there is nothing yet to teach it with, and a few hundred good examples go far");
        then(v, "athanor eval MODEL --tasks TASKS --num-fewshot 5 --samples samples.jsonl");
    } else if (is(c, ASK_EXAMPLES, "conversations")) {
        v->name = "tune";
        because(v,
                "questions with answers are learned by supervised fine-tuning; an adapter is the "
                "cheapest way to see how far that goes");
        then(v, "%s", TRY);
        then(v, "athanor train tune.yaml model.from=MODEL data.train=chats.jsonl "
                "lora.rank=16");
    } else if (is(c, ASK_EXAMPLES, "preferences")) {
        v->name = "prefer";
        because(v, "pairs of a better and a worse answer are learned by preference, after "
                   "supervised fine-tuning");
        then(v, "athanor train prefer.yaml model.from=MODEL train.objective=dpo lora.rank=16");
    } else {
        v->name = "continue";
        because(v, "much text of a field is learned by continued pretraining: even 1T tokens of it "
                   "are cheaper than 10T from the beginning");
        then(v, "athanor plan search continue.yaml model.from=MODEL cluster=h100-64");
        then(v, "athanor train continue.yaml model.from=MODEL");
    }
}

static void decide_keep(const compass *c, compass_verdict *v) {
    static const struct {
        const char *word, *why;
    } wrong[] = {
        {"compute",
         "that devices are free is no reason: they can tune, evaluate and generate, too"},
        {"others", "that everyone does it says nothing of what you need"},
        {"future", "that it is the future is no reason for this model now"},
        {"best",
         "the best model possible is no aim that a run can reach or miss: best at what, for whom?"},
        {"research", "without a question a run answers nothing: find the question first"},
        {"production",
         "without a need that tuning cannot meet, a tuned model is the better product"},
        {"open-source", "without a gap it would be one more open model among many"}};
    v->name = "keep";
    for (int i = 0; i < ARRAY_LEN(wrong); i++)
        if (is(c, ASK_REASON, wrong[i].word)) because(v, "%s", wrong[i].why);
    because(v, "take an existing model, and see what prompting and tuning give");
    then(v, "%s", TRY);
}

static void say_reason(const compass *c, compass_verdict *v) {
    if (is(c, ASK_REASON, "research"))
        because(v, "research: train the smallest model that answers the question");
    if (is(c, ASK_NEED, "domain"))
        because(v, "its symbols are not those of text: a tokenizer of its own belongs to it");
    if (is(c, ASK_NEED, "governance"))
        because(v, "every source must be known: the ledger of the data is part of the model");
    if (is(c, ASK_NEED, "device")) because(v, "a device sets the size, before anything else");
    if (is(c, ASK_GAP, "yes")) because(v, "open models lack it, and you can make it");
}

/* A preset, and what it has otherwise than the reasons say. */
typedef struct start {
    const char *preset, *vocab, *kv_heads;
} start;

/* A question is answered by the smallest model of its kind. OLMoE has few words and no grouped key heads. */
static start smallest(const compass *c, bool of_experts) {
    if (!of_experts) return (start){"llama-3.2-1b", "", ""};
    return (start){"olmoe-1b-7b", is(c, ASK_LANGUAGES, "many") ? " model.vocab_size=128256" : "",
                   is(c, ASK_CONTEXT, "short") ? "" : " model.num_key_value_heads=4"};
}

/* Architecture and the model from which to start. */
static start choose(const compass *c, compass_verdict *v) {
    bool edge = is(c, ASK_RUNS_ON, "edge") || is(c, ASK_NEED, "device");
    bool longer = is(c, ASK_CONTEXT, "longer"), expert = is(c, ASK_TEAM, "expert");
    bool research = is(c, ASK_REASON, "research"), of_experts = false;
    const char *preset = "qwen3-30b-a3b";
    v->architecture = "dense";
    if (edge) {
        because(v, "on a device memory is what is short: a dense model has most for each byte");
        if (expert) v->architecture = "dense or hybrid";
        preset = "smollm3-3b";
    } else if (is(c, ASK_TEAM, "first")) {
        because(v,
                "a first model is dense: experts add ways to fail that a dense one does not have");
        preset = "llama-3.2-3b";
    } else if (is(c, ASK_TIME, "tight")) {
        because(v, "weeks are enough for what is known to work: dense");
        preset = "llama-3.1-8b";
    } else {
        because(
            v,
            "a mixture of experts learns more for the same compute, and a server has the memory");
        v->architecture = longer ? "moe or hybrid" : "moe";
        of_experts = true;
    }
    return research ? smallest(c, of_experts) : (start){preset, "", ""};
}

static void say_parts(const compass *c, compass_verdict *v) {
    if (is(c, ASK_LANGUAGES, "many"))
        because(v, "many languages need a large vocabulary: 128 thousand tokens or more");
    if (is(c, ASK_CONTEXT, "long"))
        because(v, "long texts: grouped key heads, and a stage of long texts at the end");
    if (is(c, ASK_CONTEXT, "longer"))
        because(v, "beyond 128k the cache decides: layers with a window, or linear ones, beside "
                   "full attention");
}

/* 6 N D of compute, D = 20 N (Hoffmann et al. 2022); an H100 at 30 % of 990 TFLOP/s. */
static void size_of(const compass *c, compass_verdict *v) {
    if (c->device_hours <= 0) return;
    v->flops = c->device_hours * 3600 * 990e12 * 0.3;
    v->params = sqrt(v->flops / 120);
    v->tokens = 20 * v->params;
    char hours[16], params[16], tokens[16];
    because(v,
            "%s device-hours are %.2g FLOPs: %s parameters on %s tokens; models that many will use "
            "are smaller, and see far more",
            text_short_number(c->device_hours, hours), v->flops,
            text_short_number(v->params, params), text_short_number(v->tokens, tokens));
}

enum { NODE = 8, MOST_DEVICES = 1 << 20 };
static const double SMOLLM3_HOURS = 276480; /* 384 devices for 30 days */

static double hours_of(const compass *c) {
    return c->device_hours > 0 ? c->device_hours : SMOLLM3_HOURS;
}

/* Whole nodes that are done in 30 days. */
static double devices_of(const compass *c) {
    return fmin(NODE * ceil(hours_of(c) / (NODE * 30 * 24)), MOST_DEVICES);
}

/* On as many devices as the cost is of, with the least batch of 512 or more that they share. */
static void say_search(const compass *c, const start *from, compass_verdict *v) {
    double devices = devices_of(c);
    then(v,
         "athanor plan search %s%s%s cluster=h100-%.0f train.global_batch_size=%.0f "
         "train.seq_len=4096",
         from->preset, from->vocab, from->kv_heads, devices, devices * ceil(512 / devices));
}

/* In the proportions of SmolLM3, with ablations and debugging beside the main run. */
static void say_cost(const compass *c, compass_verdict *v) {
    double hours = hours_of(c), devices = devices_of(c);
    then(v, "athanor plan cost --hours %.12g --devices %.0f --ablations %.0f --debugging %.0f",
         hours, devices, hours * 5 / 12, hours / 6);
}

static void decide_pretraining(const compass *c, compass_verdict *v) {
    /* SmolLM2-135M, the smallest published model of general use: 135M parameters on 2T tokens. */
    static const double LEAST = 6 * 135e6 * 2e12;
    bool research = is(c, ASK_REASON, "research");
    v->name = "pretrain";
    say_reason(c, v);
    start from = choose(c, v);
    say_parts(c, v);
    size_of(c, v);
    if (v->flops > 0 && v->flops < LEAST && !research) {
        v->name = "too-small";
        v->architecture = NULL;
        because(v,
                "the smallest published model of general use took %.2g FLOPs: tune an existing one",
                LEAST);
        then(v, "%s", TRY);
        return;
    }
    if (is(c, ASK_TEAM, "first")) then(v, "athanor recipe miniature");
    if (c->device_hours <= 0)
        because(v,
                "no budget was told: the hours below are those of SmolLM3, a published run of 3B; "
                "--device-hours says yours");
    say_search(c, &from, v);
    say_cost(c, v);
    if (is(c, ASK_RUNS_ON, "edge") || is(c, ASK_NEED, "device"))
        then(v, "athanor plan infer %s cluster=phone --store Q4_0", from.preset);
}

compass_verdict compass_decide(const compass *c) {
    compass_verdict v = {.name = NULL};
    compass_question ask;
    if (is(c, ASK_PROMPTING, "yes")) {
        v.name = "prompt";
        because(&v, "an existing model does it already: do not train");
        then(&v, "athanor chat MODEL");
    } else if (is(c, ASK_PROMPTING, "unknown") || is(c, ASK_TUNING, "unknown")) {
        v.name = "try";
        because(&v,
                "nobody knows whether an existing model does it: some days of trying are cheaper "
                "than any training");
        then(&v, "%s", TRY);
    } else if (is(c, ASK_TUNING, "yes")) {
        decide_tuning(c, &v);
    } else if (is_pretrained(c, &ask)) {
        decide_pretraining(c, &v);
    } else {
        decide_keep(c, &v);
    }
    return v;
}
