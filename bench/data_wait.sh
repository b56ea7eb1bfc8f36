#!/usr/bin/env bash
# data_wait.sh [STEPS [PROGRAM]]: how long steps of the 10M Llama (32 sequences of 256 tokens) wait for
# data: one source, and twenty with a document mask. STEPS (10) each, the first two left out.
here=$(cd "$(dirname "$0")/.." && pwd)
steps=${1:-10}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"

make_text 20000 3 >text.txt
split -n l/20 -d text.txt part-
"$athanor" tok train text.txt -o char.json --kind char >log 2>&1 || { cat log; exit 1; }
sources=
for part in part-*; do
    "$athanor" data build format=text "$part" -o "set-$part" tokenizer=char.json >log 2>&1 || { cat log; exit 1; }
    sources=$sources${sources:+,}{path:\ set-$part}
done
measure() { # TITLE KEYS...
    local title=$1
    shift
    rm -rf run
    "$athanor" train "$here/bench/llama10m.yaml" run=run tokenizer=char.json train.steps="$steps" "$@" \
        --json >out 2>err || { cat out err; exit 1; }
    event step out | tail -n +3 | sed -E 's/.*"step_ms": ([^,}]*).*"data_wait_ms": ([^,}]*).*/\1 \2/' |
        awk -v title="$title" '{ ms += $1; wait += $2; if ($2 > most) most = $2 }
            END { printf "%s: %.0f ms a step, %.3f ms waiting for data (at most %.3f): %.4f %%\n",
                  title, ms / NR, wait / NR, most, 100 * wait / ms }'
}
measure "one source" 'data.train=[{path: set-part-00}]'
measure "twenty sources, document mask" "data.train=[$sources]" data.document_mask=true
