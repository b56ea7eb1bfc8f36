# Adafactor and its schedules in training: interrupted runs are those that were not, in every precision,
# with threads, dp and on the twin; the memory of its state; what it cannot be combined with. $1 is the
# program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_config c.yaml
write_ranks_config d.yaml
t5="optim={name: adafactor, lr: 0.1, weight_decay: 0, schedule: {kind: inverse_sqrt, timescale: 10}}"
cycle="optim={name: adafactor, lr: 5.0e-3, weight_decay: 0, schedule: {kind: one_cycle, div_factor: 50}}"
short="train.steps=8 sample.every=0 eval.every=0"

for precision in fp32 bf16 fp16; do
    keys="$short train.precision=$precision"
    expect 0 train c.yaml $keys "$t5" run=$precision train.threads=1
    for steps in 3 8; do
        expect 0 train c.yaml $keys "$t5" run=$precision-cut train.steps=$steps
    done
    results step $precision >want
    [ "$(grep -o '"digest": "[^"]*"' want | sort -u | wc -l)" = 8 ] || fail "$precision: no 8 digests"
    results step $precision-cut | cmp -s want - || fail "$precision: a resumed run differs"
done
first=$(event step fp32/metrics.jsonl | head -n 1) last_step=$(event step fp32/metrics.jsonl | tail -n 1)
calc "$(echo "$last_step" | field loss -) < $(echo "$first" | field loss -) - 0.3" || fail "it learns nothing"
ATHANOR_DEVICE=twin expect 0 train c.yaml $short "$t5" run=twin
results step twin | cmp -s - <(results step fp32) || fail "the twin differs"

# The rate rises from lr / 50 to lr and falls; its last is lr / 50 / 10000.
expect 0 train c.yaml $short train.steps=10 "$cycle" run=cycle
calc "$(event step cycle/metrics.jsonl | head -n 1 | field lr -) == 1e-4" || fail "the first rate"
calc "$(event step cycle/metrics.jsonl | sed -n 3p | field lr -) == 5e-3" || fail "the greatest rate"
calc "$(event step cycle/metrics.jsonl | tail -n 1 | field lr -) < 2e-8" || fail "the last rate"

# Ranks that share the batch alone.
expect 0 train d.yaml "$t5" run=one
train_on 0 "2 parallel.dp=2" "$t5" run=two
results step one >want
results step two | cmp -s want - || fail "two ranks differ from one"
train_on 2 "2 parallel.zero=1" "$t5" run=zero
has err "optimizer adafactor sums over whole matrices, and parallel.zero 1 divides them among ranks"
train_on 2 "2 parallel.tp=2" "$t5" run=tp
has err "optimizer adafactor sums over whole matrices, and parallel.tp 2 divides them among ranks"

# On a GPU: the CPU's losses and a run that was cut, T5 trained with it in test_cuda_layers.sh.
export ATHANOR_CUDA=emulated
expect 0 train c.yaml $short "$t5" run=gpu device=cuda train.steps=4
expect 0 train c.yaml $short "$t5" run=gpu-cut device=cuda train.steps=2
expect 0 train c.yaml $short "$t5" run=gpu-cut device=cuda train.steps=4
results step gpu | cmp -s - <(results step gpu-cut) || fail "a resumed run on a GPU differs"
paste <(results step gpu | grep -o '"loss": [^,]*') <(results step fp32 | head -n 4 | grep -o '"loss": [^,]*') |
    awk '{ d = $2 / $4 - 1; n += d * d <= 1e-10 } END { exit n != 4 }' || fail "a GPU has other losses"

# Its state is a few numbers for each row and column.
expect 0 plan c.yaml --json
adamw=$(field optimizer_bytes out)
expect 0 plan c.yaml "$t5" --json
calc "$(field optimizer_bytes out) > 0 && $(field optimizer_bytes out) * 10 < $adamw" || fail "its memory"
expect 2 train c.yaml "$t5" optim.schedule.kind=one_cycle optim.schedule.cycle_beta1=[0.9]
has err "optim.schedule.cycle_beta1 wants the least and the most"
expect 2 train c.yaml $short run=fp32 train.precision=fp32
has err "optim.name was adafactor, is now adamw"
finish
