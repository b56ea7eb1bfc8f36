/* athanor decide: whether to train, and what (compass.h): answers are options, or asked in a terminal. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/decide/compass.h"
#include "app/decide/decide.h"
#include "base/json.h"
#include "base/text.h"

/* ---- answers ---- */

static status read_answers(const cli_args *args, compass *c, err *e) {
    compass_init(c);
    for (int i = 0; i < ASK_COUNT; i++) {
        const char *word = cli_value(args, compass_questions[i].name);
        if (word) TRY(compass_answer(c, (compass_question)i, word, e));
    }
    TRY(cli_num(args, "device-hours", 0, 1, 1e12, &c->device_hours, e));
    return compass_check(c, e);
}

static void print_question(const compass_entry *q) {
    printf("\n%s\n", q->text);
    for (int i = 0; i < COMPASS_CHOICES && q->choice[i].word; i++)
        printf("  %d  %-14s %s\n", i + 1, q->choice[i].word, q->choice[i].means);
}

/* Reads a line; ST_USAGE: the input ends. */
static status read_line(const compass_entry *k, char line[128], err *e) {
    printf("> ");
    fflush(stdout);
    if (!fgets(line, 128, stdin))
        return err_at(e, ST_USAGE, k->name, "there is no answer to: %s", k->text);
    line[strcspn(line, "\r\n")] = '\0';
    return ST_OK;
}

/* The choice with that number, or the only one that begins so; NULL: none. */
static const char *find_choice(const compass_entry *k, const char *line) {
    int64_t n = 0;
    const char *found = NULL;
    if (text_parse_int(line, &n))
        return n >= 1 && n <= COMPASS_CHOICES ? k->choice[n - 1].word : NULL;
    for (int i = 0; *line && i < COMPASS_CHOICES && k->choice[i].word; i++) {
        if (strcmp(k->choice[i].word, line) == 0) return k->choice[i].word;
        if (strncmp(k->choice[i].word, line, strlen(line)) != 0) continue;
        if (found) return NULL;
        found = k->choice[i].word;
    }
    return found;
}

/* Until there is an answer, or the input ends. */
static status ask(compass *c, compass_question q, err *e) {
    const compass_entry *k = &compass_questions[q];
    char line[128];
    print_question(k);
    for (;;) {
        TRY(read_line(k, line, e));
        const char *word = find_choice(k, line);
        if (word) return compass_answer(c, q, word, e);
        printf("One of the words, its first letters, or its number.\n");
    }
}

/* What a run may cost; an empty line: not known yet. */
static status ask_budget(compass *c, err *e) {
    static const compass_entry k = {.name = "device-hours",
                                    .text = "How many hours of an H100, or of devices like it, can "
                                            "the run take? (Enter: not known yet)"};
    char line[128];
    printf("\n%s\n", k.text);
    for (;;) {
        TRY(read_line(&k, line, e));
        double hours = 0;
        if (!*line) return ST_OK;
        if (text_parse_number(line, &hours) && hours >= 1 && hours <= 1e12) {
            c->device_hours = hours;
            return ST_OK;
        }
        printf("A number of 1 or more, such as 5760: 8 devices for 30 days.\n");
    }
}

static status ask_all(compass *c, err *e) {
    printf("Answer with a word, its first letters, or its number. Nothing is trained yet.\n");
    for (compass_question q = compass_next(c); q != ASK_COUNT; q = compass_next(c))
        TRY(ask(c, q, e));
    bool pretrains = strcmp(compass_decide(c).name, "pretrain") == 0;
    if (pretrains && c->device_hours <= 0) TRY(ask_budget(c, e));
    printf("\n");
    return ST_OK;
}

static status missing(compass_question q, err *e) {
    const compass_entry *k = &compass_questions[q];
    strbuf words = {0};
    for (int i = 0; i < COMPASS_CHOICES && k->choice[i].word; i++)
        strbuf_printf(&words, "%s%s", i ? "|" : "", k->choice[i].word);
    err_at(e, ST_USAGE, k->name, "%s", k->text);
    err_hint(e, "--%s %s", k->name, strbuf_cstr(&words));
    strbuf_free(&words);
    return ST_USAGE;
}

/* ---- the verdict ---- */

