# athanor bench: what it says fits together, the same seed gives the same losses, one step for each
# line of input; wrong words are refused. Says nothing about how fast. $1 is the program.
. "$(dirname "$0")/lib.sh"
write_config c.yaml
small="model.vocab_size=300 train.global_batch_size=4 train.micro_batch_size=2 train.threads=2"
bench="bench train c.yaml $small"

# row NAME FILE: the value of a row.
row() { grep -o "\"name\": \"$1\", \"value\": [^,]*" "$2" | sed 's/.*: //'; }
# members NAME FILE: all values of a member, a line each.
members() { grep -o "\"$1\": [^,}]*" "$2" | sed 's/.*: //'; }
sum() { members "$1" "$2" | awk '{ s += $1 } END { printf "%.17g", s }'; }

# ---- a number of steps; no tokenizer, data or run folder is there ----
expect 0 $bench --steps 3 --warmup 1
[ "$(grep -c '^step ' out)" = 4 ] || fail "not 4 steps"
[ "$(grep -c 'warm-up' out)" = 1 ] || fail "not 1 step of warm-up"
has out "median"
has out "peak resident"
[ ! -e run ] || fail "a measurement left a run folder"

expect 0 $bench --steps 3 --warmup 0 --json
cp out plain
[ "$(wc -l <out)" = 1 ] || fail "not one object"
for name in tok_per_s tok_per_s_min tok_per_s_max step_ms mfu hfu loss peak_rss_bytes \
    planned_peak_bytes activation_bytes peak_gflops model_flops; do
    value=$(row $name out)
    calc "${value:-0} > 0" || fail "row $name is '$value'"
done
lacks out '"profile"'
has out '"isa": "'
has out '"threads": 2'
calc "$(row tok_per_s_min out) <= $(row tok_per_s out)" || fail "the minimum is above the median"
calc "$(row tok_per_s out) <= $(row tok_per_s_max out)" || fail "the maximum is below the median"
# 4 sequences of 32 tokens; a rate is tokens by time.
calc "($(row tok_per_s out) * $(row step_ms out) / 128000 - 1)^2 < 1e-12" || fail "rate and time"
calc "($(row mfu out) * $(row peak_gflops out) * $(row step_ms out) * 1e6 / $(row model_flops out) - 1)^2 < 1e-12" ||
    fail "MFU"
# Random ids of 300 words: ln 300 = 5.7.
calc "$(row loss out) > 5.4 && $(row loss out) < 6.1" || fail "loss $(row loss out)"
expect 0 plan c.yaml $small tokenizer=null sample.prompts=[] data.valid=null --json
[ "$(members peak_bytes out | head -n 1)" = "$(row planned_peak_bytes plain)" ] || fail "another plan"
[ "$(field total out)" = "$(field params plain)" ] || fail "another number of parameters"

# ---- the profile ----
check_profile() { # KEYS...
    expect 0 $bench "$@" --steps 2 --warmup 0 --json --svg step.svg --trace step.json
    shares="$(row share_matmul out) + $(row share_attention out) + $(row share_other out)"
    calc "($shares - 1)^2 < 1e-12" || fail "shares add up to $shares"
    calc "($(sum share out) - 1)^2 < 1e-12" || fail "the parts of the step do not add up"
    calc "($(sum flops out) / $(row hardware_flops out) - 1)^2 < 1e-18" ||
        fail "the profile has $(sum flops out) FLOPs, the plan $(row hardware_flops out)"
    members ms out | awk '$1 < 0 { exit 1 }' || fail "negative time"
    for word in '"pass": "forward"' '"pass": "backward input"' '"pass": "backward weight"' \
        '"name": "head and loss"' '"name": "attention"' '"name": "gradient norm"'; do
        has out "$word"
    done
}
check_profile train.recompute=full
has out '"pass": "recompute"'
check_profile train.precision=bf16
lacks out '"pass": "recompute"'
check_profile "$gpt2_model" model.vocab_size=300
# One row for all layers, two micro-batches.
expect 0 $bench --steps 1 --warmup 0 --json --profile
grep -o '"name": "mlp.down_proj", "pass": "forward"[^}]*' out >line
[ "$(wc -l <line)" = 1 ] && grep -q '"calls": 4,' line || fail "mlp.down_proj: $(cat line)"
expect 0 $bench --steps 1 --warmup 0 --profile
has out "matrix products"
has out "of 1 steps"

