# A run's folder as a model: for plan and bench, and in model.from of another run, which takes its
# newest good checkpoint and its tokenizer. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
expect 0 train c.yaml run=first train.steps=8
sed '/^tokenizer/d; s/^model:.*/model: {from: first}/' c.yaml >from.yaml

# ---- commands ----
expect 0 plan first --json
cp out planned
expect 0 plan first/checkpoints/step-8 --json
cmp out planned || fail "the run is planned other than its checkpoint"
expect 0 plan first/config.json --json # the run itself
[ "$(field total out)" = "$(field total planned)" ] || fail "another number of parameters"
expect 0 bench train first train.seq_len=16 --steps 1 --warmup 0 --json
expect 0 bench gemm first --dtype f32 --json
# One that has no checkpoint yet.
mkdir new
cp first/config.json new
expect 2 plan new
has err "new is a run without a checkpoint"
expect 2 train from.yaml model.from=new
has err "new is a run without a checkpoint"
has err "where: command line (model.from)"

# ---- another run goes on from it ----
expect 0 train from.yaml run=second train.steps=2
has err "model.from: the checkpoint first/checkpoints/step-8"
has err "tokenizer: that of model.from, first/checkpoints/step-8/tokenizer.json"
expect 0 config why second/config.json model.from
has out first/checkpoints/step-8
expect 0 train from.yaml run=same model.from=first/checkpoints/step-8 tokenizer=char.json train.steps=2
results step second >with
results step same | cmp - with || fail "other steps than from the checkpoint itself"
# The damaged are passed over.
cp -r first hurt
truncate -s -9 hurt/checkpoints/step-8/model.safetensors
expect 0 train from.yaml run=third model.from=hurt/ train.steps=1
has err "the checkpoint hurt/checkpoints/step-4"
# The first run trains on; the second keeps to the checkpoint it began with, though it is pruned later.
expect 0 train c.yaml run=first train.steps=12
expect 0 train from.yaml run=second train.steps=3
has err "second began with first/checkpoints/step-8, and keeps to that"
expect 0 config why second/config.json model.from
has out first/checkpoints/step-8
rm -r first/checkpoints/step-8
expect 0 train from.yaml run=second train.steps=4
expect 2 train from.yaml run=second model.from=third
has err "model.from was first/checkpoints/step-12, is now third/checkpoints/step-1"
expect 0 train from.yaml run=fifth model.from=third train.steps=1 --json
event start out >start
has start '"tokenizer": "third/checkpoints/step-1/tokenizer.json"'
has start '"from": "third/checkpoints/step-1"'
# A tokenizer that the config names is the config's.
expect 0 train from.yaml run=fourth tokenizer=char.json train.steps=1
lacks err "tokenizer: that of"

# Keys beside it may not change names or sizes of weights; that is told before anything is written.
for key in hidden_size=48 num_hidden_layers=5 intermediate_size=40; do
    expect 2 train from.yaml run=sixth model.from=third train.steps=1 model.$key
    has err "model.${key%=*} makes other weights than those of third/checkpoints/step-1"
    has err "where: command line (model.${key%=*})"
    expect 2 train from.yaml run=sixth model.from=third train.steps=1 model.$key --dry-run
    [ ! -e sixth ] || fail "a run that was refused left a folder"
done
expect 0 train from.yaml run=sixth model.from=third train.steps=1 model.rope_theta=500 --dry-run

# A layout is tried with fewer layers than the weights have.
expect 0 train c.yaml run=deep model.num_hidden_layers=5 train.steps=1
expect 0 launch --ranks 2 -- train from.yaml run=shared model.from=deep train.steps=1

# ---- a config.json that ties the ends, beside a head that differs: what is stored decides ----
expect 0 train c.yaml run=own model.tie_word_embeddings=false train.steps=4
cp -r own/checkpoints/step-4 tied
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' tied/config.json
rm -rf tied/state
for model in own tied; do
    expect 0 generate $model --ids 3,1,4 --max-new 8 --temperature 0 --json
    ids_of ids out >$model.ids
    expect 0 train from.yaml model.from=$model tokenizer=char.json run=from-$model train.steps=2
done
has err "tied stores a head that differs from the embedding"
cmp own.ids tied.ids || fail "another text than with the head that is stored"
results step from-own >with
results step from-tied | cmp - with || fail "other steps than with the head that is stored"
expect 0 train from.yaml model.from=tied tokenizer=char.json run=from-tied train.steps=4
expect 0 import tied -o imported --json
has out "a head of its own"
expect 3 train from.yaml model.from=tied tokenizer=char.json run=refused model.tie_word_embeddings=true train.steps=2
has err "leave tie_word_embeddings out"

# Whatever a folder is called.
for name in 'say "no"' 'new\nline' "it's" 1e3 '{a: b}'; do
    cp -r first "$name"
    expect 0 plan "$name"
done
finish
