# Sourced after lib.sh: a run in three stages over three small sets.

# computed RUN: what it computed, and where its stages began. How far a stage goes is left out: a
# run that is to be longer says another step there.
computed() { results 'step|valid|sample|stage' "$1" | sed -E 's/, "last_step": [0-9]*//'; }

# make_stages: char.json, the sets a, b, c and valid, and stages.yaml.
make_stages() {
    for s in a b c; do make_text 250 "$(printf '%d' "'$s")" | awk -v s=$s '{ print s ": " $0 }' >$s.txt; done
    cat a.txt b.txt c.txt >all.txt
    "$athanor" tok train all.txt -o char.json --kind char >log 2>&1 || { cat log; exit 1; }
    for s in a b c; do
        "$athanor" data build $s.txt -o $s tokenizer=char.json >log 2>&1 || { cat log; exit 1; }
    done
    cat >stages.yaml <<'YAML'
run: run
model: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 128, rope_theta: 1.0e4, tie_word_embeddings: true}
tokenizer: char.json
data: {train: [{path: a, weight: 3}, {path: b, weight: 1}], valid: c}
train: {steps: 36, seq_len: 32, global_batch_size: 8, micro_batch_size: 2, digest_every: 1, precision: fp32, batch_ramp: {start: 2, every: 3}}
optim: {lr: 1.0e-2, schedule: {kind: cosine, warmup_steps: 4, decay_steps: 8}}
stages:
  - {name: short, until: {steps: 12}}
  - name: middle
    until: {tokens: 4992}
    model: {rope_theta: 5.0e4}
    data: {train: [{path: b, weight: 1}, {path: c, weight: 2}]}
    train: {seq_len: 64, global_batch_size: 4}
    optim: {restart: true, lr: 5.0e-3, schedule: {kind: linear, warmup_steps: 2, decay_steps: 22}}
  - name: long
    model: {rope_theta: 2.0e5}
    data: {train: [{path: a, weight: 1}, {path: b, weight: 1}, {path: c, weight: 8}]}
    train: {seq_len: 128, global_batch_size: 2}
checkpoint: {every: 3, keep: 3}
eval: {every: 3, batches: 2}
sample: {every: 3, prompts: ["a: the"], max_new: 4}
YAML
}

# train_to STEP RUN [ARGS...]: the run as it is when it has come to STEP, which is a multiple of 3.
# Later stages have not begun there, and nothing differs from the whole run until then: the schedules
# are given by decay_steps, so that their ends do not move.
train_to() {
    local step=$1 run=$2
    shift 2
    expect 0 train stages.yaml run="$run" train.steps="$step" "$@"
}
