# What runs cost: published figures, and a run that is clocked. $1 is the program.
. "$(dirname "$0")/lib.sh"

near() { # FIELD VALUE TOLERANCE
    calc "abs($(field "$1" out) - $2) <= $3" || fail "$1 is $(field "$1" out), not $2: $(cat out)"
}
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
# Laws come with their sources, and say where they do not hold; a run that goes on from weights has none.
expect 0 plan cost --params 3.0751B --tokens 11.1T
grep -q 'DeepSeek LLM 2024 .*batch 12.3M tokens, lr 0.00038 .*extrapolation: fitted on C from 1e+17 to 2e+19' out || fail "$(cat out)"
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
