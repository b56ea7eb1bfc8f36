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
expect 0 train c.yaml run=wide model.vocab_size=64 train.steps=1 checkpoint.every=1
refused "the teacher has 64 tokens" distill.teacher=wide/checkpoints/step-1
refused "the teacher's positions end at 64" train.seq_len=80 model.max_position_embeddings=80
finish
