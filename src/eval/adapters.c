/* The task files of published sets (see adapters.h). Prompts are those of lm-evaluation-harness
 * 0.4.13. In a set with subjects "@" is the subject, "~" the subject with spaces instead of
 * underscores, and "^" its name in Chinese (subjects.h). */
#include "eval/adapters.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "eval/subjects.h"

typedef struct adapter {
    const char *name; /* ends with "_": a subject follows */
    const char *reads;
    const char *text;
} adapter;

#define CHOICES "output_type: multiple_choice\n"
#define ACC "metric_list: [{metric: acc}]\n"
#define ACC_NORM "metric_list: [{metric: acc}, {metric: acc_norm}]\n"
#define LETTERS "doc_to_choice: [A, B, C, D]\n"
#define ABCD "\\nA. {{A}}\\nB. {{B}}\\nC. {{C}}\\nD. {{D}}\\n"
#define FIRST "fewshot_split: dev\nfewshot_config: {sampler: first_n}\n"
#define ARC                                                                                        \
    CHOICES ACC_NORM "training_split: train\nvalidation_split: validation\ntest_split: test\n"     \
                     "doc_to_text: \"Question: {{question}}\\nAnswer:\"\n"                         \
                     "doc_to_target: \"{{choices.label.index(answerKey)}}\"\n"                     \
                     "doc_to_choice: \"{{choices.text}}\"\n"

#define LAMBADA                                                                                    \
    "output_type: loglikelihood\ntest_split: test\n"                                               \
    "doc_to_text: \"{{text.split(' ')[:-1]|join(' ')}}\"\n"                                        \
    "doc_to_target: \"{{' ' ~ text.split(' ')[-1]}}\"\n"                                           \
    "metric_list: [{metric: perplexity}, {metric: acc}]\n"

/* HellaSwag's texts have marks of WikiHow in brackets, which go: what re.sub("\\[.*?\\]", "", s)
 * does. */
#define CLEAN                                                                                      \
    "{%- macro clean(s) -%}{%- set ns = namespace(t='') -%}"                                       \
    "{%- for p in s.strip().replace(' [title]', '. ').split('[') -%}"                              \
    "{%- if loop.first -%}{%- set ns.t = p -%}"                                                    \
    "{%- elif ']' in p -%}{%- set ns.t = ns.t ~ p.split(']', 1)[1] -%}"                            \
    "{%- else -%}{%- set ns.t = ns.t ~ '[' ~ p -%}{%- endif -%}{%- endfor -%}"                     \
    "{{ ns.t.replace('  ', ' ') }}{%- endmacro -%}"

