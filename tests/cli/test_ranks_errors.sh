#!/usr/bin/env bash
# What ranks say when they fail: once what all find, and by the one that finds it what one does; and
# layouts that do not fit.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml

# once TEXT: one error, and it has these words.
once() {
    [ "$(grep -c 'error: ' err)" = 1 ] || fail "$(grep -c 'error: ' err) errors"
    has err "$1"
}
train_on 2 "3" train.global_batch_size=6 train.stepz=1
once "unknown key 'train.stepz'"
train_on 2 "2" --unknown
once "--unknown"
train_on 3 "2" tokenizer=none.json
once "none.json"
train_on 2 "2" data.train=nothing
once "nothing"
train_on 4 "2" train.memory_limit=1Mi
once "are allowed"
large="optim.z_loss=1000 model.initializer_range=3"
for layout in "2 parallel.zero=1" "2 parallel.tp=2" "4 parallel.tp=2 parallel.sp=true parallel.zero=2"; do
    train_on 5 "$layout" run=large $large
    once "a contribution to the gradient of model."
    rm -r large
done
train_on 5 "2 parallel.zero=3" run=large $large
once "under parallel.zero=2 or less, without weights in a file, the tensor is named"

# Layouts that are not those of the ranks.
train_on 2 "4 parallel.dp=3"
once "parallel.dp=3 with tp 1, cp 1 and pp 1 makes 3 ranks, not 4"
has err "where: command line (parallel.dp)"
train_on 2 "3 parallel.tp=3" train.global_batch_size=6
once "4 heads and 2 key/value heads of layer 0 do not divide over 3 tensor-parallel ranks"
has err "where: command line (parallel.tp)"
has err "hint: parallel.tp=1 " # of 3 ranks
expect 2 plan d.yaml parallel.tp=8 tokenizer=null model.vocab_size=7 model.num_attention_heads=8 model.num_key_value_heads=8
once "a vocabulary of 7 tokens does not reach 8 tensor-parallel ranks"
has err "hint: parallel.tp=4 "
train_on 2 "8 parallel.tp=8" model.num_attention_heads=8 train.seq_len=4 model.position_type=learned model.max_position_embeddings=4
once "4 learned positions do not reach 8 tensor-parallel ranks"
[ ! -e run ] || fail "there is a folder"
expect 2 plan d.yaml parallel.dp=65536 parallel.tp=65536
once "dp 65536 x tp 65536 x cp 1 x pp 1 are more ranks than are planned"
train_on 2 "3"
once "a batch of 8 sequences cannot be shared by dp 3 ranks in micro-batches of 1"
has err "hint: the nearest batch that can is 9"
train_on 2 "4 parallel.dp_replicate=3"
once "parallel.dp_replicate=3 does not divide dp 4"
train_on 2 1 parallel.dp=2
once "parallel.dp=2"
has err "hint: athanor launch"

# A warning is told once, too, whatever all ranks see; and a pattern of the last stage's names is one of the model's.
warned() { # TEXT TIMES
    [ "$(grep -cF -- "$1" err)" = "$2" ] || fail "'$1' is told $(grep -cF -- "$1" err) times, not $2"
}
cat d.yaml - >notes.yaml <<'YAML'
stages: [{name: a, until: {steps: 2}}, {name: b, data: {train: later}}]
YAML
last="launch --ranks 2 -- train notes.yaml"
"$athanor" launch --ranks 2 -- train notes.yaml run=notes parallel.pp=2 sample.prompts=[] model.qk_norm=head \
    "optim.no_decay=['model.norm.weight', 'model.layers.0.*', '*.nothing']" >out 2>err </dev/null
warned "later, the data of a later stage, does not exist yet" 1
warned "no other program will load this model" 1
warned "no parameter matches '*.nothing'" 1
warned "no parameter matches" 1

# One rank alone finds no tokenizer: it says so with its number, and the other is silent.
if command -v mpirun >/dev/null && [ -e "$(dirname "$athanor")/athanor-mpi.so" ]; then
    last="mpirun, rank 1 without a tokenizer"
    export ASAN_OPTIONS=detect_leaks=0 # what MPI leaves behind is not ours
    timeout 60 mpirun -n 1 "$athanor" train d.yaml run=alone : \
        -n 1 "$athanor" train d.yaml run=alone tokenizer=none.json >out 2>err </dev/null &&
        fail "it trains"
    once "athanor: error: rank 1: "
    has err none.json
    last="mpirun, no tokenizer"
    timeout 60 mpirun -n 2 "$athanor" train d.yaml \
        tokenizer=none.json >out 2>err </dev/null
    got=$?
    [ $got = 3 ] || fail "exit $got, not 3"
    once "none.json"
fi
# Rank 0 cannot make the folder of the first checkpoint: all learn it at once, and the run goes on.
ATHANOR_FAULT=mkdir:3 train_on 0 "2 parallel.zero=1" run=nodir train.steps=8 parallel.timeout_s=5
event alarm nodir/metrics.jsonl | grep -q "step 4.*cannot make folder" || fail "no alarm says it"
[ "$(newest_step nodir)" = 8 ] || fail "the next save has not been made"
# A weight that is not a number, at the end of the file: whoever holds it names it by its place.
mkdir bad
cp nodir/checkpoints/step-*8/*.json nodir/checkpoints/step-*8/model.safetensors bad/
printf '\377\377\377\377' | dd of=bad/model.safetensors bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s bad/model.safetensors) - 4))
sed 's/^model:.*/model: {from: bad}/' d.yaml >d.from && mv d.yaml d.made && mv d.from d.yaml
for layout in "1" "2 parallel.tp=2" "2 parallel.zero=1" "2 parallel.zero=2 train.precision.compute=bf16"; do
    rm -rf spoilt
    train_on 5 "$layout" run=spoilt
    once "parameter model.layers.0.mlp.down_proj.weight holds a NaN or Inf at element 2559"
done
mv d.made d.yaml
# A loss that is not finite is so on one rank, too: the trial before the run leaves it to the run.
# So large are weights after the first step that sums overflow on every kind of processor.
train_on 5 "2 parallel.zero=1" run=diverged optim.lr=1e6 optim.weight_decay=1e3 model.initializer_range=10 \
    optim.schedule.warmup_steps=0 parallel.verify=true train.deterministic=false
has err "the layout is not checked against one rank: the loss or gradient norm of step"
once "wrote a NaN or Inf into"
finish
