#!/usr/bin/env bash
# async_save.sh [ROUNDS [PROGRAM]]: what a save costs a window of 50 steps of the 10M Llama (4 sequences
# of 256 tokens; 120 MB of weights and optimizer state), in the background and not. Windows without
# and with a save take turns within each run, ROUNDS (2) of each: wall time from line to line, and
# processor time of all threads, which other work on the machine does not lengthen.
here=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-2}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"

make_text 20000 3 >text.txt
"$athanor" tok train text.txt -o char.json --kind char >log 2>&1 || { cat log; exit 1; }
"$athanor" data build text.txt -o set tokenizer=char.json >log 2>&1 || { cat log; exit 1; }

# Steps 1-50 warm up; a save follows steps 100, 200, ...: windows end at 100 (without), 150 (with), ...
measure() { # ASYNC
    local step pid line ticks fields
    rm -rf run times
    exec 3< <(exec "$athanor" train "$here/bench/llama10m.yaml" run=run tokenizer=char.json \
        'data.train=[{path: set}]' train.steps=$((100 * rounds + 51)) train.global_batch_size=4 \
        train.micro_batch_size=4 checkpoint.every=100 checkpoint.keep=1 checkpoint.async="$1" \
        --json 2>err)
    pid=$!
    while read -r line <&3; do
        case $line in
            *'"event": "step"'*) ;;
            *'"error"'*) echo "$line" && exit 1 ;;
            *) continue ;;
        esac
        step=${line#*'"step": '}
        step=${step%%,*}
        [ "$step" -le $((100 * rounds + 50)) ] || break
        read -r fields </proc/$pid/stat
        fields=(${fields##*) })
        echo "$step ${EPOCHREALTIME/[.,]/} $((fields[11] + fields[12]))" >>times
    done
    kill -9 $pid
    wait $pid 2>log
    exec 3<&-
    awk -v title="$2" -v rounds="$rounds" '
        { t[$1] = $2 / 1e3; c[$1] = $3 * 10 }
        function median(x, n,   i, j, v) {
            for (i = 2; i <= n; i++) { v = x[i]; for (j = i; j > 1 && x[j-1] > v; j--) x[j] = x[j-1]; x[j] = v }
            return (x[int((n + 1) / 2)] + x[int(n / 2) + 1]) / 2
        }
        END {
            for (r = 1; r <= rounds; r++) {
                e = 100 * r
                wall0 += t[e] - t[e-50]; wall1 += t[e+50] - t[e]
                cpu0 += c[e] - c[e-50]; cpu1 += c[e+50] - c[e]
            }
            for (s = 51; s <= 100 * rounds + 50; s++) d[++n] = t[s] - t[s-1]
            for (i = 1; i <= n; i++) sorted[i] = d[i]
            m = median(sorted, n)
            for (i = 1; i <= n; i++) {
                with = int((i - 1) / 50) % 2
                if (d[i] > 1.3 * m) slow[with]++
                if (d[i] > worst[with]) worst[with] = d[i]
            }
            printf "%s\n", title
            printf "  50 steps without a save %.0f ms, with one %.0f ms: %+.1f %% (processor time %+.1f %%)\n",
                wall0 / rounds, wall1 / rounds, 100 * (wall1 / wall0 - 1), 100 * (cpu1 / cpu0 - 1)
            printf "  median step %.1f ms; longest without %.2f, with %.2f times that; above 1.3 times: %d and %d of %d\n",
                m, worst[0] / m, worst[1] / m, slow[0], slow[1], n / 2
        }' times
}
measure true "checkpoint.async=true"
measure false "checkpoint.async=false"
