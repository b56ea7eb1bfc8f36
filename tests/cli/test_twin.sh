#!/usr/bin/env bash
# The twin (ATHANOR_DEVICE=twin), whose memory the host cannot reach and whose kernels run late: all
# that the program does on it comes out as on the CPU, to the byte. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/stages.sh"
export OMP_NUM_THREADS=1
golden=$root/tests/golden/models
make_data
sed 's/.*/{"text": "&"}/' text.txt >text.jsonl # a document is shorter than two sequences
expect 0 data build text.jsonl -o docs tokenizer=char.json valid=0.1
write_config c.yaml
sed -i 's,set/,docs/,g; s/steps: 40/steps: 6/; s/global_batch_size: 8/global_batch_size: 6/; s/micro_batch_size: 4/micro_batch_size: 2/
    s/^eval:.*/eval: {every: 3, batches: 2}/; s/^sample:.*/sample: {every: 3, prompts: ["the fire"], max_new: 6}/' c.yaml
llama_model='model={model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 64, tie_word_embeddings: false}'

# on DEVICE STATUS ARGS...: as `expect`, on a device.
on() {
    local device=$1
    shift
    ATHANOR_DEVICE=$device expect "$@"
    last="on the $device: $last"
}

# ---- it is the twin: so much memory as was planned is out of the host's reach ----
hidden() { # PID BYTES
    local range
    grep ' ---p ' "/proc/$1/maps" 2>/dev/null | while read -r range _; do
        [ $((16#${range#*-} - 16#${range%-*})) = "$2" ] && echo found
    done | grep -q found
}
for device in cpu twin; do
    ATHANOR_DEVICE=$device "$athanor" train c.yaml run=long-$device train.steps=1000000 checkpoint.async=false \
        >out 2>err </dev/null &
    last="train, $device"
    await_step long-$device
    bytes=$(event start long-$device/metrics.jsonl | grep -o '"planned_peak_bytes": [0-9]*' | sed 's/.*: //')
    if [ $device = twin ]; then
        await hidden $! "$bytes" || fail "no memory of $bytes bytes is hidden"
    else
        hidden $! "$bytes" && fail "memory of the cpu is hidden"
    fi
    kill -TERM $!
    wait $!
done

# ---- every family: the loss and all gradients of a batch ----
for m in "$golden"/*/; do
    echo "model: {from: $m}" >from.yaml
    for precision in fp32 bf16; do
        for device in cpu twin; do
            on $device 0 train from.yaml train.precision=$precision --dump-grads $device.grads --ids-file "$m/ids.npy"
            mv out $device.loss
        done
        cmp cpu.grads twin.grads && cmp cpu.loss twin.loss || fail "gradients differ"
    done
done

# ---- whole runs ----
# saved RUN: the bytes of all files of its checkpoints; the time that a run has taken stands in one of
# them, and in what sums that one up, and the run's name in card and ledger.
saved() {
    (cd "$1/checkpoints" && find . -type f ! -name manifest.json ! -name cursor.json ! -name README.md ! -name athanor_ledger.json -exec cksum {} + | sort -k 3
        cat $(find . -name cursor.json | sort) | grep -v '"seconds"')
}
computed='step|valid|sample|alarm'
# same RUN LIKE
same() {
    results "$computed" "$2" >want
    grep -q '"step"' want || fail "$2 has computed nothing"
    results "$computed" "$1" | cmp -s want - || fail "$1 has computed other than $2"
    saved "$2" >want
    [ "$(wc -l <want)" -gt 10 ] || fail "$2 has saved nothing"
    saved "$1" | cmp -s want - || fail "$1 has saved other than $2: $(diff want <(saved "$1"))"
}
memory_of() { event end "$1/metrics.jsonl" | tail -n 1 | grep -oE '"(planned|touched)_(peak_bytes|by_rank)": (\[[^]]*\]|[0-9]+)'; }
# both ARGS...: run `cpu` and run `twin`.
both() {
    for device in cpu twin; do on $device 0 "$@" run=$device --fresh; done
    same twin cpu
    [ "$(memory_of twin)" = "$(memory_of cpu)" ] || fail "memory: $(memory_of twin), on the cpu $(memory_of cpu)"
}
fixed=train.deterministic=true
both train c.yaml
[ "$(memory_of twin | sed 's/.*: //' | sort -u | wc -l)" = 1 ] || fail "touched other than planned: $(memory_of twin)"
both train c.yaml $fixed checkpoint.async=false train.precision=bf16
both train c.yaml "$gpt2_model" checkpoint.every=2 train.recompute=full train.threads=2
both train c.yaml "$gpt2_model" $fixed train.recompute=selective train.precision=bf16 data.document_mask=false
both train c.yaml train.micro_batch_size=6 optim.z_loss=1e-3 train.head_chunk_rows=8 # gradients in the frame
both train c.yaml "$llama_model" train.micro_batch_size=1 guard.action=skip guard.window=16
both train c.yaml parallel.virtual=2 parallel.pp_schedule=afab
both train c.yaml "$gpt2_model" parallel.virtual=2 train.recompute=full
# Back to a checkpoint and on with other samples, time and again.
both train c.yaml train.steps=60 guard.action=rewind guard.loss_z=2 guard.norm_z=2 guard.window=16 sample.every=0
grep -q '"kind": "rewind"' twin/metrics.jsonl || fail "no step was repeated"
for model in gemma2 mobilellm-shared olmo2 phi openelm qwen2-window; do
    both train c.yaml "model={from: $golden/$model}" train.seq_len=16 train.steps=4 $fixed
    both train c.yaml "model={from: $golden/$model}" train.seq_len=16 train.steps=4 train.precision=bf16 \
        train.recompute=selective parallel.pp_schedule=afab
done

# ---- from device to device ----
for devices in "cpu twin cpu" "twin cpu twin"; do
    on cpu 0 train c.yaml "$gpt2_model" run=cpu --fresh
    rm -rf moved
    at=0
    for device in $devices; do
        at=$((at + 2))
        on $device 0 train c.yaml "$gpt2_model" run=moved train.steps=$at
    done
    results step cpu >want
    results step moved | cmp -s want - || fail "what goes on over $devices differs"
    saved cpu | grep step-6 >want
    saved moved | grep step-6 | cmp -s want - || fail "what goes on over $devices has saved something else"
done

# ---- several ranks ----
# both_ranks N LAYOUT...
both_ranks() {
    local n=$1
    shift
    both launch --ranks "$n" --timeout 30 -- train c.yaml train.threads=1 parallel.verify=false \
        train.global_batch_size=8 parallel.bucket_mb=0.01 "$@"
}
for zero in 0 1 2 3; do both_ranks 2 $fixed parallel.zero=$zero; done
both_ranks 2 parallel.zero=3 train.precision=bf16 train.recompute=full "$gpt2_model"
both_ranks 2 parallel.tp=2
both_ranks 2 parallel.tp=2 parallel.sp=true train.precision=bf16
both_ranks 4 parallel.tp=2 parallel.sp=true parallel.zero=3 train.micro_batch_size=1 "$gpt2_model" # dropout
both_ranks 2 parallel.zero=1 parallel.virtual=2 parallel.pp_schedule=afab parallel.reduce_dtype=bf16
on twin 0 launch --ranks 2 --timeout 30 -- train c.yaml run=tried parallel.zero=3 train.global_batch_size=8
has err "computes what one rank does"
on twin 0 verify layouts c.yaml --ranks 2 --steps 2
has out "ok: 14 layouts"

# ---- stages ----
mkdir stages && cd stages || exit 1
make_stages
both train stages.yaml train.steps=27
cd ..

# ---- what goes wrong is explained alike ----
# explained STATUS WORDS ARGS...
explained() {
    local want=$1 words=$2
    shift 2
    for device in cpu twin; do
        rm -rf bad
        on $device "$want" "$@" run=bad
        grep -v '^ *\(saved\|where\)' err >$device.err
        has err "$words"
    done
    cmp cpu.err twin.err || fail "another explanation: $(diff cpu.err twin.err)"
}
hot=(optim.lr=1e6 optim.clip_norm=0 sample.prompts=[] train.steps=40)
explained 5 "wrote a NaN or Inf into" train c.yaml "${hot[@]}"
explained 5 "wrote a NaN or Inf into" train c.yaml "${hot[@]}" "$gpt2_model" train.precision=bf16 train.recompute=full
explained 5 "wrote a NaN or Inf into" train c.yaml "${hot[@]}" "$llama_model" parallel.virtual=2 parallel.pp_schedule=afab
explained 5 "the run has gone back 3 times" train c.yaml "${hot[@]}" guard.action=rewind
explained 5 "the most that the deterministic mode adds up" train c.yaml $fixed optim.z_loss=1000 model.initializer_range=3
cp -r cpu/checkpoints/step-6 spoilt 2>/dev/null || cp -r moved/checkpoints/step-6 spoilt
rm -rf spoilt/state
printf '\377\377\377\377' | dd of=spoilt/model.safetensors bs=1 conv=notrunc status=none \
    seek=$(($(stat -c %s spoilt/model.safetensors) - 4))
explained 5 "holds a NaN or Inf at element" train c.yaml "model={from: spoilt}"

# ---- what took how long is known though kernels run late ----
on twin 0 bench train c.yaml model.vocab_size=300 --steps 2 --warmup 1 --profile --json
share_of() { grep -o "\"name\": \"$1\"[^}]*" out | grep -o '"share": [^,]*' | sed 's/.*: //' | awk '{ s += $1 } END { print s }'; }
calc "$(share_of 'between ops') < 0.5" || fail "$(share_of 'between ops') of the time went by between ops"
calc "$(share_of adamw) < 0.3 && $(share_of 'gradient norm') < 0.3" || fail "an update takes all the time"
on twin 0 train c.yaml run=traced --trace t.json
grep -o '"name": "forward layers.1".*"dur": [0-9.]*' t.json | sed 's/.*"dur": //' | awk '$1 < 5 { exit 1 }' ||
    fail "a layer takes no time"

# ---- writing ----
for model in llama-gqa-tied gpt2-tanh-tied gemma3 mobilellm-shared; do
    prompt=$(ids_of prompt_ids "$golden/$model/generate.json")
    for keys in "--temperature 0" "--temperature 0.8 --seed 3"; do
        for device in cpu twin; do
            on $device 0 generate "$golden/$model" --ids "$prompt" --max-new 12 $keys --logits $device.npy --json
            ids_of ids out >$device.ids
        done
        cmp cpu.ids twin.ids && cmp cpu.npy twin.npy || fail "it writes otherwise"
        [ -s twin.ids ] || fail "it writes nothing"
    done
done

# ---- names of devices ----
on twin 0 train c.yaml run=named device=cpu train.steps=1
on twin 0 train c.yaml run=named --fresh device=auto train.steps=1
for name in twin TWIN meta; do
    expect 2 train c.yaml run=no "device=$name"
    has err "device"
done
for name in meta Twin 'twin ' gpu; do
    on "$name" 2 train c.yaml run=no
    has err ATHANOR_DEVICE
    on "$name" 2 generate "$golden/olmo2" --ids 1,2,3
done
[ ! -e no ] || fail "a refused run left a folder"
on twin 0 plan c.yaml --json
cp out twin.plan
on cpu 0 plan c.yaml --json
cmp out twin.plan || fail "another plan"
finish
