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
expect 1 plan cost --hours 1000 --devices 8 --preemptions-per-day 48 --checkpoint-every 600
grep -q 'never ends' err || fail "$(cat err)"

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
expect 2 plan cost m.yaml --mfu 0.4
expect 2 plan cost m.yaml cluster=null
expect 2 plan cost
expect 2 plan cost --params 3B
expect 2 plan cost m.yaml --hours 3
finish
