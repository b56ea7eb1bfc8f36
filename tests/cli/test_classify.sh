# Heads of labels: texts of a CSV file, trained, said, exported and read again; numbers; what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config tiny.yaml
expect 0 train tiny.yaml train.steps=2
expect 0 train tiny.yaml train.steps=4

texts() { # N: lines of two kinds
    echo 'text,label'
    for i in $(seq "$1"); do
        case $((i % 2)) in 0) echo "the fire,good" ;; *) echo "no one turns,bad" ;; esac
    done
}
texts 60 >train.csv
texts 10 >valid.csv
cat >classify.yaml <<EOF
run: mood
model: {from: $(sed -n 's/^run: *//p' tiny.yaml), labels: [bad, good]}
data: {train: train.csv, valid: valid.csv}
train: {objective: classify, steps: 30, seq_len: 32, global_batch_size: 8, threads: 1}
optim: {lr: 1.0e-2}
EOF
expect 0 train classify.yaml --json
if grep -q "nats per token" mood/report.html; then fail "the loss of labels is of no token"; fi
grep -q "athanor classify mood" mood/report.html || fail "the report tells no way to use it"
expect 0 classify mood valid.csv --json
tail -n 1 out | grep -q '"accuracy": 1.0' || fail "not all are right: $(tail -n 1 out)"
expect 0 classify mood --text "the fire" --json
has out '"label": "good"'
expect 0 export mood -o folder --to hf --json
grep -q 'ForSequenceClassification' folder/config.json || fail "the folder is no classifier"
expect 0 classify folder --text "the fire" --json
has out '"label": "good"'

# Sets are made of files when nothing else is left to refuse: a layout that cannot be leaves no folder.
for length in "" "train.steps=null train.epochs=2"; do
    expect 2 launch --ranks 3 -- train classify.yaml run=refused parallel.tp=3 $length
    has err "tensor-parallel ranks"
    expect 2 launch --ranks 3 -- train classify.yaml run=refused parallel.dp=3 $length
    has err "cannot be shared by dp 3 ranks"
    expect 4 train classify.yaml run=refused train.memory_limit=1Mi $length
    [ ! -e refused ] || fail "there is a folder: $(ls refused)"
    rm -rf refused
done
expect 0 train classify.yaml run=epochs train.steps=null train.epochs=2
expect 0 train classify.yaml run=epochs train.steps=null train.epochs=3

# Tables without labels, with some, and with records that have no text; a label that was asked for must be there.
printf 'text\tplace\nthe fire\there\nno one turns\tthere\n' >bare.tsv
expect 0 classify mood bare.tsv
[ "$(cut -f 2 out | tr '\n' ' ')" = "good bad " ] || fail "a table without labels: $(cat out)"
expect 3 classify mood bare.tsv --label kind;          has err "has no column kind"; has err "the column that holds the label: label=NAME"
printf 'text,label\nthe fire,good\nno one turns,\n,bad\n' >some.csv
expect 0 classify mood some.csv
has out "1 labelled text: accuracy 1.0000"
has err "1 record without a text is left out"
printf '{"text": "the fire"}\n' >bare.jsonl
expect 0 classify mood bare.jsonl
expect 2 classify mood bare.jsonl --label kind;        has err "no record of bare.jsonl has a label in the field kind"

# Records that cannot be read are left out, and said; a file of no others is refused.
printf '{"text": "the fire"}\nbroken\n{"text": "no one turns"}\n' >damaged.jsonl
expect 0 classify mood damaged.jsonl
[ "$(cut -f 1,2 out | head -n 2 | tr '\t\n' '  ')" = "1 good 3 bad " ] || fail "a damaged record: $(cat out)"
has err "1 of 3 records was left out; the first is damaged.jsonl:2"
printf 'broken\n' >broken.jsonl
expect 2 classify mood broken.jsonl;                   has err "1 of 1 records was left out"; has err "broken.jsonl holds no text"

# Numbers.
printf '{"text": "the fire", "label": 1}\n{"text": "no one", "label": -2.5}\n' >numbers.jsonl
sed 's/labels: \[bad, good\]/num_labels: 1/; s/run: mood/run: number/; s/train.csv/numbers.jsonl/; s/valid.csv/numbers.jsonl/' classify.yaml >number.yaml
expect 0 train number.yaml
expect 0 classify number numbers.jsonl
grep -q 'mean squared error' out || fail "no error of numbers"

# Scores that are not finite are no answer.
cp -r folder bad
printf '\377\377' | # the first weight of the head
    dd of=bad/model.safetensors bs=1 seek=$((8 + $(od -An -tu8 -N8 bad/model.safetensors))) conv=notrunc 2>/dev/null
expect 5 classify bad --text "the fire"
has err "the scores of text 1 are not finite"

expect 2 generate mood --prompt the
expect 2 plan tiny.yaml train.objective=dpo train.reference=folder
has err "the reference has a head of labels, and is no language model"
expect 2 classify "$(sed -n 's/^run: *//p' tiny.yaml)" --text the
printf 'text,label\nthe fire,ugly\n' >other.csv
expect 2 train classify.yaml run=other data.train=other.csv
has err ugly
finish
