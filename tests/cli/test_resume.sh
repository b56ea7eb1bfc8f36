# A run that was interrupted computes what an uninterrupted one does, bit for bit: weights (digests),
# losses, norms, validation and samples. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml

# fp32 Llama, and GPT-2 with dropout in bf16 storage.
began=$(now_ms)
expect 0 train c.yaml run=llama
took=$(($(now_ms) - began))
expect 0 train c.yaml run=gpt2 "$gpt2_model" train.precision=bf16
for r in llama gpt2; do
    [ "$(results step $r | grep -c '"digest"')" = 40 ] || fail "$r: not every step has a digest"
    [ "$(results step $r | grep -o '"digest": "[^"]*"' | sort -u | wc -l)" = 40 ] ||
        fail "$r: the digests do not change"
    results "step|valid|sample" $r >$r.want
    results step $r >$r.steps
done
cmp -s llama.want gpt2.want && fail "the two models compute the same"

# The same command in another folder repeats, also with another number of threads.
expect 0 train c.yaml run=again train.threads=1
results "step|valid|sample" again >again.got
cmp llama.want again.got || fail "a repeated run differs"

# More steps later: the schedule is given by decay_steps, so that its end does not move.
expect 0 train c.yaml run=longer train.steps=13
expect 0 train c.yaml run=longer train.steps=27 --json
[ "$(grep -c '"event": "step"' out)" = 14 ] || fail "a resumed run prints other than its own steps"
expect 0 train c.yaml run=longer
results step longer >longer.got
cmp llama.steps longer.got || fail "a run continued with more steps differs"

# A finished run that is started again does nothing.
expect 0 train c.yaml run=longer --json
lacks out '"event": "step"'
results step longer | cmp llama.steps - || fail "starting a finished run changed it"

# SIGTERM and SIGUSR1 at random moments: exit 75, state saved. The time from which a moment is taken
# follows what the machine does meanwhile.
RANDOM=11
stop_and_go() { # RUN WANT KEYS...: until three signals have met the run
    local run=$1 want=$2 stops=0 tries=0 got took=$took
    shift 2
    while [ $stops -lt 3 ] && [ $tries -lt 60 ]; do
        tries=$((tries + 1))
        last="train c.yaml run=$run $*, stopped"
        "$athanor" train c.yaml run="$run" "$@" >out 2>err &
        sleep_part $took
        kill -s "$([ $((tries % 2)) = 0 ] && echo USR1 || echo TERM)" $! 2>kill.err
        wait $! 2>kill.err
        got=$?
        case $got in
            75)
                stops=$((stops + 1))
                has err "state saved"
                ;;
            0) # too late
                rm -rf "$run"
                took=$((took * 2 / 3 + 1))
                ;;
            138 | 143) took=$((took * 3 / 2 + 1)) ;; # before the handler was there
            *) fail "exit $got after a signal" ;;
        esac
    done
    expect 0 train c.yaml run="$run" "$@"
    results "step|valid|sample" "$run" >"$run.got"
    cmp "$want" "$run.got" || fail "a run that was stopped differs"
    [ $stops = 3 ] || fail "$stops signals met the run in $tries tries"
    echo "$run: stopped and continued $stops times"
}
stop_and_go stopped llama.want
stop_and_go stopped2 gpt2.want "$gpt2_model" train.precision=bf16

# A terminal that is closed, and output that nobody reads any more, save like a signal: 75. nohup has
# SIGHUP ignored.
"$athanor" train c.yaml run=hup train.steps=100000 >out 2>err </dev/null &
await_step hup
kill -HUP $!
wait $!
got=$?
last="train, SIGHUP"
[ $got = 75 ] || fail "exit $got, not 75"
has err "state saved"
{ "$athanor" train c.yaml run=pipe train.steps=100000 --json 2>err </dev/null; echo $? >status; } | head -n 3 >out
last="train --json | head"
[ "$(cat status)" = 75 ] || fail "exit $(cat status), not 75"
for run in hup pipe; do
    [ -d $run/checkpoints/step-$(event step $run/metrics.jsonl | tail -n 1 | grep -o '"step": [0-9]*' | grep -o '[0-9]*') ] ||
        fail "$run: its last step was not saved"
done
(trap '' HUP && exec "$athanor" train c.yaml run=nohup train.steps=100000 >out 2>err </dev/null) &
await_step nohup
kill -HUP $!
kill -0 $! 2>/dev/null && grep -q '^SigIgn:.*[13579bdf]$' /proc/$!/status || fail "nohup's SIGHUP was caught"
kill -TERM $!
wait $!

# A run that is to be shorter than it is has nothing to do.
expect 0 train c.yaml run=shorter train.steps=8
expect 0 train c.yaml run=shorter train.steps=4
has err 'already has its 8 steps'

# SIGKILL.
bash "$root/tools/kill_test.sh" ${ATHANOR_TEST_KILLS:-20} "$athanor" >out 2>&1 || { last="kill_test.sh" && fail "a difference"; }
grep -v "all passed" out
finish
