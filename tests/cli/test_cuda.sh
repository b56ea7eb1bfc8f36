#!/usr/bin/env bash
# Training on the emulated GPU: the losses of the CPU, one digest over layouts and after a stop, and a sentence where
# there is no GPU. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/stages.sh"
export OMP_NUM_THREADS=1 ATHANOR_CUDA=emulated
make_data
cat >c.yaml <<END
tokenizer: char.json
model: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 64, vocab_size: auto, max_position_embeddings: 32}
data: {train: set/train, valid: set/valid}
train: {steps: 20, seq_len: 32, global_batch_size: 8, micro_batch_size: 4, precision: fp32}
optim: {lr: 3.0e-3, schedule: {kind: constant, warmup_steps: 2}}
eval: {every: 10, batches: 2}
sample: {every: 10, prompts: ["the fire"], max_new: 6}
END
grep -v '^model:' c.yaml >dropout.yaml
echo 'model: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: auto, max_position_embeddings: 32}' >>dropout.yaml

# ---- no GPU, and no driver that would be one ----
if ! ls /usr/lib*/*/libcuda.so.1 /usr/lib*/libcuda.so.1 >/dev/null 2>&1; then
    ATHANOR_CUDA= expect 2 train c.yaml run=none device=cuda
    has err "libcuda.so.1 cannot be opened"
    has err "device=cpu"
    [ -e none ] && fail "a run was begun"
    ATHANOR_CUDA= expect 0 train c.yaml run=auto train.steps=1 --json # auto is the CPU then
    has out '"event": "end"'
    ATHANOR_CUDA= expect 2 generate auto --prompt fire --device cuda
    has err "libcuda.so.1 cannot be opened"
    has err "where: --device"
    ATHANOR_CUDA= expect 0 generate auto --prompt fire --device auto --max-new 2
fi

ATHANOR_CUDA=emulate expect 2 train c.yaml run=none device=cuda
has err 'ATHANOR_CUDA is "emulate"'
has err "set ATHANOR_CUDA to emulated"
# ---- what doctor says, and what computes each op ----
ATHANOR_MACHINE_FILE=none expect 0 doctor --json
has out '"name": "GPU 0", "ok": true, "detail": "emulated GPU, compute capability 9.0, '
has out '"name": "cuBLASLt", "ok": true, "detail": "emulated"'
lacks out '"name": "GPU 0 to 1"'
ATHANOR_CUDA_COUNT=3 ATHANOR_MACHINE_FILE=none expect 0 doctor --json
has out '"name": "GPU 0 to 1", "ok": true, "detail": "no peer access: what they send goes through '
has out '"name": "GPU 1 to 2"'
lacks out '"name": "GPU 0 slot"' # an emulated GPU is in none
expect 0 bench kernels --list
has out "rope             backward"
lacks out "scale            backward   none" # every storage has it on the CPU
expect 0 bench kernels --list --json
has out '"name": "linear, backward, bf16", "value": 2'
has out '"op": "fan_out", "pass": "backward", "storage": "f32", "cpu": "reference", "cuda": "host"'
expect 2 bench kernels
has err "bench kernels --list"
expect 2 bench kernels --list device=cuda
has err "device=cuda"
small="gpt2 model.hidden_size=32 model.num_hidden_layers=1 model.num_attention_heads=2 model.vocab_size=64 model.max_position_embeddings=32 train.seq_len=16 train.global_batch_size=2 train.micro_batch_size=2 device=cuda"
expect 0 bench kernels $small
has out "emulated GPU, whose times mean nothing; each op alone"
has out "attention                    backward input"
expect 0 bench train $small --steps 1 --warmup 0 --json
has out '"device": "cuda", "gpu": "emulated GPU"'
expect 0 bench gemm 32x48x64 device=cuda --dtype bf16
has out "cublaslt"
expect 4 bench train gpt2-xl train.seq_len=1024 train.global_batch_size=1024 train.micro_batch_size=1024 device=cuda
has err "MiB are free on the GPU"
expect 2 bench gemm 32x48x64 device=cuda --remember
has err "--remember is for the CPU"

