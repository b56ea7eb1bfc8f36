#!/usr/bin/env bash
# Teaching and preferring end to end: sft, dpo and kto on sets that `data build` makes, validation,
# metrics, what the reference says (kept, taken up again after a kill, the same bits as when it is in
# memory), resumed runs, several ranks, and what is refused.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1

# 40 questions with a good and a bad answer, in a vocabulary of few letters.
make_answers() {
    awk 'BEGIN {
        for (i = 0; i < 40; i++) {
            n = 3 + i * 7 % 11; good = bad = ""
            for (k = 0; k < 4 + i % 5; k++) { good = good sprintf(" %d", n + k); bad = bad " " (n * k) % 7 }
            q = "count from " n
            printf "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": \"%s\"}]}\n", q, good >"sft.jsonl"
            printf "{\"prompt\": \"%s\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", q, good, bad >"dpo.jsonl"
            printf "{\"prompt\": \"%s\", \"completion\": \"%s\", \"label\": %s}\n", q, i % 3 ? good : bad, i % 3 ? "true" : "false" >"kto.jsonl"
        }
    }'
    make_text 40 7 >text.txt
    expect 0 tok train text.txt -o byte.json --kind byte
    expect 0 tok add byte.json --special '<|im_start|>,<|im_end|>' -o tok.json
    for kind in sft dpo kto; do
        expect 0 data build $kind.jsonl -o $kind tokenizer=tok.json valid=0.2 --template chatml
    done
}

make_answers
[ $failures -eq 0 ] || exit 1
cat >c.yaml <<'YAML'
run: run
model: {model_type: llama, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 256, tie_word_embeddings: true}
tokenizer: tok.json
data: {train: dpo/train, valid: dpo/valid}
train: {steps: 6, seq_len: 160, global_batch_size: 8, micro_batch_size: 4, objective: dpo, precision: fp32, deterministic: true, digest_every: 1}
optim: {lr: 5.0e-3, schedule: {kind: constant, warmup_steps: 0}}
checkpoint: {every: 2}
eval: {every: 3}
YAML
kto="data.train=kto/train data.valid=kto/valid train.objective=kto"

# ---- dpo ----

expect 0 train c.yaml run=kept
has err "the reference looks at 58 sequences before training"
[ "$(event step kept/metrics.jsonl | head -n 1 | grep -o '"loss": 0.6931472')" ] || fail "the first loss is not log 2"
calc "$(field margin <(event step kept/metrics.jsonl)) > 0.05" || fail "the margin does not grow"
for name in reward_chosen reward_rejected margin accuracy logp_chosen logp_rejected targets; do
    event step kept/metrics.jsonl | grep -q "\"$name\": -*[0-9]" || fail "a step has no $name"
    event valid kept/metrics.jsonl | grep -q "\"$name\": -*[0-9]" || fail "a validation has no $name"
done
grep -q "Pairs with a positive margin" kept/report.html || fail "the report has no accuracy"

# In memory instead: the same bits, and more memory.
expect 0 train c.yaml run=memory train.reference_cache=false
lacks err "the reference looks at"
digest=$(field digest <(event step kept/metrics.jsonl))
[ "$(results 'step|valid' kept)" = "$(results 'step|valid' memory)" ] || fail "a reference in memory says something else"
expect 0 plan c.yaml
lacks out "  reference  "
expect 0 plan c.yaml train.reference_cache=false
has out "  reference  "
expect 0 plan c.yaml --json
peak=$(field peak_bytes out)
expect 0 plan c.yaml train.reference_cache=false --json
calc "$(field peak_bytes out) > $peak" || fail "a reference in memory takes none"

# Two ranks, and a run that is cut short and taken up again, come to the same weights. The values are
# not computed again.
expect 0 launch --ranks 2 -- train c.yaml run=ranks parallel.verify=false
[ "$(field digest <(event step ranks/metrics.jsonl))" = "$digest" ] || fail "two ranks come to other weights"
for f in kept/reference/*; do cmp -s "$f" ranks/reference/"${f##*/}" || fail "two ranks keep other values"; done
expect 0 train c.yaml run=parts train.steps=3
expect 0 train c.yaml run=parts
lacks err "the reference looks at"
[ "$(results step parts)" = "$(results step kept)" ] || fail "a resumed run is another one"

# Killed at any moment before training: the values that were written stay, and the others follow.
partly=0
for n in 12 16 20 24; do
    (ATHANOR_FAULT=kill:$n "$athanor" train c.yaml run=killed$n </dev/null; exit 0) >out 2>err
    expect 0 train c.yaml run=killed$n
    grep -q "the reference looks at 58 sequences" err || partly=1
    for f in kept/reference/*; do cmp -s "$f" killed$n/reference/"${f##*/}" || fail "killed at $n: other values"; done
