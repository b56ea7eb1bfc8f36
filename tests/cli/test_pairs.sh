# Pairs of texts for an encoder and a decoder: what a set of them holds, and training on them and on texts whose spans are
# cut out. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_text 60 3 >text.txt
expect 0 tok train text.txt -o tok.json --vocab-size 300
cat >pairs.jsonl <<'JSON'
{"source": "the fire", "target": "a furnace"}
{"translation": {"en": "iron", "fr": "gold"}}
{"src": "light", "tgt": "slow light"}
{"instruction": "turns", "input": "to gold", "output": "patient hands"}
{"prompt": "who waits", "response": "one"}
JSON
expect 0 data build pairs.jsonl -o set tokenizer=tok.json --template plain
has out "5 documents"
expect 0 data show set
for text in "[[the fire]]" "a furnace«<|endoftext|>»" "[[iron]]" "gold«<|endoftext|>»" "slow light«<|endoftext|>»" \
    "patient hands«<|endoftext|>»" "one«<|endoftext|>»"; do
    has out "$text"
done
[ "$(grep -cF 'template   [[«<|endoftext|>»]]' out)" = 5 ] || fail "not every source ends"

expect 0 tok train text.txt -o bare.json --vocab-size 300 --special ""
expect 2 data build pairs.jsonl -o none tokenizer=bare.json --template plain
has err "has no end of text, by which source and target end"
printf '{"translation": {"en": "iron"}}\n' >half.jsonl
expect 2 data build half.jsonl -o none tokenizer=tok.json --template plain --chat translation
has err "its \"translation\" is no object of two languages"

# Training: several pairs in a row or one, whatever is recomputed, interrupted or not.
sentinels=$(seq -s, -f '<extra_id_%g>' 0 29)
expect 0 tok train text.txt -o t5.json --kind unigram --vocab-size 120 --special "<pad>,</s>,<unk>,$sentinels"
make_text 300 5 | awk '{ printf "{\"source\": \"%s %s %s\", \"target\": \"%s %s\"}\n", $1, $2, $3, $2, $1 }' >train.jsonl
head -n 40 train.jsonl >valid.jsonl
cat >c.yaml <<'YAML'
run: run
model: {model_type: t5, hidden_size: 32, num_encoder_layers: 2, num_hidden_layers: 4, num_attention_heads: 2, head_dim: 16, intermediate_size: 64, vocab_size: auto, embd_pdrop: 0, attn_pdrop: 0, resid_pdrop: 0}
tokenizer: t5.json
data: {train: train.jsonl, valid: valid.jsonl, template: plain}
train: {steps: 60, seq_len: 24, source_len: 30, global_batch_size: 8, micro_batch_size: 4, precision: fp32, digest_every: 1}
optim: {name: adafactor, lr: 0.1, weight_decay: 0, schedule: {kind: inverse_sqrt, timescale: 100}}
checkpoint: {every: 20}
eval: {every: 20}
YAML
loss_of() { event step "$1/metrics.jsonl" | sed -n "$2p" | field loss -; }
expect 0 train c.yaml
calc "$(loss_of run 60) < $(loss_of run 1) * 0.6" || fail "pairs are not learned"
results step run >want
expect 0 train c.yaml run=full train.recompute=full
results step full | cmp -s want - || fail "recomputing changes a step"
for steps in 25 60; do expect 0 train c.yaml run=cut train.steps=$steps; done
results step cut | cmp -s want - || fail "a resumed run differs"
expect 0 data show --run run --step 3
has out "train.jsonl:"
expect 0 data show --run run --step 3 --render
has out "source" && has out "target"
expect 0 train c.yaml run=alone data.packing=none train.steps=2
calc "$(field val_loss alone/metrics.jsonl) > 0" || fail "no validation"

# Copies of its feed-forward parts as experts compute the same; layers of two stacks are not chosen.
expect 0 upcycle run -o experts --experts 3 --noise 0
has out "verified"
expect 2 inherit run -o small --layers 0,1
has err "all layers stay"

