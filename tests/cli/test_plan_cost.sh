# What runs cost: published figures, and a run that is clocked. $1 is the program.
. "$(dirname "$0")/lib.sh"

near() { # FIELD VALUE TOLERANCE
    calc "abs($(field "$1" out) - $2) <= $3" || fail "$1 is $(field "$1" out), not $2: $(cat out)"
}
# top NAME: the first member of that name, before those of laws.
top() { grep -o "\"$1\": *[^,}]*" out | head -n 1 | sed 's/^[^:]*: *//; s/"//g'; }
# 3B on 11T tokens in four weeks at 30 % of 720 TFLOP/s: 379 devices. A tenth of serial work: 9.77 times one, 10 at most.
expect 0 plan cost --params 3B --tokens 11T --mfu 0.3 --tflops 720 --devices 384 --days 28 --serial 0.1 --json
near flops 1.98e23 1e18
near devices_needed 379 0
near speed_up 9.77 0.005
near limit 10 1e-9
# Days, hours and money have the serial work: one device takes 1.98e23 / 216e12 seconds, 384 of them a part of that.
near days $(awk 'BEGIN { print 1.98e23 / 216e12 / 86400 * (0.1 + 0.9 / 384) }') 1
grep -q '"device": "NVIDIA H100' out || fail "no device"
near mfu 0.3 1e-9
expect 0 plan cost --params 3B --tokens 11T --mfu 0.3 --tflops 720 --devices 384 --json
near days 27.6 0.05
expect 0 plan cost --params 3B --tokens 11T --devices 384 --days 1250 --checkpoint 1 --checkpoint-every 20160
has out 'devices for 1250 days'
has out 'one each 20160 minutes'
expect 0 plan cost --params 3B --tokens 11T --devices 384 --days 28
has out 'devices for 28 days'
# Hours that a run of that size cannot have taken.
expect 2 plan cost --params 3B --tokens 11T --hours 1000 --devices 8
grep -q 'times the peak' err || fail "$(cat err)"
expect 0 plan cost --params 3B --tokens 11T --hours 276480 --devices 384 --json
near mfu 0.201 0.001
expect 2 plan cost --hours 1000 --devices 8 --serial 0.1
# The ledger of a run of 3B: 58 % of the main run's hours beside it; at 4 dollars the main run is above a million.
expect 0 plan cost --hours 276480 --devices 384 --ablations 115200 --debugging 46080 --price 4 --json
near device_hours 276480 1e-6
near overhead_hours 161280 0
near all_hours 437760 1e-6
near days 30 1e-9
near dollars 1751040 1e-3
expect 0 plan cost --hours 276480 --devices 384
grep -q 'No hours are set aside' out || fail "no word of a buffer"
expect 0 plan cost --hours 276480 --devices 384 --ablations 115200 --debugging 46080
grep -q '161280, 58 % of the main run; 437760 in all' out || fail "$(cat out)"
# Four preemptions a day, a minute for a checkpoint each hour, 15 to start again: 4/24 (30 + 15)/60 + 1/60 are lost, and a
# checkpoint each sqrt(2 x 1 x 360) minutes is best.
expect 0 plan cost --hours 1000 --devices 8 --preemptions-per-day 4 --checkpoint 1 --restart 15 --json
near lost_share 0.141666667 1e-6
near device_hours 1165.04854 1e-3
near best_checkpoint_minutes 26.8328157 1e-4
expect 0 plan cost --hours 1000 --devices 8 --preemptions-per-day 4 --checkpoint 1
has out 'one each 27 minutes is best'
expect 0 plan cost --hours 1000 --devices 8 --preemptions-per-day 4
lacks out 'minutes is best'
has out 'with --checkpoint (minutes for one) it says how often is best'
expect 1 plan cost --hours 1000 --devices 8 --preemptions-per-day 48 --checkpoint-every 600
grep -q 'never ends' err || fail "$(cat err)"

