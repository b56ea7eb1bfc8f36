# What it takes to come to the first step does not depend on the number of planned steps: processor
# time, which others on this machine do not change much, plan and memory. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
make_data
write_config c.yaml

# first_step_ms STEPS: until the first `step` line has been read; the run is ended.
first_step_ms() {
    local line pid
    rm -rf "run-$1"
    mkfifo fifo
    "$athanor" train c.yaml run="run-$1" train.steps="$1" train.digest_every=0 checkpoint.every=0 \
        eval.every=0 sample.every=0 --json >fifo 2>err &
    pid=$!
    exec 3<fifo # stays open, so that the run lives on
    while read -r line <&3; do
        case $line in *'"event": "step"'*) break ;; esac
    done
    ms=$(sed 's/.*) //' /proc/$pid/stat | awk -v hz="$(getconf CLK_TCK)" '{ print int(($12 + $13) * 1000 / hz) }')
    rss=$(awk '/^VmHWM/ { print $2 }' /proc/$pid/status 2>log)
    kill -9 $pid 2>log
    wait $pid 2>log
    exec 3<&-
    rm fifo
    [ -n "$rss" ] || fail "the run ended before its memory was read"
    planned=$(field planned_peak_bytes "run-$1/metrics.jsonl")
}
best_of() { # STEPS: the cheapest of five starts, its planned bytes in planned, its memory in best_rss
    best=1000000
    for _ in 1 2 3 4 5; do
        first_step_ms "$1"
        [ $ms -ge $best ] || best=$ms best_rss=$rss
    done
}
last=startup
best_of 2000 # more than it takes before it is ended
short=$best short_planned=$planned short_rss=$best_rss
best_of 5000000
echo "first step after $short ms of processor time for 2,000 steps, $best ms for 5,000,000; resident $short_rss and $best_rss kB"
[ $short -lt 1500 ] && [ $best -lt 1500 ] || fail "slow start"
[ $((best - short)) -lt 150 ] || fail "five million steps start later than two thousand"
[ -n "$planned" ] && [ "$planned" = "$short_planned" ] || fail "planned $planned and $short_planned bytes"
[ $((best_rss - short_rss)) -lt 1000 ] || fail "five million steps need more memory"
finish
