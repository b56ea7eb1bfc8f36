# athanor eval: scores and samples of tasks of every source, two models side by side, what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config tiny.yaml
expect 0 train tiny.yaml
m=run/checkpoints/step-40

# A task of choices from the text itself: the model has learned which words there are.
mkdir cloze
printf '{"task_name": "words", "task_config": {"split": "validation"}}' >cloze/config.json
head -n 12 text.txt | awk '{ for (i = 0; i < 2; i++)
    printf "{\"request_type\": \"loglikelihood\", \"doc\": {}, \"request\": {\"context\": \"%s %s\", \"continuation\": \" %s\"}, \"idx\": %d, \"doc_id\": %d, \"label\": 0}\n",
        $1, $2, i ? "dnnn" : $3, i, NR - 1 }' >plain
gzip -c plain >cloze/requests.jsonl.gz

expect 0 eval $m --tasks cloze --samples samples.jsonl --json
calc "$(field 'acc_tokens,none' out) > 0.9" || fail "words that are none are more likely"
for key in acc_norm acc_bytes acc_tokens acc_stderr acc_norm_stderr; do has out "\"$key,none\": "; done
has out '"sample_len": 12'
[ "$(wc -l <samples.jsonl)" = 12 ] || fail "samples"
grep -qE '^\{"task": "words", "doc_id": 11, "gold": 0, "loglik": \[-[0-9.]+, -[0-9.]+\]\}$' samples.jsonl || fail "a sample: $(tail -n 1 samples.jsonl)"

# The same bits with fewer documents, other memory and one thread; the run is its newest checkpoint.
expect 0 eval run --tasks cloze --limit 5 --threads 1 --samples few.jsonl
cmp <(head -n 5 samples.jsonl) few.jsonl || fail "scores depend on what else is scored"
grep -qE '^words +acc +none +1\.0000 +0\.0000 +5$' out || fail "the table"

# One document has no standard error.
expect 0 eval run --tasks cloze --limit 1
grep -qE '^words +acc +none +1\.0000 +- +1$' out || fail "the table of one document: $(cat out)"

# Killed at any moment, it goes on where it was, and comes to the same bits. The system kills it when what it writes is
# larger than so many kilobytes.
killed_at() {
    (ulimit -f "$1" && shift && exec "$athanor" "$@") >out 2>err && fail "it was not killed: $*"
    [ ! -e again.jsonl ] && [ -s again.jsonl.part ] || fail "what was computed: $(ls -l again.jsonl*)"
}
awk 'NR <= 500 { for (i = 4; i <= NF; i += 2) printf "{\"context\": \"%s %s %s\", \"choices\": [\" %s\", \" a\"], \"gold\": 0}\n", $(i-3), $(i-2), $(i-1), $i }' text.txt >many.jsonl
expect 0 eval $m --tasks many.jsonl --samples whole.jsonl --json
mv out whole.out
[ ! -e whole.jsonl.part ] || fail "the part of a finished evaluation stays"
killed_at 60 eval $m --tasks many.jsonl --samples again.jsonl --json
[ ! -e again.jsonl.part ] || printf '{"key": "12' >>again.jsonl.part
expect 0 eval $m --tasks many.jsonl --samples again.jsonl --json
cmp whole.jsonl again.jsonl || fail "an evaluation that goes on gives other scores"
[ "$(field rows out)" -lt "$(field rows whole.out)" ] || fail "nothing of what was computed was used"

# Samples that cannot be written take nothing of it with them.
mkdir taken
expect 1 eval $m --tasks many.jsonl --samples taken
[ -s taken.part ] || fail "what was computed is gone"
rmdir taken
expect 0 eval $m --tasks many.jsonl --samples taken --json
cmp whole.jsonl taken && [ ! -e taken.part ] || fail "it did not go on"
[ "$(field rows out)" = 0 ] || fail "something was computed again"

