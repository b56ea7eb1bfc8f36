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
expect 2 decide --prompting yes -o verdict
has err 'without --try nothing is written'
for answer in examples=text question=yes need=domain gap=yes runs-on=edge time=tight languages=one context=long device-hours=9; do
    expect 2 decide --try m --tasks t --target 1 --${answer%=*} ${answer#*=}
    has err "--try and --${answer%=*} exclude each other"
done
# The next command can be pasted, and is of the hours that were given.
expect 0 decide --prompting no --tuning yes --examples conversations
grep ' train tune.yaml' out | grep -q '[][{}*?]' && fail "a shell would expand it"
expect 0 decide --prompting no --tuning no --reason research --question yes --runs-on server --team dense --time tight \
    --languages one --context short --device-hours 1000
has out 'plan cost --hours 1000 --devices 8 --ablations 417 --debugging 167'

has out 'plan search llama-3.2-1b cluster=h100-8 train.global_batch_size=512'
# The model of the next command is of the kind that the verdict names, and has what the reasons ask of it.
pretrain() { # ARGS...: a verdict, as "KIND plan search ..."
    expect 0 decide --prompting no --tuning no "$@" --json
    echo "$(field architecture out | tr ' ' -) $(grep -o 'plan search [^"]*' out | head -n 1)" >>verdicts
}
for reason in 'research --question yes' 'production --need domain' 'open-source --gap yes'; do
    for texts in 'one --context short' 'many --context long' 'many --context longer'; do
        for where in 'edge --team first' 'edge --team expert' 'server --team first' 'server --team dense --time tight' \
            'server --team dense --time flexible' 'server --team expert'; do
            pretrain --reason $reason --runs-on $where --languages $texts
        done
    done
done
grep -qF 'moe plan search olmoe-1b-7b cluster' verdicts || fail "the smallest mixture answers no question: $(cat verdicts)"
sort -u verdicts >kinds
while read -r kind search; do
    last="decide: $kind, $search"
    set -- $search
    expect 0 plan "$3" $(echo "$search" | grep -o 'model\.[a-z_]*=[0-9]*') --json
    experts=$(awk "BEGIN { print 2 * $(field active out) < $(field total out) }")
    case $kind in moe*) [ $experts = 1 ] ;; *) [ $experts = 0 ] ;; esac || fail "$kind, and then $search"
done <kinds
# Without a budget the hours are a published run's, and it is said; each command says what it is for.
expect 0 decide --prompting no --tuning no --reason production --need device --team first --languages one --context short
has out 'no budget was told'
has out 'cluster=h100-384 train.global_batch_size=768'
has out 'whether it fits where it will run'
expect 0 decide --prompting unknown
has out 'MODEL: a folder of Hugging Face'

# In a terminal it asks: words, their first letters, numbers; last the budget; and says how to say the same without questions.
if command -v expect >/dev/null; then
    last="decide in a terminal"
    TERM=dumb command expect -f "$root/tests/cli/terminal.exp" 'n\n' '1.5\n' '2\n' 'maybe\n' 'pro\n' 'dev\n' 'f\n' 'o\n' 'short\n' \
        'much\n' '5760\n' -- "$athanor" decide >out 2>err || fail "$?"
    tr -d '\r' <out >said && mv said out
    [ "$(grep -c 'One of the words, its first letters, or its number.' out)" = 2 ] || fail "not asked again twice"
    has out 'A number of 1 or more'
    has out '5.76k device-hours are'
    has out 'The same again: athanor decide --prompting no --tuning no --reason production --need device --team first --languages one --context short --device-hours 5760'
    # "d" begins two words of the need
    TERM=dumb command expect -f "$root/tests/cli/terminal.exp" 'd\n' 'device\n' 'first\n' 'one\n' 'short\n' '\n' -- \
        "$athanor" decide --prompting no --tuning no --reason production >out 2>err || fail "$?"
    has out 'One of the words'
fi

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
# The same try again trains nothing again; another one has to lie elsewhere.
expect 0 decide --try base --tasks odd.jsonl --target 0.9 --examples-file odd/train --steps 60 -o tried2 optim.lr=1e-2 train.seq_len=32
expect 2 decide --try base --tasks odd.jsonl --target 0.9 --examples-file odd/train --steps 60 -o tried2 optim.lr=1e-3 train.seq_len=32
lacks err --fresh
has err 'name another folder with -o, or remove tried2/adapter'
expect 2 decide --try base --tasks odd.jsonl --target 0.9 --examples-file odd/train run=elsewhere
has err 'scored where this command puts it'
# Of a perplexity less is better; a task with too few examples is scored without.
cat >lm.yaml <<'YAML'
task: lm
dataset_path: json
dataset_kwargs: {data_files: {test: words.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{context}}"
YAML
expect 0 decide --try base --tasks lm.yaml --target 1.5 --json
[ "$(field metric out)" = word_perplexity ] && [ "$(field verdict out)" = unknown ] || fail "$(cat out)"
has out '"higher_is_better": false'
expect 0 decide --try base --tasks lm.yaml --target 1e6 --json
[ "$(field verdict out)" = prompt ] || fail "$(cat out)"
expect 0 decide --try base --tasks lm.yaml --metric bits_per_byte --target 0.01 --json
[ "$(field verdict out)" = unknown ] || fail "$(cat out)"
sed 's/: words.jsonl/: words.jsonl, dev: two.jsonl/; s/loglikelihood_rolling/multiple_choice/; s/context}}/choices[1]}}/' lm.yaml >few.yaml
printf 'doc_to_choice: "{{choices}}"\nfewshot_split: dev\n' >>few.yaml
head -n 2 words.jsonl >two.jsonl
expect 0 decide --try base --tasks few.yaml --target 0.9
has out 'not done: the task lm wants 5 examples, and there are 2'
expect 2 decide --try nowhere --tasks odd.jsonl --target 0.9 -o tried
# What fails leaves nothing, and no more of a folder that was there than before.
[ -e tried/decide.log ] || fail "the folder of another try is gone"
rm -rf runs
expect 2 decide --try nowhere --tasks odd.jsonl --target 0.9
[ ! -e runs ] || fail "a folder is left: $(find runs)"
mkdir made
expect 2 decide --try base --tasks odd.jsonl --target 0.9 --examples-file odd/train -o made/by/it optim.lr=-1
[ -d made ] && [ ! -e made/by ] || fail "not as before: $(find made)"
expect 2 decide --try base --tasks words.jsonl --target 0.5 optim.lr=1
finish
