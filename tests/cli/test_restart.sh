#!/usr/bin/env bash
# athanor launch --restart: runs that lost a rank go on by themselves, and what is not started again.
# $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
bash "$root/tools/restart_test.sh" 3 "$athanor" >out 2>&1 || { last="restart_test.sh 3" && fail "a difference"; }
grep -v "all passed" out
make_data
write_ranks_config d.yaml
long="train.steps=100000 checkpoint.every=10 eval.every=0 sample.every=0"

# What cannot be gone on with is refused before a rank starts.
expect 2 launch --ranks 2 --restart -- eval run
has err "--restart is for train"
expect 2 launch --ranks 2 --restart -- train d.yaml --fresh
has err "train --fresh does not"
expect 2 launch --ranks 2 --spares 1 -- train d.yaml
has err "add --restart"
expect 2 launch --ranks 2 --restart 0 -- train d.yaml
expect 2 launch --ranks 2 --restart --min-ranks 3 -- train d.yaml
expect 2 launch --ranks 2 --restart -- train d.yaml train.stepz=1
expect 2 launch --ranks 2 --restart -- train -
has err "standard input can be read once"

# start OPTIONS -- KEYS...: a launch whose ranks have begun; its ranks are in $ranks.
start() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    rm -rf run
    last="athanor launch ${options[*]} -- train d.yaml $*"
    "$athanor" launch "${options[@]}" -- train d.yaml $long "$@" >out 2>err </dev/null &
    launcher=$!
    await_step run
    ranks=$(rank_ids $launcher)
}
ended() {
    local got=0
    wait $launcher || got=$?
    [ $got = "$1" ] || fail "exit $got, not $1"
}
is_restarted() { [ "$(grep -c '"kind": "restart"' run/metrics.jsonl)" = "${1:-1}" ]; }
has_saved() { [ "$(newest_step run)" -gt 0 ]; }

# A rank that hangs counts as lost; a signal to the launcher still ends the run in order.
start --ranks 3 --timeout 1 --restart -- train.global_batch_size=6
kill -STOP "$(echo "$ranks" | awk '{ print $2 }')"
await is_restarted || fail "a hung rank ends the run"
has err "rank 1 holds up the others"
has err "starting again with 2 ranks of 3: parallel.dp=2"
kill "$launcher"
ended 75

# Nobody reads what it says any more: a run goes on all the same.
rm -rf run
mkfifo said
last="launch --restart with its standard error closed"
"$athanor" launch --ranks 2 --restart -- train d.yaml $long >out 2>said </dev/null &
launcher=$!
exec 8<said
await_step run
exec 8<&-
kill -9 "$(rank_ids $launcher | awk '{ print $2 }')"
await is_restarted || fail "it does not go on"
kill "$launcher"
ended 75

# The batch does not divide among 3 ranks, so 2 train; with --min-ranks 3 it is said.
start --ranks 4 --restart --
kill -9 "$(echo "$ranks" | awk '{ print $4 }')"
await is_restarted || fail "it does not go on"
has err "starting again with 2 ranks of 4: parallel.dp=2"
kill "$launcher"
ended 75
start --ranks 4 --restart -- parallel.ep=4 model.num_experts=4 model.num_experts_per_tok=2 sample.prompts=[]
kill -9 "$(echo "$ranks" | awk '{ print $4 }')"
await is_restarted || fail "ranks that share out experts do not go on"
has err "starting again with 2 ranks of 4: parallel.dp=2, parallel.ep=2"
kill "$launcher"
ended 75
start --ranks 2 --restart -- parallel.pp=2 parallel.virtual=2 parallel.pp_schedule=zb-v model.num_hidden_layers=4 sample.prompts=[]
kill -9 "$(echo "$ranks" | awk '{ print $2 }')"
await is_restarted || fail "a pipeline does not go on as one stage"
has err "with 1 rank of 2: parallel.dp=1, parallel.pp=1, parallel.virtual=1, parallel.pp_schedule=1f1b"
kill "$launcher"
ended 75
start --ranks 4 --restart --min-ranks 3 --
kill -9 "$(echo "$ranks" | awk '{ print $4 }')"
ended 6
has err "no layout of 3 to 3 ranks trains this run"

# All at once: nothing speaks against any of their places, so all begin again.
start --ranks 2 --restart --
await has_saved || fail "nothing is saved"
kill -STOP $ranks # none is to end by itself before it is killed
kill -9 $ranks
await is_restarted || fail "it does not go on"
has err "was killed by signal 9 (Killed), as were the others; starting again with 2 ranks"
lacks err "2 ranks of"
event start run/metrics.jsonl | tail -n 1 | grep -q '"step": 0,' && fail "it began anew"
kill "$launcher"
ended 75