# What the first of two models has computed is kept until the second has ended, too.
cp -r $m broken
truncate -s 100 broken/*.safetensors
expect 3 eval $m --tasks many.jsonl --samples two.jsonl --against broken
expect 0 eval $m --tasks many.jsonl --samples two.jsonl --against $m --json
[ "$(field rows out)" = 0 ] || fail "the first model was computed again"
cmp whole.jsonl two.jsonl && [ ! -e two.jsonl.part ] || fail "what was kept of two models"

# JSONL, one document with three choices.
printf '{"context": "the fire", "choices": [" feeds", "s", " and"], "gold": 2}\n' >one.jsonl
expect 0 eval $m --tasks one.jsonl --samples one.out --json
expect 0 eval $m --tasks one.jsonl,cloze --show 1
has out "==== one, document 0 (one.jsonl:1)"
has out "---- context (8 bytes)"
has out "choice 2, right: log-likelihood -"

# Task files of lm-evaluation-harness: examples, an answer, bits per byte.
cat >words.yaml <<'YAML'
task: ends
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl, dev: rows.jsonl}}
test_split: test
fewshot_split: dev
num_fewshot: 1
fewshot_config: {sampler: first_n}
output_type: multiple_choice
doc_to_text: "{{a}}"
doc_to_choice: "{{[b, c]}}"
doc_to_target: "{{answer}}"
YAML
printf '{"a": "the fire", "b": "and", "c": "of", "answer": 0}\n{"a": "every", "b": "ember", "c": "a", "answer": 0}\n' >rows.jsonl
sed 's/task: ends/task: all/; /doc_to_choice/d; /fewshot/d; s/multiple_choice/loglikelihood_rolling/; s/{{answer}}/{{a}} {{b}}/' words.yaml >all.yaml
sed 's/task: ends/task: write/; /doc_to_choice/d; s/multiple_choice/generate_until/; s/{{answer}}/{{b}}/' words.yaml >write.yaml
cat >>write.yaml <<'YAML'
generation_kwargs: {until: [" "], max_gen_toks: 8}
metric_list: [{metric: exact_match, ignore_case: true}]
filter_list: [{name: first, filter: [{function: regex, regex_pattern: "(\\w+)"}]}]
YAML
expect 0 eval $m --tasks words.yaml,all.yaml,write.yaml --samples three.jsonl --json
for key in '"ends": {' 'acc_norm,none' 'bits_per_byte,none' 'byte_perplexity_stderr,none' 'exact_match,first'; do has out "$key"; done
calc "$(field 'bits_per_byte,none' out) > 0.3 && $(field 'bits_per_byte,none' out) < 6" || fail "bits per byte"
grep -qF '"prompt": "the fire and\n\nevery"' three.jsonl || fail "the prompt with its example: $(cat three.jsonl)"
expect 0 eval $m --tasks words.yaml --show 2 --num-fewshot 0
has out "---- context (5 bytes)"

# A continuation: how likely it is, and whether the model would write it, which is what it generates.
awk 'NR <= 60 { n = 1 + NR % 3; s = $1 " " $2 " " $3; printf "{\"a\": \"%s\", \"b\": \"%s\"}\n", substr(s, 1, length(s) - n), substr(s, length(s) - n + 1) }' text.txt >last.jsonl
cat >last.yaml <<'YAML'
output_type: loglikelihood
dataset_kwargs: {data_files: {test: last.jsonl}}
test_split: test
doc_to_text: a
doc_to_target: b
YAML
sed 's/output_type.*/output_type: generate_until/' last.yaml >next.yaml
echo 'generation_kwargs: {until: ["\n"], max_gen_toks: 5}' >>next.yaml
expect 0 eval $m --tasks last.yaml --samples greedy.jsonl --json
for key in '"perplexity,none"' '"perplexity_stderr,none"'; do has out "$key"; done
share=$(field 'acc,none' out)
expect 0 eval $m --tasks last.yaml --show 60
has out "---- the model would write it"
expect 0 eval $m --tasks next.yaml --samples written.jsonl
paste -d '|' <(sed 's/.*"greedy": \([a-z]*\).*/\1/' greedy.jsonl) <(sed 's/.*"gold": "\([^"]*\)".*"written": "\([^"]*\)".*/\1|\2/' written.jsonl) |
    awk -F '|' '{ same = index($3, $2) == 1; n += same; if (same != ($1 == "true")) print "no:", $0 } END { print n / NR }' >joined