static const adapter adapters[] = {
    {"arc_challenge", "arc_challenge/{train,validation,test}.jsonl",
     ARC "dataset_name: ARC-Challenge\n"},
    {"arc_easy", "arc_easy/{train,validation,test}.jsonl", ARC "dataset_name: ARC-Easy\n"},
    {"boolq", "boolq/{train,validation}.jsonl",
     CHOICES ACC "training_split: train\nvalidation_split: validation\n"
                 "doc_to_text: \"{{passage}}\\nQuestion: {{question}}?\\nAnswer:\"\n"
                 "doc_to_target: \"{{(label if label is defined else answer) | int}}\"\n"
                 "doc_to_choice: [\"no\", \"yes\"]\n"},
    {"ceval-valid_", "dev/SUBJECT_dev.csv, val/SUBJECT_val.csv",
     CHOICES ACC_NORM FIRST LETTERS
     "validation_split: val\ndataset_name: \"@\"\n"
     "description: \"以下是中国关于^的单项选择题，请选出其中的正确答案。\\n\\n\"\n"
     "dataset_kwargs: {data_files: {val: val/@_val.csv, dev: dev/@_dev.csv}}\n"
     "doc_to_text: \"{{question.strip()}}" ABCD "答案：\"\n"
     "doc_to_target: \"{{['A', 'B', 'C', 'D'].index(answer)}}\"\n"},
    {"cmmlu_", "dev/SUBJECT.csv, test/SUBJECT.csv",
     CHOICES ACC_NORM FIRST LETTERS
     "test_split: test\n"
     "dataset_kwargs: {data_files: {test: test/@.csv, dev: dev/@.csv}}\n"
     "description: \"以下是关于^的单项选择题，请直接给出正确答案的选项。\\n\\n\"\n"
     "doc_to_text: \"{{Question.strip()}}" ABCD "答案：\"\n"
     "doc_to_target: \"{{['A', 'B', 'C', 'D'].index(Answer)}}\"\n"},
    {"commonsense_qa", "commonsense_qa/{train,validation}.jsonl",
     CHOICES ACC
     "training_split: train\nvalidation_split: validation\ndoc_to_target: answerKey\n"
     "doc_to_choice: [A, B, C, D, E]\n"
     "doc_to_text: \"Question: {{ question.strip() }}\\nA. {{choices['text'][0]}}\\n"
     "B. {{choices['text'][1]}}\\nC. {{choices['text'][2]}}\\nD. {{choices['text'][3]}}\\n"
     "E. {{choices['text'][4]}}\\nAnswer:\"\n"},
    {"global_mmlu_", "LANGUAGE/{dev,test}.jsonl",
     CHOICES ACC FIRST LETTERS
     "test_split: test\ndataset_name: \"@\"\n"
     "doc_to_text: \"{{question.strip()}}\\nA. {{option_a}}\\nB. {{option_b}}\\nC. {{option_c}}\\n"
     "D. {{option_d}}\\nAnswer:\"\ndoc_to_target: answer\n"},
    {"gsm8k", "gsm8k/{train,test}.jsonl",
     "output_type: generate_until\ndataset_name: main\nfewshot_split: train\ntest_split: "
     "test\nnum_fewshot: 5\n"
     "doc_to_text: \"Question: {{question}}\\nAnswer:\"\ndoc_to_target: \"{{answer}}\"\n"
     "metric_list: [{metric: exact_match, ignore_case: true, "
     "regexes_to_ignore: [',', '\\$', '(?s).*#### ', '\\.$']}]\n"
     "generation_kwargs: {until: ['Question:', '</s>', '<|im_end|>']}\n"
     "filter_list: [{name: strict-match, filter: [{function: regex, "
     "regex_pattern: '#### (\\-?[0-9\\.\\,]+)'}]}, {name: flexible-extract, filter: "
     "[{function: regex, group_select: -1, regex_pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)'}]}]\n"},
    {"hellaswag", "hellaswag/{train,validation}.jsonl",
     CHOICES ACC_NORM "training_split: train\nvalidation_split: validation\n"
                      "doc_to_text: \"" CLEAN
                      "{{ clean(activity_label ~ ': ' ~ ctx_a ~ ' ' ~ ctx_b.capitalize()) }}\"\n"
                      "doc_to_choice: \"" CLEAN
                      "{%- set l = namespace(l=[]) -%}{%- for e in endings -%}"
                      "{%- set l.l = l.l + [clean(e)] -%}{%- endfor -%}{{ l.l }}\"\n"
                      "doc_to_target: \"{{label}}\"\n"},
    {"ifeval", "ifeval_input_data.jsonl, or ifeval/train.jsonl",
     "output_type: generate_until\ndataset_name: default\ntest_split: train\nnum_fewshot: 0\n"
     "dataset_kwargs: {data_files: {train: ifeval_input_data.jsonl}}\n"
     "doc_to_text: prompt\ndoc_to_target: 0\n"
     "metric_list: [{metric: prompt_level_strict_acc}, {metric: inst_level_strict_acc}, "
     "{metric: prompt_level_loose_acc}, {metric: inst_level_loose_acc}]\n"
     "generation_kwargs: {until: [], max_gen_toks: 1280}\n"},
    {"lambada_openai", "lambada_openai/test.jsonl", LAMBADA "dataset_name: default\n"},
    {"lambada_standard", "lambada_standard/test.jsonl", LAMBADA "dataset_name: plain_text\n"},
    {"mmlu_", "dev/SUBJECT_dev.csv, test/SUBJECT_test.csv (question, four choices, letter)",
     CHOICES ACC FIRST LETTERS
     "test_split: test\ndataset_name: \"@\"\n"
     "dataset_kwargs: {data_files: {test: test/@_test.csv, dev: dev/@_dev.csv}, "
     "column_names: [question, A, B, C, D, answer]}\n"
     "description: \"The following are multiple choice questions (with answers) about ~.\\n\\n\"\n"
     "doc_to_text: \"{%- set c = choices if choices is defined else [A, B, C, D] -%}"
     "{{question.strip()}}\\nA. {{c[0]}}\\nB. {{c[1]}}\\nC. {{c[2]}}\\nD. {{c[3]}}\\nAnswer:\"\n"
     "doc_to_target: answer\n"},
    {"openbookqa", "openbookqa/{train,validation,test}.jsonl",
     CHOICES ACC_NORM "training_split: train\nvalidation_split: validation\ntest_split: test\n"
                      "dataset_name: main\ndoc_to_text: question_stem\n"
                      "doc_to_choice: \"{{choices.text}}\"\n"
                      "doc_to_target: \"{{choices.label.index(answerKey.lstrip())}}\"\n"},
    {"piqa", "piqa/{train,validation}.jsonl",
     CHOICES ACC_NORM "training_split: train\nvalidation_split: validation\n"
                      "dataset_name: plain_text\n"
                      "doc_to_text: \"Question: "
                      "{{goal}}\\nAnswer:\"\ndoc_to_target: label\n"
                      "doc_to_choice: \"{{[sol1, sol2]}}\"\n"},
    {"winogrande", "winogrande/{train,validation}.jsonl",
     CHOICES ACC "training_split: train\nvalidation_split: validation\n"
                 "dataset_name: winogrande_xl\n"
                 "doc_to_text: \"{{ ['1', '2'].index(answer | string) }}\"\n"
                 "doc_to_choice: \"{%- set at = sentence.index('_') -%}"
                 "{{ [sentence[:at] ~ option1, sentence[:at] ~ option2] }}\"\n"
                 "doc_to_target: \"{{ sentence[sentence.index('_') + 1:].strip() }}\"\n"},
};