static const struct {
    const char *name, *says;
} verdicts[] = {{"prompt", "Do not train: prompt an existing model."},
                {"try", "Find out first what an existing model does."},
                {"collect", "Do not train yet: collect examples."},
                {"tune", "Fine-tune an existing model."},
                {"prefer", "Train an existing model by preference."},
                {"continue", "Continue the pretraining of an existing model."},
                {"keep", "Do not pretrain."},
                {"too-small", "Do not pretrain: the budget is too small."},
                {"pretrain", "Pretrain"}};

static const char *says(const char *name) {
    int i = 0;
    while (strcmp(verdicts[i].name, name) != 0) i++;
    return verdicts[i].says;
}

static json_t *answers_json(const compass *c) {
    json_t *o = json_object();
    for (int i = 0; i < ASK_COUNT; i++)
        if (c->answer[i] != NO_ANSWER)
            json_object_set_new(o, compass_questions[i].name,
                                json_cstr(compass_questions[i].choice[c->answer[i]].word));
    return o;
}

static json_t *lines_json(const char (*line)[COMPASS_LINE], int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_cstr(line[i]));
    return list;
}

static void print_json(const compass *c, const compass_verdict *v) {
    json_t *o = json_pack("{s:s,s:o,s:o,s:s,s:o}", "verdict", v->name, "answers", answers_json(c),
                          "reasons", lines_json(v->reason, v->reasons), "command", v->next[0],
                          "commands", lines_json(v->next, v->nexts));
    if (v->architecture) json_object_set_new(o, "architecture", json_cstr(v->architecture));
    if (v->params > 0)
        json_object_set_new(o, "budget",
                            json_pack("{s:f,s:f,s:f}", "flops", v->flops, "params", v->params,
                                      "tokens", v->tokens));
    cli_print_json(o);
}

/* What commands are for, and what stands for what in them. */
static const struct {
    const char *part, *means;
} words[] = {{"athanor decide --try",
              "what a model scores as it is, with examples, and after an adapter"},
             {"athanor eval", "what a model answers, to see what is missing"},
             {"athanor chat", "talk to it"},
             {"athanor train", "trains; docs/teaching.md has such a config"},
             {"athanor recipe", "the whole way once, small: from text to a model that talks"},
             {"athanor plan search", "the best layout, and how long a step takes"},
             {"athanor plan cost", "days, energy and money, with the work beside the run"},
             {"athanor plan infer", "whether it fits where it will run, and how fast it writes"}},
  stands[] = {
      {" MODEL", "MODEL: a folder of Hugging Face, a .gguf file, or a run"},
      {" TASKS", "TASKS: what is scored; docs/evaluation.md lists them, or a JSONL of your own"},
      {" SCORE", "SCORE: what is good enough, 0.7 for example"},
      {" FILE", "FILE: conversations to learn from, a JSONL"}};

static void print_next(const compass_verdict *v) {
    strbuf all = {0};
    printf("next:\n");
    for (int i = 0; i < v->nexts; i++) {
        printf("  %s\n", v->next[i]);
        for (int k = 0; k < ARRAY_LEN(words); k++)
            if (strncmp(v->next[i], words[k].part, strlen(words[k].part)) == 0)
                printf("      %s\n", words[k].means);
        strbuf_printf(&all, "%s ", v->next[i]);
    }
    for (int k = 0; k < ARRAY_LEN(stands); k++)
        if (strstr(strbuf_cstr(&all), stands[k].part)) printf("%s\n", stands[k].means);
    strbuf_free(&all);
}

static void print_text(const compass_verdict *v) {
    printf("%s", says(v->name));
    if (v->architecture) printf(" a %s model.", v->architecture);
    printf("\n");
    for (int i = 0; i < v->reasons; i++) printf("  - %s\n", v->reason[i]);
    print_next(v);
}

/* The command that says the same without questions. */
static void print_again(const compass *c) {
    printf("\nThe same again: athanor decide");
    for (int i = 0; i < ASK_COUNT; i++)
        if (c->answer[i] != NO_ANSWER)
            printf(" --%s %s", compass_questions[i].name,
                   compass_questions[i].choice[c->answer[i]].word);
    if (c->device_hours > 0) printf(" --device-hours %.12g", c->device_hours);
    printf("\n");
}