[ "$(wc -l <joined)" = 1 ] || fail "greedy or not: $(cat joined)"
calc "($(cat joined) - $share)^2 < 1e-8 && $share > 0.05 && $share < 0.9" || fail "the share $share: $(cat joined)"

# Answers are written together, and are what they are alone; several of each are drawn from the temperature.
expect 0 eval $m --tasks next.yaml --limit 3 --threads 1 --samples three.out
cmp <(head -n 3 written.jsonl) three.out || fail "answers depend on what else is asked"
expect 0 eval $m --tasks next.yaml --repeats 4 --temperature 1 --samples four.jsonl --json
has out '"repeats": 4'
sed 's/.*"written": \["\([^"]*\)", "\([^"]*\)", "[^"]*", "[^"]*"\].*/\1|\2/' four.jsonl | awk -F '|' 'NF == 2 && $1 != $2 { n++ } END { exit n < 30 }' ||
    fail "of each four answers: $(head -n 2 four.jsonl)"
expect 0 eval $m --tasks next.yaml --repeats 4 --temperature 1 --limit 2 --samples two.jsonl
cmp <(head -n 2 four.jsonl) two.jsonl || fail "what is drawn depends on what else is asked"
expect 2 eval $m --tasks next.yaml --repeats 4;       has err "4 answers of temperature 0 are all the same"
expect 2 eval $m --tasks cloze --repeats 4 --temperature 1; has err "--repeats does nothing"
expect 2 eval $m --tasks one.jsonl --chat;            has err "--chat does nothing: none of the tasks has the model write an answer"
expect 0 eval $m --tasks cloze,next.yaml --repeats 2 --temperature 1 --limit 1
expect 2 eval $m --tasks one.jsonl --num-fewshot 2;   has err "--num-fewshot does nothing with the task one"
expect 2 eval $m --tasks words.yaml,cloze --num-fewshot 1; has err "with the task words"
# A prompt of nothing begins a text, as a context of nothing does; a mark in front of the file is no part of it.
printf '\357\273\277{"a": "", "b": "the"}\r\n{"a": "the", "b": "fire"}' >bare.jsonl
sed 's/last.jsonl/bare.jsonl/' next.yaml >bare.yaml
expect 0 eval $m --tasks bare.yaml --samples bare.out
[ "$(grep -c '"prompt": "", "written": "[^"]' bare.out)" = 1 ] || fail "an empty prompt: $(cat bare.out)"
sed 's/"a"/"prompt"/; s/"b"/"answer"/' bare.jsonl >long.jsonl
expect 2 eval $m --tasks long.jsonl;                  has err "generation_kwargs: {max_gen_toks: "
rm again.jsonl
killed_at 20 eval $m --tasks next.yaml --repeats 10 --temperature 1 --samples again.jsonl
expect 0 eval $m --tasks next.yaml --repeats 10 --temperature 1 --samples again.jsonl
expect 0 eval $m --tasks next.yaml --repeats 10 --temperature 1 --samples unharmed.jsonl
cmp again.jsonl unharmed.jsonl || fail "writing that goes on gives other answers"

# Prompts in a chat template, and dialogues, with the cause where it can be told.
printf '%s' '{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant{% endif %}' >good.jinja
sed "s/ for m in messages / for m in messages if m.role != 'system' /" good.jinja >drops.jinja
expect 0 eval $m --tasks next.yaml --chat --system "be kind" --template good.jinja --limit 1 --samples chat.jsonl
grep -qF '"prompt": "system be kind user ' chat.jsonl || fail "the template: $(cat chat.jsonl)"
expect 2 eval $m --tasks next.yaml --system "be kind"; has err "add --chat"
cat >manners.yaml <<'YAML'
max_gen_toks: 4
dialogues:
  - {id: any, system: a, turns: [{user: a, expect: {lacks: qqq}}, {user: b, expect: {matches: "."}}]}
  - {id: none, about: the tool, needs: tools, turns: [{user: a}, {user: b}]}
YAML
expect 0 eval $m --tasks manners.yaml --template good.jinja --samples talk.jsonl --json
has out '"verdict": "pass"'; has out '"pass,turn_2": 1.0'; has out '"pass,all": 1.0'; has out '"\"none\": the chat template knows no tools"'
grep -qF '"turns": [{"prompt": "system a user a assistant", "answer": "' talk.jsonl || fail "turns: $(cat talk.jsonl)"
expect 0 eval $m --tasks manners.yaml --template good.jinja --max-length 40 --show 1
has out "fails: fits into the context"
expect 2 eval $m --tasks manners.yaml --template good.jinja --repeats 3 --temperature 1; has err "--repeats does nothing: dialogues are held once"
expect 0 eval $m --tasks manners.yaml --template drops.jinja --show 1
has out "manners: fail"; has out '"any": the chat template drops the system prompt at turn 1'; has out "---- turn 2 passes"
expect 3 eval $m --tasks vibe;                        has err "chat template"
printf 'dialogues:\n  - turns:\n    - {user: a, expect: {contain: b}}\n' >wrong.yaml
expect 3 eval $m --tasks wrong.yaml;                  has err "there is no rule contain"; has err "wrong.yaml:2"

# IFEval: its known name asks for long answers; a task file says the same with short ones.
printf '{"key": 1, "prompt": "the fire", "instruction_id_list": ["punctuation:no_comma", "keywords:existence"], "kwargs": [{}, {"keywords": ["zzz"]}]}\n' >ifeval_input_data.jsonl
expect 2 eval $m --tasks ifeval --data .;             has err "1280 tokens leave no room"
cat >follow.yaml <<'YAML'
test_split: train
dataset_kwargs: {data_files: {train: ifeval_input_data.jsonl}}
doc_to_text: prompt
doc_to_target: 0
generation_kwargs: {until: [], max_gen_toks: 8}
metric_list: [{metric: prompt_level_strict_acc}, {metric: inst_level_strict_acc}, {metric: inst_level_loose_acc}]
YAML
expect 0 eval $m --tasks follow.yaml --samples follow.jsonl --json
has out '"prompt_level_strict_acc,none": 0.0'; has out '"inst_level_strict_acc,none": 0.5'; has out '"inst_level_loose_acc,none": 0.5'
grep -qF '{"instruction": "punctuation:no_comma", "strict": true, "loose": true}' follow.jsonl || fail "instructions: $(cat follow.jsonl)"

# Texts in slices.
printf '{"text": "the fire feeds a light", "source": "web"}\n{"text": "every ember", "source": "book"}\n' >texts.jsonl
expect 0 eval $m --tasks texts.jsonl --json
for key in '"p50": ' '"by_frequency": {"1": {"loss": ' '"by_source": {"web": {"bits_per_byte": '; do has out "$key"; done
expect 0 eval $m --tasks texts.jsonl
has out "bits per byte of     book"
printf '{"text": "every ember", "source": "\\u001b[31mred"}\n' >red.jsonl
expect 0 eval $m --tasks red.jsonl;  has out "^[[31mred"; lacks out $'\033[31m'

# Another model on the same documents: an untrained one is worse.
expect 0 train tiny.yaml run=young train.steps=1 checkpoint.every=1
expect 0 eval $m --tasks cloze,words.yaml --against young --json
for key in '"differences"' '"results_against"' '"difference": ' '"p": '; do has out "$key"; done
expect 0 eval $m --tasks cloze --against young
has out "difference to the other"
in_80() { [ -z "$(awk "length > 80" out)" ] || fail "a table is wider than 80 columns"; }
in_80

# What quantising costs: fp32 in a GGUF file nothing, 16 bits hardly anything.
expect 0 tok train text.txt -o bpe.json --vocab-size 300 # what GGUF files can hold
expect 0 data build text.txt -o bpe tokenizer=bpe.json valid=0.1
expect 0 train tiny.yaml run=byte tokenizer=bpe.json data.train=bpe/train data.valid=bpe/valid
mkdir formats
export TMPDIR=$PWD/formats
expect 0 eval byte --tasks texts.jsonl --formats F32,f16 --json
bpb() { grep -o '"bits_per_byte,none": [0-9.]*' out | sed -n "$1s/.* //p"; } # as it is, in F32, in F16
calc "($(bpb 1) / $(bpb 2) - 1) ^ 2 < 1e-10" || fail "F32 has other bits per byte"
calc "($(bpb 1) / $(bpb 3) - 1) ^ 2 < 1e-6 && $(bpb 1) != $(bpb 3)" || fail "F16"
[ -z "$(ls formats)" ] || fail "files are left: $(ls formats)"
unset TMPDIR
expect 0 eval byte --tasks texts.jsonl --formats F16,Q8_0
in_80
has out "file, MB"; has out "%"

# Results side by side: an average only where no cell is missing; checkpoints judge tasks.
row() { printf '{"results": {"good": {"acc,none": %s, "acc_stderr,none": 0.01, "chance": 0.25}, "guess": {"acc,none": %s, "acc_stderr,none": 0.01, "chance": 0.5}, "noise": {"acc,none": %s, "acc_stderr,none": 0.01, "chance": 0.25}%s}}' "$2" "$3" "$4" "${5:-}" >"$1"; }
row s1.json 0.30 0.50 0.40; row s2.json 0.33 0.49 0.30; row s3.json 0.36 0.51 0.42; row s4.json 0.41 0.50 0.43
expect 0 eval table s1.json s2.json s3.json s4.json --quality
has out "average"
grep -qE '^good +1\.00 +0\.1100 .* 16\.0 *$' out || fail "the good task: $(cat out)"
grep -qE '^guess .*at chance$' out || fail "the guessed task"
grep -qE '^noise .*noise$' out || fail "the noisy task"
expect 0 eval table s1.json s2.json s3.json s4.json s2.json s4.json --quality --runs 3 --json
stability() { grep -o "\"$1\": {\"monotonicity[^}]*}" out >task.json; field rank_stability task.json; }
calc "($(stability good) - 2 / 3) ^ 2 < 1e-9 && $(stability noise) == 0" || fail "rank stability: $(cat out)" # of three pairs one is a tie; one changes too
expect 0 eval table s1.json s2.json s3.json s4.json --quality --runs 2
in_80
grep -qE '^good .* 1\.00 *$' out || fail "rank stability: $(cat out)"
expect 2 eval table s1.json s2.json s3.json --quality --runs 2;   has err "3 files are not the checkpoints of 2 runs"
expect 2 eval table s1.json s2.json --quality --runs 2;           has err "two at least"
expect 0 eval table s1.json s4.json --json
calc "$(field average out) > 0.4466 && $(field average out) < 0.4467" || fail "the average"
row s2.json 0.33 0.49 0.30 ', "more": {"acc,none": 0.5}'
expect 0 eval table s1.json s2.json
has out "no average: s1.json has no acc,none of more"
expect 0 eval table s1.json s2.json --json;           has out '"average": null'
expect 2 eval table s1.json --metric f1,none;         has err "no task has the metric f1,none"
expect 3 eval table char.json;                        has err 'no "results"'

# A question that was planted in the training data is found, and where; the other is not.
printf 'the furnace feeds a fire and every ember keeps its own light.\n' >>text.txt
"$athanor" data build text.txt -o planted tokenizer=char.json >log 2>&1 || fail "data build"
printf '{"context": "every ember", "choices": [" is", " keeps its own light."], "gold": 1}\n{"context": "nights of gold", "choices": [" turned iron who that"], "gold": 0}\n' >seen.jsonl
expect 0 eval overlap planted --tasks seen.jsonl --ngram 24 --tokenizer char.json
has out "seen, document 0: 9 of 9 n-grams; first at token"
has out "text.txt:0"
has out "seen: 1 of 2 documents"
expect 0 eval overlap set/train --tasks seen.jsonl --ngram 24 --tokenizer char.json --json
has out '"overlapping": 0'
printf '{"turns": [{"user": "every ember keeps its own light."}]}\n{"turns": [{"user": "iron"}]}\n' >turns.jsonl
expect 0 eval overlap planted --tasks turns.jsonl --ngram 24 --tokenizer char.json
has out "turns: 1 of 2 documents"
expect 2 eval overlap planted --tasks seen.jsonl,seen.jsonl --ngram 24 --tokenizer char.json --json
has out "two tasks have the name seen"
expect 2 eval overlap planted --tokenizer char.json;  has err "needs --tasks"

# A run may keep test splits for the end.
expect 0 train tiny.yaml run=locked train.steps=1 checkpoint.every=1 eval.lock_test=true
expect 0 eval locked --tasks cloze
expect 2 eval locked --tasks words.yaml;              has err "test split, which the run of locked keeps locked"
expect 2 eval locked/checkpoints/step-1 --tasks words.yaml; has err "eval.lock_test"
expect 2 eval $m --tasks cloze,words.yaml --against locked; has err "eval.lock_test"
expect 2 eval $m --tasks cloze --formats F16,Q9; has err "weights in Q9"; has err "--formats"; lacks out acc
expect 2 eval $m --tasks cloze --formats ,; expect 2 eval $m --tasks cloze --formats F16 --against young
expect 2 eval $m --tasks cloze --against nosuch; has err "there is no model at nosuch"; lacks out acc

# What it computes in: the format of the weights, or as asked.
expect 0 eval $m --tasks cloze --json;                has out '"precision": "fp32"'
expect 0 eval $m --tasks cloze --json --precision bf16 --samples bf16.jsonl
has out '"precision": "bf16"'
! cmp -s bf16.jsonl samples.jsonl || fail "bf16 has the scores of fp32"
expect 0 eval $m --tasks many.jsonl --precision bf16 --samples whole.jsonl
rm again.jsonl
killed_at 60 eval $m --tasks many.jsonl --samples again.jsonl
expect 0 eval $m --tasks many.jsonl --precision bf16 --samples again.jsonl
cmp whole.jsonl again.jsonl || fail "scores of another precision were taken up"
expect 2 eval $m --tasks cloze --precision fp8;       has err "there is no precision fp8"
expect 0 export "$root/tests/golden/models/llama-gqa-tied" -o whole.gguf --to gguf --dtype F32
expect 2 eval whole.gguf --tasks cloze --precision bf16; has err "GGUF files compute in fp32"

# Refusals name the thing, and the place.
printf '{"text": "fire"}\n{"turns": [{"user": "fire"}]}\n' >mixed.jsonl
expect 3 eval $m --tasks mixed.jsonl;                 has err "mixed.jsonl:2"
expect 2 eval $m;                                     has err "eval needs --tasks"
expect 2 eval $m --tasks gone;                        has err "there is no task gone"
expect 2 eval $m --tasks arc_esay;                    has err "did you mean arc_easy?"
expect 2 eval $m --tasks mmlu;                        has err "did you mean mmlu_SUBJECT?"
expect 2 eval $m --tasks cloze,cloze;                 has err "two tasks have the name words"
expect 2 eval nowhere --tasks cloze;                  has err "there is no model at nowhere"
expect 2 eval "$root/tests/golden/models/mistral" --tasks cloze; has err "no tokenizer"
expect 3 eval $m --tasks char.json;                   has err "char.json:"
rm rows.jsonl
expect 2 eval $m --tasks words.yaml --json;           has out "names a file that is not there"
printf 'task: x\ntest_split: t\ndoc_to_txt: a\n' >x.yaml
expect 2 eval $m --tasks x.yaml;                      has err "doc_to_txt is not supported"; has err "x.yaml:3"; has err "doc_to_text"
expect 2 eval $m --tasks one.jsonl --max-length 3;    has err "does not fit into the context of 3"; has err "one.jsonl:1"
expect 1 eval $m --tasks cloze --samples nowhere/s.jsonl; has err "cannot write nowhere/s.jsonl.part"

finish