# ---- the CPU's losses ----
# losses RUN: step and loss of every step, then validation losses.
losses() { grep -oE '"(loss|val_loss)": [0-9.e+-]*' "$1/metrics.jsonl" | sed 's/.*: //'; }
# close RUN LIKE LIMIT: relative distance.
close() {
    [ "$(losses "$1" | wc -l)" -ge 3 ] || fail "$1 has computed nothing"
    paste <(losses "$1") <(losses "$2") | awk -v limit="$3" '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (!(d <= limit)) { print "line " NR ": " $1 " and " $2; bad = 1 } }
        END { exit bad }' || fail "$1 has other losses than $2"
}
expect 0 train c.yaml run=cpu device=cpu
expect 0 train c.yaml run=cuda device=cuda
close cuda cpu 1e-5
event start cuda/metrics.jsonl | grep -q '"device": "cuda", "gpu": "emulated GPU"' || fail "start says another device"
event start cpu/metrics.jsonl | grep -q '"device": "cpu"' || fail "start does not say cpu"
[ "$(event sample cuda/metrics.jsonl)" = "$(event sample cpu/metrics.jsonl)" ] || fail "samples differ"
for precision in bf16 fp16; do
    expect 0 train c.yaml run=cpu-$precision device=cpu train.precision=$precision train.steps=4
    expect 0 train c.yaml run=cuda-$precision device=cuda train.precision=$precision train.steps=4
    close cuda-$precision cpu-$precision 3e-3
done
# An overflow of fp16 leaves its step out and halves the scale, as on the CPU.
for device in cpu cuda; do
    expect 0 train c.yaml run=over-$device device=$device train.precision=fp16 train.steps=16 eval.every=0 sample.every=0 train.loss_scale.init_scale=1e10
    grep -oE '"(step|loss_scale|skipped)": [^,}]*' over-$device/metrics.jsonl >over.$device
done
close over-cuda over-cpu 3e-3
grep -q skipped over.cpu && [ "$(grep -c skipped over.cpu)" -lt 16 ] && cmp -s over.cpu over.cuda || fail "the scale goes another way"
# Graphs repeat a step's kernels; what differs between steps and micro-batches, as the draws of dropout do, reaches them.
dropped='model.model_type=gpt2 model.embd_pdrop=0.2 model.attn_pdrop=0.2 model.resid_pdrop=0.2 train.steps=5 train.micro_batch_size=2'
expect 0 train dropout.yaml run=cpu-dropout device=cpu $dropped
expect 0 train dropout.yaml run=cuda-dropout device=cuda $dropped
close cuda-dropout cpu-dropout 1e-5
# In 16 bits the slope of gelu is joined with the product before it, under every policy, so all have the same bits.
gelu='model.model_type=gpt2 train.steps=3 train.precision=bf16'
expect 0 train dropout.yaml run=cpu-gelu device=cpu $gelu
for policy in none selective full; do
    expect 0 train dropout.yaml run=gelu-$policy device=cuda $gelu train.recompute=$policy
    close gelu-$policy cpu-gelu 3e-3
    cmp -s <(losses gelu-none) <(losses gelu-$policy) || fail "train.recompute=$policy has other losses than none"
done
ATHANOR_CUDA_SEED=7 expect 0 train c.yaml run=seed device=cuda train.steps=4
losses cuda | head -n 4 | cmp -s - <(losses seed | head -n 4) || fail "another order of threads gives other losses"

# ---- the plan is what is touched ----
touched() { event end "$1/metrics.jsonl" | grep -oE '"(planned|touched)_peak_bytes": [0-9]+' | sed 's/.*: //' | sort -u | wc -l; }
[ "$(touched cpu)" = 1 ] || fail "the CPU touches other memory than planned"
expect 0 plan c.yaml device=cuda --json
has out '"peak_bytes"'
grep -qE '"device_baseline_bytes": [1-9]' cuda/plan.json || fail "the plan does not know what the GPU's driver has taken"
grep -q device_baseline cpu/plan.json && fail "a CPU has a driver that takes memory"
expect 0 plan smollm2-135m cluster=h100-8 parallel.zero=1 train.global_batch_size=64 train.micro_batch_size=4 --json
has out '"device_baseline_bytes": 2147483648'

