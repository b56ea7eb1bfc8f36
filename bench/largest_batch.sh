#!/usr/bin/env bash
# largest_batch.sh [CONFIGS [PROGRAM [SEED]]]: whether the largest micro-batch that a plan accepts runs, and the next is more than
# there is. CONFIGS (20) models of random shape, precision, recompute and optimizer get a random limit of memory each
# (train.memory_limit). The largest batch that `plan` takes is trained under it: it must touch what was planned, and the
# memory of the process that the system cannot take back (anonymous) must stay below the limit. The next batch must be refused
# with status 4 and leave no run. Without a limit it is trained, too: how often its resident bytes are beyond the limit is
# printed, and how often the first's are, in which pages of files count (program, libraries, data).
here=$(cd "$(dirname "$0")/.." && pwd)
configs=${1:-20} seed=${3:-24}
set -- "${2:-build/athanor}"
. "$here/tests/cli/lib.sh"
RANDOM=$seed
make_data
write_config c.yaml
pick() { # VALUES...: one of them
    shift $((RANDOM % $#))
    echo "$1"
}
random_keys() {
    local heads=$(pick 4 8) d=$(pick 16 32 64) layers=$(pick 2 4 6 8) ffn=$(pick 256 704 1024)
    local optim=$(pick adamw adafactor)
    keys=("model={model_type: llama, hidden_size: $((heads * d)), num_hidden_layers: $layers, num_attention_heads: $heads, num_key_value_heads: $(pick 2 4), intermediate_size: $ffn, vocab_size: auto, max_position_embeddings: 512}"
        train.seq_len=$(pick 128 256 512) train.precision=$(pick fp32 bf16) train.recompute=$(pick none selective full)
        optim.name=$optim optim.schedule.warmup_steps=0 train.steps=2 checkpoint.every=0 eval.every=0 sample.every=0)
}
tries() { # plan|train BATCH KEYS...: its status
    local what=$1 batch=$2
    shift 2
    "$athanor" "$what" c.yaml "${keys[@]}" train.micro_batch_size="$batch" train.global_batch_size="$batch" "$@" \
        --json >out 2>err </dev/null
    local status=$?
    [ $status = 0 ] || [ $status = 4 ] || { cat out err >&2; exit 1; }
    return $status
}
largest() { # under `limit`; 0: not one
    local low=0 high=1
    while tries plan $high train.memory_limit=$limit; do low=$high high=$((2 * high)); done
    while [ $((high - low)) -gt 1 ]; do
        local middle=$(((low + high) / 2))
        if tries plan $middle train.memory_limit=$limit; then low=$middle; else high=$middle; fi
    done
    echo $low
}
runs=0 refused=0 beyond=0 over=0 n=0
while [ $n -lt "$configs" ]; do
    random_keys
    limit=$(((90 + RANDOM % 210) * 1000000))
    batch=$(largest) || exit 1
    [ "$batch" -gt 0 ] || continue
    n=$((n + 1))
    rm -rf run && tries train "$batch" train.memory_limit=$limit
    status=$? rss=$(field peak_rss_bytes out) anon=$(field peak_anon_bytes out) touched=$(field touched_peak_bytes out) planned=$(field planned_peak_bytes out)
    if [ $status = 0 ] && [ "$anon" -le $limit ] && [ "$touched" = "$planned" ]; then runs=$((runs + 1)); else cat err; fi
    [ "$rss" -le $limit ] || over=$((over + 1))
    rm -rf run && tries train $((batch + 1)) train.memory_limit=$limit
    next=$?
    [ $next = 4 ] && [ ! -e run ] && refused=$((refused + 1))
    rm -rf run && tries train $((batch + 1))
    more=$(field peak_rss_bytes out)
    [ "$more" -gt $limit ] && beyond=$((beyond + 1))
    echo "$n: limit $limit: batch $batch ends with $status, $anon bytes of its own, $rss resident; $((batch + 1)) with $next, and $more without a limit: ${keys[*]:1:4} ${keys[0]}"
done
echo "$runs of $n largest batches run within the limit, $refused of $n next ones are refused." \
    "Resident with pages of files: $over of the largest are beyond the limit, $beyond of the next"
[ $runs = "$n" ] && [ $refused = "$n" ]