done
[ $partly = 1 ] || fail "nothing was kept"
first=$(grep -l '"sequences": 58' kept/reference/*)
printf x | dd of="$first" bs=1 seek=400 conv=notrunc 2>/dev/null # damaged: computed again
expect 0 train c.yaml run=kept train.steps=7
has err "the reference looks at 58 sequences before training"

# Other weights in the same place are looked at again, though no step was made: the first loss says so.
cp -r kept/checkpoints/step-6 beginning
expect 0 train c.yaml run=place "model={from: beginning}" train.steps=1
rm -rf place/checkpoints beginning
cp -r ranks/checkpoints/step-2 beginning
expect 0 train c.yaml run=place "model={from: beginning}" train.steps=1
has err "the reference looks at 58 sequences before training"

# ---- kto, the others ----

expect 0 train c.yaml run=kto $kto
event step kto/metrics.jsonl | grep -q '"kl": [0-9]' || fail "kto has no kl"
expect 0 train c.yaml run=kto_memory $kto train.reference_cache=false
[ "$(results 'step|valid' kto)" = "$(results 'step|valid' kto_memory)" ] || fail "a reference in memory says something else"
expect 0 train c.yaml run=kto_cut $kto train.micro_batch_size=2
calc "($(field kl <(event step kto/metrics.jsonl)) - $(field kl <(event step kto_cut/metrics.jsonl))) ^ 2 < 1e-8" ||
    fail "the divergence depends on how a step is cut"
expect 0 launch --ranks 2 -- train c.yaml run=kto_ranks $kto parallel.verify=false parallel.zero=3
[ "$(field digest <(event step kto/metrics.jsonl))" = "$(field digest <(event step kto_ranks/metrics.jsonl))" ] ||
    fail "kto on two ranks comes to other weights"
# In stages: validation and the reference go through them, too.
for layout in "2 parallel.pp=2" "2 parallel.pp=2 parallel.pp_schedule=zb-h1" "4 parallel.pp=2 parallel.zero=2"; do
    for objective in "memory train.objective=dpo" "kto $kto"; do
        rm -rf staged
        expect 0 launch --ranks ${layout%% *} -- train c.yaml run=staged ${objective#* } ${layout#* } parallel.verify=false
        [ "$(results 'step|valid' ${objective%% *})" = "$(results 'step|valid' staged)" ] || fail "$objective under $layout is another"
    done
done
deep="model.num_hidden_layers=4 train.steps=3 parallel.verify=false"
expect 0 train c.yaml run=deep $deep
expect 0 launch --ranks 2 -- train c.yaml run=chunks $deep parallel.pp=2 parallel.virtual=2 parallel.pp_schedule=interleaved
[ "$(results 'step|valid' deep)" = "$(results 'step|valid' chunks)" ] || fail "dpo in interleaved chunks is another"
expect 2 launch --ranks 2 -- train c.yaml run=no parallel.pp=2 train.reference_cache=false
has err "a reference in memory is not there with parallel.pp"
for objective in ipo apo-zero apo-down orpo; do
    expect 0 train c.yaml run=run_$objective train.objective=$objective
done
expect 0 train c.yaml run=sft data.train=sft/train data.valid=sft/valid train.objective=sft
sum=$(event step sft/metrics.jsonl | grep -o '"targets": [0-9]*' | awk '{ n += $2 } END { print n }')
[ "$sum" = "$(field trained_tokens <(event step sft/metrics.jsonl))" ] || fail "sft miscounts its targets"
calc "$(field val_loss <(event valid sft/metrics.jsonl)) < 4.5" || fail "nothing is taught"

# Adapters: the reference is the model without them.
lora="lora.rank=4 train.steps=3"
expect 0 train c.yaml run=lora "model={from: kept/checkpoints/step-6}" $lora
event step lora/metrics.jsonl | head -n 1 | grep -q '"loss": 0.6931472' || fail "adapters begin elsewhere than the reference"
expect 0 train c.yaml run=lora_memory "model={from: kept/checkpoints/step-6}" $lora train.reference_cache=false
[ "$(results 'step|valid' lora)" = "$(results 'step|valid' lora_memory)" ] || fail "with adapters a reference in memory says something else"

# ---- verify, refusals ----

for objective in dpo kto; do
    expect 0 verify layouts c.yaml --ranks 2 --steps 2 train.objective=$objective
    has out "dp1 tp2"
done
expect 2 train c.yaml run=no data.train=sft/train
has err "single sequences"
expect 2 train c.yaml run=no train.objective=kto
expect 2 train c.yaml run=no $kto train.objective=dpo
expect 2 train c.yaml run=no train.micro_batch_size=1
expect 0 data build text.txt -o texts tokenizer=tok.json
expect 2 train c.yaml run=no data.train=texts data.valid=null train.objective=sft
has err "texts holds texts, not conversations, from which train.objective=sft learns"
expect 2 train c.yaml run=no train.beta=0
has err "has no gradient"
expect 2 train c.yaml run=no "stages=[{name: a, until: {steps: 2}}, {name: b, optim: {z_loss: 0.1}}]"
has err "stage b: train.objective=dpo has no z_loss"
expect 2 train c.yaml run=no train.global_batch_size=3 train.micro_batch_size=null
has err "train.global_batch_size=4"
[ ! -e no ] || fail "a refused run was begun"
# ---- rewards: what validation says does not depend on how many sequences go through at a time ----
val_loss=()
for n in 2 8; do
    expect 0 train c.yaml run=reward$n train.objective=reward model.num_labels=1 train.micro_batch_size=$n
    val_loss+=("$(field val_loss <(event valid reward$n/metrics.jsonl))")
done
calc "(${val_loss[0]} - ${val_loss[1]})^2 < 1e-8" || fail "validated rewards differ with the micro-batch: ${val_loss[*]}"

finish
