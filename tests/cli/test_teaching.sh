#!/usr/bin/env bash
# Conversations: data build, training on them straight from their files, going on, hard stops. $1 is the program.
. "$(dirname "$0")/lib.sh"

golden=$root/tests/golden/data/chat
tok=$golden/tokenizer.json
talk() { printf '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%s"}]}\n' "$1" "$2"; }
for i in $(seq 40); do talk "What is $i?" "The number $i."; done >chats.jsonl
for i in $(seq 20); do
    printf '{"prompt": "What is %s?", "chosen": "The number %s.", "rejected": "No."}\n' "$i" "$i"
done >pairs.jsonl

# data build: in the terminal, as JSON, beside the shards.
expect 0 data build chats.jsonl -o chats tokenizer="$tok" --template chatml
has out "single: 40 samples"
has out "40 samples have no system prompt"
expect 0 data build chats.jsonl -o chats tokenizer="$tok" --template chatml --json
[ "$(field samples chats/chat.json)" = 40 ] || fail "samples: $(cat chats/chat.json)"
has out '"kind": "single"'
for file in chat.json chat_template.jinja shard-00000.mrk; do [ -e "chats/$file" ] || fail "no $file"; done
expect 0 data show --verify chats

# Text takes their place, and nothing of conversations stays.
printf '{"text": "plain"}\n{"text": "texts"}\n' >texts.jsonl
expect 0 data build texts.jsonl -o chats tokenizer="$tok"
for file in chat.json chat_template.jinja shard-00000.mrk; do [ ! -e "chats/$file" ] || fail "$file stays"; done
head -n 1 chats.jsonl >one.jsonl
expect 0 data build one.jsonl -o one tokenizer="$tok" --template chatml
has out "single: 1 sample, "

# What does nothing, what is none, what lacks its tokens.
expect 2 data build texts.jsonl -o no tokenizer="$tok" --template chatml
has err "--template does nothing: texts.jsonl is text"
expect 2 data build chats.jsonl -o no tokenizer="$tok" --chat mesages
has err "is auto, no, messages, sharegpt"
expect 2 data build chats.jsonl -o no tokenizer="$root/tests/golden/tok/bpe_llama3.json" --template chatml
has err "tok add"
expect 3 data build chats.jsonl -o no tokenizer="$tok"
has err "--template chatml"
expect 2 data build chats.jsonl -o no tokenizer="$tok" --template chatml allow=two_bas
has err "did you mean two_bos?"
{ cat chats.jsonl; printf '\0\0'; } >torn.jsonl # as a file ends after a power failure
expect 3 data build torn.jsonl -o no tokenizer="$tok" --template chatml
has err "is not an object of JSON"
[ ! -e no ] || fail "a refused build leaves a folder"

# Training from the file: the set is made once, and again when the file changes.
cat >teach.yaml <<END
run: runs/teach
tokenizer: $tok
model: {model_type: llama, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2,
        num_key_value_heads: 2, max_position_embeddings: 128}
data: {train: [{path: chats.jsonl}], valid: chats.jsonl, template: chatml}
train: {steps: 2, seq_len: 128, global_batch_size: 4}
checkpoint: {every: 1}
END
expect 0 train teach.yaml
has err "chats.jsonl: 40 conversations"
has err "packing: a row has"
[ "$(ls runs/teach/data | wc -l)" = 1 ] || fail "sets: $(ls runs/teach/data)"
expect 0 train teach.yaml train.steps=3
lacks err "40 conversations"
expect 0 data show --run runs/teach --step 1
has out "chats.jsonl:"
expect 0 train teach.yaml run=runs/whole train.steps=3
for run in teach whole; do grep -F '"event": "step"' runs/$run/metrics.jsonl | grep -o '"loss": [^,]*' | tail -n 1 >"$run.loss"; done
cmp -s teach.loss whole.loss || fail "a run that went on has another loss: $(cat teach.loss whole.loss)"
talk "And then?" "No more." >>chats.jsonl
cp runs/teach/data.json before.json
expect 0 train teach.yaml train.steps=4
has err "41 conversations" # of validation
cmp -s before.json runs/teach/data.json || fail "the run goes on with other data"
expect 0 train teach.yaml run=runs/new
has err "41 conversations"
expect 2 train teach.yaml run=runs/no data.valid=null "data.train=[{path: texts.jsonl}]"
has err "texts.jsonl:1: this record has none of the forms"

