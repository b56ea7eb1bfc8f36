/* The training compass: sets of answers with their verdict, a word of the reason, and the command that is next. */
#include "test.h"

#include "app/decide/compass.h"

typedef struct row {
    const char *answers; /* "prompting=no tuning=yes ..." */
    const char *verdict, *architecture, *reason, *command;
} row;

#define NO "prompting=no tuning=no "
#define RESEARCH NO "reason=research question=yes "
#define DOMAIN NO "reason=production need=domain "
#define GOVERNANCE NO "reason=production need=governance "
#define DEVICE NO "reason=production need=device "
#define GAP NO "reason=open-source gap=yes "
#define REST " languages=one context=short"
#define TRIAL "decide --try MODEL"
#define SEARCH "plan search "

static const row rows[] = {
    {"prompting=yes", "prompt", NULL, "do not train", "athanor chat MODEL"},
    {"prompting=unknown", "try", NULL, "nobody knows", TRIAL},
    {"prompting=no tuning=unknown", "try", NULL, "some days of trying", TRIAL},
    {"prompting=no tuning=yes examples=none", "collect", NULL, "nothing yet", "--num-fewshot 5"},
    {"prompting=no tuning=yes examples=conversations", "tune", NULL, "supervised", TRIAL},
    {"prompting=no tuning=yes examples=preferences", "prefer", NULL, "preference", "objective=dpo"},
    {"prompting=no tuning=yes examples=text", "continue", NULL, "cheaper than 10T", SEARCH},
    {NO "reason=compute", "keep", NULL, "devices are free", TRIAL},
    {NO "reason=others", "keep", NULL, "everyone does it", TRIAL},
    {NO "reason=future", "keep", NULL, "the future", TRIAL},
    {NO "reason=best", "keep", NULL, "best at what", TRIAL},
    {NO "reason=research question=no", "keep", NULL, "without a question", TRIAL},
    {NO "reason=production need=none", "keep", NULL, "tuned model is the better", TRIAL},
    {NO "reason=open-source gap=no", "keep", NULL, "one more open model", TRIAL},
    {RESEARCH "runs-on=server team=first" REST, "pretrain", "dense", "smallest model",
     "recipe miniature"},
    {RESEARCH "runs-on=edge team=first" REST, "pretrain", "dense", "memory is what is short",
     "recipe miniature"},
    {RESEARCH "runs-on=server team=dense time=tight" REST, "pretrain", "dense", "weeks",
     SEARCH "llama-3.2-1b"},
    {RESEARCH "runs-on=server team=dense time=flexible" REST, "pretrain", "moe", "same compute",
     SEARCH "olmoe-1b-7b"},
    {RESEARCH "runs-on=server team=expert" REST, "pretrain", "moe", "research",
     SEARCH "olmoe-1b-7b"},
    {DOMAIN "runs-on=edge team=first" REST, "pretrain", "dense", "tokenizer of its own",
     "recipe miniature"},
    {DOMAIN "runs-on=edge team=dense" REST, "pretrain", "dense", "memory", SEARCH "smollm3-3b"},
    {DOMAIN "runs-on=edge team=expert" REST, "pretrain", "dense or hybrid", "memory",
     SEARCH "smollm3-3b"},
    {DOMAIN "runs-on=server team=first" REST, "pretrain", "dense", "first model is dense",
     "recipe miniature"},
    {DOMAIN "runs-on=server team=dense time=tight" REST, "pretrain", "dense", "weeks",
     SEARCH "llama-3.1-8b"},
    {DOMAIN "runs-on=server team=dense time=flexible" REST, "pretrain", "moe", "mixture",
     SEARCH "qwen3-30b-a3b"},
    {DOMAIN "runs-on=server team=expert" REST, "pretrain", "moe", "tokenizer",
     SEARCH "qwen3-30b-a3b"},
    {DOMAIN "runs-on=server team=expert languages=one context=longer", "pretrain", "moe or hybrid",
     "beyond 128k", SEARCH "qwen3-30b-a3b"},
    {DOMAIN "runs-on=server team=dense time=flexible languages=many context=longer", "pretrain",
     "moe or hybrid", "large vocabulary", SEARCH "qwen3-30b-a3b"},
    {GOVERNANCE "runs-on=server team=first languages=many context=short", "pretrain", "dense",
     "ledger", "recipe miniature"},
    {GOVERNANCE "runs-on=server team=dense time=tight languages=many context=long", "pretrain",
     "dense", "128 thousand", SEARCH "llama-3.1-8b"},
    {GOVERNANCE "runs-on=edge team=dense languages=one context=long", "pretrain", "dense",
     "grouped key heads", SEARCH "smollm3-3b"},
    {DEVICE "team=first" REST, "pretrain", "dense", "device sets the size", "recipe miniature"},
    {DEVICE "team=dense" REST, "pretrain", "dense", "device sets the size", SEARCH "smollm3-3b"},
    {DEVICE "team=expert" REST, "pretrain", "dense or hybrid", "device", SEARCH "smollm3-3b"},
    {DEVICE "runs-on=edge team=expert" REST, "pretrain", "dense or hybrid", "device",
     SEARCH "smollm3-3b"},
    {DEVICE "team=dense languages=many context=longer", "pretrain", "dense", "cache decides",
     SEARCH "smollm3-3b"},
    {GAP "runs-on=edge team=first languages=many context=long", "pretrain", "dense",
     "you can make it", "recipe miniature"},
    {GAP "runs-on=edge team=dense languages=many context=long", "pretrain", "dense",
     "large vocabulary", SEARCH "smollm3-3b"},
    {GAP "runs-on=server team=dense time=tight" REST, "pretrain", "dense", "weeks",
     SEARCH "llama-3.1-8b"},
    {GAP "runs-on=server team=dense time=flexible" REST, "pretrain", "moe", "open models lack it",
     SEARCH "qwen3-30b-a3b"},
    {GAP "runs-on=server team=expert" REST, "pretrain", "moe", "open models lack it",
     SEARCH "qwen3-30b-a3b"},
    {GAP "runs-on=server team=expert languages=many context=longer", "pretrain", "moe or hybrid",
     "linear ones", SEARCH "qwen3-30b-a3b"},
    {GAP "runs-on=server team=first languages=one context=longer", "pretrain", "dense",
     "first model", "recipe miniature"},
    {GAP "runs-on=server team=dense time=flexible device-hours=10" REST, "too-small", NULL,
     "smallest published", TRIAL},
    {GAP "runs-on=server team=dense time=flexible device-hours=276480" REST, "pretrain", "moe",
     "49.6B parameters", SEARCH "qwen3-30b-a3b"},
    {RESEARCH "runs-on=server team=expert device-hours=10" REST, "pretrain", "moe", "device-hours",
     SEARCH "olmoe-1b-7b"},
};

