# The optimizer's state in a file (parallel.offload): the same bits, less memory, planned as it is; and
# what becomes of a run whose disk fails or that is killed. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml

digests() { grep -o '"digest": "[0-9a-f]*"' "$1" | sort -u; }
# same KEYS...: both ways of a run have the digests of one another, at every step.
same() {
    local way
    for way in none optimizer; do
        expect 0 ${ranks:+launch --ranks $ranks --} train c.yaml run=$way --fresh --json train.steps=4 \
            train.digest_every=1 checkpoint.every=2 sample.prompts=[] train.threads=1 parallel.offload=$way "$@"
        cp out $way.out
        event end out >$way.end
        [ "$(field touched_peak_bytes $way.end)" = "$(field planned_peak_bytes $way.end)" ] ||
            fail "touched $(field touched_peak_bytes $way.end), planned $(field planned_peak_bytes $way.end)"
    done
    [ "$(digests none.out | wc -l)" -ge 4 ]  && [ "$(digests none.out)" = "$(digests optimizer.out)" ] ||
        fail "digests: $(digests none.out) and $(digests optimizer.out)"
    cmp -s none/checkpoints/step-4/state/optimizer.safetensors \
        optimizer/checkpoints/step-4/state/optimizer.safetensors || fail "other states are saved"
    [ -z "$(find optimizer -name '.offload*')" ] || fail "its file is left"
}

same
same train.precision=bf16 train.recompute=full checkpoint.async=false
same train.deterministic=true train.global_batch_size=16 train.micro_batch_size=4
export ATHANOR_DEVICE=twin
same
unset ATHANOR_DEVICE
ranks=2
for zero in 0 1 2 3; do same parallel.zero=$zero parallel.verify=false; done
same parallel.pp=2 parallel.verify=false
same parallel.tp=2 parallel.verify=false
ranks=

# 8 bytes a parameter less, but for the slots: an eighth of that, where models are small.
memory() { expect 0 plan c.yaml train.steps=2 checkpoint.async=false parallel.offload=$1 --json; cp out $1.plan; }
memory none
memory optimizer
total=$(field total none.plan)
saved=$(($(field peak_bytes none.plan) - $(field peak_bytes optimizer.plan)))
calc "$saved >= 8 * $total * 0.7 && $saved <= 8 * $total + 65536" || fail "$saved bytes less for $total parameters"
calc "$(field file_bytes optimizer.plan) >= 8 * $total" || fail "$(field file_bytes optimizer.plan) bytes in the file"

# It is saved and read as ever: a run goes on with either way.
keys="train.digest_every=1 sample.prompts=[] train.threads=1 checkpoint.every=2"
expect 0 train c.yaml run=whole train.steps=6 $keys --json
event step out | tail -n 1 >whole.last
expect 0 train c.yaml run=parts train.steps=2 $keys parallel.offload=optimizer
expect 0 train c.yaml run=parts train.steps=4 $keys
mkdir disk
expect 0 train c.yaml run=parts train.steps=6 $keys parallel.offload=optimizer parallel.offload_to=disk --json
event step out | tail -n 1 >parts.last
[ "$(field digest whole.last)" = "$(field digest parts.last)" ] || fail "a resumed run has another digest"
[ -z "$(ls -A disk)" ] || fail "its file is left in the folder"

# Killed in the middle of its writes, it goes on from its checkpoint.
ATHANOR_FAULT=count:counts "$athanor" train c.yaml run=counted train.steps=6 $keys parallel.offload=optimizer >out 2>err
changes=$(awk '$1 == "kill" { print $2 }' counts)
(ATHANOR_FAULT=kill:$((changes - 60)) exec "$athanor" train c.yaml run=killed train.steps=6 $keys \
    parallel.offload=optimizer >out 2>err)
[ $? -eq 137 ] || fail "not killed"
expect 0 train c.yaml run=killed train.steps=6 $keys parallel.offload=optimizer --json
event step out | tail -n 1 >killed.last
[ "$(field digest whole.last)" = "$(field digest killed.last)" ] || fail "a killed run has another digest"
[ -z "$(find killed -name '.offload*')" ] || fail "the file of the killed run is left"

# A disk that fails ends the run with a sentence, and what was saved stands.
expect 0 train c.yaml run=saved train.steps=2 $keys
resumed="run=failed train.steps=16 checkpoint.every=0 train.digest_every=1 sample.prompts=[] train.threads=1"
count() { # KIND WAY: how many operations a resumed run has
    rm -rf failed && cp -r saved failed
    ATHANOR_FAULT=count:counts "$athanor" train c.yaml $resumed parallel.offload=$2 >out 2>err
    awk -v k="$1" '$1 == k { print $2 }' counts
}
disk_fails() { # KIND: in the middle of what is done for the file
    local plain=$(count $1 none) all=$(count $1 optimizer) got=0
    [ $((all - plain)) -gt $plain ] || fail "of $all operations $plain are of something else"
    rm -rf failed && cp -r saved failed
    last="$1 number $((all / 2)) fails"
    ATHANOR_FAULT=$1:$((all / 2)) "$athanor" train c.yaml $resumed parallel.offload=optimizer >out 2>err || got=$?
    [ $got -eq 1 ] || fail "exit $got"
    has err "cannot $1 the optimizer state in failed/.offload-0-"
    has err "parallel.offload_to"
    expect 0 train c.yaml run=failed train.steps=6 $keys parallel.offload=optimizer --json
    event step out | tail -n 1 >failed.last
    [ "$(field digest whole.last)" = "$(field digest failed.last)" ] || fail "another digest after that"
}
disk_fails read
disk_fails write

# What cannot be.
expect 2 train c.yaml run=r parallel.offload=optimizer optim.name=adafactor
has err "parallel.offload"
expect 1 train c.yaml run=r2 parallel.offload=optimizer parallel.offload_to=c.yaml/none
finish
