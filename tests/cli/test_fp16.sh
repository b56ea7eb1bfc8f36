# fp16: the loss scale finds its place, what overflows is left out, and an interrupted run, another
# layout or another recompute policy comes to the same bits. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
sed -i 's/precision: fp32/precision: fp16/' c.yaml

members() { event step "$2/metrics.jsonl" | grep -o "\"$1\": [^,}]*" | sed 's/.*: //'; }
skipped() { grep -c '"skipped": true' "$1/metrics.jsonl"; }

# ---- close to fp32, at the usual scale ----
for p in fp32 fp16; do
    expect 0 train c.yaml run=$p train.precision=$p
    members loss $p >$p.loss
done
paste fp32.loss fp16.loss | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-3 * $1) bad = 1; same += d == 0 }
    END { exit !(NR == 40 && !bad && same < 40) }' || fail "fp16 is not near fp32, or is fp32"
[ "$(skipped fp16)" = 0 ] || fail "steps are left out at the usual scale"
[ "$(members loss_scale fp16 | sort -u)" = 65536.0 ] || fail "the scale is not 65536"
[ -z "$(members loss_scale fp32)" ] || fail "an fp32 run has a loss scale"
event end fp16/metrics.jsonl >end
[ "$(field planned_peak_bytes end)" = "$(field touched_peak_bytes end)" ] || fail "the plan is not what is touched"
expect 0 plan c.yaml run=fp16 --json
has out "\"peak_bytes\": $(field planned_peak_bytes end)"
saved=fp16/checkpoints/step-40
grep -q '"torch_dtype": "float16"' $saved/config.json || fail "config.json does not say float16"
head -c 4000 $saved/model.safetensors | grep -aq '"dtype":"F16"' || fail "the matrices are not stored in F16"
expect 0 generate $saved --prompt "the fire" --max-new 4

