# Soft experts in an encoder: trained on pairs and on texts, the same bits however it is computed, generation; what is refused.
# $1 is the program. tests/oracle/soft_experts.py compares loss and gradients with PyTorch.
. "$(dirname "$0")/lib.sh"
make_text 60 3 >text.txt
sentinels=$(seq -s, -f '<extra_id_%g>' 0 29)
expect 0 tok train text.txt -o t5.json --kind unigram --vocab-size 120 --special "<pad>,</s>,<unk>,$sentinels"
make_text 300 5 | awk '{ printf "{\"source\": \"%s %s %s\", \"target\": \"%s %s\"}\n", $1, $2, $3, $2, $1 }' >train.jsonl
cat >c.yaml <<'YAML'
run: run
model: {model_type: t5, hidden_size: 32, num_encoder_layers: 2, num_hidden_layers: 4, num_attention_heads: 2, head_dim: 16, intermediate_size: 64, vocab_size: auto, embd_pdrop: 0, attn_pdrop: 0, resid_pdrop: 0, num_experts: 3, slots_per_expert: 2, router: soft, expert_layers: [0, 1, 0, 0]}
tokenizer: t5.json
data: {train: train.jsonl, template: plain, packing: none}
train: {steps: 40, seq_len: 24, source_len: 30, global_batch_size: 8, micro_batch_size: 4, precision: fp32, digest_every: 1}
optim: {name: adamw, lr: 1.0e-2, weight_decay: 0, schedule: {kind: constant}}
checkpoint: {every: 20}
YAML
loss_of() { event step "$1/metrics.jsonl" | sed -n "$2p" | field loss -; }
expect 0 train c.yaml
calc "$(loss_of run 40) < $(loss_of run 1) * 0.6" || fail "pairs are not learned"
results step run >want
expect 0 train c.yaml run=full train.recompute=full
results step full | cmp -s want - || fail "recomputing changes a step"
for steps in 25 40; do expect 0 train c.yaml run=cut train.steps=$steps; done
results step cut | cmp -s want - || fail "a resumed run differs"
expect 0 train c.yaml run=bf16 train.precision=bf16 train.steps=20
calc "($(loss_of bf16 20) / $(loss_of run 20) - 1) ^ 2 < 0.05 ^ 2" || fail "bf16 differs"
expect 0 train c.yaml run=det train.deterministic=true train.steps=5
expect 0 launch --ranks 2 -- train c.yaml run=det2 train.deterministic=true train.steps=5 parallel.zero=2
digests() { results step "$1" | grep -o '"digest": "[^"]*"'; }
cmp -s <(digests det) <(digests det2) || fail "two ranks differ"
expect 0 plan c.yaml
# Padding is no part of a mixture: a longer row changes nothing but the order of sums.
expect 0 train c.yaml run=wide train.source_len=60 train.steps=5
calc "($(loss_of wide 5) - $(loss_of run 5)) ^ 2 < 0.0001 ^ 2" || fail "padding is mixed"
expect 0 generate run --prompt "a fire" --temperature 0 --max-new 8
expect 0 generate run --prompt "a fire" --beams 3 --max-new 8
expect 0 data build text.txt -o texts tokenizer=t5.json
expect 0 train c.yaml run=spans "data={train: texts}" train.steps=3

expect 2 train c.yaml run=x data.packing=bestfit
has err "a row has several"
expect 2 train c.yaml run=x "model.expert_layers=[1, 1, 1, 0]"
has err "would see later ones"
expect 2 train c.yaml run=x model.router_bias=true
has err "picks no experts"
expect 2 train c.yaml run=x model.num_shared_experts=1
has err "no shared experts"
expect 2 launch --ranks 2 -- train c.yaml run=x parallel.tp=2
has err "soft experts"
write_config d.yaml
expect 2 plan d.yaml tokenizer=t5.json model.num_experts=4 model.router=soft
has err "would see later ones"
finish
