# The search for layouts: ranked, within memory, with a reason and a config that plans as was said. $1 is the program.
. "$(dirname "$0")/lib.sh"

cat >m.yaml <<'Y'
model: {preset: smollm2-1.7b}
train: {seq_len: 2048, global_batch_size: 256, precision: bf16, steps: 10}
optim: {lr: 1e-4}
cluster: h100-16
Y
expect 0 plan search m.yaml --exact --write
grep -q 'The first before the second: .* less time a step' out || fail "no reason: $(cat out)"
grep -q 'm.best.yaml has the first' out || fail "no config"
expect 0 plan search m.yaml --exact --json
best=$(grep -o '"step_ms": [0-9.]*' out | head -n 1 | sed 's/.*: //')
[ "$(grep -o '"step_ms": [0-9.]*' out | sed 's/.*: //' | sort -g | head -n 1)" = "$best" ] || fail "not the fastest first"
# A small model on one node: stages of ZeRO differ by less than the clock can tell, and the plainest is named.
expect 0 plan search smollm2-135m cluster=h100-8 train.global_batch_size=256 train.seq_len=2048
has out 'As fast within 1 %, which is less than the clock can tell, and plainer: dp 8, micro-batch 32 x 1.'
# Where the first two are as fast, memory is the reason.
expect 0 plan search llama-3.2-1b cluster=h100-2 train.global_batch_size=16 train.seq_len=4096 parallel.pp=1 train.micro_batch_size=8 train.recompute=none
has out 'The first before the second: as fast, with 2.5 GiB less memory.'
expect 0 plan search smollm2-135m cluster=h100-8 train.global_batch_size=256 train.seq_len=2048 parallel.zero=0
lacks out 'plainer'
expect 0 plan m.best.yaml --json
[ "$(field step_ms out)" = "$best" ] || fail "the config takes $(field step_ms out) ms, not $best"
grep -q '"fits": true' out || fail "the best does not fit"
# Pipelines are planned, stage by stage, and a plan of the config says the same.
expect 0 plan search m.yaml train.global_batch_size=64 parallel.pp=4 parallel.pp_schedule=1f1b --write -o pp.yaml --json
first() { grep -o "\"$1\": [0-9.e-]*" out | head -n 1 | sed 's/.*: //'; }
best=$(first step_ms) bytes=$(first needed_bytes)
expect 0 plan pp.yaml train.global_batch_size=64 --json
[ "$(first step_ms)" = "$best" ] || fail "the config takes $(first step_ms) ms, not $best"
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(first needed_bytes)"
# So are many stages: what a search names fits, and takes as long as it says.
long='llama-3.1-405b cluster=h100-1024 train.seq_len=4096 train.global_batch_size=1024 train.precision=bf16 train.micro_batch_size=1'
expect 0 plan search $long parallel.pp=32 --most 1 --write -o long.yaml --json
best=$(first step_ms) bytes=$(first needed_bytes)
expect 0 plan long.yaml --json
[ "$(first step_ms)" = "$best" ] || fail "the config takes $(first step_ms) ms, not $best"
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(first needed_bytes)"
# Experts in many stages: a frame for each micro-batch under way takes more than what is kept for the backward.
expect 0 plan search deepseek-v3 cluster=h100-1024 train.seq_len=4096 train.precision=bf16 train.global_batch_size=4096 --most 1 --write -o deep.yaml --json
bytes=$(first needed_bytes)
expect 0 plan deep.yaml --json
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(first needed_bytes)"
# Every schedule that this program has is searched when it is asked for, with stages that are given or not.
few='parallel.tp=1 train.micro_batch_size=2 train.recompute=none'
for s in afab 1f1b interleaved zb-h1 zb-v; do
    expect 0 plan search m.yaml train.global_batch_size=64 parallel.pp=4 $few parallel.pp_schedule=$s --write -o pp.yaml --json
    grep -q "\"pp_schedule\": \"$s\"" out || fail "no $s"
    best=$(first step_ms)
    expect 0 plan pp.yaml train.global_batch_size=64 --json
    has out "\"pp_schedule\": \"$s\", \"virtual\": "
    [ "$(first step_ms)" = "$best" ] || fail "$s takes $(first step_ms) ms, not $best"
    expect 0 plan search m.yaml train.global_batch_size=64 $few parallel.pp_schedule=$s
    [ $s = 1f1b ] || ! grep 'dp [0-9]' out | grep -v "pp . ($s" || fail "not kept: $s"
    [ $s = 1f1b ] || expect 2 plan search m.yaml parallel.pp=1 parallel.pp_schedule=$s
