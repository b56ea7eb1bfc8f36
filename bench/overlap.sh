#!/usr/bin/env bash
# overlap.sh [ROUNDS [SHARE [PROGRAM [NAMES]]]]: how much of the time that communication takes is hidden behind
# computation. Two ranks of one thread train a Llama of 3.6M parameters, with data parallelism (dp) and with
# ZeRO-3 (zero3), and one with 8 experts that the ranks share out (ep), or those of NAMES, without and with an artificial slow link (ATHANOR_LINK) by turns, ROUNDS (3) times. The link is
# such that what a rank sends in a step takes SHARE (0.5) times a step without it. Printed: the fastest
# steps, the time the link adds to the collectives of a step, and which part of that no step shows.
here=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-3} share=${2:-0.5}
names=${4:-dp zero3 ep}
set -- "${3:-build/athanor}"
. "$here/tests/cli/lib.sh"
export OMP_NUM_THREADS=1
latency_us=50

make_data
write_config c.yaml
model='model={model_type: llama, hidden_size: 192, num_hidden_layers: 8, num_attention_heads: 4, num_key_value_heads: 4, intermediate_size: 512, vocab_size: auto, max_position_embeddings: 128}'

train() { # KEYS...: six steps; their times and, in trace.json, rank 0's collectives
    rm -rf run
    "$athanor" launch --ranks 2 -- train c.yaml "$model" train.steps=6 train.seq_len=128 \
        train.global_batch_size=8 train.micro_batch_size=4 train.threads=1 train.digest_every=0 \
        train.precision=fp32 parallel.bucket_mb=1 eval.every=0 sample.every=0 checkpoint.every=0 \
        --trace trace.json --trace-steps 4 --json "$@" >out 2>err || { cat out err >&2; exit 1; }
}
step_times() { event step out | tail -n +3 | sed 's/.*"step_ms": \([^,}]*\).*/\1/'; }
fastest() { sort -g "$1" | head -n 1; } # what others do to the machine only slows steps down
# Collectives and bytes of one step.
traffic() {
    grep '"cat": "communication".*"pid": 0,.*"step": 3' trace.json |
        sed 's/.*"sent_bytes": \([0-9]*\).*/\1/' | awk '{ n++; bytes += $1 } END { print n, bytes }'
}

measure() { # TITLE KEYS...
    local title=$1 calls bytes rate
    shift
    : >base
    : >slow
    for _ in 1 2; do
        train "$@"
        step_times
    done >first
    read -r calls bytes < <(traffic)
    rate=$(awk "BEGIN { print $bytes / ($share * $(fastest first) * 1e-3 - $calls * $latency_us * 1e-6) / 1e9 }")
    for _ in $(seq "$rounds"); do
        train "$@"
        step_times >>base
        export ATHANOR_LINK=$latency_us,$rate
        train "$@"
        unset ATHANOR_LINK
        step_times >>slow
    done
    awk -v title="$title" -v base="$(fastest base)" -v slow="$(fastest slow)" -v n="$calls" -v bytes="$bytes" \
        -v rate="$rate" -v us=$latency_us 'BEGIN {
            added = n * us * 1e-3 + bytes / rate / 1e6
            printf "%s: %.0f ms a step, %.0f ms with a link of %.3g GB/s and %d us; %d collectives, " \
                   "%.1f MB sent, %.0f ms added: %.0f %% hidden\n",
                   title, base, slow, rate, us, n, bytes / 1e6, added, 100 * (1 - (slow - base) / added) }'
}
for name in $names; do
    case $name in
    dp) measure "dp" parallel.dp=2 ;;
    zero3) measure "ZeRO-3" parallel.dp=2 parallel.zero=3 ;;
    ep)
        model=${model%\}}', num_experts: 8, num_experts_per_tok: 2}'
        measure "ep" parallel.ep=2 parallel.ep_load=0.25 train.router.balance=none sample.prompts=[]
        ;;
    esac
done