# Energy has the PUE. Spot devices: the main run with its preemptions at their price, beside the same run on devices that stay;
# (1 - 1/60) (1 - 2/4) / (45/60) preemptions an hour are as dear.
expect 0 plan cost --hours 1000 --devices 8 --pue 1.5 --json
near kwh 1500 1e-6
expect 0 plan cost --hours 276480 --devices 384
grep -Eq 'money +1[0-9]{6} dollars' out || fail "$(cat out)"
grep -q 'PUE of 1.2' out || fail "$(cat out)"
spot="plan cost --hours 1000 --devices 8 --checkpoint 1 --restart 15 --price 4 --spot-price 2 --ablations 100"
expect 0 $spot --preemptions-per-day 4 --json
near dollars 2730.09709 1e-3
near staying_dollars 4467.79661 1e-3
near even_preemptions_per_day 15.7333333 1e-5
expect 0 $spot --preemptions-per-day 4
grep -q 'spot is 39 % cheaper, up to 15.7 preemptions a day' out || fail "$(cat out)"
expect 0 $spot --preemptions-per-day 16
grep -q 'dearer' out || fail "$(cat out)"
expect 2 plan cost --hours 1000 --devices 8 --spot-price 2
# A checkpoint that takes longer than its interval is told as that; there are no preemptions.
expect 2 plan cost --hours 1000 --checkpoint 90
has err 'a checkpoint takes 90 minutes, and is written each 60'
# What was given and has no effect is refused, with what is missing.
refused() { # WHAT ARGS...
    local what=$1
    shift
    expect 2 plan cost "$@"
    has err "$what"
}
refused '--days' --hours 1000 --days 0
refused '--tokens does nothing without' --hours 100 --tokens 1B
refused '--params does nothing without --tokens' --hours 100 --params 3B
refused '--restart does nothing without --preemptions-per-day' --hours 1000 --restart 100
refused '--checkpoint-every does nothing without' --hours 1000 --checkpoint-every 5
expect 0 plan cost --hours 1000 --checkpoint 1 --checkpoint-every 5

# At a measured rate hours follow from tokens: 42,000 tokens a second on each of 8; a step of 384 x 13,750, and 4.72M of them.
expect 0 plan cost --tokens 47.2B --tokens-per-second 336k --devices 8 --json
near days 1.63 0.005
expect 0 plan cost --params 3.1B --tokens 47.2B --tokens-per-second 336k --devices 8
grep -Eq 'main run +1.63 days' out || fail "$(cat out)"
grep -Eq 'MFU +78.9 % of 989.5 TFLOP/s \(6 N D, without attention\)' out || fail "$(cat out)"
expect 0 plan cost --tokens 2359296 --tokens-per-second 5280k --devices 384
grep -Eq 'main run +0.447 seconds' out || fail "$(cat out)"
expect 0 plan cost --tokens 11135.877T --tokens-per-second 5280M --devices 384
grep -Eq 'main run +24.4 days' out || fail "$(cat out)"
refused 'of how many devices' --tokens 1B --tokens-per-second 1M
refused 'does nothing without --tokens' --tokens-per-second 1M --devices 8
refused 'exclude each other' --tokens 1B --tokens-per-second 1M --hours 10 --devices 8
refused 'exclude each other' --params 1B --tokens 1B --tokens-per-second 1M --mfu 0.4 --devices 8
refused 'times the peak' --params 3B --tokens 1B --tokens-per-second 1M --devices 8
# Short runs have two or three digits, too.
expect 0 plan cost --params 10M --tokens 1B --devices 8
grep -Eq 'main run +18.9 seconds' out || fail "$(cat out)"
grep -Eq 'device-hours +0.0421' out || fail "$(cat out)"
grep -Eq 'money +[0-9.]+ cents' out || fail "$(cat out)"
expect 0 plan cost --params 1T --tokens 1890T --devices 8
has out '1890T are'
refused '1 device-hour is too few' --params 3B --tokens 11T --hours 1

