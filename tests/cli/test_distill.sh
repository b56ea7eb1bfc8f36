# A student that learns from a teacher's logits: the same steps in every layout, resumed, with recompute; what is refused.
# $1 is the program. tests/oracle/distill.py compares loss and gradients with PyTorch.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
expect 0 train c.yaml run=big model.hidden_size=48 train.steps=24
teacher=big/checkpoints/step-24
sed 's/hidden_size: 32/hidden_size: 16/; /^sample/d; /^eval/d' c.yaml >s.yaml
echo "distill: {teacher: $teacher, weight: 0.7, temperature: 2}" >>s.yaml
student() { # NAME KEYS...
    local name=$1
    shift
    expect 0 train s.yaml run="$name" train.steps=8 checkpoint.every=4 "$@"
}
on_two() {
    local name=$1
    shift
    expect 0 launch --ranks 2 -- train s.yaml run="$name" train.steps=8 checkpoint.every=4 "$@"
}
digests() { results step "$1" | grep -o '"digest": "[^"]*"'; }
same() { cmp -s <(digests "$1") <(digests "$2") || fail "$1 and $2 have other weights"; }

student plain
[ "$(digests plain | wc -l)" = 8 ] || fail "no digests"
expect 0 train s.yaml run=alone train.steps=8 distill.teacher=null
digests alone | cmp -s - <(digests plain) && fail "the teacher changes nothing"

# ---- the same bits, however it is computed ----
student again train.recompute=full
same again plain
student chunks parallel.virtual=2
same chunks plain
student exact train.deterministic=true
on_two exact2 train.deterministic=true parallel.dp=2
same exact2 exact
on_two exact3 train.deterministic=true parallel.dp=2 parallel.zero=3
same exact3 exact
student frames train.deterministic=true parallel.pp_schedule=afab
same frames exact
student half train.precision=bf16
student few distill.top_k=5
digests few | cmp -s - <(digests plain) && fail "top_k changes nothing"
student all distill.top_k=1000000
same all plain
# A run that was stopped goes on as if it had not been.
expect 0 train s.yaml run=part train.steps=8 checkpoint.every=4
rm -r part/checkpoints/step-8
expect 0 train s.yaml run=part train.steps=8 checkpoint.every=4
same part plain

# ---- the teacher ----
cp -r $teacher bare # llama.cpp has no such tokenizer
rm bare/*token*
expect 0 export bare -o big.gguf --to gguf --dtype F32
student file distill.teacher=big.gguf
has out teacher
results step plain | grep -o '"loss": [0-9.]*' >with
results step file | grep -o '"loss": [0-9.]*' | cmp -s - with || fail "other losses with a GGUF file"
expect 0 plan s.yaml
has out teacher

# ---- what the teacher says is stored ----
stored() { # NAME KEYS...
    local name=$1
    shift
    student "$name" distill.top_k=5 distill.store=kept "$@"
}
losses() { results step "$1" | grep -o '"loss": [0-9.]*'; }
# near FILE FILE LIMIT: losses line by line
near() {
    paste "$1" "$2" | awk -v most="$3" '{ d = $2 - $4; if (d < 0) d = -d; if (d > most) bad = 1 } END { exit bad || NR != 8 }' ||
        fail "losses differ by more than $3"
}
vocab=$(grep -o '"vocab_size": *[0-9]*' $teacher/config.json | grep -o '[0-9]*$')
stored top
[ -s kept/*.logp ] || fail "nothing is stored"
expect 0 plan s.yaml distill.top_k=5 distill.store=kept
lacks out teacher
cp -r $teacher copy # another file, the same weights
stored copied distill.teacher=copy
same copied top
stored again2 train.recompute=full
same again2 top
stored exact4 train.deterministic=true
on_two exact5 train.deterministic=true parallel.dp=2 parallel.zero=3 distill.top_k=5 distill.store=kept
same exact5 exact4
on_two exact6 train.deterministic=true parallel.dp=2 distill.top_k=5 distill.store=kept2
same exact6 exact4
cmp -s kept/*.logp kept2/*.logp || fail "two ranks store something else"
expect 0 train s.yaml run=part2 train.steps=8 checkpoint.every=4 distill.top_k=5 distill.store=kept
rm -r part2/checkpoints/step-8
expect 0 train s.yaml run=part2 train.steps=8 checkpoint.every=4 distill.top_k=5 distill.store=kept
same part2 top
# All tokens: what a live teacher teaches, but for the rounding of what it says.
student whole distill.top_k="$vocab" distill.store=all data.packing=bestfit
student alive distill.top_k="$vocab" data.packing=bestfit
losses whole >one
losses alive >two
near one two 0.002
# A store that was killed goes on; one whose end was not written is made anew; what is damaged is said so.
about=$(ls kept2/*.json) records=$(ls kept2/*.logp)
sed -i 's/"done": [0-9]*/"done": 3/' "$about"
head -c 5000 "$records" >cut && cp cut "$records"
stored longer distill.store=kept2
cmp -s kept/*.logp kept2/*.logp || fail "a store that went on is another"
printf x | dd of="$records" bs=1 seek=100 conv=notrunc 2>/dev/null
expect 3 train s.yaml run=damaged distill.top_k=5 distill.store=kept2 train.epochs=2 train.steps=null
has err "what the teacher said is damaged"
rm -r damaged

# ---- what is refused ----
refused() { # MESSAGE KEYS...
    local message=$1
    shift
    expect 2 train s.yaml run=refused "$@"
    has err "$message"
}
refused "this is a run, which may go on" distill.teacher=big
expect 2 launch --ranks 2 -- train s.yaml run=refused parallel.tp=2
has err "share the vocabulary"
cp -r $teacher other # two tokens in each other's place
sed -i 's/"e": \([0-9]*\)/"E2": \1/; s/"a": \([0-9]*\)/"e": \1/; s/"E2": /"a": /' other/tokenizer.json
refused "another tokenizer" distill.teacher=other
refused "nothing is learned of it" distill.weight=0
refused "does not say how many" distill.store=kept
refused "is of another top_k" distill.store=kept distill.top_k=6
expect 0 train c.yaml run=big2 model.hidden_size=48 train.steps=3 train.seed=9
rm -r refused
refused "is of another teacher" distill.store=kept distill.top_k=5 distill.teacher=big2/checkpoints/step-3
rm -r refused
expect 0 train c.yaml run=wide model.vocab_size=64 train.steps=1 checkpoint.every=1
refused "the teacher has 64 tokens" distill.teacher=wide/checkpoints/step-1
refused "the teacher's positions end at 64" train.seq_len=80 model.max_position_embeddings=80
finish