# The picture: well-formed, with every class, self-contained.
grep -q '^<svg xmlns="http://www.w3.org/2000/svg"' step.svg || fail "no svg"
if command -v xmllint >/dev/null; then
    xmllint --noout step.svg || fail "step.svg is not well-formed"
elif command -v python3 >/dev/null; then
    python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' step.svg ||
        fail "step.svg is not well-formed"
fi
for class in matmul head attention norm activation optimizer; do
    grep -q "<g class=\"c $class\">" step.svg || fail "no $class in the picture"
done
grep -qE 'href=|url\(' step.svg && fail "the picture needs something else"
expect 2 $bench --svg absent/step.svg
expect 2 $bench --trace absent/step.json
has err "--trace"
# The timeline: a list of events; the step, its parts, classes and ops lie in each other.
last="bench train --trace"
head -c 1 step.json | grep -q '\[' && tail -n 1 step.json | grep -q '\]$' || fail "no list"
for word in '"name": "one step", "cat": "step"' '"name": "backward", "cat": "step"' \
    '"name": "matmul", "cat": "class"' '"name": "attention", "cat": "forward"'; do
    grep -qF "$word" step.json || fail "no $word in the timeline"
done
dur() { grep -F "\"cat\": \"$1\"" step.json | sed 's/.*"dur": //; s/,.*//' | awk '{ s += $1 } END { print s }'; }
calc "($(dur class) / $(dur step) - 0.5)^2 < 1e-6" || fail "classes $(dur class), steps $(dur step)"

# ---- repeatable, whatever the threads ----
expect 0 $bench --steps 3 --warmup 0 --json train.threads=1
[ "$(row loss out)" = "$(row loss plain)" ] || fail "loss $(row loss out), then $(row loss plain)"
expect 0 $bench --steps 3 --warmup 0 --json train.seed=5
[ "$(row loss out)" != "$(row loss plain)" ] || fail "the seed has no effect"

# ---- on demand ----
on_demand() { # LINES
    last="on demand: $1 lines"
    seq "$1" | "$athanor" $bench --on-demand >out 2>err || fail "exit $?"
}
on_demand 2
[ "$(wc -l <out)" = 4 ] || fail "not ready, 2 steps, end"
head -n 1 out | grep -q '"event": "ready", "params": [0-9]' || fail "not ready first"
event step out >steps
[ "$(members step steps | tr '\n' ' ')" = "1 2 " ] || fail "steps $(members step steps)"
members step_ms steps | awk '!($1 > 0) { exit 1 }' || fail "no time"
tail -n 1 out | grep -q '"event": "end", "peak_rss_bytes": [0-9]' || fail "no end"
on_demand 3
[ "$(event step out | tail -n 1 | members loss /dev/stdin)" = "$(row loss plain)" ] ||
    fail "another loss than in 3 steps at once"
on_demand 0
[ "$(wc -l <out)" = 2 ] || fail "not ready and end"
# A step is answered before the next line comes.
last="on demand: a line, an answer"
mkfifo lines answers
"$athanor" $bench --on-demand <lines >answers 2>err &
exec 3>lines 4<answers
for i in 1 2; do
    read -r -t 20 _ <&4 || fail "no answer before line $i"
    echo go >&3
done
read -r -t 20 answer <&4 && grep -q '"step": 2,' <<<"$answer" || fail "no second step: $answer"
exec 3>&-
grep -q '"event": "end"' <&4 || fail "no end"
wait $! || fail "exit $?"
exec 4<&-

# ---- matrix products ----
expect 0 bench gemm 48x64x80 --dtype f32 --threads 1
has out "48x64x80"
expect 0 bench gemm 48x64x80 --json --threads 1 --dtype f32
[ "$(grep -o '"impl": "own"' out | wc -l)" = 3 ] || fail "not three layouts"
members value out | awk '!($1 > 0) { exit 1 }' || fail "no rate"
members of_limit out | awk '!($1 > 0) { exit 1 }' || fail "shares $(members of_limit out)"
has out '"unit": "GFLOP/s"'
expect 0 bench gemm c.yaml $small --json --dtype bf16
for name in self_attn.qkv_proj self_attn.o_proj mlp.gate_up_proj mlp.down_proj head; do
    [ "$(grep -o "\"name\": \"c.yaml $name, [^\"]*, own\"" out | wc -l)" = 3 ] || fail "$name"