static compass answers_of(const char *text) {
    compass c;
    char copy[512], *at = NULL;
    compass_init(&c);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (strcmp(word, "device-hours") == 0) {
            c.device_hours = atof(value);
            continue;
        }
        int q = 0;
        while (strcmp(word, compass_questions[q].name) != 0) q++;
        assert_int_equal(compass_answer(&c, (compass_question)q, value, NULL), ST_OK);
    }
    return c;
}

static void test_verdicts(void **state) {
    (void)state;
    assert_true(ARRAY_LEN(rows) >= 40);
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        const row *r = &rows[i];
        compass c = answers_of(r->answers);
        err e = {0};
        if (compass_check(&c, &e) != ST_OK) fail_msg("%s: %s", r->answers, e.message);
        if (compass_next(&c) != ASK_COUNT)
            fail_msg("%s: %s is asked", r->answers, compass_questions[compass_next(&c)].name);
        compass_verdict v = compass_decide(&c);
        if (strcmp(v.name, r->verdict) != 0) fail_msg("%s: %s", r->answers, v.name);
        if (!v.architecture != !r->architecture ||
            (v.architecture && strcmp(v.architecture, r->architecture) != 0))
            fail_msg("%s: %s", r->answers, v.architecture ? v.architecture : "no architecture");
        bool found = false;
        for (int k = 0; k < v.reasons; k++) found |= strstr(v.reason[k], r->reason) != NULL;
        if (!found) fail_msg("%s: no reason has '%s'", r->answers, r->reason);
        if (!v.nexts || !strstr(v.next[0], r->command))
            fail_msg("%s: next is '%s'", r->answers, v.next[0]);
        for (int k = 0; k < v.reasons; k++) assert_true(strlen(v.reason[k]) < COMPASS_LINE - 1);
        for (int k = 0; k < v.nexts; k++) assert_true(strncmp(v.next[k], "athanor ", 8) == 0);
    }
}

/* Without any one of its answers a verdict is not reached: that one is asked. */
static void test_questions(void **state) {
    (void)state;
    for (int i = 0; i < ARRAY_LEN(rows); i++) {
        compass all = answers_of(rows[i].answers);
        for (int q = 0; q < ASK_COUNT; q++) {
            compass c = all;
            if (all.answer[q] == NO_ANSWER) continue;
            if (q == ASK_RUNS_ON && strstr(rows[i].answers, "need=device")) continue;
            c.answer[q] = NO_ANSWER;
            if ((int)compass_next(&c) != q)
                fail_msg("%s: without %s", rows[i].answers, compass_questions[q].name);
        }
    }
}

static void test_contradictions(void **state) {
    (void)state;
    static const char *const all[] = {"prompting=yes tuning=no",
                                      "prompting=unknown reason=best",
                                      "prompting=no tuning=yes examples=none team=first",
                                      NO "reason=best need=domain",
                                      NO "reason=research question=no team=first",
                                      DEVICE "runs-on=server team=dense" REST,
                                      DOMAIN "runs-on=edge team=dense time=tight" REST,
                                      NO "reason=production need=none gap=yes"};
    for (int i = 0; i < ARRAY_LEN(all); i++) {
        err e = {0};
        compass c = answers_of(all[i]);
        if (compass_check(&c, &e) != ST_USAGE) fail_msg("%s is accepted", all[i]);
        assert_true(*e.message && *e.hint);
    }
    compass c;
    err e = {0};
    compass_init(&c);
    assert_int_equal(compass_answer(&c, ASK_TEAM, "novice", &e), ST_USAGE);
    assert_non_null(strstr(e.hint, "first, dense, expert"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verdicts),
                                       cmocka_unit_test(test_questions),
                                       cmocka_unit_test(test_contradictions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