# Its decoder is scored, and writes; the right answers are those it was trained on. Texts alone have no source.
head -n 12 train.jsonl | sed 's/"source": \(.*\), "target": "\([^ ]*\) \(.*\)"/"context": \1, "choices": ["\3 \2", "\2 \3"], "gold": 1/' >choose.jsonl
head -n 12 train.jsonl | sed 's/"source"/"prompt"/; s/"target"/"answer"/' >write.jsonl
expect 0 eval run --tasks choose.jsonl,write.jsonl --samples apart.jsonl --json
calc "$(field acc,none out) > 0.6" || fail "choices are not found"
calc "$(field exact_match,none out) > 0" || fail "nothing is written as it was learned"
tac choose.jsonl >other.jsonl
expect 0 eval run --tasks other.jsonl --samples other.out
diff <(grep -o '"loglik".*' other.out | tac) <(grep '"choose"' apart.jsonl | grep -o '"loglik".*') >log || fail "a score depends on the others"
echo '{"text": "the fire"}' >text.jsonl
expect 2 eval run --tasks text.jsonl
has err "asks how likely a text is"
expect 2 train c.yaml run=x eval.tasks=[choose.jsonl]
has err "not scored while it trains"
expect 2 train c.yaml run=x data.packing=concat
has err "pairs are not cut"
expect 2 train c.yaml run=x data.document_mask=false data.packing=bestfit
has err "must not see each other"
expect 0 train c.yaml run=bf16 train.precision=bf16 train.steps=20
calc "($(loss_of bf16 20) / $(loss_of run 20) - 1) ^ 2 < 0.02 ^ 2" || fail "bf16 differs"
expect 0 train c.yaml run=fp16 train.precision=fp16
calc "$(loss_of fp16 60) < $(loss_of fp16 1) * 0.6" || fail "pairs are not learned in fp16"
for threads in 1 2; do
    expect 0 train c.yaml run=det$threads train.deterministic=true train.steps=5 train.threads=$threads
done
results step det1 >want
results step det2 | cmp -s want - || fail "the deterministic mode depends on threads"
# Every layout computes the same, dropout inside the branches too; what the encoder reads matters there.
digest_of() { sed -n 's/^ok:.*digest: \([0-9a-f]*\) .*/\1/p' out; }
layouts() { expect 0 verify layouts c.yaml "optim={name: adamw, lr: 0.001}" model.embd_pdrop=0.1 model.attn_pdrop=0.1 model.resid_pdrop=0.1 --steps 3 "$@"; }
layouts --ranks 2
has out "tp2 sp"
digest_of >long
layouts --ranks 1 train.source_len=20
digest_of | cmp -s long - && fail "the encoder reads nothing"
expect 0 generate run --prompt "a fire" --temperature 0 --max-new 8 --json
has out '"finish"'
expect 0 generate run --prompt "a fire" --beams 3 --max-new 8 --json
[ "$(grep -o '"score"' out | wc -l)" = 4 ] || fail "not the best and 3 beams"
expect 0 generate run --prompt "a fire" --beams 1 --max-new 8
cp out one && expect 0 generate run --prompt "a fire" --temperature 0 --max-new 8
cmp out one || fail "one beam is not greedy"

# Texts: what is cut out is to be written.
expect 0 data build text.txt -o texts tokenizer=t5.json
text="data={train: texts, valid: texts}"
expect 0 train c.yaml run=spans "$text"
calc "$(loss_of spans 60) < $(loss_of spans 1) * 0.9" || fail "spans are not learned"
for steps in 25 60; do expect 0 train c.yaml run=spans-cut "$text" train.steps=$steps; done
results step spans >want
results step spans-cut | cmp -s want - || fail "a resumed run on texts differs"
expect 0 data show --run spans --step 2 --render
has out "<extra_id_0>"
expect 0 data show --run spans --step 2 --render --json
has out '"source_ids"'
expect 2 data show --run spans --step 2 --html page.html
has err "rows with sources are shown as text"
expect 0 train c.yaml run=more "$text" data.span_corruption.density=0.5 train.steps=1
[ "$(loss_of more 1)" != "$(loss_of spans 1)" ] || fail "the density changes nothing"
expect 2 train c.yaml run=x "$text" tokenizer=tok.json
has err "tokenizer"
# PEFT chooses the class of the model by the adapter's task.
expect 0 train c.yaml run=adapted model={from:\ more} "$text" lora.rank=2 train.steps=1
has adapted/checkpoints/step-1/adapter_config.json '"task_type": "SEQ_2_SEQ_LM"'
expect 2 train c.yaml run=x train.objective=dpo
has err "train.objective=dpo does not go with an encoder"
make_data && write_config d.yaml
expect 2 train d.yaml train.source_len=9
has err "the model has no encoder, which would read sources"
finish
