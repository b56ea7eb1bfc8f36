#!/usr/bin/env bash
# Ranks that join by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun and scripts start
# them: they compute what one rank does, take each other down, and say who is missing.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml
export MASTER_ADDR=127.0.0.1
quiet=(checkpoint.every=0 eval.every=0 sample.every=0)

new_port() {
    export MASTER_PORT=$((20000 + RANDOM % 12000))
    while is_open $MASTER_PORT; do MASTER_PORT=$((20000 + RANDOM % 12000)); done
}
# start RANK ARGS...: a rank of $WORLD_SIZE; what it says is in said.RANK.
start() {
    RANK=$1 "$athanor" "${@:2}" >said."$1" 2>&1 </dev/null &
    pids[$1]=$!
}
# start_all SIZE ARGS...
start_all() {
    new_port
    export WORLD_SIZE=$1
    last="$1 ranks: athanor ${*:2}"
    for ((r = 0; r < $1; r++)); do start $r "${@:2}"; done
}
# ended STATUS RANKS...: they end so; what all said is in out.
ended() {
    local want=$1
    shift
    for r in "$@"; do
        local got=0
        { wait "${pids[$r]}"; } 2>/dev/null || got=$?
        [ $got -eq "$want" ] || fail "rank $r: exit $got, not $want"
    done
    cat said.* >out
    rm -f said.*
}
# said TIMES TEXT
said() { [ "$(grep -cF -- "$2" out)" = "$1" ] || fail "'$2' is not said $1 times"; }

