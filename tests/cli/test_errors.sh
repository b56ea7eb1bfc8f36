# Bad input: each gives one sentence that names the thing, a hint, the exit status of its kind, and
# with --json exactly one error object; what was there before stays. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
expect 0 train c.yaml run=good train.steps=12

# refused STATUS MESSAGE_PART WHERE_PART ARGS...: both as text and as JSON.
refused() {
    local want=$1 message=$2 where=$3 kind
    shift 3
    expect "$want" "$@"
    has err "athanor: error: "
    has err "$message"
    [ "$(grep -c 'athanor: error:' err)" = 1 ] || fail "not one error"
    grep -q '  hint: ..' err || fail "no hint"
    expect "$want" "$@" --json
    case $want in 1) kind=failed ;; 2) kind=usage ;; 3) kind=format ;; 4) kind=memory ;; 5) kind=nonfinite ;; esac
    grep '"error"' out >error
    [ "$(wc -l <error)" = 1 ] || fail "not exactly one error object"
    grep -qE "^\{\"error\": \{\"kind\": \"$kind\", \"message\": \"[^\"]+.*\", \"hint\": \"[^\"]+.*\", \"where\": \"[^\"]+.*\"\}\}$" error ||
        fail "the error object is incomplete"
    grep -qF -- "$message" error || fail "no '$message' in the message"
    grep -q "\"where\": \".*$where.*\"" error || fail "where is not $where"
}
# The same for train, which must not leave a new folder.
train_refused() {
    local want=$1 message=$2 where=$3
    shift 3
    refused "$want" "$message" "$where" train "$@" run=new
    [ "$(wc -l <out)" = 1 ] || fail "more than the error on standard output"
    [ ! -e new/checkpoints ] && [ ! -e new/metrics.jsonl ] || fail "the refused run left a folder"
}

# A switch that changes the function of a published model is not passed over.
train_refused 2 add_cross_attention model.add_cross_attention c.yaml \
    "$gpt2_model" model.add_cross_attention=true
train_refused 2 "activation 'mish'" model.hidden_act c.yaml model.hidden_act=mish

# A device that there is not. A plan needs none.
if ! ls /usr/lib*/*/libcuda.so.1 /usr/lib*/libcuda.so.1 >/dev/null 2>&1; then
    train_refused 2 "there is no NVIDIA driver here" device c.yaml device=cuda
    expect 0 plan c.yaml device=cuda
fi
refused 2 "must be one of auto, cpu, cuda" device plan c.yaml device=gpu

# Memory that runs out in the middle of anything.
for n in 1 100 1000; do
    export ATHANOR_FAULT=alloc:$n
    refused 4 "out of memory: " . config print c.yaml
    unset ATHANOR_FAULT
done

# A run that has lost its config.json is compared with what its newest checkpoint says.
mv good/config.json kept.json
refused 2 "optim.weight_decay was 0.1, is now 0.2" good/checkpoints train c.yaml run=good optim.weight_decay=0.2
expect 0 train c.yaml run=good train.steps=12
cmp good/config.json kept.json || fail "the config was not written again"
echo '{' >good/config.json
refused 3 "good/config.json is not JSON" good/config.json train c.yaml run=good
has out "remove it: then the newest checkpoint says"
cp kept.json good/config.json

# A variable with a word that there is not stops every command, also one that would have had no use for it.
wrong_word() { # VARIABLE WORDS: the words that there are
    export "$1=foo"
    refused 2 "which is not $2" "$1" plan c.yaml device=cpu
    has out "set $1 to $2, or unset it"
    export "$1="
    expect 0 plan c.yaml device=cpu
    unset "$1"
}
wrong_word ATHANOR_DEVICE "cpu, cuda or twin"
wrong_word ATHANOR_ISA "base, avx2, avx512, avx512_vnni, avx512_bf16 or amx"
wrong_word ATHANOR_CUDA emulated
wrong_word ATHANOR_KERNELS reference
wrong_word ATHANOR_GEMM "remembered, own or onednn"
wrong_word ATHANOR_NCCL "auto, on or off"
export ATHANOR_CUDA=emulated ATHANOR_CUDA_SEED=foo
refused 2 "which is no number from 0" ATHANOR_CUDA_SEED plan c.yaml
unset ATHANOR_CUDA ATHANOR_CUDA_SEED

