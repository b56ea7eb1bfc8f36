# The plan made without data, in a process of its own, equals what a run then touches; what does not
# fit is refused before anything is written. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
sed 's|set/|absent/|g' c.yaml >no_data.yaml

# check_memory RUN: planned and touched bytes of the last run, and its process against its plan.
check_memory() {
    event end out >end
    touched=$(field touched_peak_bytes end) planned=$(field planned_peak_bytes end)
    [ "$touched" = "$planned" ] || fail "touched $touched, planned $planned"
    anon=$(field peak_anon_bytes end)
    said=$((planned + $(field baseline_bytes end)))
    calc "($anon - $said)^2 <= ($said * 0.03 > 32e6 ? $said * 0.03 : 32e6)^2" ||
        fail "$anon anonymous bytes, $said said"
}
plan_equals_run() { # KEYS...
    expect 0 plan no_data.yaml train.steps=2 "$@" --json
    grep -q '"peak_bytes": [0-9]' out || fail "no peak_bytes"
    cp out plan.json
    expect 0 train c.yaml train.steps=2 run=r --fresh "$@" --json
    check_memory
    [ "$(grep -o '"peak_bytes": [0-9]*' plan.json | head -n 1)" = "\"peak_bytes\": $planned" ] ||
        fail "the plan in another process says other than $planned: $(cat plan.json)"
    event start out | grep -q "\"params\": $(field total plan.json)," || fail "parameter counts differ"
}

plan_equals_run
plan_equals_run train.recompute=selective train.precision=bf16
plan_equals_run train.recompute=full optim.z_loss=1e-4
plan_equals_run train.global_batch_size=24 train.micro_batch_size=3 data.document_mask=false
plan_equals_run sample.prompts=[] eval.every=0 train.threads=1
plan_equals_run 'data.train=set/train' data.valid=null train.head_chunk_rows=8
plan_equals_run checkpoint.every=1
plan_equals_run checkpoint.every=1 checkpoint.async=false
plan_equals_run "$gpt2_model"
plan_equals_run "$gpt2_model" train.recompute=full train.precision=bf16 train.seq_len=64
plan_equals_run "$gpt2_model" train.recompute=selective train.micro_batch_size=8 sample.prompts=[]

# Several ranks: every one touches what was planned for it, and the plan in another process knows the
# largest of them.
plan_equals_ranks() { # RANKS KEYS...
    local ranks=$1 layout="$*"
    shift
    expect 0 plan no_data.yaml train.steps=2 parallel.dp=$((ranks / ${tp:-1})) "$@" --json
    cp out plan.json
    expect 0 launch --ranks $ranks -- train c.yaml train.steps=2 run=r --fresh train.threads=1 "$@" --json
    event end out >end
    touched=$(grep -o '"touched_by_rank": \[[^]]*\]' end | sed 's/.*: //')
    planned=$(grep -o '"planned_by_rank": \[[^]]*\]' end | sed 's/.*: //')
    [ -n "$planned" ] && [ "$touched" = "$planned" ] || fail "$layout: touched $touched, planned $planned"
    largest=$(tr -d '[],' <<<"$planned" | tr ' ' '\n' | sort -n | tail -n 1)
    [ "$(grep -o '"peak_bytes": [0-9]*' plan.json | head -n 1)" = "\"peak_bytes\": $largest" ] ||
        fail "$layout: ranks have $planned, the plan says: $(cat plan.json)"
    grep -q "\"layout\": {\"ranks\": $ranks, " plan.json || fail "$layout: another layout in $(cat plan.json)"
    [ "$(grep -o '"ranks": [0-9]*, "peak' plan.json | awk '{ n += $2 } END { print n }')" = "$ranks" ] ||
        fail "$layout: classes are not of all ranks: $(cat plan.json)"
    calc "$(field peak_anon_bytes end) <= $(field planned_peak_bytes end) + $(field baseline_bytes end) + 32e6" ||
        fail "$layout: $(field peak_anon_bytes end) anonymous bytes"
}
export OMP_NUM_THREADS=1
plan_equals_ranks 2 parallel.bucket_mb=0.01
plan_equals_ranks 4 train.micro_batch_size=2 parallel.zero=1 parallel.dp_replicate=2
plan_equals_ranks 4 parallel.zero=2 train.micro_batch_size=1
plan_equals_ranks 4 train.micro_batch_size=2 parallel.zero=3 train.precision=bf16 train.recompute=full
plan_equals_ranks 2 train.deterministic=true parallel.zero=3
tp=2 plan_equals_ranks 2 parallel.tp=2 checkpoint.every=1
tp=2 plan_equals_ranks 4 parallel.tp=2 parallel.sp=true parallel.zero=3
tp=2 plan_equals_ranks 2 parallel.tp=2 "$gpt2_model" model.vocab_size=64 model.max_position_embeddings=71 model.hidden_size=256
unset OMP_NUM_THREADS

# Different settings are planned differently, or the comparisons above say little.
for keys in train.recompute=none train.recompute=selective train.recompute=full \
    train.precision=bf16 train.micro_batch_size=8; do
    expect 0 plan no_data.yaml $keys --json
    grep -o '"memory": {.*"workspace_bytes": [0-9]*' out
done | sort | uniq -d | grep . && fail "two settings have the same plan"

# A larger model: the allowance is 3 % now.
large='model={model_type: llama, hidden_size: 512, num_hidden_layers: 8, num_attention_heads: 8, num_key_value_heads: 4, intermediate_size: 1536, vocab_size: 4096, max_position_embeddings: 256}'
plan_equals_run "$large" train.seq_len=64 sample.prompts=[] eval.batches=1 checkpoint.every=1
echo "$(field total plan.json) parameters: planned $planned, touched $touched, said $said, anonymous $anon"

# Every preset, quickly, and with the published counts (all of them: tests/model/test_presets.c).
for p in gpt2 gpt2-medium gpt2-large gpt2-xl smollm2-135m smollm2-360m smollm2-1.7b \
    tinyllama-1.1b microllama-300m llama-3.2-1b; do
    spent_ms && began=$spent
    expect 0 plan $p --json train.seq_len=256 train.memory_limit=1Ti
    spent_ms && ms=$((spent - began))
    echo "plan $p: $ms ms"
    [ $ms -lt 1000 ] || fail "plan $p took $ms ms" # 300 is the aim
    case $p in
        gpt2) [ "$(field total out)" = 124439808 ] || fail "parameters" ;;
        smollm2-135m) [ "$(field total out)" = 134515008 ] || fail "parameters" ;;
    esac