done
expect 0 plan search m.yaml train.global_batch_size=64 train.micro_batch_size=4 parallel.virtual=3
! grep 'dp [0-9]' out | grep -v 'interleaved, 3 chunks' || fail "not three chunks"
expect 2 plan search m.yaml parallel.pp_schedule=zb-h1 parallel.virtual=2
has err 'zb-h1 has one chunk of layers on each stage'
expect 2 plan search m.yaml parallel.pp=2 --exact
has err '--exact leaves out pipelines, which parallel.pp asks for'
expect 2 plan search m.yaml parallel.dp_replicate=2
has err 'replicas of a ZeRO group are not searched'
expect 2 plan search m.yaml parallel.pp=16 train.micro_batch_size=256 parallel.pp_schedule=interleaved
has err 'keeps parallel.pp=16, parallel.pp_schedule=interleaved, train.micro_batch_size=256'
expect 2 plan search t5-small cluster=h100-8 train.global_batch_size=64
has err 'layouts of models with an encoder are not searched'
# A rank of dp 8 has five sequences, which it can take in one micro-batch.
expect 0 plan search smollm2-135m cluster=h100-8 train.global_batch_size=40 train.seq_len=2048 parallel.zero=1 --most 1
has out 'dp 8, ZeRO-1, micro-batch 5 x 1'
# What is given stays; layouts that are no powers of two are tried, too.
expect 0 plan search m.yaml parallel.tp=2 parallel.zero=1 train.recompute=full train.micro_batch_size=4
has out 'kept as given: parallel.tp=2, parallel.zero=1, train.micro_batch_size=4, train.recompute=full'
! grep 'dp ' out | grep -v 'tp 2 with sp.*ZeRO-1, micro-batch 4 .*recompute full' || fail "another layout"
expect 0 plan search m.yaml cluster=h100-24 train.global_batch_size=48 parallel.pp=3 --most 3
grep -q 'pp 3' out || fail "three stages are not tried"
expect 2 plan search m.yaml parallel.sp=false
# ZeRO 2 and 3 beside stages, too; the config plans as was said.
for z in 2 3; do
    expect 0 plan search m.yaml parallel.pp=2 parallel.zero=$z train.global_batch_size=64 --write -o zero.yaml --json
    grep -q "\"zero\": $z" out || fail "no ZeRO-$z in stages"
    best=$(first step_ms)
    expect 0 plan zero.yaml train.global_batch_size=64 --json
    [ "$(first step_ms)" = "$best" ] || fail "ZeRO-$z in stages takes $(first step_ms) ms, not $best"
done
expect 2 plan search m.yaml parallel.tp=5
has err '16 devices are not shared by 5 ranks'
# Long sequences are shared, in each of the three ways; the config says so and plans as was said.
far='model.max_position_embeddings=32768 train.seq_len=32768 train.global_batch_size=4 parallel.tp=1 parallel.pp=1'
for kind in allgather ring ulysses; do
    expect 0 plan search m.yaml $far parallel.cp=4 parallel.cp_kind=$kind --write -o cp.yaml --json
    grep -q "\"cp_kind\": \"$kind\"" out || fail "no $kind"
    best=$(first step_ms)
    expect 0 plan cp.yaml model.max_position_embeddings=32768 train.seq_len=32768 train.global_batch_size=4 --json
    [ "$(first step_ms)" = "$best" ] || fail "cp $kind takes $(first step_ms) ms, not $best"
