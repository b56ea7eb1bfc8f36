#!/usr/bin/env bash
# layout_matrix.sh [RANKS [RANDOM [PROGRAM]]]: every layout of up to RANKS (8) ranks computes what one rank does,
# and so do RANDOM (50) drawn ones: for each model and objective of the table below, with ranks as threads, as
# processes, and under MPI where mpirun is there. SEED=S repeats the drawing of an earlier test.
here=$(cd "$(dirname "$0")/.." && pwd)
ranks=${1:-8} random=${2:-50}
set -- "${3:-build/athanor}"
. "$here/tests/cli/lib.sh"
. "$here/tests/cli/ranks.sh"
SEED=${SEED:-$((RANDOM % 10000))}
make_data
write_ranks_config d.yaml
sed -i '/^parallel:/d; /^sample:/d; /^run:/d' d.yaml
echo 'sample: {every: 0}' >>d.yaml
heads="hidden_size: 32, num_attention_heads: 8, num_key_value_heads: 4, num_hidden_layers: 4, vocab_size: auto, max_position_embeddings: 64"
llama="model={model_type: llama, $heads, intermediate_size: 48, tie_word_embeddings: true}"
experts="model={model_type: llama, $heads, intermediate_size: 24, num_experts: 4, num_experts_per_tok: 2, router: sigmoid, router_bias: true}"
encoder="model={model_type: t5, hidden_size: 32, num_hidden_layers: 4, num_encoder_layers: 2, num_attention_heads: 4, intermediate_size: 48, vocab_size: auto}"
expect 0 train d.yaml run=base train.steps=1 "$llama"
base="model={from: $work/base/checkpoints/step-1}"

# name; axes that its layouts must have; axes that are refused for it; keys
table() {
    cat <<TABLE
llama;tp2 pp2 cp2 zero3;;$llama
experts;tp2 pp2 cp2 ep2 zero3;;$experts
encoder;tp2 zero3;pp2 cp2;$encoder
sft;tp2 pp2 cp2 zero3;;$llama|train.objective=sft
dpo;tp2 pp2 zero3;cp2;$llama|train.objective=dpo|train.micro_batch_size=2
lora;tp2 pp2 cp2 zero3;;$base|lora.rank=3
TABLE
}

layouts=0
count() { # what was tried, of which row
    local n
    n=$(sed -n 's/^ok: \([0-9]*\) layouts.*/\1/p' out)
    echo "$1: $(tail -n 1 out)"
    layouts=$((layouts + ${n:-0}))
}
of_all() { for axis in $wants; do has out " $axis"; done && for axis in $lacks; do lacks out " $axis"; done; }

mpi=$(command -v mpirun) && [ -e "$(dirname "$athanor")/athanor-mpi.so" ] || mpi=
export ASAN_OPTIONS=detect_leaks=0 # what MPI leaves behind is not ours
while IFS=';' read -r name wants lacks keys; do
    IFS='|' read -ra key <<<"$keys"
    verify=(verify layouts d.yaml "${key[@]}" --steps 2)
    expect 0 "${verify[@]}" --ranks "$ranks"
    of_all
    count "$name, threads"
    expect 0 "${verify[@]}" --ranks "$ranks" --random "$random" --seed "$SEED"
    count "$name, $random at random, seed $SEED"
    for ((n = 2; n <= ranks; n *= 2)); do
        expect 0 launch --ranks $n -- "${verify[@]}"
        count "$name, $n processes"
        [ -n "$mpi" ] || continue
        last="mpirun -n $n ${verify[*]}"
        timeout 600 mpirun -n $n "$athanor" "${verify[@]}" >out 2>err </dev/null ||
            fail "exit $?"
        count "$name, $n ranks of MPI"
    done
done < <(table)
echo "$layouts layouts of $ranks ranks and fewer, seed $SEED"
finish
