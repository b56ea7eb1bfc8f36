# Whether to train: answers as options, what is missing, and trials of a model. $1 is the program.
. "$(dirname "$0")/lib.sh"

expect 0 decide --prompting yes
has out 'Do not train'
has out 'athanor chat MODEL'
expect 0 decide --prompting no --tuning no --reason production --need device --team first --languages one --context short --json
[ "$(field verdict out)" = pretrain ] && [ "$(field architecture out)" = dense ] || fail "$(cat out)"
# Without a terminal the open question is the error.
expect 2 decide --prompting no --tuning no --reason research
has err 'Is there one question'
has err '--question yes|no'
expect 2 decide --prompting maybe
has err 'yes, no, unknown'
expect 2 decide --prompting yes --team first
has err 'after the other answers nobody asks'
expect 2 decide model
expect 2 decide --prompting yes optim.lr=1
expect 2 decide --target 0.5

# A model that has learned which words there are; the task asks for something else at first.
make_data
write_config c.yaml
expect 0 train c.yaml run=base
awk 'NR <= 12 { printf "{\"context\": \"%s %s\", \"choices\": [\" %s\", \" dnnn\"], \"gold\": 0}\n", $1, $2, $3 }' text.txt >words.jsonl
expect 2 decide --try base --tasks words.jsonl
has err 'which score is good enough'
expect 0 decide --try base --tasks words.jsonl --target 0.5 -o tried --json
[ "$(field verdict out)" = prompt ] || fail "$(cat out)"
has out '"why": "not done: prompting reaches the target"'
[ ! -e tried/adapter ] || fail "trained for nothing"
sed 's/"gold": 0/"gold": 1/' words.jsonl >odd.jsonl
awk '{ print $1, $2, "dnnn", $1, $2, "dnnn" }' text.txt >odd.txt
"$athanor" data build odd.txt -o odd tokenizer=char.json valid=0.1 >log 2>&1 || fail "$(cat log)"
expect 0 decide --try base --tasks odd.jsonl --target 0.9 -o tried --json
[ "$(field verdict out)" = unknown ] || fail "$(cat out)"
expect 0 decide --try base --tasks odd.jsonl --target 0.9 --examples-file odd/train --steps 60 -o tried2 \
    optim.lr=1e-2 train.seq_len=32
has out 'few-shot     not done: the prompts of odd.jsonl are written out'
grep -q '^  adapter .* reaches the target' out || fail "the adapter learned nothing"
has out '--tuning yes'
expect 2 decide --try nowhere --tasks odd.jsonl --target 0.9 -o tried
expect 2 decide --try base --tasks words.jsonl --target 0.5 optim.lr=1
finish