static bool takes_subject(const adapter *k) {
    return k->name[strlen(k->name) - 1] == '_';
}

/* The subject that a name has after the adapter's; NULL: it is not of this adapter. */
static const char *subject_in(const adapter *k, const char *name) {
    size_t n = strlen(k->name);
    if (!takes_subject(k)) return strcmp(k->name, name) == 0 ? "" : NULL;
    if (strncmp(k->name, name, n) != 0 || !name[n]) return NULL;
    size_t good =
        strspn(name + n, "abcdefghijklmnopqrstuvwxyz_0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return name[n + good] == 0 ? name + n : NULL;
}

/* Puts the subject where the text asks for it; false: it has no name in Chinese. */
static bool add_with_subject(const char *text, const char *subject, bool of_ceval, strbuf *out) {
    size_t n = 0;
    for (const char *s = text; *s; s++) {
        if (*s == '@') {
            strbuf_puts(out, subject);
        } else if (*s == '~') {
            for (const char *c = subject; *c; c++) strbuf_putc(out, *c == '_' ? ' ' : *c);
        } else if (*s == '^') {
            const char *name = eval_subject_name(of_ceval, subject, &n);
            if (!name) return false;
            strbuf_append(out, name, n);
        } else {
            strbuf_putc(out, *s);
        }
    }
    return true;
}

const char *eval_adapter_nearest(const char *name) {
    const char *names[ARRAY_LEN(adapters)];
    for (int i = 0; i < ARRAY_LEN(adapters); i++) names[i] = adapters[i].name;
    int near = text_nearest(name, names, ARRAY_LEN(adapters));
    return near < 0 ? NULL : names[near];
}

bool eval_adapter_text(const char *name, strbuf *out) {
    for (int i = 0; i < ARRAY_LEN(adapters); i++) {
        const char *subject = subject_in(&adapters[i], name);
        if (!subject) continue;
        strbuf_printf(out, "task: %s\n", name);
        bool of_ceval = strcmp(adapters[i].name, "ceval-valid_") == 0;
        if (takes_subject(&adapters[i]))
            return add_with_subject(adapters[i].text, subject, of_ceval, out);
        strbuf_puts(out, adapters[i].text);
        return true;
    }
    return false;
}

char *eval_adapter_list(void) {
    strbuf out = {0};
    strbuf_puts(&out, "Tasks by name, and what they read in the folder of --data (or the Parquet "
                      "files of the hub):\n");
    for (int i = 0; i < ARRAY_LEN(adapters); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", adapters[i].name,
                 takes_subject(&adapters[i]) ? "SUBJECT" : "");
        strbuf_printf(&out, "  %-22s %s\n", name, adapters[i].reads);
    }
    strbuf_puts(&out,
                "  vibe                   nothing: dialogues of three turns, judged by rule\n");
    return out.data;
}