# Laws come with their sources, and say where they do not hold; a run that goes on from weights has none.
expect 0 plan cost --params 3.0751B --tokens 11.1T
grep -q 'DeepSeek LLM 2024 .*batch 12.3M tokens, lr 0.00038 .*extrapolation: fitted on C from 1e+17 to 2e+19' out || fail "$(cat out)"
has out 'SmolLM3 2025 (3.08B on 11.1T tokens) used batch 2.36M tokens, lr 0.0002, where DeepSeek LLM 2024 says 12.3M, 0.00038'
expect 0 plan cost --params 175B --tokens 3.7T
grep -q 'want 3.7T tokens (Hoffmann et al. 2022, an extrapolation: fitted on 70M to 16B); 3.7T are 1 times' out || fail "$(cat out)"

cat >m.yaml <<'Y'
model: {preset: smollm2-1.7b}
train: {seq_len: 2048, global_batch_size: 256, precision: bf16, tokens: 1B}
optim: {lr: 1e-4}
cluster: h100-16
parallel: {zero: 1}
Y
expect 0 plan cost m.yaml --price 3 --json
near devices 16 0
calc "$(field days out) > 0 && $(field days out) < 1" || fail "$(cat out)"
calc "abs($(field dollars out) / ($(field all_hours out) * 3) - 1) < 1e-6" || fail "$(cat out)"
grep -q '"over_training"' out || fail "no laws"
# Tokens are those of all stages: 90 steps of 256 x 512, then 10 of 256 x 2048.
sed 's/tokens: 1B/steps: 100/' m.yaml >stages.yaml
echo 'stages: [{name: a, until: {steps: 90}, train: {seq_len: 512}}, {name: b, train: {seq_len: 2048}}]' >>stages.yaml
expect 0 plan stages.yaml --json
grep -Eq '"tokens": 17039360(\.0)?,' out || fail "$(grep -o '"laws".*' out)"
expect 0 plan cost m.yaml train.objective=dpo --json
grep -q '"over_training"' out && fail "laws of pretraining for another objective"
# N is of the whole model, whatever a rank has of it; of experts what a token goes through.
expect 0 plan cost m.yaml --json
whole=$(top params)
flops=$(top flops)
calc "abs($whole / 1.71e9 - 1) < 0.01" || fail "$whole parameters"
expect 0 plan cost m.yaml parallel.pp=4 train.micro_batch_size=4 --json
calc "$(top params) == $whole && $(top flops) == $flops" || fail "not $whole parameters: $(cat out)"
expect 0 plan cost olmoe-1b-7b cluster=h100-8 parallel.ep=8 train.tokens=1B train.seq_len=2048 train.global_batch_size=64 train.micro_batch_size=1 parallel.zero=1 --json
calc "abs($(top params) / 1.28e9 - 1) < 0.01" || fail "$(top params) parameters"
near stored_params 6.92e9 1e7
# An MFU says what it counts; that of 6 N D is of these FLOPs in these hours.
expect 0 plan cost m.yaml --json
calc "abs($(top mfu) * $(top device_hours) * 3600 * 989.5e12 / $flops - 1) < 0.001" || fail "$(cat out)"
calc "$(top mfu_with_attention) > $(top mfu)" || fail "$(cat out)"
expect 0 plan cost m.yaml
grep -Eq 'MFU .*\(6 N D, without attention\)' out || fail "$(cat out)"
grep -Eq '% \(the model.s products and visible pairs of attention' out || fail "$(cat out)"
# Hours and tokens are those of all stages and of each batch of a ramp.
cat >short.yaml <<'Y'
model: {preset: smollm2-135m}
train: {seq_len: 2048, global_batch_size: 512, micro_batch_size: 8, precision: bf16}
optim: {lr: 1e-4}
cluster: h100-8
Y
cp short.yaml two.yaml
echo 'stages: [{name: a, until: {steps: 500}}, {name: b, until: {steps: 1000}, train: {seq_len: 8192, micro_batch_size: 2}}]' >>two.yaml
hours=0
add() { # ARGS...: of a run without stages
    expect 0 plan cost short.yaml --json "$@"
    hours="$hours + $(top device_hours)"
}
add train.steps=500
add train.steps=500 train.seq_len=8192 train.micro_batch_size=2
expect 0 plan cost two.yaml train.steps=1000 --json
calc "abs($(top tokens) - 500 * 512 * (2048 + 8192)) < 1" || fail "$(top tokens) tokens"
calc "abs($(top device_hours) / ($hours) - 1) < 1e-6" || fail "$(top device_hours) hours, not $hours"
hours=0
for batch in 64 128 192 256 320 384 448; do add train.steps=100 train.global_batch_size=$batch; done
add train.steps=300
expect 0 plan cost short.yaml train.steps=1000 train.batch_ramp.start=64 train.batch_ramp.every=100 --json
calc "abs($(top tokens) - 332800 * 2048) < 1" || fail "$(top tokens) tokens"
calc "abs($(top device_hours) / ($hours) - 1) < 1e-3" || fail "$(top device_hours) hours, not $hours"
expect 2 plan cost short.yaml
has err 'nothing says how long the run is'
expect 2 plan cost m.yaml --mfu 0.4
expect 2 plan cost m.yaml cluster=null
expect 2 plan cost
expect 2 plan cost --params 3B
expect 2 plan cost m.yaml --hours 3