# ---- one digest over layouts, and after a stop ----
short='train.steps=4 train.deterministic=true train.digest_every=1 eval.every=0 sample.every=0 train.micro_batch_size=2 device=cuda'
digests() { grep -o '"digest": "[^"]*"' "$1/metrics.jsonl"; }
expect 0 train c.yaml run=one $short
[ "$(digests one | wc -l)" -ge 4 ] || fail "there are no digests"
expect 0 launch --ranks 2 -- train c.yaml run=zero $short parallel.zero=3
cmp -s <(digests one) <(digests zero) || fail "two ranks with ZeRO 3 have other digests"
expect 0 launch --ranks 4 -- train c.yaml run=four $short
cmp -s <(digests one) <(digests four) || fail "four ranks have other digests"
expect 0 train c.yaml run=again $short train.steps=2
expect 0 train c.yaml run=again $short
cmp -s <(digests one | sort -u) <(digests again | sort -u) || fail "what goes on has other digests"
expect 0 launch --ranks 2 -- train c.yaml run=tp $short parallel.tp=2
close tp one 1e-5

# ---- a GPU that is lost in the midst of a run: one sentence, and the checkpoints before it serve ----
ATHANOR_CUDA_FAULT=lost:0 expect 6 train c.yaml run=lost device=cuda checkpoint.every=1 eval.every=0 sample.every=0
has err "the emulated GPU failed: waiting for the GPU: it has fallen off the bus"
[ -d lost/checkpoints/step-1 ] && [ ! -d lost/checkpoints/step-20 ] || fail "the GPU was not lost in the midst of a run"
expect 0 verify checkpoint lost
expect 0 train c.yaml run=lost device=cuda
[ "$(results step lost | tail -n 1)" = "$(results step cuda | tail -n 1)" ] || fail "what goes on has another last step"

# ---- from device to device ----
expect 0 train c.yaml run=moved device=cuda train.steps=10
expect 0 train c.yaml run=moved device=cpu
close moved cpu 1e-5

# ---- quantised weights, read where they lie: the tokens of the CPU, after prompts of few and of many tokens ----
"$athanor" tok train text.txt -o bpe.json --kind bpe --vocab-size 300 >log 2>&1 &&
    "$athanor" data build text.txt -o bpe tokenizer=bpe.json valid=0.1 >log 2>&1 || fail "there is no data: $(cat log)"
expect 0 train c.yaml run=small device=cpu tokenizer=bpe.json data.train=bpe/train data.valid=bpe/valid sample.every=0
for dt in Q8_0 Q4_0; do
    expect 0 export small -o $dt.gguf --to gguf --dtype $dt
    for prompt in fire "0123456789 of the fire"; do
        for device in cpu cuda; do
            expect 0 generate $dt.gguf --device $device --prompt "$prompt" --max-new 24 --temperature 0
            cp out $device.txt
        done
        cmp -s cpu.txt cuda.txt || fail "$dt: the GPU goes on otherwise after '$prompt'"
    done
done

# ---- tokens that the GPU picks: those of the CPU by the same draws, of a text alone, of one that is tried in advance, of many ----
cat >write.yaml <<'END'
task: write
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: a
doc_to_target: b
generation_kwargs: {until: ["\n"], max_gen_toks: 7}
END
printf '{"a": "the fire", "b": "and"}\n{"a": "every", "b": "ember"}\n{"a": "of", "b": "a"}\n' >rows.jsonl
sampled="--prompt fire --max-new 24 --temperature 0.9 --top-p 0.9"
for device in cpu cuda; do
    for how in "--top-k 12 --min-p 0.01 --seed 4" "--seed 5 --draft ngram" "--seed 6 --repetition-penalty 1.2"; do
        expect 0 generate small $sampled $how
        cat out
    done >sampled.$device
    expect 0 eval small --device $device --tasks write.yaml --samples written.$device
done
expect 2 generate small --prompt fire --device gpu
has err 'there is no device "gpu"'
cmp sampled.cpu sampled.cuda || fail "the GPU draws other tokens"
cmp written.cpu written.cuda || fail "the GPU writes other answers"
finish
