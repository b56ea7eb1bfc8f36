#!/bin/bash
# What auto makes of a machine: measured once, remembered, written into the run and kept by it; and doctor.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
auto="train.precision=auto"
export ATHANOR_MACHINE_FILE=$work/cache/machine.json
unset ATHANOR_GEMM ATHANOR_ISA

start() { event start out; }
# threads env ...: what doctor says of them, with such an environment.
threads() { "$@" "$athanor" doctor | grep -o '[0-9]* threads* on.*'; }
# plant FP32 DOTS WIDE: milliseconds of our own products, for every layer that is remembered. 0: there are none.
plant() {
    local ms
    ms=$(printf '%s\n' "$@" | awk '{ for (i = 0; i < 3; i++) printf "%s%s, 0", n++ ? ", " : "", $1 }')
    sed -i -E "s/\"ms\": \[[^]]*\]/\"ms\": [$ms]/" cache/machine.json
}

# ---- measured once ----
expect 0 train c.yaml $auto run=first train.steps=1 --json
has out '"probe_s"'
has out '"machine"'
has out '"chosen": "fp32 '
expect 0 train c.yaml $auto run=again train.steps=1 --json
lacks out probe_s
expect 0 train c.yaml $auto run=speaks train.steps=1 --fresh
has out 'run speaks'
lacks out "measured this machine"
rm -r cache
expect 0 train c.yaml $auto run=speaks train.steps=1 --fresh
has out "measured this machine in"

