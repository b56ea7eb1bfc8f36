# Sourced by the scripts of this folder, with the program as their $1: a temporary folder to work in, a
# small corpus, a config, and checks that count failures.
#
# Every script ends with `finish`. Nothing here needs more than bash, grep, sed and awk.
set -u
athanor=$(realpath "$1")
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_WAIT_POLICY=passive # other tests run beside this one
# For Open MPI's mpirun, without options that MPICH's does not know: as root, more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
failures=0
last=
: >out
: >err

fail() {
    echo "FAILED: $last: $1"
    sed 's/^/    out: /' out | tail -n 20
    sed 's/^/    err: /' err | tail -n 20
    failures=$((failures + 1))
}
finish() {
    [ $failures -eq 0 ] && echo "all passed"
    exit $((failures > 0))
}

# expect STATUS ARGS...: runs the program; its output is in out and err.
expect() {
    local want=$1 got=0
    shift
    "$athanor" "$@" >out 2>err </dev/null || got=$?
    last="athanor $*"
    [ $got -eq "$want" ] || fail "exit $got, not $want"
}
has() { grep -qF -- "$2" "$1" || fail "no '$2' in std$1"; }
lacks() { ! grep -qF -- "$2" "$1" || fail "there is '$2' in std$1"; }

# field NAME FILE: the last value of a JSON member, without quotes.
field() { grep -o "\"$1\": *[^,}]*" "$2" | tail -n 1 | sed 's/^[^:]*: *//; s/"//g'; }
# ids_of NAME FILE: a JSON member that is a list of numbers, as 1,2,3.
ids_of() { grep -o "\"$1\": *\[[0-9, ]*\]" "$2" | sed 's/.*\[//; s/[] ]//g'; }
# event KIND FILE: the lines of one kind of event.
event() { grep -F "\"event\": \"$1\"" "$2"; }
# await COMMAND...: until it succeeds; false when it has not within two minutes, which no machine needs,
# however busy. What others do is awaited so, not slept for.
await() {
    local until=$((SECONDS + 120))
    until "$@"; do
        [ $SECONDS -lt $until ] || return 1
        sleep 0.02
    done
}
# await_step RUN: until it has logged one.
has_step() { grep -q '"event": "step"' "$1/metrics.jsonl" 2>/dev/null; }
await_step() { await has_step "$1" || fail "$1 does not come to a step"; }
# await_port PORT: until somebody listens at 127.0.0.1.
is_open() { { exec 9<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null && exec 9>&-; }
await_port() { await is_open "$1" || fail "nobody listens at port $1"; }
# await_end PIDS...: until none of them runs; they may still have to be waited for.
is_gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null || [ ! -e "/proc/$1" ]; }
await_end() { for pid in "$@"; do await is_gone "$pid" || fail "process $pid lives"; done; }
# now_ms: a clock.
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# spent_ms: sets `spent` to the processor time in ms of the programs that have ended, which does not
# count what others on this machine do.
spent_ms() {
    times >spent.times # no subshell: that would have no children
    spent=$(tail -n 1 spent.times | sed 's/[ms]/ /g' | awk '{ print int((($1 + $3) * 60 + $2 + $4) * 1000) }')
}
# sleep_part MS: for a random part of that time.
sleep_part() { sleep "$(awk "BEGIN { printf \"%.4f\", $1 * $RANDOM / 32768 / 1000 }")"; }
# calc EXPRESSION: true where awk says so.
calc() { awk "function abs(x) { return x < 0 ? -x : x } BEGIN { exit !($1) }"; }

# make_text LINES SEED: sentences over a small vocabulary; the same seed gives the same text.
make_text() {
    awk -v lines="$1" -v seed="$2" 'BEGIN {
        n = split("the furnace feeds a fire and every ember keeps its own slow light while iron " \
                  "turns to gold under patient hands of one who waits beside long winter nights", w, " ")
        x = seed
        for (i = 0; i < lines; i++) {
            s = ""
            for (k = 0; k < 9; k++) {
                x = (x * 1103515245 + 12345) % 2147483648
                s = s (k ? " " : "") w[int(x / 65536) % n + 1]
            }
            print s "."
        }
    }'
}

# make_data: char.json and the shards set/train and set/valid.
make_data() {
    make_text 600 7 >text.txt
    "$athanor" tok train text.txt -o char.json --kind char >log 2>&1 &&
        "$athanor" data build text.txt -o set tokenizer=char.json valid=0.1 >log 2>&1 ||
        { cat log; exit 1; }
}

# make_documents: char.json, set/train and set/valid of many short documents, of 1 to 9 words.
make_documents() {
    make_text 600 7 >text.txt
    awk '{ n = NR % 9 + 1; s = $1; for (i = 2; i <= n && i <= NF; i++) s = s " " $i; print "{\"text\": \"" s "\"}" }' \
        text.txt >text.jsonl
    "$athanor" tok train text.txt -o char.json --kind char >log 2>&1 &&
        "$athanor" data build text.jsonl -o set tokenizer=char.json valid=0.1 >log 2>&1 ||
        { cat log; exit 1; }
}

# write_config FILE: a two-layer Llama; 40 steps take well below a second.
write_config() {
    cat >"$1" <<'YAML'
run: run
model: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 64, tie_word_embeddings: true}
tokenizer: char.json
data: {train: set/train, valid: set/valid}
train: {steps: 40, seq_len: 32, global_batch_size: 8, micro_batch_size: 4, digest_every: 1, precision: fp32}
optim: {lr: 1.0e-2, schedule: {kind: cosine, warmup_steps: 4, decay_steps: 36, min_lr: 1.0e-3}}
checkpoint: {every: 4}
eval: {every: 10, batches: 2}
sample: {every: 20, prompts: ["the fire"], max_new: 12}
YAML
}
# The keys that turn it into GPT-2 with dropout.
gpt2_model='model={model_type: gpt2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: auto, max_position_embeddings: 64, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}'

# results KINDS RUN: what a run computed: events of these kinds (a|b) without timings.
results() {
    grep -E "\"event\": \"($1)\"" "$2/metrics.jsonl" |
        sed -E 's/, "(tok_per_s|mfu|hfu|step_ms|data_wait_ms)": [^,}]*//g'
}
