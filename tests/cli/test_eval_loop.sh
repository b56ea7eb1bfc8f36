# eval.tasks: every checkpoint of a run is evaluated, with the scores of athanor eval, and what is trained stays the
# same; killed, refused, on several ranks. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config tiny.yaml

# Choices (more than a block of requests has), whole texts, the last words, an answer.
awk 'NR <= 500 { for (i = 4; i <= NF; i += 3) printf "{\"context\": \"%s %s %s\", \"choices\": [\" %s\", \" a\"], \"gold\": 0}\n", $(i-3), $(i-2), $(i-1), $i }' text.txt >words.jsonl
awk 'NR <= 8 { printf "{\"text\": \"%s\"}\n", $0 }' text.txt >texts.jsonl
# task NAME KIND: a task file over rows.jsonl.
task() {
    cat >$1.yaml <<YAML
task: $1
dataset_path: json
dataset_kwargs: {data_files: {validation: rows.jsonl}}
validation_split: validation
output_type: $2
doc_to_text: "{{a}}"
doc_to_target: "{{b}}"
YAML
}
task last loglikelihood
echo 'metric_list: [{metric: acc}, {metric: perplexity}]' >>last.yaml
task write generate_until
echo 'generation_kwargs: {until: ["."], max_gen_toks: 12}' >>write.yaml
awk 'NR <= 10 { printf "{\"a\": \"%s %s\", \"b\": \"%s\"}\n", $1, $2, $3 }' text.txt >rows.jsonl
all='eval.tasks=[words.jsonl,texts.jsonl,last.yaml]'
steps='train.steps=12 checkpoint.every=4 checkpoint.keep=9'

# What is trained does not know of it.
expect 0 train tiny.yaml $steps run=plain
expect 0 train tiny.yaml $steps "$all"
[ "$(results 'step|valid|sample' plain)" = "$(results 'step|valid|sample' run)" ] || fail "evaluation changes the training"
for task in words texts last; do
    [ "$(grep -c "\"event\": \"eval\", \"step\": [0-9]*, \"task\": \"$task\"" run/metrics.jsonl)" = 3 ] || fail "events of $task"
done
has out "step 4  words: acc 0."
has out "(chance 0.5000)"
has out "texts: bits_per_byte "
[ -z "$(ls run/eval/*.part 2>/dev/null)" ] || fail "the journal of a finished evaluation stays"

# scores FILE: every score of every task, to the bit.
scores() { grep -oE '"[a-z_]+,[a-z-]+": [^,}]+' "$1"; }
# same_scores RUN STEP: those of athanor eval on the checkpoint.
same_scores() {
    expect 0 eval "$1/checkpoints/step-$2" --tasks words.jsonl,texts.jsonl,last.yaml --json
    [ "$(scores out)" = "$(scores "$1/eval/step-$2.json")" ] || fail "$1, step $2: athanor eval has other scores"
}
same_scores run 4
same_scores run 12
[ "$(scores run/eval/step-12.json | wc -l)" = 18 ] || fail "scores: $(scores run/eval/step-12.json)"
has run/eval/step-12.json '"precision": "fp32"'

# In 16 bits, where a checkpoint has rounded weights and training has not rounded norms.
for format in bf16 fp16; do
    expect 0 train tiny.yaml $steps run=$format train.precision.compute=$format "$all"
    has $format/eval/step-8.json "\"precision\": \"$format\""
    same_scores $format 8
done

expect 0 train tiny.yaml $steps run=widened train.precision={compute:\ bf16,arithmetic:\ fp32} "$all"
same_scores widened 12

# At the border of two stages the weights are of the one that ended, with its rotary base.
stages='stages=[{name: a, until: {steps: 8}}, {name: b, model: {rope_theta: 2.0e2}, train: {seq_len: 64}}]'
expect 0 train tiny.yaml $steps run=staged "$stages"
rm -r staged/checkpoints/step-12
expect 0 train tiny.yaml $steps run=staged "$stages" "$all"
same_scores staged 8
same_scores staged 12

# Other steps, fewer documents; the last checkpoint always.
expect 0 train tiny.yaml $steps run=some/ eval.tasks=[texts.jsonl] eval.tasks_every=8 eval.limit=3
[ "$(ls some/eval)" = "$(printf 'step-12.json\nstep-8.json')" ] || fail "evaluated: $(ls some/eval)"
has some/eval/step-8.json '"sample_len": 3'

# A run that ended is evaluated when it is started again with tasks; what is done is not done again.
expect 0 train tiny.yaml $steps run=plain "$all"
cmp plain/eval/step-12.json run/eval/step-12.json || fail "a run that had ended"
cp plain/metrics.jsonl before
expect 0 train tiny.yaml $steps run=plain "$all"
[ "$(event eval before)" = "$(event eval plain/metrics.jsonl)" ] || fail "a second time"
# Without its event the result was not told yet.
grep -v '"task": "texts"' before >plain/metrics.jsonl
expect 0 train tiny.yaml $steps run=plain "$all"
[ "$(event eval plain/metrics.jsonl | wc -l)" = 3 ] || fail "an event that is missing"