# ---- words ----
refused 2 "--dry-run takes no value" "command line" train c.yaml --dry-run=yes
refused 2 "needs an input" "command line" plan
refused 2 "has no use for 'more'" "command line" runs show good more
expect 2 generate good --prompt
has err "--prompt needs a value"; has err "hint: usage: athanor generate MODEL"
# What would do nothing is refused by name.
refused 2 "--fresh and --fork exclude each other" "command line (--fresh)" train c.yaml run=good --fresh --fork f
refused 2 "--ids-file does nothing without --dump-grads" "command line (--ids-file)" train c.yaml --ids-file i.npy
refused 2 "--trace-steps does nothing without --trace" "command line (--trace-steps)" train c.yaml --trace-steps 2
refused 2 "--dump-grads does nothing without --ids-file" "command line (--dump-grads)" train c.yaml --dump-grads g
refused 2 "--dump-grads and --dry-run exclude each other" "command line (--dump-grads)" \
    train c.yaml --dump-grads g --ids-file i.npy --dry-run
[ ! -e f ] || fail "a refused fork left a folder"

# Where the program itself is too large no smaller model would help.
expect 4 train c.yaml run=none train.memory_limit=1Mi
has err "raise train.memory_limit or lower train.threads: the process takes"
expect 4 train c.yaml run=none train.memory_limit=100Mi train.threads=4096
has err "lower train.threads"

# A limit on a process's memory is told as one: the machine has enough. (A sanitizer cannot start with it.)
if (ulimit -v 1000000 && "$athanor" --version) >out 2>&1; then
    got=0
    (ulimit -v 1000000 && exec "$athanor" train c.yaml run=none model.intermediate_size=500000) >out 2>err </dev/null || got=$?
    last="train under ulimit -v"
    [ $got -eq 4 ] || fail "exit $got, not 4"
    has err "which the system does not give"; has err "hint: ulimit -v"
fi

# A limit on the size of files is like a full disk: it does not kill.
got=0
(ulimit -f 20 && exec "$athanor" train c.yaml run=limited) >out 2>err </dev/null || got=$?
last="train under ulimit -f"
[ $got -eq 1 ] || fail "exit $got, not 1"
has err "File too large"
# A value is a value, whatever it looks like.
expect 3 generate good --prompt -h
has err "U+002D '-', is not in the vocabulary"
printf 'fire\tfire' >tab.txt
expect 3 tok encode char.json tab.txt
has err "U+0009, is not in the vocabulary"
expect 2 generate good --prompt --json --ids 1
has err "athanor: error: "
expect 0 generate good --prompt x -h
has out "usage: athanor generate"

# ---- writing: the file that was asked for is named, not the hidden one it is written to first ----
export ATHANOR_FAULT=write:1
refused 1 "cannot write t.json" t.json tok train text.txt -o t.json --kind char
lacks error tmp-
refused 1 "cannot write h/" h/ export good -o h --to hf
lacks error tmp-
unset ATHANOR_FAULT

# ---- corpus ----
: >empty.txt
printf 'some text\n\0\1\2\3 more' >binary.txt
printf 'caf\351 and more latin-1 text\n' >latin1.txt
refused 2 empty.txt empty.txt data build empty.txt -o s tokenizer=char.json
refused 3 "byte 10" binary.txt data build binary.txt -o s tokenizer=char.json
refused 3 latin1.txt latin1.txt data build latin1.txt -o s tokenizer=char.json
refused 3 absent.txt absent.txt data build absent.txt -o s tokenizer=char.json
refused 2 empty.txt empty.txt tok train empty.txt -o t.json --kind char
refused 2 "threads=2.5 is not a value" threads data build text.txt -o s tokenizer=char.json threads=2.5
refused 2 "threads=1025 is not a value" threads data build text.txt -o s tokenizer=char.json threads=1025
[ ! -e s/shard-00000.bin ] && [ ! -e t.json ] || fail "refused input left output"

# ---- config ----
sed 's/hidden_size/hiden_size/' c.yaml >typo.yaml
train_refused 2 "nearest: " model.hiden_size typo.yaml
grep -q "model.hidden_size" error || fail "the nearest key is not named"
sed 's/seq_len: 32/seq_len: many/' c.yaml >type.yaml
train_refused 2 train.seq_len type.yaml:5 type.yaml
sed 's/hidden_size: 32/hidden_size: wide/' c.yaml >type2.yaml
train_refused 2 hidden_size type2.yaml:2 type2.yaml
train_refused 2 stps 'command line' c.yaml train.stps=3
train_refused 2 model.hidden_size model.hidden_size c.yaml model.hidden_size=wide
printf 'run: [a\n' >broken.yaml
train_refused 2 broken.yaml broken.yaml broken.yaml
train_refused 3 absent.yaml absent.yaml absent.yaml
train_refused 2 "hidden_size 33 is not a multiple of num_attention_heads 4" model.num_attention_heads \
    c.yaml model.hidden_size=33
