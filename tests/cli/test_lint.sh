#!/usr/bin/env bash
# What athanor train says before it trains: of the disk, the job's time, paths, intervals, batches.
# --dry-run says the same. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml

# said STATUS SENTENCE KEYS...: train and train --dry-run both say it.
said() {
    local want=$1 sentence=$2
    shift 2
    rm -rf run
    expect "$want" train c.yaml --dry-run "$@"
    has err "$sentence"
    expect "$want" train c.yaml "$@"
    has err "$sentence"
}

# A sound config is silent.
expect 0 train c.yaml eval.every=4
[ ! -s err ] || fail "there is nothing to say"
expect 0 train c.yaml --dry-run
[ ! -s err ] || fail "there is nothing to say"

# Intervals beyond the end; a default is no wish.
said 0 "checkpoint.every (command line) is 50 and the run has 40 steps: a checkpoint comes only at the end" checkpoint.every=50
said 0 "a validation comes only at the end" eval.every=41
sed -i 's/^checkpoint:.*/checkpoint: {every: 50}/' c.yaml
said 0 "checkpoint.every (c.yaml:7) is 50"
expect 0 train c.yaml --dry-run train.steps=39
lacks err "only at the end"
sed -i 's/^checkpoint:.*/checkpoint: {every: 4}/' c.yaml
said 0 "a sample comes only at the end" sample.every=41 'sample.prompts=["the"]'
said 0 "no multiple of checkpoint.every (4): what stays is every 12 steps" checkpoint.keep_every=6
said 0 "a checkpoint has one where checkpoint.every (4) meets eval.every (6): every 12 steps" checkpoint.keep_best=1 eval.every=6

# Batches.
said 0 "ends at 4 sequences a step, and train.global_batch_size is 8" train.batch_ramp.start=4 train.batch_ramp.increment=4 train.batch_ramp.every=100
rm -rf run
expect 0 train c.yaml train.steps=2 train.global_batch_size=4000 checkpoint.every=2
has err "a step takes 4000 sequences (command line) and one pass over the data has"

# The time of the job, by the run's own last step: a resumed run that is not done.
rm -rf run
expect 0 train c.yaml train.steps=8
export SLURM_JOB_END_TIME=$(($(date +%s) + 5))
expect 0 train c.yaml train.steps=100k --dry-run
has err "and its job ends in"
has err "docs/slurm"
SLURM_JOB_END_TIME=$(($(date +%s) + 100000000)) expect 0 train c.yaml train.steps=12
lacks err "its job ends"
SLURM_JOB_END_TIME=soon expect 2 train c.yaml train.steps=12
has err SLURM_JOB_END_TIME
unset SLURM_JOB_END_TIME

# A fork that ends by tokens has the steps before it, and those that its own batch takes for what is left.
fork() {
    expect 0 train c.yaml "$@" train.tokens=$((24 * 8 * 32)) train.global_batch_size=16 checkpoint.every=19
    has err "checkpoint.every (command line) is 19 and the run has 18 steps"
}
fork --fork fork --dry-run
fork --fork fork
fork run=fork --dry-run
expect 0 plan c.yaml run=fork train.tokens=$((24 * 8 * 32)) train.global_batch_size=16 optim.schedule.warmup_steps=19
has err "are more than the 18 steps of the schedule"

# What is removed.
expect 0 train c.yaml --fresh --dry-run
has err "--fresh removes run with its"
lacks err "trains"
[ -d run/checkpoints ] || fail "a dry run removed something"
said 0 "removes files after every save" 'checkpoint.upload=true && rm -rf /nowhere/*'
said 0 "removes files after every save" 'checkpoint.upload=true | xargs rm -f'
said 0 "removes files after every save" 'checkpoint.upload=(rm -f /nowhere/x)'
for up in 'cp -r {} "/mnt/the rm disk/"' 'cp -r {} /mnt/rm /mnt/copies' 'echo rm; true'; do
    expect 0 train c.yaml --dry-run "checkpoint.upload=$up"
    lacks err "removes files after every save"
done

# A folder that is emptied, seen from a config that lies elsewhere; without a place elsewhere it is skipped.
elsewhere=$(mktemp -d "$root/build/lint.XXXXXX" 2>/dev/null)
if [ -n "$elsewhere" ] && [ "${elsewhere#/tmp/}" = "$elsewhere" ]; then
    sed "s#char.json#$work/char.json#; s#set/#$work/set/#g" c.yaml >"$elsewhere/c.yaml"
    expect 0 train "$elsewhere/c.yaml" --dry-run run="$work/there"
    case $work in /tmp/*) has err "which is emptied or lost" ;; esac
    expect 0 train "$elsewhere/c.yaml" --dry-run run="/tmp/athanor-lint-nowhere.$$"
    has err "which is emptied or lost"
    expect 0 train "$elsewhere/c.yaml" --dry-run run="$elsewhere/there"
    lacks err "which is emptied or lost"
fi
rm -rf "$elsewhere"

# Disk: where no checkpoint fits the run is refused before anything is written; where the kept ones do not,
# it is said. A disk of so many MiB is a mount of this test's own, which not every machine allows.
on_disk() { # MIB KEYS...
    local size=$1
    shift
    last="athanor train c.yaml $* on $size MiB" got=0
    unshare -m bash -c "mkdir -p disk && mount -t tmpfs -o size=${size}m none disk && cp c.yaml disk &&
        '$athanor' train disk/c.yaml run=disk/run --dry-run $* && [ ! -e disk/run ]" >out 2>err || got=$?
}
if unshare -m bash -c 'mkdir -p disk && mount -t tmpfs none disk' 2>mount.err; then
    on_disk 1
    [ $got = 1 ] || fail "exit $got, not 1"
    has err "there is no space for a checkpoint of disk/run: it takes 0.00132 GB, and"
    has err "set run=FOLDER on another disk"
    on_disk 4 checkpoint.keep=5
    [ $got = 0 ] || fail "exit $got, not 0"
    has err "disk/run will hold up to 6 checkpoints of 0.00132 GB, with the one that is being written, and has room for"
    on_disk 2 model.hidden_size=128 model.intermediate_size=512 parallel.offload=optimizer
    [ $got = 1 ] || fail "exit $got, not 1"
    has err "there is no space for the file of parallel.offload: it takes 0.00"
    has err "set parallel.offload_to=FOLDER on another disk"
    on_disk 40 checkpoint.keep=5
    lacks err "will hold"
fi
finish
