#!/usr/bin/env bash
# Four hosts on this machine, with networks, names, process numbers and shared memory of their own, and two ranks on
# each under Open MPI over TCP: what they compute has one host's bits, a link that is cut ends all of them, and
# the run goes on when the host is back.
# $1 is the program, $2 how many of the ten layouts are compared (all).
. "$(dirname "$0")/lib.sh"
need "$1" mpirun
enter "$0" "$@"
. "$PWD/tests/cli/lib.sh"
. "$root/tests/cli/ranks.sh"
TIMEOUT=8 # seconds that ranks wait for each other

# ---- the hosts ----

start_network() {
    mkdir tmp
    export TMPDIR=$work/tmp # what Open MPI leaves goes with the rest
    start_hosts 4
    serve_calls &
}

# What mpirun calls in place of ssh. A host cannot enter the process numbers of another one, so it only asks.
mkfifo calls
printf '#!/bin/sh\necho "$*" >>%s/calls\n' "$work" >agent
chmod +x agent
serve_calls() {
    local name command
    while read -r name command; do on "${name#n}" sh -c "$command" & done <>calls
}

# mpi ARGS...: 8 ranks on 4 hosts. mpirun waits for ever for a daemon that did not come up.
mpi() {
    on 1 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ATHANOR_TIMEOUT=$TIMEOUT \
        timeout -k 5 200 mpirun --mca plm_rsh_agent "$work/agent" --mca btl tcp,vader,self --mca btl_tcp_if_include 10.99.0.0/24 \
        --mca oob_tcp_if_include 10.99.0.0/24 \
        --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3 --host n1:2,n2:2,n3:2,n4:2 -n 8 \
        -x ATHANOR_TIMEOUT -x ATHANOR_LINK -x OMP_NUM_THREADS -x OMP_WAIT_POLICY \
        "$athanor" train d.yaml "$@" >out 2>err </dev/null
}

# ---- the runs ----

start_network
make_data
write_ranks_config d.yaml
export ATHANOR_LINK=0,0
quiet="eval.every=6 sample.every=0 sample.prompts=[] checkpoint.every=6"
expect 0 train d.yaml run=one $quiet
results 'step|valid' one >want

layouts=("parallel.zero=1" "parallel.tp=2 parallel.zero=1" "parallel.pp=2" "parallel.zero=3" "parallel.tp=2 parallel.sp=true parallel.zero=3"
    "parallel.zero=2" "parallel.tp=2 parallel.pp=2 parallel.zero=1" "" "parallel.cp=2 parallel.zero=1" "parallel.cp=2 parallel.tp=2 parallel.pp=2")
for ((i = 0; i < ${2:-10}; i++)); do
    began=$(now_ms)
    mpi run=r$i $quiet ${layouts[$i]} || { last="4 hosts: ${layouts[$i]}" && fail "it does not end well"; continue; }
    # One host with the same layout, and for those that keep the bits of one rank, one rank.
    case ${layouts[$i]} in
        *tp=* | *cp=*)
            expect 0 launch --ranks 8 -- train d.yaml run=h$i $quiet ${layouts[$i]}
            results 'step|valid' h$i >here ;;
        *) cp want here ;;
    esac
    last="4 hosts, 8 ranks: ${layouts[$i]:-parallel.dp=8}"
    results 'step|valid' r$i | cmp -s here - || fail "it differs from one host"
    echo "ok: $last ($(($(now_ms) - began)) ms)"
done

# ---- ranks that meet by MASTER_ADDR ----

last="ranks on two hosts that meet by MASTER_ADDR"
for ((r = 0; r < 2; r++)); do
    on $((r + 1)) env RANK=$r WORLD_SIZE=2 MASTER_ADDR=10.99.0.11 MASTER_PORT=29500 \
        "$athanor" train d.yaml run=met >said.$r 2>&1 </dev/null &
    met[r]=$!
done
for ((r = 0; r < 2; r++)); do
    got=0
    wait ${met[r]} || got=$?
    cp said.$r err
    [ $got = 2 ] || fail "rank $r: exit $got, not 2"
    has err "ranks that meet by MASTER_ADDR must be on one machine: rank 0 is on n1, rank 1 is on n2"
done
echo "ok: $last are refused"

# ---- a cable is pulled ----

# Host 1 answers, if only that nobody listens there.
is_reachable() { on "$1" bash -c ': </dev/tcp/10.99.0.11/9' 2>&1 | grep -q refused; }
has_saved() { [ "$(newest_step "$1")" -gt "${2:-0}" ]; }
# A rank that has ended may stay as a zombie, for its host has nobody who waits for orphans.
no_ranks() {
    local p
    for p in $(grep -lsx athanor /proc/[0-9]*/comm); do is_gone "$(echo "$p" | tr -dc 0-9)" || return 1; done
}

last="a link is cut"
cut="run=cut parallel.zero=3 train.steps=40 checkpoint.every=2 eval.every=0 sample.every=0 sample.prompts=[]"
expect 0 train d.yaml $cut run=whole parallel.zero=0
ATHANOR_LINK=20000,0 mpi $cut &
running=$!
await has_saved cut || fail "it does not begin"
ip link set v3 down
began=$(now_ms)
await no_ranks || fail "ranks are left"
took=$(($(now_ms) - began))
await_end $running
wait $running && fail "it ends well"
[ $took -lt $((TIMEOUT * 1000 + 15000)) ] || fail "the ranks ended after $took ms"
grep -qE 'athanor: rank [45] on n3 holds up the others: rank [0-9] on n[124] has waited' err || fail "neither rank nor host is named"
expect 0 verify checkpoint cut
last="a link is cut"
echo "ok: $last: all ranks had ended $took ms later, with a timeout of $TIMEOUT s; from step $(newest_step cut) of 40"

last="the host is back"
ip link set v3 up
await is_reachable 3 || fail "it does not come back" # the kernel takes a moment
mpi $cut || fail "exit $?"
[ "$(event start cut/metrics.jsonl | wc -l)" = 2 ] || fail "it was not started twice"
event start cut/metrics.jsonl | tail -n 1 | grep -q '"step": 0,' && fail "it began anew"
results step whole >want
results step cut | cmp -s want - || fail "it differs from an undisturbed run"
echo "ok: $last"
finish