train_refused 2 "head_dim 7 is odd" model.head_dim c.yaml model.head_dim=7
train_refused 2 "num_key_value_heads 3" model.num_key_value_heads c.yaml model.num_key_value_heads=3
train_refused 2 "hidden_size 33 is not a multiple" model.num_attention_heads c.yaml "$gpt2_model" model.hidden_size=33
train_refused 2 "train.seq_len is 65, the model's positions end at 64" train.seq_len c.yaml train.seq_len=65
train_refused 2 "model.vocab_size is 8" model.vocab_size c.yaml model.vocab_size=8
train_refused 2 "model_type 'lama'" model.model_type c.yaml model.model_type=lama
has out "did you mean llama?"
train_refused 2 "model_type 'mamba'" model.model_type c.yaml model.model_type=mamba
has out "there are llama, gpt2"
train_refused 2 "global_batch_size" train.micro_batch_size c.yaml train.micro_batch_size=3
train_refused 4 "MiB are allowed" train.memory_limit c.yaml train.memory_limit=1M

# ---- what does nothing is told, by name ----
told() { has err "athanor: warning: $1"; }
sed 's/^optim: {/optim: {no_decay: ["*norm*", "*.bais"], /' c.yaml >slip.yaml
expect 0 train slip.yaml run=slip train.steps=6 train.beta=0.2 model.use_cache=true
told "optim.schedule.decay_steps (36, slip.yaml:6) do not fit into the 6 steps of the schedule after a warm-up of 4"
told "optim.no_decay (slip.yaml:6): no parameter matches '*.bais'"
told "train.beta (command line) does nothing where train.objective is lm"
told "model.use_cache (command line) does nothing"
[ "$(grep -c warning err)" = 4 ] || fail "not four warnings"
expect 0 train slip.yaml run=slip2 train.steps=2 optim.schedule.warmup_steps=3 --json
told "optim.schedule.warmup_steps (3, command line) are more than the 2 steps"
expect 0 train c.yaml run=idle train.steps=8 optim.schedule.kind=linear optim.schedule.warmup_steps=0 optim.schedule.decay_steps=5 \
    optim.schedule.min_lr=0
told "optim.schedule.decay_steps (5, command line) end 3 steps before the schedule: optim.lr is 0 in these"
expect 0 train c.yaml run=floor train.steps=8 optim.schedule.kind=linear optim.schedule.warmup_steps=0 optim.schedule.decay_steps=5
lacks err warning
expect 0 train c.yaml run=quiet
lacks err warning

# ---- data ----
make_text 5 3 | tr a-m n-z >other.txt
"$athanor" tok train other.txt -o other.json --kind char >log 2>&1 || fail "tok train"
train_refused 2 tokenizer set/train c.yaml tokenizer=other.json model.vocab_size=99
train_refused 2 set/absent set/absent c.yaml data.train=set/absent
train_refused 2 set/absent set/absent c.yaml data.valid=set/absent
train_refused 3 absent.json absent.json c.yaml tokenizer=absent.json
cp -r set cut
truncate -s -7 cut/train/shard-00000.bin
train_refused 3 truncated cut/train/shard-00000.bin c.yaml data.train=cut/train
train_refused 2 "set holds a split" set c.yaml data.train=set

# ---- resume ----
refused 2 "optim.lr was 0.01, is now 0.02" good/config.json train c.yaml run=good optim.lr=0.02
# A second process finds the run taken.
"$athanor" train c.yaml run=held train.steps=1000000 checkpoint.every=0 eval.every=0 sample.every=0 \
    train.digest_every=0 >held.log 2>&1 &
holder=$!
await test -s held/metrics.jsonl
refused 1 "(pid $holder) is training in held" held/.lock train c.yaml run=held
kill -9 $holder
wait $holder 2>log

# ---- checkpoints ----
step_of() { field step "$1"; } # first event of a resumed run
damage() { # HOW FILE
    case $1 in
        cut) truncate -s -9 "$2" ;;
        flip) printf '\252' | dd of="$2" bs=1 seek=$(($(stat -c %s "$2") / 2)) conv=notrunc 2>log ;;
        gone) rm "$2" ;;
    esac
}
for how in cut flip gone; do
    for file in model.safetensors state/optimizer.safetensors state/cursor.json config.json; do
        rm -rf bad
        cp -r good bad
        damage $how bad/checkpoints/step-12/$file
        expect 0 train c.yaml run=bad train.steps=12 --json
        event start out | grep -q '"step": 8' || fail "$how $file: did not fall back to step 8"
        has err step-12
        results step bad >bad.steps
        results step good | cmp - bad.steps || fail "$how $file: another result after falling back"
    done
