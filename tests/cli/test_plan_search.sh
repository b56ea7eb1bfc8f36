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
expect 0 plan m.best.yaml --json
[ "$(field step_ms out)" = "$best" ] || fail "the config takes $(field step_ms out) ms, not $best"
grep -q '"fits": true' out || fail "the best does not fit"
# Pipelines are sketched, and marked so.
expect 0 plan search m.yaml train.global_batch_size=64 train.seq_len=8192 --most 50
grep -q 'pp .* \*$' out || fail "no pipeline among 50: $(cat out)"
grep -q 'reckoned from single layers' out || fail "a sketch is not called one"

expect 4 plan search llama-3.1-70b cluster=h100-8 train.global_batch_size=64
grep -q 'GiB of each device' err || fail "$(cat err)"
expect 2 plan search m.yaml train.global_batch_size=7 --exact
expect 2 plan search m.yaml cluster=null
grep -q 'cluster=h100-64' err || fail "$(cat err)"
finish