# How often each source is read: its share of the tokens by its own; what is not there yet is not counted.
make_data
write_config c.yaml
expect 0 plan c.yaml 'data.train=[{path: set/train, weight: 3}, {path: set/valid}, {path: later}]' train.steps=400 --json
tokens=$(grep -o '"path": "set/train", "tokens": [0-9]*' out | sed 's/.* //')
calc "${tokens:-0} > 20000" || fail "no tokens of set/train: $(cat out)"
epochs=$(grep -o "\"tokens\": $tokens.0, \"epochs\": [0-9.]*" out | sed 's/.* //')
calc "abs(${epochs:-0} * $tokens / (400 * 8 * 32 * 3 / 5) - 1) < 1e-9" || fail "$epochs epochs"
grep -q '"path": "set/valid".*"too_often": true' out || fail "$(cat out)"
grep -q '"path": "later"' out && fail "epochs of what is not there"
# plan cost says the same; epochs are a length, where tokenizer and data are there.
expect 0 plan cost c.yaml cluster=h100-1 'data.train=[{path: set/train}]' train.epochs=3 --json
calc "abs($(field epochs out) - 3) < 0.1" || fail "$(field epochs out) epochs"
calc "abs($(top tokens) / $tokens - 3) < 0.1" || fail "$(top tokens) tokens"
expect 0 plan cost c.yaml cluster=h100-1 'data.train=[{path: set/train}]' train.epochs=3
grep -Eq 'train +[0-9.]+ epochs, worth' out || fail "$(cat out)"
expect 0 plan c.yaml 'data.train=[{path: set/train}]' train.epochs=3
grep -Eq 'train +[0-9.]+ epochs, worth' out || fail "$(cat out)"
expect 2 plan cost c.yaml cluster=h100-1 'data.train=[{path: later}]' train.epochs=3
has err 'cannot be read here'
expect 0 plan c.yaml train.steps=4000
grep -Eq 'train +[0-9.]+ epochs, worth [0-9.]+ of new tokens .*repeat too often' out || fail "$(cat out)"
expect 0 plan c.yaml
grep -q 'an extrapolation: fitted on 70M to 16B' out || fail "$(cat out)"
# Laws take N as what a token goes through, and say of how many.
expect 0 plan olmoe-1b-7b cluster=h100-8 train.tokens=1B train.seq_len=2048 train.global_batch_size=64 parallel.zero=3
has out 'active parameters of 6.92B: the laws are of dense models'
expect 0 plan smollm2-135m cluster=h100-8 train.tokens=1B train.seq_len=2048 train.global_batch_size=64
lacks out 'active parameters of'
finish