# ---- a planted overflow: the scale begins too high ----
high="train.loss_scale.init_scale=1e12"
expect 0 train c.yaml run=high guard.action=rewind $high
n=$(skipped high)
calc "$n > 10 && $n < 35" || fail "$n steps are left out"
[ "$(event alarm high/metrics.jsonl | wc -l)" = 0 ] || fail "an overflow is taken for a spike"
[ "$(members loss_scale high | head -n 4 | awk '{ printf "%g ", $1 / 1e12 }')" = "1 0.5 0.25 0.125 " ] || fail "the scale is not halved"
[ "$(members skipped high | wc -l)" = "$(members grad_norm high | grep -c null)" ] || fail "a norm of a step that overflowed"
calc "$(members loss high | tail -n 1) < 0.9 * $(members loss high | head -n 1)" || fail "nothing is learned"
# Nothing has changed before the first update: neither weights, nor the optimizer's state.
expect 0 train c.yaml run=none $high train.steps=8
[ "$(skipped none)" = 8 ] || fail "a step is not left out"
[ "$(members digest none | sort -u | sed 's/"//g')" = "$(event start none/metrics.jsonl | field digest -)" ] || fail "weights changed"
tail -c 2000 none/checkpoints/step-8/state/optimizer.safetensors | tr -d '\0' | wc -c | grep -qx 0 || fail "the optimizer's state changed"
[ "$(field updates none/checkpoints/step-8/state/cursor.json)" = 0 ] || fail "updates that were not made are counted"
# The optimizer does not count them: AdamW's first update is by the learning rate, up or down. The 160 weights of
# norms begin with 1 and do not decay.
first=$(event step high/metrics.jsonl | grep -v skipped | head -n 1 | grep -o '"step": [0-9]*' | grep -o '[0-9]*')
expect 0 train c.yaml run=first $high train.steps=$first 'optim.schedule={kind: constant}'
od -A n -v -t f4 -w4 first/checkpoints/step-$first/state/master.safetensors |
    awk '{ d = $1 < 1 ? 1 - $1 : $1 - 1; near += d < 0.02; right += d > 0.0099 && d < 0.0101 }
        END { exit !(near == 160 && right > 150) }' || fail "the first update is not that of a first step"

# ---- interrupted while steps are left out ----
results step high >want
for stop in 3 $((n - 2)); do
    rm -rf again
    expect 0 train c.yaml run=again $high guard.action=rewind train.steps=$stop
    expect 0 train c.yaml run=again $high guard.action=rewind
    results step again | cmp -s want - || fail "a run that stopped at step $stop differs"
done
# kill -9, in the middle of them: scales from 1e38 on take a hundred steps.
far="train.loss_scale.init_scale=1e38 train.steps=140 checkpoint.every=8 eval.every=0 sample.every=0"
expect 0 train c.yaml run=far $far
results step far >want
killed=0
for try in $(seq 20); do
    rm -rf cut
    "$athanor" train c.yaml run=cut $far >out 2>err &
    victim=$!
    await test -d cut/checkpoints/step-8
    kill -9 $victim 2>/dev/null
    wait $victim 2>/dev/null
    steps=$(results step cut | wc -l)
    [ "$steps" -lt 100 ] || continue
    killed=1
    expect 0 train c.yaml run=cut $far
    results step cut | cmp -s want - || fail "a killed run differs after step $steps"
    break
done
[ $killed = 1 ] || fail "the run was too fast to be killed"
expect 0 verify resume c.yaml $high

# ---- layouts and recompute: the same bits in the deterministic mode ----
sure="train.deterministic=true $high parallel.verify=false"
expect 0 train c.yaml run=one $sure
[ "$(skipped one)" -gt 5 ] || fail "deterministic: nothing is left out"
results step one >one.steps
for l in "parallel.zero=0" "parallel.zero=1" "parallel.zero=2" "parallel.zero=3 train.recompute=full"; do
    rm -rf two
    expect 0 launch --ranks 2 -- train c.yaml run=two $sure $l
    results step two | cmp -s one.steps - || fail "$l: another result than on one rank"
done
rm -rf two
expect 0 train c.yaml run=two $sure train.steps=6 train.recompute=selective
expect 0 launch --ranks 2 -- train c.yaml run=two $sure parallel.zero=2
results step two | cmp -s one.steps - || fail "resumed on another layout: another result"
expect 0 launch --ranks 2 -- train c.yaml run=tp $high parallel.tp=2 parallel.sp=true
calc "$(members loss tp | tail -n 1) < 1.02 * $(members loss high | tail -n 1)" || fail "tp: another result"
[ "$(skipped tp)" = "$n" ] || fail "tp: $(skipped tp) steps are left out, not $n"
expect 0 verify layouts c.yaml $high --ranks 2 --steps 3

# ---- a new optimizer begins to count anew ----
stages='stages=[{name: a, until: {steps: 30}}, {name: b, optim: {restart: true}}]'
expect 0 train c.yaml run=restart $high "$stages"
[ "$(field updates restart/checkpoints/step-40/state/cursor.json)" = "$(event step restart/metrics.jsonl | tail -n 10 | grep -vc skipped)" ] || fail "steps of the old optimizer count"
# ... and not where it was none: a fork may say that an earlier stage had one.
stages='stages=[{name: a, until: {steps: 20}}, {name: b, optim: {restart: true}}]'
expect 0 train restart/config.json stages=[] train.steps=30 run=past $high
expect 0 train c.yaml run=past $high "$stages" --fork forked
had=$(event step past/metrics.jsonl | grep -vc skipped)
calc "$(field updates forked/checkpoints/step-40/state/cursor.json) == $had + $(event step forked/metrics.jsonl | grep -vc skipped)" || fail "a fork counts as if the optimizer had begun anew"

# ---- overflow without end ----
expect 5 train c.yaml run=endless $high train.loss_scale.min_scale=1e10 --json
has out '"kind": "nonfinite"'
has out "at a loss scale of 1e+10, which becomes no smaller"
[ "$(skipped endless)" = 7 ] || fail "$(skipped endless) steps were tried"
expect 0 verify checkpoint endless
expect 5 train c.yaml run=endless $high train.loss_scale.min_scale=1e10

# ---- gradients of one batch ----
printf '\223NUMPY\1\0\166\0%-117s\n' "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 9), }" >ids.npy
printf '\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0\7\0\0\0\10\0\0\0\11\0\0\0' >>ids.npy
for p in fp32 fp16; do
    expect 0 train c.yaml train.precision=$p --dump-grads $p.safetensors --ids-file ids.npy --json
    field loss out >$p.loss
done
calc "$(cat fp16.loss) < 1.001 * $(cat fp32.loss) && $(cat fp16.loss) > 0.999 * $(cat fp32.loss)" || fail "another loss"

# ---- configs ----
expect 2 train c.yaml run=x train.precision.grads=fp16
has err "gradients in fp16"
expect 2 train c.yaml run=x train.loss_scale.min_scale=1e9
has err "is above init_scale"
expect 0 train c.yaml run=x train.precision=fp32 train.steps=1 train.loss_scale.growth_interval=10
has err "train.loss_scale.growth_interval"
finish
