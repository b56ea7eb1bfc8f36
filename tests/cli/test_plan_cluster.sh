# The planner's clock on the command line: time on a cluster, clusters as files, what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"

expect 0 plan smollm2-135m cluster=h100-16 train.global_batch_size=64 train.micro_batch_size=4 --json
for key in step_ms tok_per_s tok_per_s_per_device mfu hfu bubble exposed_ms; do
    grep -q "\"$key\": [0-9]" out || fail "no $key in $(cat out)"
done
grep -q '"dp": 16, ' out || fail "16 devices are not 16 data-parallel ranks"
calc "abs($(field tok_per_s out) / $(field tok_per_s_per_device out) / 16 - 1) < 1e-9" || fail "16 devices"
calc "$(field mfu out) > 0.05 && $(field mfu out) < $(field hfu out) + 1e-9 && $(field hfu out) < 1" || fail "MFU"
cp out fast
# What precision means on a GPU does not depend on the CPU that plans: 2 bytes of bf16 and 4 of the masters.
ATHANOR_ISA=avx2 expect 0 plan smollm2-135m cluster=h100-16 train.global_batch_size=64 train.micro_batch_size=4 --json
[ "$(field param_bytes out)" = "$(field param_bytes fast)" ] || fail "weights are $(field param_bytes out) bytes beside an old CPU"
[ "$(field step_ms out)" = "$(field step_ms fast)" ] || fail "a GPU is slower beside an old CPU"
# A slower network takes longer, and a file says what its preset says.
expect 0 plan cluster h100-16 -o c.yaml
grep -q '"micro_batch_us": 100.0,' c.yaml || fail "100 us"
grep -E '0{8}|9{8}' c.yaml && fail "a number with digits that nobody gave"
expect 0 plan smollm2-135m cluster=c.yaml train.global_batch_size=64 train.micro_batch_size=4 --json
[ "$(field step_ms out)" = "$(field step_ms fast)" ] || fail "the file says other than the preset"
# Keys are nested; a dotted one would change nothing.
sed 's/^{/{"device.dollars_per_hour": 99,/' c.yaml >dotted.yaml
expect 3 plan smollm2-135m cluster=dotted.yaml
has err 'device.dollars_per_hour is no key of a cluster'
has err 'hint: keys are nested here: device: {dollars_per_hour: ...}'
sed 's/^{/{"node_link": [],/; s/"node_link": {/"rest": {/' c.yaml >list.yaml
expect 3 plan smollm2-135m cluster=list.yaml
has err 'node_link is no group of keys'
expect 0 plan cluster h100-16 -o c2.yaml --json
has out '{"path": "c2.yaml", "name": "h100", "devices": 16, "per_node": 8}'
cmp c.yaml c2.yaml || fail "--json writes another file"
sed -i '/"network"/,/}/s/"gb_per_s": 50.0/"gb_per_s": 0.5/' c.yaml
expect 0 plan smollm2-135m cluster=c.yaml train.global_batch_size=64 train.micro_batch_size=4 --json
calc "$(field step_ms out) > 1.5 * $(field step_ms fast)" || fail "a hundredth of the network costs nothing"
expect 0 plan smollm2-135m cluster=h100-16 train.global_batch_size=64
grep -q 'MFU .* HFU ' out || fail "no MFU"
# Memory is that of a device of the cluster.
expect 4 plan llama-3.1-70b cluster=h100-16

expect 2 plan smollm2-135m cluster=h100-12
grep -q 'h100-16' err || fail "no whole nodes named: $(cat err)"
expect 2 plan smollm2-135m cluster=k80
expect 2 plan smollm2-135m cluster=h100-16 parallel.tp=3
expect 2 plan smollm2-135m cluster=h100-16 parallel.dp=4
sed -i 's/"per_node": 8/"per_node": none/' c.yaml
expect 3 plan smollm2-135m cluster=c.yaml
grep -q per_node err || fail "$(cat err)"

# This machine: nothing is known, then it is measured, and a plan reckons with it.
export ATHANOR_MACHINE_FILE=$PWD/here/machine.json
mkdir here
small="model.model_type=llama model.hidden_size=64 model.num_hidden_layers=2 model.num_attention_heads=2 model.vocab_size=512 \
train.seq_len=64 train.global_batch_size=4 train.steps=2 optim.lr=1e-4"
echo '{}' >empty.yaml
expect 3 plan empty.yaml $small cluster=local
grep -q 'doctor calibrate first' err || fail "$(cat err)"
expect 2 doctor calibrate --seconds 0.1 --disk no/such/folder
has err "no/such/folder"
for fault in create:2 write:3 fsync:3 remove:1 read:9; do # first of all doctor writes what it has measured
    export ATHANOR_FAULT=$fault
    expect 1 doctor calibrate --seconds 0.1 --disk .
    unset ATHANOR_FAULT
    has err "cannot"
    lacks err "Success"
    [ $fault = remove:1 ] || [ -z "$(ls athanor-disk-* 2>/dev/null)" ] || fail "the disk's file stays after $fault"
    rm -f athanor-disk-*
done
expect 0 doctor calibrate --seconds 0.1 --disk .
calc "$(field disk_gb_per_s here/local.yaml) > 0" || fail "$(cat here/local.yaml)"
[ -z "$(ls athanor-disk-* 2>/dev/null)" ] || fail "the disk's file stays"
grep -q '^ok *local  .*rates of ops' out || fail "$(cat out)"
expect 0 plan empty.yaml $small cluster=local --json
calc "$(field step_ms out) > 0.01 && $(field step_ms out) < 60000" || fail "$(cat out)"
grep -q '"of": "linear", "pass": "weights"' <(tr -d '\n' <here/local.yaml | tr -s ' ') || fail "no rate of linear"
# A file of another version is refused with what helps.
cp here/local.yaml kept.yaml
echo '{"name": "local", "rates": [{"of": "linear", "terms": [1]}]}' >here/local.yaml
expect 3 plan empty.yaml $small cluster=local
grep -q 'hint: run athanor doctor calibrate again' err || fail "$(cat err)"
mv kept.yaml here/local.yaml
if [ "$(nproc)" -gt 1 ]; then
    expect 0 doctor calibrate --ranks 2 --seconds 0.1
    expect 0 plan empty.yaml $small cluster=local-2 --json
    grep -q '"devices": 2' out || fail "$(cat out)"
fi
expect 2 doctor calibrate --ranks 200
expect 2 doctor --ranks 2
expect 2 doctor --disk .

# A run says what was predicted for it, and what it took.
make_data
write_config run.yaml
"$athanor" plan cluster h100-1 | sed 's/"cuda"/"cpu"/' >one.yaml
expect 0 train run.yaml run=predicted cluster=one.yaml train.steps=3 --json
ms=$(event start out | grep -o '"predicted": {"cluster": "h100", "step_ms": [0-9.]*' | sed 's/.*: //')
calc "${ms:-0} > 0" || fail "the start predicts nothing"
event end out | grep -q "\"predicted_step_ms\": $ms, \"mean_step_ms\": [0-9]" || fail "the end does not compare"
expect 0 train run.yaml run=other cluster=h100-64 train.steps=3 --json
lacks out '"cluster": "h100"'
finish
