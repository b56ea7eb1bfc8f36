# AdamW's moments in bf16 (train.precision.optim): close to fp32, the same bits under every layout and after a stop,
# half of the memory, planned as it is. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_config c.yaml
write_ranks_config d.yaml
narrow="train.precision={compute: fp32, optim: bf16}"
quiet="sample.every=0 eval.every=0"

# ---- close to fp32 over 200 steps ----
long="train.steps=200 optim.schedule.decay_steps=196 $quiet checkpoint.every=0"
loss_of() { event step "$1/metrics.jsonl" | tail -n "$2" | grep -o '"loss": [^,]*' | awk '{ s += $2 } END { print s / NR }'; }
expect 0 train c.yaml run=wide $long
expect 0 train c.yaml run=narrow $long "$narrow"
calc "abs($(loss_of narrow 20) / $(loss_of wide 20) - 1) < 0.01" || fail "losses $(loss_of narrow 20) and, in fp32, $(loss_of wide 20)"
cmp -s <(results step wide) <(results step narrow) && fail "the states are fp32"

# ---- memory: 4 bytes a parameter less, as planned ----
for run in wide narrow; do
    event end $run/metrics.jsonl >$run.end
    [ "$(field planned_peak_bytes $run.end)" = "$(field touched_peak_bytes $run.end)" ] || fail "$run touches other memory than planned"
done
expect 0 plan c.yaml --json
bytes=$(field optimizer_bytes out)
expect 0 plan c.yaml "$narrow" --json
cp out plan.json
expect 0 plan c.yaml "$narrow"
grep -q "optimizer state .* adamw, bf16" out || fail "the plan does not say bf16"
[ $((2 * $(field optimizer_bytes plan.json))) = "$bytes" ] || fail "$(field optimizer_bytes plan.json) bytes of state, in fp32 $bytes"

# ---- one run, however it runs ----
expect 0 train d.yaml "$narrow" $quiet run=one
results step one >want
[ "$(grep -o '"digest": "[^"]*"' want | sort -u | wc -l)" = 12 ] || fail "no 12 digests"
state=checkpoints/step-12/state/optimizer.safetensors
head -c 400 "$(echo one/$state)" | grep -aq '"dtype":"BF16"' || fail "the states are not stored in bf16"
same() {
    event end $1/metrics.jsonl >end
    [ "$(field planned_peak_bytes end)" = "$(field touched_peak_bytes end)" ] || fail "$1 touches other memory than planned"
    results step $1 | cmp -s want - || fail "$1 differs from one rank"
    cmp -s one/$state $1/$state || fail "$1 saves other states"
}
same one
for steps in 5 12; do expect 0 train d.yaml "$narrow" $quiet run=cut train.steps=$steps; done
same cut
expect 0 train d.yaml "$narrow" $quiet run=threads train.threads=3 checkpoint.async=false
same threads
ATHANOR_DEVICE=twin expect 0 train d.yaml "$narrow" $quiet run=twin
same twin
expect 0 train d.yaml "$narrow" $quiet run=file parallel.offload=optimizer
same file
for zero in 0 1 2 3; do
    train_on 0 "2 parallel.zero=$zero" "$narrow" $quiet run=zero$zero
    same zero$zero
done
train_on 0 "2 parallel.pp=2" "$narrow" $quiet run=pp sample.prompts=[]
same pp
train_on 0 "2 parallel.zero=3 parallel.offload=all" "$narrow" $quiet run=all
same all
# products of tensor-parallel ranks have other sums, but the same after a stop
train_on 0 "2 parallel.tp=2" "$narrow" $quiet run=tp
for steps in 7 12; do train_on 0 "2 parallel.tp=2" "$narrow" $quiet run=tp-cut train.steps=$steps; done
cmp -s <(results step tp) <(results step tp-cut) || fail "a resumed run of tensor-parallel ranks differs"
cmp -s tp/$state tp-cut/$state || fail "and saves other states"
calc "abs($(loss_of tp 1) / $(loss_of one 1) - 1) < 5e-3" || fail "tensor-parallel ranks have another loss"
# stopped under one layout, gone on with under another
expect 0 train d.yaml "$narrow" $quiet run=moved train.steps=4
train_on 0 "2 parallel.zero=2" "$narrow" $quiet run=moved
same moved

# ---- beside 16 bits, with adapters, on a GPU ----
mixed="train.precision={compute: bf16, optim: bf16}"
for steps in 3 8; do expect 0 train c.yaml "$mixed" $quiet run=mixed-cut train.steps=$steps; done
expect 0 train c.yaml "$mixed" $quiet run=mixed train.steps=8
cmp -s <(results step mixed) <(results step mixed-cut) || fail "a resumed run in bf16 differs"
sed '/^tokenizer/d; s/^model:.*/model: {from: mixed}/' c.yaml >lora.yaml
for steps in 3 8; do expect 0 train lora.yaml lora.rank=3 "$narrow" $quiet run=lora-cut train.steps=$steps; done
expect 0 train lora.yaml lora.rank=3 "$narrow" $quiet run=lora train.steps=8
[ "$(results step lora | wc -l)" = 8 ] && cmp -s <(results step lora) <(results step lora-cut) ||
    fail "a resumed run of adapters differs"
head -c 400 lora/checkpoints/step-8/state/optimizer.safetensors | grep -aq '"dtype":"BF16"' || fail "adapters' states are fp32"
export ATHANOR_CUDA=emulated
gpu="$quiet device=cuda"
for steps in 2 4; do expect 0 train d.yaml "$narrow" $gpu run=gpu-cut train.steps=$steps; done
expect 0 train d.yaml "$narrow" $gpu run=gpu train.steps=4
cmp -s <(results step gpu) <(results step gpu-cut) || fail "a resumed run on a GPU differs"
expect 0 launch --ranks 2 -- train d.yaml "$narrow" $gpu run=gpu-zero train.steps=4 parallel.zero=3
cmp -s <(results step gpu) <(results step gpu-zero) || fail "two GPUs differ from one"
calc "abs($(loss_of gpu 1) / $(event step one/metrics.jsonl | sed -n 4p | field loss -) - 1) < 1e-4" || fail "a GPU has another loss"

# ---- what it is not for ----
expect 2 train c.yaml "$narrow" optim.name=adafactor run=no
has err "the state of adafactor is fp32 only"
expect 2 train c.yaml "train.precision={compute: fp32, optim: fp16}" run=no
has err "optimizer state in fp16 is not available in this version"
has err "write bf16 or fp32"
expect 2 train c.yaml run=narrow $long
has err "train.precision.optim"
expect 2 plan c.yaml "train.precision={compute: bf16, optim: bf16}" --model formula
has err "no term for what train.precision.optim says"
finish