done
# mlp.down_proj: 64 rows, 80 wide, to 32.
has out 'mlp.down_proj, forward, 64x32x80, own'
has out 'mlp.down_proj, backward input, 64x80x32, own'
has out 'mlp.down_proj, backward weight, 32x80x64, own'
has out '"dtype": "bf16"'

# What was measured is remembered, added to, obeyed by runs, and kept apart from other machines.
export ATHANOR_MACHINE_FILE=$work/cache/machine.json
expect 0 bench gemm 48x64x80 --dtype f32 --threads 2 --remember
expect 0 bench gemm 32x64x80 --dtype f16 --threads 2 --remember
[ "$(members m cache/machine.json | sort -n | uniq -c | tr -s ' ')" = "$(printf ' 3 32\n 3 48')" ] ||
    fail "remembered: $(members m cache/machine.json)"
sed -i 's/"implementation": "own"/"implementation": "onednn"/' cache/machine.json
make_data
expect 0 train c.yaml train.steps=1 train.threads=2 run=remembered --json
has out '"matrix_products": "own, 6 shapes by onednn"'
expect 0 train c.yaml train.steps=1 train.threads=1 run=elsewhere --json
has out '"matrix_products": "own"'
echo '{' >cache/machine.json
expect 0 train c.yaml train.steps=1 train.threads=2 run=damaged --json
has err "machine.json"
has out '"matrix_products": "own"'
expect 3 bench gemm 48x64x80 --threads 2 --remember
export ATHANOR_MACHINE_FILE=none

# ---- generating ----
model=$root/tests/golden/models/llama-gqa-tied
expect 0 bench generate "$model" --repeat 1 --threads 2 # a context shorter than what is measured elsewhere
expect 2 bench generate "$model" --prompt-tokens 5000;  has err "more than the model's context"
expect 0 bench generate "$model" --prompt-tokens 9 --new 4 --repeat 2 --threads 2
has out "prefill"
has out "decode"
expect 0 bench generate "$model" --prompt-tokens 1 --new 1 --repeat 1 --threads 2 --json
[ "$(wc -l <out)" = 1 ] || fail "not one object"
for name in load prefill decode "peak memory"; do
    value=$(row "$name" out)
    calc "${value:-0} > 0" || fail "row $name is '$value'"
done
has out '"threads": 2'
expect 0 bench generate "$model" --prompt-tokens 20 --new 4 --repeat 2 --threads 2 --streams 3
has out "3 streams"
has out "decode, all streams"
expect 0 bench generate "$model" --prompt-tokens 40 --new 4 --repeat 1 --threads 2 --streams 3 --json
for name in "first token, cold" "first token, prefix in the cache" "decode, one stream" \
    "decode, all streams"; do
    value=$(row "$name" out)
    calc "${value:-0} > 0" || fail "row $name is '$value'"
done
expect 2 bench generate "$model" --prompt-tokens 40 --new 22 --streams 3
has err "context"
expect 2 bench generate
expect 2 bench generate absent
expect 2 bench generate "$model" --prompt-tokens 0
expect 2 bench generate "$model" --prompt-tokens 1000000
has err "context"

# ---- wrong words ----
expect 2 bench train
expect 2 bench train c.yaml $small --steps 0
expect 2 bench train c.yaml $small --warmup -1
expect 2 bench train c.yaml $small --on-demand --steps 2
has err "exclude each other"
expect 2 bench train c.yaml $small train.stepz=2
expect 2 bench train c.yaml $small train.seq_len=128 # beyond the model's positions
expect 2 bench train c.yaml tokenizer=null           # the vocabulary is the tokenizer's
expect 3 bench train absent.yaml
expect 4 bench train c.yaml $small train.memory_limit=1M
expect 2 bench gemm 48x64x80 train.seq_len=8
has err "no key 'train.seq_len'" # without a model there is only device
expect 2 bench gemm 64x64
has err "MxNxK"
expect 2 bench gemm 0x1x1
expect 2 bench gemm 64x64x64 --dtype f64
expect 2 bench gemm 64x64x64 --threads x
expect 2 bench
finish
