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
# A slower network takes longer, and a file says what its preset says.
expect 0 plan cluster h100-16 -o c.yaml
expect 0 plan smollm2-135m cluster=c.yaml train.global_batch_size=64 train.micro_batch_size=4 --json
[ "$(field step_ms out)" = "$(field step_ms fast)" ] || fail "the file says other than the preset"
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
