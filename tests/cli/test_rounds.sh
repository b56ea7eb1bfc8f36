# Rounds of training: losses of one stage are noted, a later one draws by them: the same in every layout and after a resume;
# what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
sed '/^sample/d; /^eval/d; s/global_batch_size: 8/global_batch_size: 32/' c.yaml >r.yaml
# Steps of an epoch.
expect 0 train r.yaml run=probe train.epochs=1 train.steps=null checkpoint.every=0
n=$(field step probe/metrics.jsonl)
cat >>r.yaml <<YAML
stages:
  - {name: first, until: {steps: $n}, data: {resample: {keep_losses: true}}}
  - {name: second, data: {resample: {share: 0.5}}}
YAML
steps=$((n + n / 2))
round() { # NAME KEYS...
    local name=$1
    shift
    expect 0 train r.yaml run="$name" train.steps=$steps checkpoint.every=5 checkpoint.keep=100 "$@"
}
digests() { results step "$1" | grep -o '"digest": "[^"]*"'; }
same() { cmp -s <(digests "$1") <(digests "$2") || fail "$1 and $2 have other weights"; }
floats() { od -An -v -t f4 -w4 "$1"; }

round one
first=$(ls one/losses/*-0.f32) second=$(ls one/losses/*-1.f32)
last="the losses"
sequences=$(floats "$first" | wc -l)
[ "$sequences" -gt $((n * 32 - 32)) ] && [ "$(floats "$first" | awk '$1 > 0' | wc -l)" = "$sequences" ] ||
    fail "not $sequences losses of the first round"
drawn=$(floats "$second" | awk '$1 > 0' | wc -l)
half=$(((sequences + 1) / 2))
[ "$drawn" -le $half ] && [ "$drawn" -ge $((n / 2 * 32 - 32)) ] || fail "$drawn sequences of the second round"
# Harder ones are drawn more often.
paste <(floats "$first") <(floats "$second") | awk '$1 > 0 { s[$2 > 0] += $1; k[$2 > 0]++ } END { exit !(s[1] / k[1] > s[0] / k[0]) }' ||
    fail "what was drawn is not harder"

# The same draw in all layouts, and after a stop in the second round and in the first.
round exact train.deterministic=true
expect 0 launch --ranks 2 -- train r.yaml run=exact2 train.steps=$steps checkpoint.every=5 train.deterministic=true \
    parallel.dp=2 parallel.zero=2
same exact2 exact
cmp -s exact/losses/*-0.f32 exact2/losses/*-0.f32 || fail "two ranks note other losses"
for at in 10 $(((n + 4) / 5 * 5)); do
    cp -r one part
    for k in part/checkpoints/step-*; do [ "${k##*-}" -le "$at" ] || rm -r "$k"; done
    expect 0 train r.yaml run=part train.steps=$steps checkpoint.every=5 checkpoint.keep=100
    same part one
    rm -r part
done
expect 0 data show --run one --step $steps
cp -r one three
expect 0 train r.yaml run=three train.steps=$((steps + 2)) checkpoint.every=5

# Another run draws by the losses of the first.
expect 0 train c.yaml run=other train.steps=4 data.resample.share=0.3 data.resample.from=one
expect 2 train c.yaml run=none train.steps=4 data.resample.share=0.3
has err "no earlier stage has noted losses"
expect 2 train c.yaml run=none train.steps=4 data.resample.share=0.3 data.resample.from=one train.seq_len=16
has err "no earlier stage has noted losses"
cp -r one changed
for k in changed/checkpoints/step-*; do [ "${k##*-}" -le $(((n + 4) / 5 * 5)) ] || rm -r "$k"; done
cp "$second" changed/losses/"$(basename "$first")"
expect 2 train r.yaml run=changed train.steps=$steps checkpoint.every=5
has err "losses have changed"
expect 2 train c.yaml run=pairs train.objective=dpo data.resample.keep_losses=true
finish
