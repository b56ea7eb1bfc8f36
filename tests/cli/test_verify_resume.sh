# `athanor verify resume`: holds for a run as it is, does not touch it, and says no when a promise is
# broken. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml

# Runs: short as they are, shortened, of GPT-2 with dropout in bf16; the user's folder stays as it is.
expect 0 train c.yaml train.steps=8
cp -r run run.before
expect 0 verify resume c.yaml --kills 12 --steps 40 --seed 3
has out 'ok: 40 steps, 12 interruptions'
diff -r run run.before || fail "the user's run was touched"
[ ! -e run-verify ] || fail "the trial was left behind"
expect 0 verify resume c.yaml train.steps=100000 optim.schedule.decay_steps=50000 \
    "$gpt2_model" train.precision=bf16 --json --kills 12 --seed 5
has out '"ok": true'
has out '"steps": 30, "interruptions": 12'
[ "$(field inside_saves out)" -ge 1 ] || fail "no interruption was inside a save"
[ "$(field by_sigterm out)" -ge 1 ] || fail "no SIGTERM"

# What is kept can be looked at: the last checkpoint of both runs is whole.
expect 2 verify resume c.yaml --kills 0;  has err "--kills must be an integer from 1" # it would prove nothing
expect 0 verify resume c.yaml --steps 10 --kills 1 --keep train.steps=1000
expect 0 verify checkpoint run-verify/a
expect 0 verify checkpoint run-verify/b
last="trial.json"
cp run-verify/trial.json kept
has kept '"warmup_steps": 1,' # of 4 in 1,000 steps
has kept '"steps": 10,'

# sabotage NAME ARGS...: the function NAME runs beside a trial, until there is a file `stop`. On a busy
# machine it may come too late, and has another try then.
sabotage() {
    local name=$1 got=0
    shift
    for _ in 1 2 3 4 5; do
        rm -rf stop trap-verify gone-verify set/train
        cp -r good set/train
        cp good/shard-00000.bin changed
        dd if=zeros of=changed bs=64 seek=1 conv=notrunc 2>dd.log
        $name &
        got=0
        "$athanor" verify resume c.yaml "$@" >out 2>err </dev/null || got=$?
        : >stop
        wait
        last="verify resume $*"
        [ $got = 0 ] || break
    done
    [ $got = 1 ] || fail "exit $got, not 1"
}

# Other tokens while the interrupted run goes on: the first step that differs is named.
cp -r set/train good
head -c $(($(stat -c %s set/train/shard-00000.bin) - 64)) /dev/zero >zeros
change_tokens() {
    while [ ! -e trap-verify/b ] && [ ! -e stop ]; do sleep 0.002; done
    mv changed set/train/shard-00000.bin
}
sabotage change_tokens run=trap train.steps=40 --steps 40 --kills 30
has out 'broken: step '
has out ' differs: '
lacks err 'athanor: error'
[ -e trap-verify/b/metrics.jsonl ] || fail "a broken trial was removed"
rm -rf set/train && cp -r good set/train

# A checkpoint that goes away between two lives is missed.
lose_checkpoints() {
    while [ ! -e stop ]; do
        rm -rf gone-verify/b/checkpoints/step-*
        sleep 0.002
    done
}
sabotage lose_checkpoints run=gone --steps 40 --kills 30
has out 'broken: '

# Errors of the config are told as training would, with the user's place; nothing is left.
expect 2 verify resume c.yaml run=none model.hidden_size=33
has err 'c.yaml:2 (model.num_attention_heads)'
expect 2 verify resume c.yaml run=none optim.lrr=1
has err "did you mean 'optim.lr'"
expect 2 verify resume c.yaml run=none --steps 1
expect 2 verify resume c.yaml run=none data.train=nowhere
[ ! -e none-verify ] || fail "a failed trial was left behind"
mkdir other-verify
echo mine >other-verify/file
expect 2 verify resume c.yaml run=other
has err 'other-verify is there already'
[ "$(cat other-verify/file)" = mine ] || fail "a foreign folder was touched"
finish
