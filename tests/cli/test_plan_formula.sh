# Published formulas of memory, from configs: what they printed. $1 is the program.
. "$(dirname "$0")/lib.sh"

gib() { # NAME GIB: a part of the answer
    calc "abs($(field "$1" out) / 1073741824 - $2) < 1e-6" || fail "$1 is not $2 GiB: $(cat out)"
}
expect 0 plan llama-3.1-8b --model formula --convention figures train.seq_len=4096 train.micro_batch_size=1 parallel.tp=2 --json
gib parameters 7.478515625
gib optimizer 29.9140625
gib activations 11
expect 0 plan llama-3.1-8b --model formula --convention fp32 train.seq_len=8192 train.recompute=full train.micro_batch_size=1 --json
gib activations 2.03125
gib gradients 26.088409423828125
expect 0 plan llama-3.1-8b --model formula parallel.pp=8 parallel.pp_schedule=interleaved parallel.virtual=4 \
    train.micro_batch_size=1 train.global_batch_size=16 --json
calc "$(field bubble out) == 0.109375" || fail "$(cat out)"
expect 0 plan smollm3-3b --model formula cluster=h100-64 parallel.tp=2 train.global_batch_size=64 train.micro_batch_size=2
has out 'gradients'
has out 'of the time that hides it'
grep -q 'FLOPs' out || fail "$(cat out)"

# Published zb-v counts no wait between steps; what plan schedule draws begins at once on no stage but the first.
expect 0 plan llama-3.1-8b --model formula parallel.pp=4 parallel.pp_schedule=zb-v parallel.virtual=2 train.micro_batch_size=1 \
    train.global_batch_size=8
has out '0.0000 of the work of a stage, which begins a step before others have ended the last'

# What ranks send goes by the links of the node where all of an axis are in one, else by the network.
shown() { # NAME VALUE ARGS...: so much of the time that hides it
    expect 0 plan llama-3.1-8b --model formula train.seq_len=4096 train.micro_batch_size=2 train.global_batch_size=16 "${@:3}" --json
    calc "abs($(sed -n 's/.*"exposed": {\(.*\)}.*/\1/p' out | sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p") - $2) < 1e-4" ||
        fail "$1 is not $2: $(cat out)"
}
shown dp 0.46975 cluster=h100-8
shown dp 4.52954 cluster=h100-16 parallel.tp=1 train.global_batch_size=32
shown dp 3.75787 cluster=h100-8 parallel.cp=8
shown dp 0 cluster=h100-8 parallel.tp=8
shown pp 0.01032 cluster=h100-8 parallel.pp=8
shown pp 0.09291 cluster=h100-64 parallel.pp=8
# Activations by the width of the feed-forward part; the figures have four times the model's, whatever it is.
activations() { # WIDTH BYTES ARGS...
    expect 0 plan smollm3-3b model.intermediate_size=$1 --model formula train.recompute=selective train.seq_len=4096 \
        train.micro_batch_size=1 "${@:3}" --json
    [ "$(field activations out)" = $2.0 ] || fail "not $2 with a width of $1: $(cat out)"
}
activations 2048 6643777536
activations 4096 7851737088
activations 8192 10267656192
activations 16384 15099494400
activations 16384 10267656192 --convention figures

expect 0 plan smollm3-3b --model predictor train.seq_len=4096 train.micro_batch_size=1 train.global_batch_size=1
has out 'second forward and backward'
grep -q 'most of them .* 74073 MiB' out || fail "$(cat out)"
# The same part by part.
for part in 'weights in bf16 .* 5865' 'masters in fp32 .* 11730' 'gradients in fp32 .* 11730' "Adam's states in fp32 .* 23460" \
    'activations .* 21288'; do
    grep -q "$part MiB" out || fail "not $part: $(cat out)"
done
lacks out buckets
expect 0 plan smollm3-3b --model predictor train.seq_len=4096 train.micro_batch_size=1 train.global_batch_size=1 --json
grep -q '"components": {"weights in bf16": ' out || fail "$(cat out)"
expect 0 plan 70B --model widget --json
calc "abs($(field optimizer out) - 12 * (8192 * 30778 + 80 * (12 * 8192 * 8192 + 13 * 8192) + 16384) / 8) < 1" || fail "$(cat out)"

expect 2 plan 70B --model widget train.seq_len=4
expect 2 plan smollm3-3b --model calculator
has err 'formula, widget and predictor'
expect 2 plan smollm3-3b --model formula --convention bf16
has err 'mixed-fp32-grads'
expect 2 plan smollm3-3b --model widget --convention fp32
expect 2 plan smollm3-3b --convention fp32
expect 2 plan smollm3-3b --model formula parallel.pp=99 train.global_batch_size=99
has err '36 layers do not make 99 chunks'
expect 2 plan smollm3-3b --model formula parallel.dp=3 train.micro_batch_size=2 train.global_batch_size=32
has err 'cannot be shared by dp 3 ranks in micro-batches of 2'
# What no program could share out: by the same sentences as in the plan itself.
impossible() { # TEXT ARGS...
    local text=$1 m
    shift
    for m in formula widget; do
        expect 2 plan gpt2 --model $m "$@"
        has err "$text"
    done
    expect 2 plan gpt2 "$@"
    has err "$text"
}
impossible '12 heads and 12 key/value heads of layer 0 do not divide over 5' parallel.tp=5
impossible "the model's positions end at 1024" train.seq_len=4096
impossible '5 sequences of' train.seq_len=255 train.micro_batch_size=5 train.global_batch_size=5 parallel.tp=2 parallel.sp=true
expect 2 plan gpt2 --model formula parallel.cp=3
has err 'sequences of 256 tokens do not divide into 6 pieces'
expect 2 plan gpt2 --model formula parallel.pp=4 parallel.virtual=4 parallel.pp_schedule=interleaved train.global_batch_size=8
has err '12 layers do not make 16 chunks'
expect 2 plan gpt2 --model formula parallel.pp=2 parallel.virtual=2 parallel.pp_schedule=interleaved train.micro_batch_size=1 \
    train.global_batch_size=3
has err 'in groups of 2'
# Stages may have unlike numbers of layers, as in the plan.
expect 0 plan gpt2 --model formula parallel.pp=5 train.micro_batch_size=1 train.global_batch_size=10
expect 2 plan qwen3-30b-a3b --model formula
has err 'know no experts'
expect 2 plan t5-small --model formula
has err 'know no encoder'
# What a formula leaves out is no part of the config either.
without() { # MODEL KEY=VALUE...
    expect 2 plan smollm3-3b --model "$1" train.micro_batch_size=1 train.global_batch_size=8 "${@:2}"
    has err "the $1 has no term for what ${2%=*} says"
}
without widget parallel.pp=2
without widget parallel.cp=2
without predictor parallel.cp=2
without predictor train.recompute=full
without predictor train.precision=fp32
for m in formula widget predictor; do
    without $m lora.rank=8
    without $m optim.name=adafactor
done
without formula train.precision=fp32
has err '--convention fp32'
expect 0 plan smollm3-3b --model formula --convention fp32 train.precision=fp32 train.micro_batch_size=1 train.global_batch_size=8
expect 0 plan smollm3-3b --model widget train.precision=fp32 train.micro_batch_size=1 train.global_batch_size=8
without formula parallel.pp_schedule=afab parallel.pp=2
finish