# The same bits as one rank; a stranger that talks first, and one that says nothing, change nothing.
expect 0 train d.yaml run=one
results 'step|valid|sample' one >want
start_all 4 train d.yaml run=four parallel.zero=3
ended 0 0 1 2 3
results 'step|valid|sample' four | cmp -s want - || fail "it differs from one rank"
[ "$(field rank_kind four/metrics.jsonl)" = joined ] || fail "the log does not say how they met"
new_port
export WORLD_SIZE=2
last="two ranks and two strangers"
start 0 train d.yaml run=two
await_port $MASTER_PORT
exec 7<>/dev/tcp/127.0.0.1/$MASTER_PORT
{ exec 8<>/dev/tcp/127.0.0.1/$MASTER_PORT; printf 'GET / HTTP/1.1\r\n\r\n' >&8; } 2>/dev/null || fail "rank 0 does not listen"
# stranger FORMAT VERSION: the bytes of a hello that claims to be rank 1 of 2, in either format.
stranger() {
    exec 6<>/dev/tcp/127.0.0.1/$MASTER_PORT || fail "rank 0 has gone"
    (printf 'ATHRANK%d%s' "$1" "$2"; head -c $((24 - ${#2})) /dev/zero
     printf '\2\0\0\0\1\0\0\0'; head -c 64 /dev/zero) >&6 2>/dev/null # it may hang up
    timeout 0.2 head -c 84 <&6 >/dev/null
    exec 6>&-
}
for format in 1 2; do
    stranger $format 0.0.0
    stranger $format $'\e]0;name\a\e[2J'
done 2>/dev/null
start 1 train d.yaml run=two
ended 0 0 1
exec 7>&- 8>&-
grep -q $'\e' out && fail "what a stranger sent is obeyed by a terminal"
results 'step|valid|sample' two | cmp -s want - || fail "it differs from one rank"

# A port that is taken: another run's, or that of torchrun's agent, which ranks leave to it.
new_port
last="two runs on one port"
start 0 train d.yaml run=first train.steps=2 "${quiet[@]}"
first=${pids[0]}
await_port $MASTER_PORT
exec 7<>/dev/tcp/127.0.0.1/$MASTER_PORT
start 0 train d.yaml run=second train.steps=2 "${quiet[@]}"
ended 2 0
said 1 "rank 0 cannot listen at 127.0.0.1, port $MASTER_PORT: Address already in use"
export TORCHELASTIC_USE_AGENT_STORE=True
for r in 0 1; do start $r train d.yaml run=second train.steps=2 "${quiet[@]}"; done
ended 0 0 1
unset TORCHELASTIC_USE_AGENT_STORE
pids[0]=$first
start 1 train d.yaml run=first train.steps=2 "${quiet[@]}"
ended 0 0 1
exec 7>&-

# A token keeps out who does not have it, and only that one.
new_port
last="a rank with another token"
export ATHANOR_TOKEN=right
start 0 train d.yaml run=token train.steps=2 "${quiet[@]}"
first=${pids[0]}
await_port $MASTER_PORT
ATHANOR_TOKEN=wrong ATHANOR_TIMEOUT=0.5 start 1 train d.yaml run=token train.steps=2 "${quiet[@]}"
ended 6 1
said 1 "what listens there does not know the token of this run"
start 1 train d.yaml run=token train.steps=2 "${quiet[@]}"
ended 0 0 1
unset ATHANOR_TOKEN

# Numbers that nobody can mean are refused before anybody is waited for.
for bad in ATHANOR_TIMEOUT=1e300 ATHANOR_TIMEOUT=-1 ATHANOR_TIMEOUT=nan ATHANOR_TIMEOUT= WORLD_SIZE=300 \
    WORLD_SIZE=65535 ATHANOR_TOKEN=; do
    last="$bad"
    got=0
    env RANK=0 "$bad" timeout 10 "$athanor" train d.yaml run=never >out 2>err </dev/null || got=$?
    [ $got -eq 2 ] || fail "exit $got, not 2"
    has err "where: ${bad%%=*}"; has err "hint: "
done
[ ! -e never ] || fail "a refused rank made a folder"

# One rank is one rank.
RANK=0 WORLD_SIZE=1 expect 0 train d.yaml run=alone train.steps=2 "${quiet[@]}"

# What all find is told once.
start_all 2 train d.yaml train.stepz=1
ended 2 0 1
said 1 "unknown key 'train.stepz'"

# A rank that is killed takes the others down, and one of them names it.
for victim in 1 0; do
    run=killed$victim
    start_all 3 train d.yaml run=$run train.steps=1000000 train.global_batch_size=6 "${quiet[@]}"
    await_step $run
    kill -9 ${pids[$victim]}
    { wait ${pids[$victim]}; } 2>/dev/null
    await_end ${pids[1 - victim]} ${pids[2]} # not after the ten minutes of a timeout
    ended 6 $((1 - victim)) 2
    said 1 "rank $victim has died"
done

# Ranks that were told other things, or see another folder, do not train together.
new_port
export WORLD_SIZE=2
last="ranks with other keys"
start 0 train d.yaml run=apart
start 1 train d.yaml run=apart optim.lr=5e-3
ended 2 0 1
said 1 'rank 1: optim.lr is 0.005, but 0.01 on rank 0'
new_port
start 0 train d.yaml run=apart
start 1 train d.yaml run=apart --fresh
ended 2 0 1
said 1 'rank 1: its options --fresh, --fork and --trace are not those of rank 0'
[ ! -e apart ] || fail "they made a folder"
new_port
last="ranks in other folders"
mkdir elsewhere && ln -s ../set ../char.json ../d.yaml elsewhere
export ATHANOR_TIMEOUT=1
start 0 train d.yaml run=apart
(cd elsewhere && RANK=1 exec "$athanor" train d.yaml run=apart) >said.1 2>&1 </dev/null &
wait $! && fail "it trains"
ended 6 0
said 1 'rank 1: apart, which rank 0 has made, is not there'
unset ATHANOR_TIMEOUT

# A signal to one of them stops all, and the run can go on.
start_all 2 train d.yaml run=stopped train.steps=1000000
await_step stopped
kill -TERM ${pids[1]}
ended 75 0 1
said 1 'state saved'

# Who is missing, and who was told something else.
export ATHANOR_TIMEOUT=6
new_port
export WORLD_SIZE=3
last="a missing rank"
start 0 train d.yaml
start 2 train d.yaml
ended 6 0 2
said 2 "error: rank 1 of 3 has not come to 127.0.0.1, port $MASTER_PORT, within 6 s"
last="no rank 0"
export ATHANOR_TIMEOUT=0.5
start 1 train d.yaml
ended 6 1
said 1 "error: rank 1 has not found rank 0 at 127.0.0.1, port $MASTER_PORT"
MASTER_ADDR=192.0.2.1 start 0 train d.yaml
ended 2 0
said 1 "rank 0 cannot listen at 192.0.2.1: it is no address of this machine"
unset MASTER_ADDR
start 0 train d.yaml
ended 2 0
said 1 "RANK and WORLD_SIZE are set, but MASTER_ADDR is not"
finish
