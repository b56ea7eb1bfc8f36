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
expect 2 train c.yaml run=x data.packing=concat
has err "pairs are not cut"
expect 2 train c.yaml run=x data.document_mask=false data.packing=bestfit
has err "must not see each other"
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
expect 2 train c.yaml run=x train.objective=dpo
has err "train.objective=dpo does not go with an encoder"
make_data && write_config d.yaml
expect 2 train d.yaml train.source_len=9
has err "the model has no encoder, which would read sources"
finish