# What a start that was killed has left of a set is in nobody's way.
digest=$(ls runs/new/data)
mkdir -p "runs/killed/data/$digest/.build/set"
echo half >"runs/killed/data/$digest/.build/set/shard-00000.bin"
expect 0 train teach.yaml run=runs/killed
[ ! -e "runs/killed/data/$digest/.build" ] || fail "the remains stay"

# Several ranks: one builds, the others wait for it.
rm -r runs/new
expect 0 launch --ranks 2 -- train teach.yaml run=runs/ranks
[ "$(grep -c "41 conversations" err)" = 1 ] || fail "not one rank has built"

# A row that is too short for them.
expect 2 train teach.yaml run=runs/short train.seq_len=16
has err "chats.jsonl:1: too many conversations are longer than a sequence"
has err "(truncated)"
expect 0 train teach.yaml run=runs/short train.seq_len=16 data.max_truncated=1
has err "41 of 41 conversations and answers are cut before their first trained token"
expect 0 train teach.yaml run=runs/enough
lacks err "before their first trained token"

# What the template writes behind an answer is what stands before a text without a context, in the run as in its checkpoint.
scores() { grep -oE '"[a-z_]+,[a-z-]+": [^,}]+' "$1"; }
expect 0 train teach.yaml run=runs/judged train.objective=sft eval.tasks=[texts.jsonl]
expect 0 eval runs/judged --tasks texts.jsonl --json
[ "$(scores out)" = "$(scores runs/judged/eval/step-2.json)" ] || fail "other scores than in the run: $(scores out)"
expect 0 train teach.yaml run=runs/adapted model.from=runs/judged lora.rank=2 optim.lr=0.01 train.steps=4 train.precision=bf16 eval.tasks=[texts.jsonl]
expect 0 eval runs/adapted --tasks texts.jsonl --json
has out '"precision": "bf16"'
[ "$(scores out)" = "$(scores runs/adapted/eval/step-4.json)" ] || fail "other scores than in the run of adapters: $(scores out)"

# All that ended texts of the model ends them still, also where it is a GGUF file.
ends() { tr -d ' \n' <"$1/generation_config.json" | grep -o '"eos_token_id":[^}]*'; }
expect 0 export runs/judged -o judged.gguf --to gguf --dtype F32
expect 0 train teach.yaml run=runs/beside model={from:\ judged.gguf} tokenizer=null data.template=null lora.rank=2 train.steps=1
[ "$(ends runs/beside/checkpoints/step-1)" = "$(ends runs/judged/checkpoints/step-2)" ] || fail "texts end at $(ends runs/beside/checkpoints/step-1)"

# Tasks in a run are asked in the template of its conversations, which a stage may name.
printf '{"turns": [{"user": "What is 3?", "expect": {"contains": "3"}}]}\n' >talks.jsonl
stage='stages=[{name: a, until: {steps: 2}, data: {train: [{path: chats.jsonl}], template: chatml}}]'
expect 0 train teach.yaml run=runs/staged train.objective=sft train.steps=null data.valid=null data.template=null "$stage" eval.tasks=[talks.jsonl]
[ -s runs/staged/eval/step-2.json ] || fail "the checkpoint of a stage was not evaluated"

expect 2 plan teach.yaml train.objective=dpo train.reference=runs/adapted/checkpoints/step-4
has err "step-4 is an adapter, not a whole model"; has err "merge it: athanor export"

# Pairs and what learns from them.
expect 2 train teach.yaml run=runs/lm data.valid=null "data.train=[{path: pairs.jsonl}]"
has err "holds pairs of a chosen and a rejected conversation, the objective learns from single sequences"
expect 2 train teach.yaml run=runs/pairs data.valid=null train.objective=dpo model.from=runs/teach
has err "(made of chats.jsonl) holds single sequences, the objective learns from pairs"
expect 2 train teach.yaml run=runs/none data.valid=null "data.train=[{path: gone.jsonl}]"
has err "gone.jsonl: there is no such folder or file"; has err "check the path"
finish
