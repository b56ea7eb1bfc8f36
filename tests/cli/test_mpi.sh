#!/usr/bin/env bash
# Ranks under mpirun: every collective, a rank that hangs, one that goes on when it has sent, threads, a program without its
# plugin. Skipped where there is no MPI, or the tests were built without it.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$athanor")
ranks=$build/test_comm_collectives
if ! command -v mpirun >/dev/null || [ ! -e "$build/athanor-mpi.so" ] || [ ! -e "$ranks" ]; then
    echo "skipped: no mpirun, or no athanor-mpi.so or test_comm_collectives beside the program"
    exit 0
fi
export OMP_NUM_THREADS=1

# run STATUS N PROGRAM ARGS...: N ranks of a program.
run() {
    local want=$1 got=0
    last="mpirun -n $2 ${*:3}"
    timeout 60 mpirun -n "$2" "${@:3}" >out 2>err </dev/null || got=$?
    [ $got -eq "$want" ] || fail "exit $got, not $want"
}

for n in 2 3; do
    run 0 $n "$ranks" all
    has out "$n ranks (mpi): all passed"
done
run 6 3 "$ranks" hang
has err 'rank 1 holds up the others: rank '
has err 'where each rank is'
OMPI_MCA_btl=tcp,self run 0 2 "$ranks" send # as between hosts

# Ranks that may run on the same processors share them.
two=$(taskset -pc $$ | sed 's/.*: //' | tr ',-' '\n\n' | sed -n '1p;$p' | sort -u | paste -sd,)
OMPI_MCA_hwloc_base_binding_policy=none run 0 2 taskset -c "$two" env -u OMP_NUM_THREADS "$ranks" threads
[ "$(grep -cx 'threads of a rank: 1' out)" = 2 ] || fail "two ranks on processors $two do not have one thread each"

# Ranks that another MPI has started are each alone: that is refused.
last="a launcher that MPI does not know"
{ PMI_SIZE=2 PMI_RANK=0 "$ranks" all >out 2>err && fail "each rank runs by itself"; } 2>/dev/null
has err 'PMI_SIZE says that there are 2 ranks, but MPI finds this one alone'

# Without the plugin beside it the program says what is missing.
mkdir alone
cp "$ranks" alone/
last="a program without its plugin"
{ OMPI_COMM_WORLD_SIZE=2 ./alone/test_comm_collectives all >out 2>err && fail "it runs"; } 2>/dev/null
has err 'the MPI plugin does not load'
finish