done
expect 0 plan search m.yaml $far
has out 'cp 4 (ring)'
expect 0 plan search m.yaml --most 50
! grep 'cp [0-9]' out || fail "short sequences are shared"
expect 2 plan search m.yaml parallel.ep=2
has err "models without experts are not there with parallel.ep"
# Experts are shared out, in powers of two; the config says so and plans as was said. What does not run in stages is not searched in them.
moe='qwen3-30b-a3b cluster=h100-32 train.seq_len=4096 train.global_batch_size=128 train.precision=bf16 parallel.tp=1 train.micro_batch_size=1'
expect 0 plan search $moe --write -o ep.yaml --json
lacks out '"pp": 2'
best=$(first step_ms) bytes=$(first needed_bytes) ep=$(first ep)
calc "$ep > 1" || fail "no experts are shared out"
expect 0 plan ep.yaml --json
[ "$(first step_ms)" = "$best" ] || fail "the config takes $(first step_ms) ms, not $best"
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(first needed_bytes)"
expect 0 plan search $moe train.recompute=full
has out ", ep $ep, ZeRO"
expect 0 plan search $moe parallel.ep=4
! grep 'dp [0-9]' out | grep -v ', ep 4,' || fail "not kept"
expect 2 plan search $moe parallel.ep=3
has err '3 ranks cannot share out 128 experts'
expect 2 plan search $moe parallel.pp=2
has err 'the load of all layers together is not there with parallel.pp'
expect 0 plan search $moe parallel.pp=2 parallel.ep=8 train.router.balance=sequence
has out 'ep 8, pp 2'
expect 2 plan search m.yaml parallel.cp=3
has err '16 devices are not shared by 3 ranks'
expect 2 plan search m.yaml parallel.cp=16 train.seq_len=2064
has err '16 ranks cannot share 2064 tokens'
expect 2 plan search smollm2-135m cluster=h100-8 parallel.cp=2 parallel.cp_kind=ulysses train.seq_len=2048 train.global_batch_size=64
has err 'not there with parallel.cp'

expect 4 plan search llama-3.1-70b cluster=l4-8 train.global_batch_size=64
grep -q 'GiB of each device' err || fail "$(cat err)"
# Sketches of layouts that hardly fit are too small: it goes on until one fits.
"$athanor" plan cluster h100-8 | sed 's/"memory_gib": [0-9.]*/"memory_gib": 22/; s/"disk_gb_per_s": [0-9.]*/"disk_gb_per_s": 0/' >small.yaml
expect 0 plan search llama-3-8b cluster=small.yaml train.global_batch_size=64 train.seq_len=4096 --most 1
# What the host copies for GPUs takes none of their memory.
expect 0 plan qwen3-30b-a3b cluster=gb200 train.seq_len=4096 train.micro_batch_size=4 train.global_batch_size=256 parallel.ep=8 --json
calc "$(first baseline_bytes) < 1e9" || fail "$(first baseline_bytes) bytes of a device"
# Where nothing fits without, a file is the last resort.
expect 0 plan search llama-3.1-70b cluster=h100-8 train.global_batch_size=64 --most 1
has out ', offload optimizer'
expect 4 plan search llama-3.1-70b cluster=h100-8 train.global_batch_size=64 parallel.offload=none
expect 0 plan search llama-3.1-70b cluster=h100-4 train.global_batch_size=8 train.seq_len=4096 train.precision=bf16 --most 1
has out ', offload all'
# What is given of it stays, and memory is that of the plan, which then has no snapshot.
expect 0 plan search m.yaml checkpoint.every=5 parallel.offload=weights --write -o file.yaml --most 1 --json
bytes=$(first needed_bytes)
expect 0 plan file.yaml --json
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(first needed_bytes)"
expect 2 plan search m.yaml parallel.offload=weights parallel.zero=1
has err 'which parallel.zero=3 has, and it is 1'
expect 2 plan search m.yaml parallel.offload=weights parallel.pp=2
has err 'pipelines are not searched with parallel.offload=weights'
# A run in stages has one layout: it shares every batch of them, fits in all, and is as fast as in the first.
cat >stages.yaml <<'Y'
model: {preset: smollm2-135m, max_position_embeddings: 32768}
train: {seq_len: 2048, global_batch_size: 512, precision: bf16, steps: 1000}
optim: {lr: 1e-4}
cluster: h100-8
stages:
  - {name: short, until: {steps: 500}}
  - {name: long, until: {steps: 1000}, train: {seq_len: 32768, micro_batch_size: 1, global_batch_size: 32}}
Y
expect 0 plan search stages.yaml --write -o layout.yaml --most 1 --json
best=$(first step_ms) bytes=$(first needed_bytes)
expect 0 plan layout.yaml --json
[ "$(first step_ms)" = "$best" ] || fail "the config takes $(first step_ms) ms, not $best"
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(first needed_bytes)"
# A micro-batch that a stage sets is that of later stages, too; where it is the first, of each layout.
cat >own.yaml <<'Y'
model: {preset: smollm2-135m}
train: {seq_len: 2048, global_batch_size: 40, precision: bf16, steps: 100}
cluster: h100-4
stages:
  - {name: last, train: {micro_batch_size: 2}}
