#!/usr/bin/env bash
# A real Slurm on this machine, of a node and of two more with networks and names of their own: the sample scripts of
# docs/slurm train, on one node and over two, are told to stop, lose a rank, a launcher, a job step, or a slurmstepd alone
# (of the script: batchd; of the job step on n1, n2: stepd1, stepd2), go back to the queue and finish with what an undisturbed run computes.
# $1 is the program; after it come cases in place of all (node:stopped node:rank node:step nodes:stopped ...).
. "$(dirname "$0")/lib.sh"
need "$1" slurmctld slurmd sbatch munged mungekey
enter "$0" "$@"
. "$PWD/tests/cli/lib.sh"
. "$root/tests/cli/ranks.sh"

# ---- the cluster ----

# Each host has a munged of its own, as one would refuse a credential that it sees twice; and a /dev/shm.
start_munge() { # NAME, ON: what runs a command on that host
    local at=/dev/shm/munge
    "${@:2}" munged --force --socket=$at.socket --key-file="$work/munge.key" --pid-file=$at.pid --seed-file=$at.seed \
        --log-file="$work/logs/munged.$1" 2>"logs/munged.$1.err"
}

start_cluster() {
    local n
    start_hosts 2
    mount -t tmpfs none /dev/shm
    mkdir -p state spool logs tmp/node tmp/n1 tmp/n2
    chmod 755 . # munged wants folders that nobody else may write to
    mungekey -c -k "$work/munge.key"
    start_munge node
    cat >slurm.conf <<CONF
ClusterName=athanor
SlurmctldHost=node
AuthType=auth/munge
AuthInfo=socket=/dev/shm/munge.socket
SlurmUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/logs/slurmctld
SlurmdLogFile=$work/logs/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
TmpFS=$work/tmp/%n
SlurmdTimeout=10
KillWait=2
BatchStartTimeout=1
SlurmdParameters=config_overrides
NodeName=node CPUs=2 State=UNKNOWN
NodeName=n1,n2 CPUs=1 State=UNKNOWN
PartitionName=one Nodes=node MaxTime=INFINITE State=UP
PartitionName=two Nodes=n1,n2 MaxTime=INFINITE State=UP
CONF
    export SLURM_CONF=$work/slurm.conf
    slurmctld
    slurmd
    for n in 1 2; do
        start_munge n$n on $n
        on $n slurmd
    done
    await nodes_are_idle || { sinfo; tail -n 20 logs/*; fail "the nodes do not come up"; finish; }
}
nodes_are_idle() { [ "$(sinfo -h -o %t 2>/dev/null | sort -u)" = idle ]; }

# ---- jobs ----

# stop WHY: what comes next would only wait for what does not come.
stop() {
    cp "${last#*, }.log" out
    echo "state: $(state)"
    tail -n 15 logs/* >err 2>&1
    fail "$1"
    finish
}

# submit SCRIPT RUN: sets `job`.
submit() {
    local size=(--partition=two --nodes=2 --ntasks-per-node=1 --cpus-per-task=1)
    [ "$1" = nodes.sbatch ] || size=(--partition=one --cpus-per-task=2)
    last="$1, $2"
    case $2 in
        *-batchd) local -x ATHANOR_LINK=15000,0 ;; # it is not to be done before anybody notices
        *-stepd*) local -x ATHANOR_TIMEOUT=8 ;; # seconds that ranks wait for one that is gone
    esac
    job=$(sbatch --parsable --output="$work/$2.log" "${size[@]}" "$root/docs/slurm/$1" d.yaml run="$2" $keys) ||
        fail "sbatch refuses it"
}
state() { scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
is() { [[ " $1 " == *" $(state) "* ]]; }
restarts() { scontrol show job "$job" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p'; }
# await_restart N: the job is back in the queue for the Nth time. Slurm would let it wait there for two minutes; here
# only until its last start is tidied up.
has_restarts() { [ "$(restarts)" = "$1" ]; }
await_restart() {
    await has_restarts "$1" || stop "it does not go back to the queue"
    await nodes_are_idle
    sleep 4
    is PENDING && scontrol update job="$job" StartTime=now
}
await_done() {
    await is "COMPLETED FAILED CANCELLED NODE_FAIL"
    [ "$(state)" = COMPLETED ] || stop "it ends as $(state)"
}
await_step_beyond() { await is_beyond "$@" || stop "$1 does not come to step $2"; }
# steps_after RUN N: it has logged a step beyond the Nth.
last_step() { event step "$1/metrics.jsonl" 2>/dev/null | tail -n 1 | grep -o '"step": [0-9]*' | sed 's/.* //'; }
is_beyond() { local n; n=$(last_step "$1"); [ "${n:-0}" -gt "$2" ]; }
# processes_of PROGRAM WORD: those that run it, whatever they are called (a launcher starts ranks as `exe`, Debian has
# slurmstepd-wlm), and whose command line has the word, as they began: a launcher before its ranks, the step of the batch
# script before the steps that it starts.
processes_of() {
    local p
    for p in /proc/[0-9]*; do
        [[ $(readlink "$p/exe") = */"$1"* ]] && grep -q -- "$2" "$p/cmdline" 2>/dev/null && echo "${p#/proc/}"
    done | sort -n
}