done
expect 0 plan gpt2;  has out "plan: 124439808 parameters (124.44M), "

# What does not fit: exit 4, the key, a value that fits, an untouched run folder.
fits_after_hint() { # LIMIT KEYS...
    local limit=$1 hint keys
    shift
    expect 4 train c.yaml run=tight train.global_batch_size=48 train.micro_batch_size=48 \
        train.memory_limit="$limit" train.steps=1 "$@" --json
    has out '"kind": "memory"'
    has out '"where": "train.micro_batch_size"'
    hint=$(field hint out)
    keys=$(grep -oE 'train\.(micro_batch_size|recompute)=[a-z0-9]+' <<<"$hint" | grep -v "=48")
    [ -n "$keys" ] || fail "no value in the hint"
    [ ! -e tight ] || fail "a refused run left a folder"
    expect 4 train c.yaml run=tight train.global_batch_size=48 train.micro_batch_size=48 \
        train.memory_limit="$limit" train.steps=1 "$@" --dry-run
    expect 0 train c.yaml run=tight train.global_batch_size=48 train.micro_batch_size=48 \
        train.memory_limit="$limit" train.steps=1 "$@" $keys
    echo "limit $limit: $keys"
    rm -rf tight
}
# Ranks of several machines send by MPI: a process has pieces of 256 KiB for that, two for each rank.
baseline_of() { # RANKS
    expect 0 plan no_data.yaml parallel.dp=$1 train.global_batch_size=256 train.micro_batch_size=1 --json
    base=$(field baseline_bytes out)
}
baseline_of 128
few=$base
baseline_of 256
calc "$base - $few >= 256 * 262144" || fail "$base bytes of 256 ranks, $few of 128"

expect 0 plan no_data.yaml train.micro_batch_size=48 train.global_batch_size=48 --json
whole=$(grep -o '"peak_bytes": [0-9]*' out | head -n 1 | grep -o '[0-9]*')
base=$(field baseline_bytes out)
expect 0 plan no_data.yaml train.micro_batch_size=1 train.global_batch_size=48 --json
least=$(grep -o '"peak_bytes": [0-9]*' out | head -n 1 | grep -o '[0-9]*')
for percent in 5 20 50 95; do
    fits_after_hint $((base + least + (whole - least) * percent / 100))
done
fits_after_hint $((base + least - 1024))
expect 4 train c.yaml run=tight train.memory_limit=$((base + 4096)) --json
has out '"where": "model"'
expect 4 train c.yaml run=tight train.memory_limit=1M --json # less than the process without a model
has out '"where": "train.memory_limit"'
expect 4 train c.yaml run=tight model.max_position_embeddings=8192 train.seq_len=8192 \
    train.global_batch_size=1 train.micro_batch_size=1 train.memory_limit=30M --json