# What the config says after the start does not count: the run keeps to its own, in each further start.
cp d.yaml good.yaml
start --ranks 4 --restart --
await has_saved || fail "nothing is saved"
echo "run: [" >d.yaml
kill -9 "$(echo "$ranks" | awk '{ print $4 }')"
await is_restarted || fail "it does not go on"
has err "starting again with 2 ranks of 4: parallel.dp=2"
has err "; d.yaml has changed: the run keeps to run/config.json"
sed 's/lr: 1.0e-2/lr: 2.0e-2/' good.yaml >d.yaml
kill -9 "$(rank_ids $launcher | awk '{ print $2 }')"
await is_restarted 2 || fail "it does not go on for the second time"
has err "starting again with 1 rank of 2: parallel.dp=1"
[ "$(grep -c "has changed" err)" = 1 ] || fail "it is said again"
kill "$launcher"
ended 75
cp good.yaml d.yaml
expect 0 train d.yaml run=want $long train.steps="$(newest_step run)"
results step want >want.steps
results step run | cmp - want.steps || fail "it is not what an undisturbed run computes"

# A spare whose copy is damaged does not take over. The run has one checkpoint, and writes no other.
export TMPDIR=$work/spare
mkdir "$TMPDIR"
rm -rf run
expect 0 train d.yaml
"$athanor" launch --ranks 2 --restart --spares 1 -- train d.yaml train.steps=100000 checkpoint.every=0 \
    eval.every=0 sample.every=0 >out 2>err </dev/null &
launcher=$! last="launch --spares 1, with a damaged copy"
has_copy() { compgen -G "$TMPDIR/athanor-spare-*/checkpoints/step-*/model.safetensors" >copies; }
goes_on() { grep -q '"event": "step", "step": 14,' run/metrics.jsonl; }
await has_copy || fail "the spare has no copy"
await goes_on || fail "the run does not go on"
printf X | dd of="$(cat copies)" bs=1 seek=2000 conv=notrunc 2>dd.err
kill -9 "$(for pid in $(rank_ids $launcher); do
    [ "$(tr '\0' ' ' </proc/$pid/cmdline | cut -c 1-14)" = "athanor train " ] && echo $pid
done | tail -n 1)"
await is_restarted || fail "it does not go on"
has err "spare 0 is not ready: "
has err "checksum differs"
has err "starting again with 1 rank of 2: parallel.dp=1"
kill "$launcher"
ended 75
compgen -G "$TMPDIR/*" >left && fail "a spare left its copy"

# A spare whose disk does not answer is passed over, and holds up nobody; its copy goes when the disk answers.
start --ranks 2 --timeout 3 --restart --spares 1 --
await has_copy || fail "the spare has no copy"
spare=$(echo "$ranks" | awk '{ print $1 }') ranks=${ranks#* } # it was started first
kill -STOP "$spare"
kill -9 "$(echo "$ranks" | awk '{ print $2 }')"
await is_restarted || fail "it does not go on"
has err "starting again with 1 rank of 2: parallel.dp=1; spare 0 is not ready: it has not answered in 3 s"
kill "$launcher"
ended 75
kill -CONT "$spare"
await_end "$spare"
compgen -G "$TMPDIR/*" >left && fail "a spare left its copy"
unset TMPDIR

# What the rank in a lost one's place reads is the spare's copy: one with another byte is seen by the digest.
rm -rf run
expect 0 train d.yaml
cp -r run copy
ATHANOR_COPY=$work/copy expect 0 train d.yaml train.steps=14
rm -rf run && cp -r copy run
printf XYZ | dd of="$(ls copy/checkpoints/step-*12/model.safetensors)" bs=1 seek=4001 conv=notrunc 2>dd.err
ATHANOR_COPY=$work/copy expect 3 train d.yaml train.steps=14
has err "have digest"
expect 0 train d.yaml train.steps=14

# The same error again is not tried: a NaN ends the run at once.
rm -rf run
expect 5 launch --ranks 2 --restart -- train d.yaml run=nan optim.lr=1e6 optim.clip_norm=0 checkpoint.every=1 eval.every=0 sample.prompts=[]
lacks err "starting again"

# JSON: one stream, no error of a start that was followed by another.
rm -rf run
"$athanor" launch --ranks 2 --restart --json -- train d.yaml $long >out 2>err </dev/null &
launcher=$! last="launch --json"
await_step run
kill -9 "$(rank_ids $launcher | awk '{ print $1 }')"
await is_restarted || fail "it does not go on"
kill "$launcher"
ended 75
[ "$(grep -c '"event": "start"' out)" = 2 ] || fail "both starts are in the stream"
[ "$(grep -c '"error"' out)" -le 1 ] || fail "more than the last error"
start --ranks 2 --restart --min-ranks 2 -- --json
kill -9 "$(rank_ids $launcher | awk '{ print $2 }')"
ended 6
[ "$(grep '"error"' out)" = "$(tail -n 1 out)" ] || fail "not one error, at the end"
has out '"message": "rank 1 was killed by signal 9 (Killed); all ranks have ended: 1 rank is left, and --min-ranks is 2"'
expect 2 launch --ranks 2 --restart -- train d.yaml --json train.stepz=1
has out '{"error": {"kind": "usage"'
finish
