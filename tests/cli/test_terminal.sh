# What a run shows on a terminal: one live line that never wraps, and plain lines where none can be written over.
# $1 is the program; 77 where there is no expect.
. "$(dirname "$0")/lib.sh"
type -P expect >/dev/null || { echo "skipped: expect is not installed"; exit 77; }
export OMP_NUM_THREADS=1
make_data
write_config c.yaml

# on_terminal COLUMNS TERM RUN: trains on such a terminal; what it shows is in out.
on_terminal() {
    last="training on a $2 of $1 columns"
    TERM=$2 command expect -f "$root/tests/cli/terminal.exp" -- sh -c \
        "stty columns $1 && exec '$athanor' train c.yaml run=$3 train.steps=3 train.log_every=1" >out 2>err </dev/null ||
        fail "exit $?"
}
# The live lines, without what clears the one before.
live_lines() { tr '\r' '\n' <out | grep -a $'\033\[K' | sed $'s/.*\033\[K//' | grep 'step [0-9]*/'; }

on_terminal 36 xterm narrow
live_lines >lines
[ -s lines ] || fail "there is no live line"
awk 'length($0) > 35 { bad = 1 } END { exit bad }' lines || fail "a line wraps: $(cat lines)"
on_terminal 100 xterm wide
live_lines | grep -q 'step 3/3 .* eta 0s' || fail "the line is cut where there is room"

on_terminal 80 dumb dumb
[ "$(grep -c '^ step [123]/3 .* eta ' out)" = 3 ] || fail "a dumb terminal is not told of each step"
lacks out $'\033['

# Lasting lines are broken between words.
on_terminal 50 xterm words
tr -d '\r' <out | grep -aA1 '^run words: ' >row
awk 'length($0) > 49 { bad = 1 } END { exit bad || NR != 2 }' row || fail "a line is broken within a word: $(cat row)"

# NO_COLOR: the live line stays, colours go.
on_terminal 100 xterm coloured
has out $'\033[2m'
NO_COLOR=1 on_terminal 100 xterm plain
live_lines | grep -q 'step 3/3' || fail "no live line under NO_COLOR"
lacks out $'\033[2m'

# A name is no command to the terminal.
red=$'\033[31m'
on_terminal 100 xterm "red$red"
has out "run red^[[31m: "; has out "saved red^[[31m/checkpoints"; lacks out "$red"
for command in list show diff; do
    runs="red$red"
    [ $command = list ] && runs=.
    [ $command = diff ] && runs="$runs narrow"
    last="runs $command"
    TERM=xterm command expect -f "$root/tests/cli/terminal.exp" -- sh -c "exec '$athanor' runs $command $runs" >out 2>err </dev/null ||
        fail "exit $?"
    has out "red^[[31m"; lacks out "$red"
done

# Help and what plans say are broken between words.
# on_60 ARGS...: the lines of the program on such a terminal are in `lines`.
on_60() {
    last="athanor $* on a terminal of 60 columns"
    TERM=xterm command expect -f "$root/tests/cli/terminal.exp" -- sh -c "stty columns 60 && exec '$athanor' $*" >out 2>err </dev/null ||
        fail "exit $?"
    tr -d '\r' <out >lines
}
# all_fit LEAST: so many lines or more, none of which is longer.
all_fit() { awk -v least="$1" 'length($0) > 60 { bad = 1 } END { exit bad || NR < least }' lines || fail "a line wraps: $(cat lines)"; }
on_60 help plan schedule
sed -i -n '/^options:/,/--help/p' lines
all_fit 10
on_60 plan infer smollm3-3b cluster=l4 --context 131072
all_fit 10
on_60 plan cost --params 3B --tokens 11T --devices 384 --days 28
all_fit 20
on_60 plan search smollm2-135m cluster=h100-8 train.global_batch_size=64
all_fit 10
finish