done
rm -rf bad
cp -r good bad
for s in 4 8 12; do damage flip bad/checkpoints/step-$s/model.safetensors; done
refused 3 checkpoint bad train c.yaml run=bad train.steps=16
for s in 4 8 12; do [ -d bad/checkpoints/step-$s ] || fail "a damaged checkpoint was removed"; done
refused 3 "none of the 3 checkpoints of bad is good" bad generate bad --prompt the
expect 0 train c.yaml run=bad --fresh train.steps=4

# ---- full disk ----
# Every K-th write fails: the run stops with a sentence, or goes on where the write did not matter;
# the checkpoints that were there verify, and the next start finishes with the same result.
expect 0 train c.yaml run=disk train.steps=4
for k in 1 2 4 7 11 16 22 29 37 46; do
    rm -rf full
    cp -r disk full
    last="ATHANOR_FAULT=write:$k train"
    status=0
    ATHANOR_FAULT=write:$k "$athanor" train c.yaml run=full train.steps=12 --json >out 2>err || status=$?
    case $status in
        0) ;;
        1) grep '"error"' out | grep -q "No space left on device" || fail "the error does not say so" ;;
        *) fail "exit $status" ;;
    esac
    expect 0 verify checkpoint full/checkpoints/step-4
    expect 0 train c.yaml run=full train.steps=12
    results step full >full.steps
    results step good | cmp - full.steps || fail "write $k failed: another result"
done
# A real one, where the kernel lets us make it.
mkdir small
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=2600k tmpfs small 2>log; then
    trap 'umount "$work/small"; rm -rf "$work"' EXIT
    last="train on a full disk"
    refused 1 "small/run" small/run train c.yaml run=small/run checkpoint.keep=50
    grep -qi "space" error || fail "the error does not speak of space"
    newest=$(ls -d small/run/checkpoints/step-* | sort -V | tail -n 1)
    expect 0 verify checkpoint "$newest"
    ls -a small/run/checkpoints | grep -q tmp && fail "a half-written checkpoint stays"
    grep -vE '^\{.*\}$' small/run/metrics.jsonl && fail "a broken line in metrics.jsonl"
    echo "full disk: real tmpfs"
fi

# ---- a terminal obeys nothing that a model or its data say ----
if command -v script >/dev/null; then
    last="train on a terminal"
    sed 's/char.json/byte.json/; s|set/train, valid: set/valid|bytes|; s/"the fire"/"\\e]0;title"/' c.yaml >terminal.yaml
    "$athanor" tok train text.txt -o byte.json --kind byte >log 2>&1 &&
        "$athanor" data build text.txt -o bytes tokenizer=byte.json >log 2>&1 || fail "$(cat log)"
    script -qec "'$athanor' train terminal.yaml run=terminal train.steps=1" /dev/null >out </dev/null || fail "exit $?"
    has out "^[]0;title"
    lacks out $'\033]0;title'
fi

# ---- NaN ----
hot=(run=nan optim.lr=1e6 optim.clip_norm=0 checkpoint.every=1 eval.every=0 sample.prompts=[])
expect 5 train c.yaml "${hot[@]}"
grep -qE "step [0-9]+: op [a-z_]+ \(.+\) wrote a NaN or Inf into [a-z ]+ at row [0-9]+" err ||
    fail "step, op and tensor are not named"
has err "hint: give --fork NEW a lower optim.lr (now 1e+06)"
cp err err0
event alarm nan/metrics.jsonl >alarm || fail "no alarm event"
at=$(grep -oE 'step [0-9]+: op' err | grep -o '[0-9]*')
[ "$(field step alarm)" = "$at" ] || fail "the alarm has another step"
[ "$(event step nan/metrics.jsonl | wc -l)" = $((at - 1)) ] || fail "steps after the NaN"
[ -d nan/checkpoints/step-$((at - 1)) ] || fail "no checkpoint of the step before"
[ ! -e nan/checkpoints/step-$at ] || fail "a checkpoint of the broken step"
for c in nan/checkpoints/step-*; do expect 0 verify checkpoint "$c"; done
echo "NaN: stopped at step $at"
# Again from the checkpoint: the same step, op and tensor.
refused 5 "$(grep -oE 'op [a-z_]+ \(.+\) wrote a NaN or Inf.*' err0)" nan train c.yaml "${hot[@]}"
finish