# Killed in the middle of an evaluation it goes on where it was, to the same bits.
"$athanor" train tiny.yaml $steps run=killed "$all" >out 2>err &
pid=$!
has_part() { [ -s killed/eval/step-8.part ] || [ -e killed/eval/step-12.json ]; }
await has_part || fail "no evaluation begins"
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
expect 0 train tiny.yaml $steps run=killed "$all"
for step in 4 8 12; do cmp run/eval/step-$step.json killed/eval/step-$step.json || fail "step $step of a run that was killed"; done
[ "$(event eval killed/metrics.jsonl | wc -l)" = 9 ] || fail "events of a run that was killed"

# Answers, by the sampler's programs.
expect 0 train tiny.yaml $steps run=writes eval.tasks=[write.yaml]
expect 0 eval writes --tasks write.yaml --json
[ "$(scores out)" = "$(scores writes/eval/step-12.json)" ] || fail "answers"

# In the chat template of the tokenizer: an answer, and a dialogue.
mkdir chat
cp char.json chat/tokenizer.json
echo '{}' >chat/tokenizer_config.json
printf '{%% for m in messages %%}{{ m.content }} {%% endfor %%}' >chat/chat_template.jinja
printf '{"id": "talk", "turns": [{"user": "the fire", "expect": {"contains": "e"}}, {"user": "turns", "expect": {"contains": "e"}}]}\n' >talk.jsonl
expect 0 train tiny.yaml $steps run=chats tokenizer=chat model.max_position_embeddings=1024 eval.tasks=[write.yaml,talk.jsonl] eval.chat=true
expect 0 eval chats --tasks write.yaml,talk.jsonl --chat --json
[ "$(scores out)" = "$(scores chats/eval/step-12.json)" ] || fail "answers and dialogues in a template"
expect 3 train tiny.yaml $steps run=none eval.tasks=[talk.jsonl]
has err "eval.tasks"

# Tables of runs, and the report with another run beside it.
expect 0 eval table run/
[ "$(sed -n 's|^\(run/step-[0-9]*\) .*|\1|p' out | tr '\n' ' ')" = "run/step-4 run/step-8 run/step-12 " ] || fail "rows by their steps"
expect 0 eval table run killed --metric bits_per_byte,none --quality
has out "rank stability"
has out "killed/step-8 "
cp -r killed fewer
rm fewer/eval/step-4.json
expect 0 eval table run fewer --metric bits_per_byte,none
expect 2 eval table run fewer --metric bits_per_byte,none --quality
has err "fewer has 2 evaluated checkpoints, run 3"
expect 2 eval table set
expect 0 runs report run --reference bf16/
for what in "texts: bits_per_byte" 'class="chance">chance' 'class="other">bf16' 'class="bars task"'; do has run/report.html "$what"; done
mkdir other
cp -r bf16 other/run
expect 0 runs report run --reference other/run
has run/report.html '<th>run</th><th>other/run</th>' # two of one name
expect 2 runs report run --reference set
expect 0 train tiny.yaml $steps run=some eval.tasks=[texts.jsonl] eval.tasks_every=8 eval.limit=3 eval.reference=gone
has some/report.html "The reference run gone has no scores"
has some/checkpoints/step-12/README.md "# some, step 12"

# The last checkpoint is evaluated where validations end the run, too.
expect 0 train tiny.yaml $steps run=early eval.tasks=[texts.jsonl] eval.tasks_every=12 checkpoint.every=12 \
    eval.every=3 eval.patience=1 optim.lr=3 guard.action=log
has out "early stop at step 6"
[ -f early/eval/step-6.json ] || fail "the last checkpoint of a run that ends early is not evaluated"

# Several ranks: each scores a part; with ZeRO 3 and tensor parallel all score all.
fixed="$steps train.deterministic=true"
expect 0 train tiny.yaml $fixed run=one "$all"
for layout in parallel.dp=2 'parallel.dp=2 parallel.zero=3'; do
    expect 0 launch --ranks 2 -- train tiny.yaml $fixed run=two "$all" $layout --fresh
    for step in 4 12; do cmp one/eval/step-$step.json two/eval/step-$step.json || fail "$layout, step $step"; done
done
expect 0 launch --ranks 2 -- train tiny.yaml $steps run=tp "$all" parallel.tp=2
[ "$(scores tp/eval/step-12.json | wc -l)" = 18 ] || fail "tensor parallel"

# The plan knows the memory of it, and what is wrong is said before anything is trained.
expect 0 plan tiny.yaml $steps
cache=$(grep 'inputs, outputs, cache' out)
expect 0 plan tiny.yaml $steps "$all"
[ "$cache" != "$(grep 'inputs, outputs, cache' out)" ] || fail "the plan does not count the scorer"
expect 2 train tiny.yaml $steps run=none eval.tasks=[words.jsonl,nothing.jsonl]
has err "eval.tasks[1]"
expect 2 train tiny.yaml $steps run=none "$all" eval.tasks_every=6
has err "eval.tasks_every=8"
mkdir olmes
printf '{"task_name": "locked", "task_config": {"split": "test"}}' >olmes/config.json
printf '{"request_type": "loglikelihood", "doc": {}, "request": {"context": "the", "continuation": " fire"}, "idx": 0, "doc_id": 0, "label": 0}\n' | gzip >olmes/requests.jsonl.gz
expect 2 train tiny.yaml $steps run=none eval.tasks=[olmes] eval.lock_test=true
has err "eval.lock_test"
[ ! -e none ] || fail "a run that was refused leaves a folder"
finish
