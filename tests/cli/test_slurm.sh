#!/usr/bin/env bash
# The sample Slurm scripts, with a Slurm made of shell functions: a run that is told to stop saves and
# goes back to the queue, one that is done or fails does not. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1 SLURM_JOB_ID=17 ATHANOR_RANKS=2
make_data
write_config c.yaml
mkdir bin
PATH=$work/bin:$PATH
ln -s "$athanor" bin/athanor
printf '#!/bin/sh\necho "$@" >>requeued\n' >bin/scontrol
# srun: the options before the program are Slurm's.
cat >bin/srun <<'SH'
#!/usr/bin/env bash
while [ "${1#--}" != "$1" ]; do shift; done
exec "$1" launch --ranks 2 -- "${@:2}"
SH
chmod +x bin/scontrol bin/srun

# job SCRIPT STATUS KEYS...: runs it as sbatch would.
job() {
    local script=$1 want=$2 got=0
    shift 2
    last="$script $*"
    rm -f requeued
    bash "$root/docs/slurm/$script" "$@" >out 2>err || got=$?
    [ $got -eq "$want" ] || fail "exit $got, not $want"
}

for script in node.sbatch nodes.sbatch; do
    job $script 2
    job $script 2 c.yaml train.stepz=1
    [ ! -e requeued ] || fail "a mistake went back to the queue"

    last="$script, stopped"
    rm -rf run requeued
    bash "$root/docs/slurm/$script" c.yaml train.steps=100000 >out 2>err &
    pid=$!
    await_step run
    kill -TERM $pid
    got=0
    wait $pid || got=$?
    [ $got -eq 75 ] || fail "exit $got, not 75"
    [ "$(cat requeued)" = "requeue 17" ] || fail "it did not go back to the queue"

    step=$(grep -c '"event": "step"' run/metrics.jsonl)
    job $script 0 c.yaml train.steps=$((step + 4))
    [ ! -e requeued ] || fail "a finished run went back to the queue"
    [ "$(grep -c '"event": "step"' run/metrics.jsonl)" = $((step + 4)) ] || fail "it did not go on"
done

# A lost rank: on one node the others go on, on several the job goes back to the queue, ten times.
# lose_rank SCRIPT: the job runs, and its last rank is killed; its process is $pid.
lose_rank() {
    last="$1, a rank is killed"
    rm -rf run requeued
    bash "$root/docs/slurm/$1" c.yaml train.steps=100000 >out 2>err &
    pid=$!
    await_step run
    kill_last "$(cut -d ' ' -f 1 /proc/$pid/task/$pid/children)" # the second one watches
}
kill_last() { kill -9 "$(tr ' ' '\n' </proc/$1/task/$1/children | grep . | tail -n 1)"; }
is_restarted() { grep -q '"kind": "restart"' run/metrics.jsonl; }
lose_rank node.sbatch
await is_restarted || fail "the others do not go on"
kill -TERM $pid
wait $pid
[ "$(cat requeued)" = "requeue 17" ] || fail "it did not go back to the queue"
for count in 9 10; do
    export SLURM_RESTART_COUNT=$count
    lose_rank nodes.sbatch
    got=0
    wait $pid || got=$?
    [ $got -eq 6 ] || fail "exit $got, not 6"
    [ "$(cat requeued 2>/dev/null)" = "$([ $count = 9 ] && echo requeue 17)" ] || fail "start $count and the queue"
done
finish