Y
expect 0 plan search own.yaml --most 3
[ "$(grep -c 'micro-batch 2 x 5' out)" -ge 3 ] || fail "another micro-batch than that of the stage"
sed -i '/^stages:/a\  - {name: first, until: {steps: 50}}' own.yaml
sed -i 's/name: last/name: middle, until: {steps: 70}/' own.yaml
echo '  - {name: last, train: {seq_len: 4096}}' >>own.yaml
expect 0 plan search own.yaml --most 1 --write -o layout.yaml
has out 'micro-batch 10 x 1'
expect 0 plan layout.yaml
has out 'stage 3: micro-batch 2 x 4096 tokens'
expect 0 plan search m.yaml train.steps=1000 train.batch_ramp.start=32 train.batch_ramp.increment=32 train.batch_ramp.every=100 --write -o ramp.yaml
expect 0 plan ramp.yaml
# Less memory than the devices have, and not more than they have.
expect 0 plan search m.yaml train.memory_limit=20Gi --write -o little.yaml
has out 'do not fit into 20.0 GiB'
expect 0 plan little.yaml
has out 'needed of the GPU'
expect 2 plan search m.yaml train.memory_limit=2Ti
has err 'a limit of 2048.0 GiB is more than the 78.0 GiB'
expect 2 plan m.best.yaml train.memory_limit=2Ti
# Rows that hosts read ahead, and snapshots, take none of a GPU's memory.
expect 0 plan search smollm2-135m cluster=h100-64 train.seq_len=4096 train.global_batch_size=2097152 --most 1
expect 0 plan smollm3-3b cluster=h100-8 train.seq_len=4096 train.micro_batch_size=1 train.global_batch_size=64 checkpoint.every=10 train.steps=100 --json
has out '"fits": true'
calc "$(first snapshot_bytes) > 3e10" || fail "no snapshot: $(first snapshot_bytes)"
calc "$(first needed_bytes) == $(first peak_bytes) - $(first snapshot_bytes)" || fail "$(first needed_bytes) of the GPU"
# Stages of a pipeline hold what every stage of the run needs.
expect 0 plan search stages.yaml parallel.pp=2 --write -o layout.yaml --most 1 --json
bytes=$(first needed_bytes)
expect 0 plan layout.yaml --json
[ "$(first needed_bytes)" = "$bytes" ] || fail "not $bytes: $(first needed_bytes)"
# What does not go together is not offered: an optimizer of whole matrices with ZeRO, dropout of adapters with tp; pairs stay together.
expect 0 plan search m.yaml optim.name=adafactor --write -o whole.yaml
lacks out 'ZeRO'
lacks out ', tp '
expect 0 plan whole.yaml
expect 4 plan llama-3-8b cluster=l4-8 optim.name=adafactor train.precision=bf16 train.seq_len=2048
lacks err 'parallel.zero=3'
has err 'another layout fits: dp 1, pp 8'
expect 2 plan search m.yaml parallel.tp_async=true parallel.pp=2 parallel.pp_schedule=zb-h1
has err 'are not there with parallel.tp_async'
expect 0 plan search m.yaml train.objective=dpo train.global_batch_size=64 train.seq_len=2048 --write -o pairs.yaml
! grep -q 'micro-batch [13] ' out || fail "half a pair"
expect 0 plan pairs.yaml
# A layout that does not fit: what helps is named, another layout at last.
expect 4 plan llama-3.1-8b cluster=h100-8 train.seq_len=131072 train.micro_batch_size=1 train.global_batch_size=8 parallel.zero=3
has err 'another layout fits: dp 1, cp 8'
expect 4 plan smollm2-1.7b cluster=rtx4090-1 train.seq_len=2048 train.global_batch_size=32
has err 'offload optimizer (athanor plan search --write)'
# One answer, whatever fails.
expect 1 plan search m.yaml --write -o nowhere/c.yaml --json
[ "$(grep -c '^{' out)" = 1 ] || fail "not one answer: $(cat out)"
expect 2 plan search smollm3-3b cluster=h100-64 parallel.pp=64
has err '64 stages have no layer each: the model has 36'
expect 2 plan search m.yaml train.global_batch_size=7 --exact
expect 2 plan search m.yaml cluster=null
grep -q 'cluster=h100-64' err || fail "$(cat err)"
finish
