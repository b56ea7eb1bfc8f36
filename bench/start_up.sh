#!/usr/bin/env bash
# start_up.sh [ROUNDS [PROGRAM]]: time from exec to the first step and resident memory then, of the 10M
# Llama: 32,000 against 4,700,000 planned steps, and 1 against 50 sources of the same tokens. In turns,
# ROUNDS (15) each; medians and their ratio. The first step is one sequence, so that it hides little.
here=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-15}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"

make_text 20000 3 >text.txt
split -n l/50 -d text.txt part-
"$athanor" tok train text.txt -o char.json --kind char >log 2>&1 || { cat log; exit 1; }
"$athanor" data build text.txt -o one tokenizer=char.json >log 2>&1 || { cat log; exit 1; }
fifty=
for part in part-*; do
    "$athanor" data build format=text "$part" -o "set-$part" tokenizer=char.json >log 2>&1 || { cat log; exit 1; }
    fifty=$fifty${fifty:+,}{path:\ set-$part}
done

# once NAME STEPS TRAIN: appends "MS RSS_KB ANON_KB CPU_MS" to NAME.
once() {
    local name=$1 began line pid key value rest rss=0 anon=0 cpu=0
    rm -rf run
    began=${EPOCHREALTIME/[.,]/}
    exec 3< <(exec "$athanor" train "$here/bench/llama10m.yaml" run=run tokenizer=char.json \
        data.train="$3" train.steps="$2" train.global_batch_size=1 train.micro_batch_size=1 \
        --json 2>err)
    pid=$!
    while read -r line <&3; do
        case $line in *'"event": "step"'*) break ;; *'"error"'*) echo "$line" && exit 1 ;; esac
    done
    local ms=$((${EPOCHREALTIME/[.,]/} - began))
    kill -STOP $pid
    while read -r key value rest; do
        case $key in VmRSS:) rss=$value ;; RssAnon:) anon=$value ;; esac
    done </proc/$pid/status
    for task in /proc/$pid/task/*/schedstat; do
        read -r value rest <"$task"
        cpu=$((cpu + value))
    done
    kill -9 $pid
    wait $pid 2>log
    exec 3<&-
    echo "$ms $rss $anon $((cpu / 1000))" >>"$name"
}
median() { # FILE COLUMN
    awk -v c="$2" '{ print $c }' "$1" | sort -n | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}
compare() { # A B TITLE
    echo "$3"
    local column=0 what x y
    for what in "wall us" "resident kB" "anonymous kB" "processor us"; do
        column=$((column + 1))
        x=$(median "$1" $column) y=$(median "$2" $column)
        awk -v w="$what" -v x="$x" -v y="$y" 'BEGIN { printf "  %-14s %10d %10d   %+.2f %%\n", w, x, y, 100 * (y / x - 1) }'
    done
}
for ((round = 0; round < rounds; round++)); do
    once short 32000 '[{path: one}]'
    once long 4700000 '[{path: one}]'
    once single 32000 '[{path: one}]'
    once many 32000 "[$fifty]"
done
compare short long "32,000 and 4,700,000 planned steps, medians of $rounds"
compare single many "1 and 50 sources"