has out '"where": "train.seq_len"'
expect 4 plan no_data.yaml train.memory_limit=1M --json
has out '"fits": false'
# Epochs are counted: what is planned is what the run takes, with the snapshot for its saves.
expect 0 plan c.yaml train.steps=null train.epochs=1 checkpoint.every=2 --json
planned=$(grep -o '"peak_bytes": [0-9]*' out | head -n 1 | grep -o '[0-9]*')
expect 0 train c.yaml run=epochs train.steps=null train.epochs=1 checkpoint.every=2 --json
[ "$(field planned_peak_bytes out)" = "$planned" ] || fail "planned $planned, not $(field planned_peak_bytes out)"
# A run that was there stays as it is.
cp -r r kept
expect 4 train c.yaml run=r train.memory_limit=1M
diff -r r kept >log || fail "a refused run changed its folder"

# Absurd sizes: a right number, or a refusal with one; never a sum that has left 64 bits.
absurd() { # STATUS SAYS MODEL KEYS...
    local want=$1 says=$2
    shift 2
    expect "$want" plan "$@"
    cat err >>out
    has out "$says"
    has out "hint: "
    expect "$want" plan "$@" --json
    grep -qE '": -[0-9]' out && fail "a size below 0"
    has out '"hint": "'
}
long="train.seq_len=16777216 model.max_position_embeddings=16777216"
large="$long train.micro_batch_size=1048576 train.global_batch_size=1048576"
huge="$long train.micro_batch_size=1048576 train.global_batch_size=16777216"
one="train.micro_batch_size=1 train.global_batch_size=16777216"
absurd 4 "an array of 17592186044416 x 16384 elements does not fit in any memory" llama-3.2-1b $large
absurd 4 "does not fit in any memory" llama-3.2-1b $huge parallel.pp_schedule=afab
absurd 4 "more than 1073741824 GiB of arrays does not fit" gpt2-xl $large train.precision=fp32
absurd 4 "does not fit in any memory" gpt2-xl $large train.recompute=full
absurd 4 "does not fit in any memory" gpt2-xl $large parallel.virtual=4 parallel.pp_schedule=afab
absurd 4 "MiB of activations do not fit in any memory" gpt2-xl $one train.seq_len=65536 \
    model.max_position_embeddings=65536 parallel.pp_schedule=afab
absurd 4 "does not fit in any memory" llama-3.2-1b parallel.tp=2 parallel.dp=1 $large
absurd 4 "does not fit in any memory" gpt2 $long sample.prompts=[a] sample.max_new=1048576 \
    model.num_hidden_layers=64 model.num_attention_heads=65536 model.head_dim=1024 \
    train.micro_batch_size=1 train.seq_len=16777216
absurd 2 "takes more than 8192 chunks" llama-3.2-1b parallel.tp=2 parallel.dp=1 \
    train.head_chunk_rows=1 train.micro_batch_size=1048576 train.global_batch_size=1048576
absurd 2 "a rank sends more than 2^63 bytes" gpt2 $one parallel.dp=2 parallel.zero=3 \
    model.num_hidden_layers=2 model.hidden_size=1048576 model.num_attention_heads=1024 train.seq_len=16
for keys in train.micro_batch_size=1000000000 train.global_batch_size=1e30 \
    train.seq_len=9223372036854775807 train.seq_len=99999999999999999999 \
    model.vocab_size=1e9 model.num_hidden_layers=1e9 model.hidden_size=-1; do
    absurd 2 "error: " gpt2 $keys
done
absurd 2 "parameters, more than 1e+15" gpt2 model.hidden_size=1048576 model.num_attention_heads=16 \
    model.num_hidden_layers=300
# Caches of absurd lengths.
for new in 1e9 1000000000 99999999999999999999; do
    expect 2 generate "$root/tests/golden/models/llama-gqa-tied" --ids 1,2 --max-new $new
    has err "--max-new"
done
# Long steps: what is sent is counted without a table of 16 million micro-batches. Gradients of layers are sent after each, the others
# once a step.
reduced_by() { # MICRO_BATCHES: bytes of reduce_scatter
    expect 0 plan pythia-14m train.micro_batch_size=1 train.global_batch_size=$((2 * $1)) parallel.dp=2 parallel.zero=3 --json
    reduced=$(field reduce_scatter out)
}
reduced_by 24 && few=$reduced
reduced_by 48 && each=$(((reduced - few) / 24))
reduced_by 8388608
[ "$reduced" = $((few + each * (8388608 - 24))) ] || fail "other bytes than $few of 24 micro-batches and $each of each more"
[ $each -gt 0 ] || fail "no bytes of a micro-batch"
finish
