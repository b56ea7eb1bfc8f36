# The optimizer's state and ZeRO-3's weights in a file (parallel.offload): the same bits, less memory, planned as it is;
# and what becomes of a run whose disk fails or that is killed. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml

digests() { grep -o '"digest": "[0-9a-f]*"' "$1" | sort -u; }
# same KEYS...: all ways of a run ($ways) have the digests of one another, at every step.
same() {
    local way
    for way in none $ways; do
        expect 0 ${ranks:+launch --ranks $ranks --} train c.yaml run=$way --fresh --json train.steps=4 \
            train.digest_every=1 checkpoint.every=2 sample.prompts=[] train.threads=1 parallel.offload=$way "$@"
        cp out $way.out
        event end out >$way.end
        [ "$(field touched_peak_bytes $way.end)" = "$(field planned_peak_bytes $way.end)" ] ||
            fail "touched $(field touched_peak_bytes $way.end), planned $(field planned_peak_bytes $way.end)"
    done
    [ "$(digests none.out | wc -l)" -ge 4 ] || fail "digests: $(digests none.out)"
    for way in $ways; do
        [ "$(digests none.out)" = "$(digests $way.out)" ] ||
            fail "$*: digests $(digests none.out) and, $way, $(digests $way.out)"
        for file in none/checkpoints/step-4/*.safetensors none/checkpoints/step-4/state/*.safetensors; do
            cmp -s "$file" "$way/${file#none/}" || fail "$*: another ${file#none/} is saved with $way"
        done
        [ -z "$(find $way -name '.offload*')" ] || fail "its file is left"
    done
}

ways=optimizer
same
same train.precision=bf16 train.recompute=full checkpoint.async=false
same train.deterministic=true train.global_batch_size=16 train.micro_batch_size=4
export ATHANOR_DEVICE=twin
same
unset ATHANOR_DEVICE
ranks=2
for zero in 0 1 2; do same parallel.zero=$zero parallel.verify=false; done
same parallel.zero=1 train.precision=bf16 parallel.verify=false
same parallel.pp=2 parallel.verify=false
same parallel.tp=2 parallel.verify=false
ways="optimizer weights all"
same parallel.zero=3 train.global_batch_size=16 train.micro_batch_size=4
same parallel.zero=3 train.precision=bf16 train.recompute=full parallel.verify=false sample.prompts='[one]'
ways=all
same parallel.zero=3 parallel.dp=1 parallel.cp=2 parallel.verify=false
# Without others to share with there are slots, too, and gradients of micro-batches are summed as in ZeRO-3: exact sums do not
# see that.
same parallel.zero=3 parallel.dp=1 parallel.tp=2 parallel.verify=false train.deterministic=true
same parallel.zero=3 parallel.dp=1 parallel.pp=2 parallel.verify=false train.deterministic=true train.precision=bf16
ranks=4
same parallel.zero=3 parallel.dp_replicate=2 train.global_batch_size=16 parallel.verify=false
ranks=
ways="weights all"
same parallel.zero=3 train.deterministic=true train.global_batch_size=16 train.micro_batch_size=4
same parallel.zero=3 train.deterministic=true train.precision=bf16
ways=all
export ATHANOR_DEVICE=twin
same parallel.zero=3 train.deterministic=true train.precision=bf16
unset ATHANOR_DEVICE

# 8 bytes a parameter less, but for the slots: an eighth of that, where models are small.
memory() { expect 0 plan c.yaml train.steps=2 checkpoint.async=false parallel.offload=$* --json; cp out $1.plan; }
memory none
memory optimizer
total=$(field total none.plan)
# less WAY BYTES: so many bytes a parameter less, but for the slots
less() {
    local saved=$(($(field peak_bytes none.plan) - $(field peak_bytes $1.plan)))
    calc "$saved >= $2 * $total * 0.7 && $saved <= $2 * $total + 65536" || fail "$1: $saved bytes less for $total parameters"
    calc "$(field file_bytes $1.plan) >= $2 * $total" || fail "$(field file_bytes $1.plan) bytes in the file"
}
less optimizer 8
# Where programs compute in 16 bits, masters are the optimizer's; 2 bytes a parameter of copies with ZeRO-3. Slots for weights
# and their gradients are as large as all of them in so small a model, so the ranks are many.
memory none train.precision=bf16
memory optimizer train.precision=bf16
less optimizer 12
shards="parallel.dp=8 parallel.zero=3 train.micro_batch_size=1 train.precision=bf16"
memory none $shards
memory all $shards
total=$((total / 8))
less all 14

# The clock counts the file by the disk of the cluster. A search offers it where nothing fits without.
expect 0 plan cluster l4-1
cp out l4.yaml
cat >large.yaml <<'YAML'
model: {preset: smollm2-135m}
train: {steps: 10, seq_len: 256, global_batch_size: 8, micro_batch_size: 1, precision: bf16, recompute: full}
YAML
plain() { expect 0 plan large.yaml cluster=l4.yaml "$@" --json; }
plain
calc "$(field file_ms out) == 0" || fail "time of a file that is not there"
plain parallel.offload=optimizer
moved=$(($(field file_read_bytes out) + $(field file_written_bytes out)))
calc "$(field file_ms out) > 0.999 * $moved / 5e6 && $(field file_ms out) < 1.001 * $moved / 5e6" || fail "$(field file_ms out) ms"
calc "$(field step_ms out) > $(field file_ms out)" || fail "a step is shorter than its update"
expect 0 plan search large.yaml cluster=l4.yaml
lacks out offload
sed -i 's/"memory_gib": .*/"memory_gib": 1.0,/; s/"reserved_gib": .*/"reserved_gib": 0.05,/' l4.yaml
expect 0 plan search large.yaml cluster=l4.yaml --write
has out ", offload optimizer"
expect 0 plan large.best.yaml cluster=l4.yaml --json
has out '"fits": true'
sed -i '/disk_gb_per_s/d' l4.yaml
expect 4 plan search large.yaml cluster=l4.yaml
expect 0 plan large.yaml cluster=l4-1 parallel.offload=all parallel.zero=3
has out "waits for weights"

# It is saved and read as ever: a run goes on with either way.
keys="train.deterministic=true train.digest_every=1 sample.prompts=[] train.threads=1 checkpoint.every=2"
expect 0 train c.yaml run=whole train.steps=6 $keys --json
event step out | tail -n 1 >whole.last
expect 0 train c.yaml run=parts train.steps=2 $keys parallel.offload=optimizer
expect 0 train c.yaml run=parts train.steps=4 $keys
mkdir disk
expect 0 train c.yaml run=parts train.steps=5 $keys parallel.offload=all parallel.zero=3
expect 0 launch --ranks 2 -- train c.yaml run=parts train.steps=6 $keys parallel.offload=all parallel.zero=3 \
    parallel.offload_to=disk --json
event step out | tail -n 1 >parts.last
[ "$(field digest whole.last)" = "$(field digest parts.last)" ] || fail "a resumed run has another digest"
[ -z "$(ls -A disk)" ] || fail "its file is left in the folder"

# Killed in the middle of its writes, it goes on from its checkpoint.
for way in optimizer "all parallel.zero=3"; do
rm -rf counted killed
ATHANOR_FAULT=count:counts "$athanor" train c.yaml run=counted train.steps=6 $keys parallel.offload=$way >out 2>err
changes=$(awk '$1 == "kill" { print $2 }' counts)
(ATHANOR_FAULT=kill:$((changes - 60)) exec "$athanor" train c.yaml run=killed train.steps=6 $keys \
    parallel.offload=$way >out 2>err)
[ $? -eq 137 ] || fail "not killed"
expect 0 train c.yaml run=killed train.steps=6 $keys parallel.offload=$way --json
event step out | tail -n 1 >killed.last
[ "$(field digest whole.last)" = "$(field digest killed.last)" ] || fail "a killed run has another digest"
[ -z "$(find killed -name '.offload*')" ] || fail "the file of the killed run is left"
done

# A disk that fails ends the run with a sentence, and what was saved stands.
expect 0 train c.yaml run=saved train.steps=2 $keys
resumed="run=failed train.steps=16 $keys checkpoint.every=0"
count() { # KIND WAY: how many operations a resumed run has
    rm -rf failed && cp -r saved failed
    ATHANOR_FAULT=count:counts "$athanor" train c.yaml $resumed parallel.offload=$2 >out 2>err
    awk -v k="$1" '$1 == k { print $2 }' counts
}
disk_fails() { # KIND WAY: in the middle of what is done for the file
    local all=$(count $1 "$2") at got sentence="cannot $1 the \(optimizer state\|weights\) in failed/.offload-0-"
    for ((at = all / 2; at < all / 2 + 30; at++)); do # data are read, too
        rm -rf failed && cp -r saved failed
        got=0
        ATHANOR_FAULT=$1:$at "$athanor" train c.yaml $resumed parallel.offload=$2 >out 2>err || got=$?
        if grep -q "$sentence" err; then break; fi
    done
    last="$1 number $at fails, parallel.offload=$2"
    [ $got -eq 1 ] || fail "exit $got"
    grep -q "$sentence" err || fail "another sentence"
    has err "parallel.offload_to"
    expect 0 train c.yaml run=failed train.steps=6 $keys parallel.offload=$2 --json
    event step out | tail -n 1 >failed.last
    [ "$(field digest whole.last)" = "$(field digest failed.last)" ] || fail "another digest after that"
}
for way in optimizer "all parallel.zero=3" "weights parallel.zero=3"; do
    disk_fails read "$way"
    disk_fails write "$way"
done

# What cannot be.
expect 2 train c.yaml run=r parallel.offload=optimizer optim.name=adafactor
has err "parallel.offload"
expect 2 train c.yaml run=r parallel.offload=weights parallel.zero=1
has err "parallel.offload=weights needs slots"
expect 2 train c.yaml run=r parallel.offload=all parallel.zero=3 lora.rank=4
has err "adapters leave"
expect 1 train c.yaml run=r2 parallel.offload=optimizer parallel.offload_to=c.yaml/none
finish