# ---- followed ----
# precisions RUN: what was chosen for it.
precisions() { echo "$(field compute "$1/config.json") $(field arithmetic "$1/config.json")"; }
# chosen FP32 DOTS WIDE WANT...: a new run takes the fastest.
chosen() {
    plant "$1" "$2" "$3"
    expect 0 train c.yaml $auto run=run train.steps=1 --fresh --json
    [ "$(grep -A3 '"precision"' run/config.json | tr -d ' ",\n' | sed 's/.*{//')" = "compute:$4arithmetic:$5params:$4" ] ||
        fail "precision: $(grep -A3 '"precision"' run/config.json)"
}
chosen 2 1 2.05 bf16 bf16
chosen 2 4 2.05 bf16 fp32
chosen 2 4 2.2 fp32 fp32
chosen 2 4 1.8 bf16 fp32
lacks out '"isa": "avx512_bf16"'
has out '"arithmetic": "fp32"'
chosen 2 0 2.2 fp32 fp32
chosen 2 2.01 2.02 bf16 bf16
expect 0 train c.yaml train.precision=fp32 run=run train.steps=1 --fresh --json
has out '"precision": "f32"'
plant 2 4 2.2
expect 0 plan c.yaml $auto
has out "f32"
plant 2 1 2.05
expect 0 plan c.yaml $auto
has out "bf16"
expect 0 plan c.yaml "train.precision={compute: bf16, arithmetic: fp32}" --json
expect 0 train c.yaml "train.precision={compute: bf16, arithmetic: fp32}" run=run train.steps=1 --fresh --json
has out '"arithmetic": "fp32"'
lacks out '"isa": "avx512_bf16"'
expect 0 train c.yaml "train.precision={compute: fp32, arithmetic: bf16}" run=run train.steps=1 --fresh
has err "train.precision.arithmetic"

# ---- kept ----
plant 2 4 1.8
expect 0 train c.yaml $auto run=whole train.steps=8
expect 0 train c.yaml $auto run=parts train.steps=4
plant 2 1 2.05
expect 0 train c.yaml $auto run=parts train.steps=8 --json
has out '"otherwise": "this machine would choose bf16, by dot products'
has err "the run keeps what it began with: bf16, multiplied in fp32"
lacks out '"began_on"'
[ "$(results step whole | tail -n 4)" = "$(results step parts | tail -n 4)" ] || fail "a kept choice has other bits"
# On another machine, too.
sed -i 's/"machine": ".*"/"machine": "A Mainframe"/' parts/machine.json
expect 0 train c.yaml $auto run=parts train.steps=9 --json
has out '"began_on": "A Mainframe'
has out '"arithmetic": "fp32"'
expect 0 train c.yaml $auto run=parts train.steps=9
has out "it began on A Mainframe"
expect 0 train c.yaml $auto run=parts train.steps=10 --fork forked --json
has out '"arithmetic": "fp32"'
[ -e forked/machine.json ] || fail "a fork forgets its machine"
expect 0 train c.yaml $auto run=parts train.steps=2 --fresh --json
has out '"arithmetic": "bf16"'
lacks out otherwise
rm parts/machine.json
expect 0 train c.yaml $auto run=parts train.steps=3
has err "machine.json of the run is gone"
echo '{"rule": 1}' >parts/machine.json
expect 3 train c.yaml $auto run=parts train.steps=4
has err "machine.json of the run does not say"
has err "or remove it"

# oneDNN's products, where it is much faster, and its layouts only.
sed -i -E 's/"ms": \[[^]]*\]/"ms": [2,1,2,1,2,0, 0,0,0,0,0,0, 9,0,9,0,9,0]/' cache/machine.json
expect 0 train c.yaml $auto run=run train.steps=1 --fresh --json
has out '"matrix_products": "forward: onednn, backward input: onednn, backward weight: own"'
expect 0 train c.yaml $auto run=run train.steps=2 --json train.threads=1
has out '"matrix_products": "forward: onednn, backward input: onednn, backward weight: own"'
lacks out otherwise
expect 0 train c.yaml $auto run=run train.steps=1 --fresh --json train.deterministic=true
has out '"matrix_products": "own"'

# The implementation that ATHANOR_GEMM gave, unless it says something else now.
ATHANOR_GEMM=onednn expect 0 train c.yaml run=gemm train.steps=2 --json
expect 0 train c.yaml run=gemm train.steps=3 --json
has out '"matrix_products": "onednn"'
lacks out otherwise
ATHANOR_GEMM=own expect 0 train c.yaml run=gemm train.steps=4 --json
has out '"matrix_products": "own"'
has out '"otherwise": "ATHANOR_GEMM=own overrules what the run began with'
plant 2 4 2.2
expect 0 train c.yaml run=gemm train.steps=1 --fresh
ATHANOR_GEMM=own expect 0 train c.yaml run=gemm train.steps=2 --json
lacks out otherwise # the same products

# The number of threads, where oneDNN computes; our own products have the same bits with any.
all=$(threads env | sed 's/ .*//')
expect 0 train c.yaml run=alone train.threads=1 train.steps=2
expect 0 train c.yaml run=threads train.threads=1 train.steps=1
expect 0 train c.yaml run=threads train.steps=2 --json
has out "\"threads\": $all,"
lacks out otherwise
[ "$(results step alone)" = "$(results step threads)" ] || fail "other threads, other bits"
ATHANOR_GEMM=onednn expect 0 train c.yaml run=theirs train.threads=1 train.steps=1
if [ "$all" -gt 1 ]; then
    expect 0 train c.yaml run=theirs train.steps=2 --json
    has out '"threads": 1,'
    has out "the run keeps the 1 that it began with, as the bits of oneDNN's products depend on them: train.threads=$all takes all"
fi
expect 0 train c.yaml run=theirs train.threads=2 train.steps=3 --json
has out '"threads": 2,'
lacks out otherwise

# Another instruction set, also where nothing would be chosen otherwise.
expect 0 train c.yaml run=isa train.steps=1
ATHANOR_ISA=base expect 0 train c.yaml run=isa train.steps=2
[ "$(field isa isa/machine.json)" = base ] || has out "it began on"
! grep -qE '^measured this machine in [0-9.]+ s: *$' out || fail "nothing was chosen"
ATHANOR_ISA=base expect 0 train c.yaml run=lacks train.steps=1 "train.precision={compute: bf16, arithmetic: bf16}" --json
has out '"arithmetic": "fp32"'
has err "base has no dot products of it: bf16 is widened"

# ---- a dry run plans what the start would do ----
plant 2 4 2.2
expect 0 train c.yaml $auto run=dry train.steps=1
plant 2 1 2.05
expect 0 train c.yaml $auto run=dry --dry-run
has out "32 tokens, f32"
expect 0 train c.yaml $auto run=dry --dry-run --fork other
has out "32 tokens, f32"
[ ! -e other ] || fail "a dry run made a folder"
expect 0 train c.yaml $auto run=dry --dry-run --fresh
has out "32 tokens, bf16"
expect 2 train c.yaml $auto run=dry --dry-run optim.lr=1
has err "optim.lr was 0.01, is now 1.0"
expect 0 train c.yaml $auto run=dry --dry-run --fork other optim.lr=1
expect 2 train c.yaml $auto run=dry --dry-run --fork dry
has err "dry already holds a run"
expect 2 train c.yaml $auto run=none --dry-run --fork other
has err "no checkpoint to fork from"

# ---- threads: all that there are, also where OpenMP has bound the first one ----
last="doctor with OMP_PROC_BIND"
# Built with clang a process has two OpenMPs, its own and oneDNN's: the second one sees only what the first has left it.
if ! ldd "$athanor" | grep -q libomp; then
    [ "$(threads env OMP_PROC_BIND=true)" = "$(threads env)" ] || fail "$(threads env OMP_PROC_BIND=true)"
    [ "$(threads env -u OMP_WAIT_POLICY OMP_PROC_BIND=true)" = "$(threads env)" ] || fail "bound when it starts itself"
fi

# ---- ranks take the choice of the first ----
plant 2 4 1.8
# Of unequal instruction sets, the lowest; and no products of oneDNN's, which would take the highest.
MASTER_PORT=$((20000 + RANDOM % 12000))
while is_open $MASTER_PORT; do MASTER_PORT=$((20000 + RANDOM % 12000)); done
# rank NUMBER ISA
rank() {
    env ATHANOR_GEMM=onednn RANK="$1" ATHANOR_ISA="$2" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$MASTER_PORT "$athanor" train \
        c.yaml run=unequal train.steps=2 train.threads=1 --json >said."$1" 2>err."$1" </dev/null
}
rank 1 base &
rank 0 amx
status=$?
wait
cp said.0 out
cp err.0 err
last="ranks of unequal instruction sets"
[ $status -eq 0 ] || fail "status $status"
has out '"isa": "base"'
highest=$("$athanor" doctor | sed -n 's/^ok *instructions *\([a-z0-9_]*\).*/\1/p')
[ "$highest" = base ] || has out '"matrix_products": "own"'
[ "$highest" = base ] || has err "base to $highest: all of them compute with base"
plant 2 4 1.8
expect 0 launch --ranks 2 -- train c.yaml $auto run=ranks train.steps=2 train.threads=1 --json
has out '"arithmetic": "fp32"'
expect 0 launch --ranks 2 -- train c.yaml $auto run=ranks train.steps=3 train.threads=1 --json
has out '"arithmetic": "fp32"'

# ---- without measurements, and where they cannot be kept ----
ATHANOR_MACHINE_FILE=none expect 0 train c.yaml $auto run=run train.steps=1 --fresh --json
has out 'nothing was measured'
lacks out probe_s
echo '{' >cache/machine.json
expect 0 train c.yaml $auto run=run train.steps=1 --fresh --json
has err "machine.json"
has err "not remembered"
has err "delete it: what it held is measured again"
[ "$(grep -c "machine.json" err)" = 1 ] || fail "told more than once"
has out '"probe_s"'
[ "$(cat cache/machine.json)" = "{" ] || fail "a damaged file was written over"

# ---- doctor ----
expect 1 doctor
has out "FAILED remembered"
expect 1 doctor --json
has out '"ok": false'
[ "$(wc -l <out)" = 1 ] || fail "not one object"
rm cache/machine.json
expect 0 doctor
has out "products were measured now"
has out "GFLOP/s of one thread"
has out "auto "
expect 0 doctor --json
lacks out probe_s
for name in machine threads instructions memory measured remembered auto "products, bf16, own" "products, f32, onednn"; do
    has out "\"name\": \"$name\", \"ok\": true"
done
expect 0 doctor calibrate --seconds 0.1 --json
has out '"probe_s"'
plant 2 4 1.8
expect 0 doctor --json
has out '"auto": {"precision": "bf16", "arithmetic": "fp32"'
if [ "$highest" != base ]; then
    ATHANOR_ISA=base expect 2 bench gemm 64x64x64 --remember # oneDNN would take what the machine has
    has err "oneDNN does not obey ATHANOR_ISA"
fi
expect 2 doctor nonsense
has err "calibrate"
ATHANOR_MACHINE_FILE=none expect 0 doctor
ATHANOR_MACHINE_FILE=none expect 2 doctor calibrate
finish