static status decide(const cli_args *args, err *e) {
    compass c;
    TRY(read_answers(args, &c, e));
    bool terminal = !args->json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    compass_question open = compass_next(&c);
    bool asks = terminal && open != ASK_COUNT;
    if (asks)
        TRY(ask_all(&c, e));
    else if (open != ASK_COUNT)
        return missing(open, e);
    TRY(compass_check(&c, e));
    compass_verdict v = compass_decide(&c);
    if (args->json)
        print_json(&c, &v);
    else
        print_text(&v);
    if (asks) print_again(&c);
    return ST_OK;
}

static status cmd_decide(const cli_args *args, err *e) {
    if (args->n_inputs > 0) {
        err_at(e, ST_USAGE, args->inputs[0], "decide takes answers as options, and no input");
        return err_hint(e, "athanor decide --try %s --tasks TASKS --target SCORE", args->inputs[0]);
    }
    if (cli_has(args, "try")) return decide_try(args, e);
    if (args->output) {
        err_at(e, ST_USAGE, "-o", "without --try nothing is written");
        return err_hint(e, "--json prints the verdict for a program: redirect it into %s",
                        args->output);
    }
    TRY(cli_refuse_overrides(args, "keys are of the training that --try does", e));
    return decide(args, e);
}

static const cli_option options[] = {
    {"prompting", "X", "whether prompting an existing model does it: yes, no, unknown"},
    {"tuning", "X", "whether tuning one does it: yes, no, unknown"},
    {"examples", "X", "what there is to tune with: none, conversations, preferences, text"},
    {"reason", "X",
     "of pretraining: research, production, open-source, compute, others, future, best"},
    {"question", "X", "of research: whether a run answers one question: yes, no"},
    {"need", "X", "of production: domain, device, governance, none"},
    {"gap", "X", "of open source: whether there is one to fill: yes, no"},
    {"runs-on", "X", "where the model will run: edge, server"},
    {"team", "X", "what the team has trained: first, dense, expert"},
    {"time", "X", "tight (weeks), flexible (months)"},
    {"languages", "X", "one, many"},
    {"context", "X", "short (8k tokens), long (128k), longer"},
    {"device-hours", "H", "of H100s for the run: which size that pays for"},
    {"try", "MODEL", "score a model as it is, with examples, and after an adapter"},
    {"tasks", "A,B", "with --try: what it is scored on, as athanor eval has it"},
    {"target", "X",
     "with --try: the score that is good enough; of perplexities and bits less is better"},
    {"metric", "NAME", "with --try: which score (the first that the task has)"},
    {"examples-file", "FILE", "with --try: conversations for the adapter (none: it is left out)"},
    {"fewshot", "N", "with --try: examples in the prompt (5; 0: not)"},
    {"minutes", "M", "with --try: of training at most (30)"},
    {"steps", "N", "with --try: of training at most (200)"},
    {"task-data", "FOLDER", "with --try: where the data files of tasks are"},
    {"limit", "N", "with --try: only the first N documents of each task"},
    {0}};

static const cli_rule rules[] = {
    {"try", CLI_NEEDS, "tasks", NULL},
    {"tasks", CLI_NEEDS, "try", NULL},
    {"target", CLI_NEEDS, "try", NULL},
    {"metric", CLI_NEEDS, "try", NULL},
    {"examples-file", CLI_NEEDS, "try", NULL},
    {"fewshot", CLI_NEEDS, "try", NULL},
    {"minutes", CLI_NEEDS, "examples-file", NULL},
    {"steps", CLI_NEEDS, "examples-file", NULL},
    {"task-data", CLI_NEEDS, "try", NULL},
    {"limit", CLI_NEEDS, "try", NULL},
    {"try", CLI_EXCLUDES,
     "prompting|tuning|examples|reason|question|need|gap|runs-on|team|time|languages|context|"
     "device-hours",
     "answers are not asked for where a model is tried"},
    {0}};

const cli_command command_decide = {
    .name = "decide",
    .summary = "whether to train a model, and which",
    .usage = "[--prompting X] [--tuning X] ... | --try MODEL --tasks A,B --target X "
             "[--examples-file FILE] [-o FOLDER] [key=value...]",
    .run = cmd_decide,
    .options = options,
    .rules = rules,
    .min_inputs = 0,
    .max_inputs = 1,
    .takes_output = true,
    .takes_keys = true,
    .about = "Asks what is missing where it runs in a terminal. With --try keys are of the\n"
             "training of the adapter: optim.lr=1e-4, train.seq_len=512.\n"};