# kill_rank RUN: one that a launcher or a job step has started, not the launcher.
kill_rank() {
    local p parent
    for p in $(processes_of athanor run="$1"); do
        parent=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$p/status" 2>/dev/null)
        case $(readlink "/proc/${parent:-none}/exe") in */athanor | */slurmstepd*) kill -9 "$p" && return ;; esac
    done
    return 1
}

# only_on N: those of the processes of standard input that are on host N.
only_on() {
    local p
    while read -r p; do [ "/proc/$p/ns/uts" -ef "/proc/${host[$1]}/ns/uts" ] && echo "$p"; done
}

# kill_tree PROCESS: it, and what it has started: what becomes of a job step when its control group is killed.
kill_tree() {
    local child children
    children=$(cat /proc/"$1"/task/*/children 2>/dev/null)
    kill -9 "$1" 2>/dev/null
    for child in $children; do kill_tree "$child"; done
}

# ---- the runs ----

start_cluster
export OMP_NUM_THREADS=1 ATHANOR_RANKS=2 ATHANOR_LINK=5000,0 # slow enough to be met in mid run
export SLURM_WAIT=5 # seconds that srun waits for the others when a task has ended
export OMPI_MCA_btl=tcp,vader,self OMPI_MCA_btl_tcp_if_include=10.99.0.0/24
make_data
write_ranks_config d.yaml
keys="train.steps=120 checkpoint.every=10 eval.every=40 sample.every=0 parallel.zero=1"
mkdir bin
ln -s "$athanor" bin/athanor
export PATH=$work/bin:$PATH
ATHANOR_LINK=0,0 expect 0 launch --ranks 2 -- train d.yaml run=want $keys
results 'step|valid' want >want.steps
check_end() {
    await_done "$1"
    [ "$(event start "$1/metrics.jsonl" | wc -l)" = 2 ] || fail "it was not started twice"
    event start "$1/metrics.jsonl" | tail -n 1 | grep -q '"step": 0,' && { tail -n 20 "$1.log" >out; fail "it began anew"; }
    results 'step|valid' "$1" | cmp -s want.steps - || fail "it differs from an undisturbed run"
    echo "ok: $last"
}

disturb() { # KIND RUN
    case $1 in
        stopped)
            await_step_beyond "$2" 3
            scancel --signal=TERM --batch "$job" ;;
        rank)
            await_step_beyond "$2" 12
            await kill_rank "$2" || stop "no rank can be killed" ;;
        launcher)
            await_step_beyond "$2" 12
            kill -9 "$(processes_of athanor run="$2" | head -n 1)" || stop "no launcher can be killed" ;;
        batchd) # of the script, which lives on
            await_step_beyond "$2" 12
            kill -9 "$(processes_of slurmstepd "$job" | head -n 1)" ;;
        stepd1 | stepd2) # of the job step, on n1 or n2; it begins after that of the script
            await_step_beyond "$2" 12
            kill -9 "$(processes_of slurmstepd "$job" | only_on "${1#stepd}" | tail -n 1)" ;;
        step)
            await_step_beyond "$2" 12
            kill_tree "$(processes_of slurmstepd "$job" | head -n 1)"
            sleep 2
            scontrol reconfigure ;; # makes Slurm look now which jobs its node still has
    esac
}

shift
[ $# -gt 0 ] || set -- node:{stopped,rank,launcher,step,batchd} nodes:{stopped,rank,step,batchd,stepd1,stepd2}
for case; do
    run=${case/:/-}
    submit "${case%:*}.sbatch" "$run"
    disturb "${case#*:}" "$run"
    # On one node the others go on by themselves, and the job stays where it is.
    [ "$case" = node:rank ] || await_restart 1
    check_end "$run"
    [ "$case" != node:rank ] || grep -q '"kind": "restart"' "$run/metrics.jsonl" || fail "nobody says what was lost"
done
finish
