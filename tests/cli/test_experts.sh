# Training experts: every way of keeping their load even gives one digest in every layout; statistics of the
# micro-batch are not those of the step; the bias of routers goes on after an interruption; a router that has collapsed raises
# an alarm. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
moe='model={model_type: llama, hidden_size: 32, num_hidden_layers: 3, num_attention_heads: 4, intermediate_size: 24, num_experts: 6, num_experts_per_tok: 2, norm_topk_prob: true, router: sigmoid, router_bias: true, num_shared_experts: 1, expert_layers: [0, 1, 1], router_aux_loss_coef: 0.5, vocab_size: auto, max_position_embeddings: 128}'
fixed="train.deterministic=true train.steps=6 sample.every=0 eval.every=0 train.micro_batch_size=2 parallel.verify=false"

# same RUN LIKE: the steps of two runs are the same, with what routers did.
same() {
    results 'step|experts' "$2" >want
    [ "$(grep -c '"expert_load"' want)" = 6 ] || fail "$2: no load in 6 steps"
    results 'step|experts' "$1" | cmp -s want - || fail "runs $1 and $2 differ"
}
# norm_of RUN: the gradient norm of its first step.
norm_of() { event step "$1/metrics.jsonl" | head -n 1 | grep -o '"grad_norm": [^,]*' | sed 's/.* //'; }

for balance in micro sequence global none; do
    with="$fixed train.router.balance=$balance"
    expect 0 train c.yaml "$moe" $with run=$balance
    expect 0 launch --ranks 2 -- train c.yaml "$moe" $with run=$balance-zero3 parallel.dp=2 parallel.zero=3
    same $balance-zero3 $balance
    expect 0 train c.yaml "$moe" $with run=$balance-cut train.steps=3
    expect 0 train c.yaml "$moe" $with run=$balance-cut parallel.pp_schedule=afab train.recompute=full
    same $balance-cut $balance
done
digests=$(cat micro/metrics.jsonl sequence/metrics.jsonl global/metrics.jsonl none/metrics.jsonl |
    grep '"step": 6,' | grep -o '"digest": "[^"]*"' | sort -u | wc -l)
[ "$digests" = 4 ] || fail "two balances train the same model"
expect 0 train c.yaml "$moe" $fixed run=chunks train.router.balance=global parallel.virtual=3
same chunks global

# Dropping goes by sequence: every layout drops the same, and says so. Evaluation drops nothing.
limit="$fixed train.router.balance=global train.router.capacity_factor=0.75"
expect 0 train c.yaml "$moe" $limit run=limited
grep -q '"dropped": \[0\.[1-9]' limited/metrics.jsonl || fail "no dropped picks are told"
grep -q '"dropped"' global/metrics.jsonl && fail "dropped picks without a capacity"
expect 0 launch --ranks 2 -- train c.yaml "$moe" $limit run=limited-zero3 parallel.dp=2 parallel.zero=3
same limited-zero3 limited
expect 0 train c.yaml "$moe" $limit run=limited-chunks parallel.virtual=3 parallel.pp_schedule=afab train.recompute=full
same limited-chunks limited
for factor in 0 0.25 100; do
    expect 0 train c.yaml "$moe" run=still-$factor train.steps=1 sample.every=0 eval.every=1 optim.lr=0 optim.schedule.min_lr=0 \
        train.router.bias_rate=0 train.router.capacity_factor=$factor
    results step still-$factor | sed 's/.*\("loss": [^,]*\).*/\1/' >step-$factor
    results valid still-$factor >valid-$factor
done
[ -s valid-0 ] && cmp -s valid-0 valid-0.25 || fail "evaluation drops picks"
cmp -s step-0 step-100 || fail "a capacity for all picks drops some"
cmp -s step-0 step-0.25 && fail "training drops no picks"

# How a step is divided into micro-batches changes the statistics of micro-batches only, and not what is dropped. Biases are 0 in the first step.
for balance in micro global; do
    for size in 1 8; do
        expect 0 train c.yaml "$moe" run=$balance-$size train.router.balance=$balance train.micro_batch_size=$size \
            train.steps=1 sample.every=0 eval.every=0 model.router_aux_loss_coef=3 train.router.capacity_factor=0.75
    done
    near=$(awk "BEGIN { d = $(norm_of $balance-1) / $(norm_of $balance-8) - 1; print (d < 0 ? -d : d) < 1e-4 }")
    [ "$near" = $([ $balance = global ] && echo 1 || echo 0) ] || fail "$balance: norms $(norm_of $balance-1), $(norm_of $balance-8)"
done

# The statistics of micro-batches are of all layers together; the z-loss counts.
expect 2 train c.yaml "$moe" $fixed run=refused parallel.virtual=3
has err "train.router.balance=global or sequence"
# What a later stage asks for is looked at before the first one trains.
then='stages=[{name: a, until: {steps: 3}}, {name: b, train: {router: {balance: %s}}}]'
staged="train.router.balance=sequence parallel.pp=2 sample.prompts=[]"
for balance in micro global; do
    expect 2 plan c.yaml "$moe" $fixed $staged "$(printf "$then" $balance)"
    has err "stage b: the load of"
done
expect 0 plan c.yaml "$moe" $fixed $staged "$(printf "$then" none)"
expect 0 train c.yaml "$moe" $fixed run=z train.router.z_loss=0.5
[ "$(norm_of z)" != "$(norm_of micro)" ] || fail "the z-loss does nothing"

# A bias that leaves two experts all tokens: 100 in the first two, where the file has small numbers.
expect 0 export none --to hf -o model
name=model.layers.1.mlp.gate.e_score_correction_bias
header=$(od -An -tu8 -N8 model/model.safetensors | tr -d ' ')
at=$(head -c $((8 + header)) model/model.safetensors | tail -c "$header" | grep -o "\"$name\":{[^}]*}" |
    sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
printf '\0\0\310B\0\0\310B' | dd of=model/model.safetensors bs=1 seek=$((8 + header + at)) conv=notrunc 2>dd.log
expect 0 train c.yaml 'model={from: model}' run=collapsed train.router.bias_rate=0 train.steps=12 sample.every=0 eval.every=0
[ "$(event alarm collapsed/metrics.jsonl | grep -c '"router_collapse"')" = 1 ] || fail "no alarm, or several"
event alarm collapsed/metrics.jsonl >out
has out "layer 1: 2 of 6 experts get 100 % of the tokens"
event alarm none/metrics.jsonl >out
lacks out router_collapse
expect 0 train c.yaml "$moe" $fixed run=shown
has out "load"

# The load of each expert is told, and the report shows it.
[ "$(event experts shown/metrics.jsonl | wc -l)" = 6 ] || fail "the load of experts is not told at 6 steps"
expect 0 runs report shown
grep -q 'class="map"' shown/report.html || fail "no map of experts in the report"

# In files of 16 bits the bias of a router stays fp32, and so it is when the run goes on.
expect 0 export none --to hf --dtype BF16 -o narrow
header=$(od -An -tu8 -N8 narrow/model.safetensors | tr -d ' ')
head -c $((8 + header)) narrow/model.safetensors | tail -c "$header" >out
grep -q "\"$name\":{\"dtype\":\"F32\"" out || fail "the bias of a router is rounded"
has out '.mlp.gate.weight":{"dtype":"BF16"'
expect 0 train c.yaml "$moe" $fixed run=bf16 train.precision=bf16
expect 0 train c.yaml "$moe" $fixed run=bf16-cut train.precision=bf16 train.steps=3
expect 0 train c.yaml "$moe" $fixed run=bf16-cut train.precision=bf16
same bf16-cut bf16
header=$(od -An -tu8 -N8 bf16/checkpoints/step-6/model.safetensors | tr -d ' ')
head -c $((8 + header)) bf16/checkpoints/step-6/model.safetensors | tail -c "$header" >out
grep -q "\"$name\":{\"dtype\":\"F32\"" out || fail "the bias of a router is rounded in checkpoints"
# A file with weights of 8 bits is compared in exact products: rounded activations would choose other experts in this model,
# whose numbers are large.
wide='model={model_type: qwen3_moe, hidden_size: 64, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 96, num_experts: 8, num_experts_per_tok: 2, norm_topk_prob: true, moe_intermediate_size: 96, head_dim: 16, initializer_range: 0.3, vocab_size: auto, max_position_embeddings: 128}'
expect 0 train c.yaml "$wide" run=wide train.steps=1 sample.every=0 eval.every=0
expect 0 export wide -o wide-hf --to hf
rm wide-hf/tokenizer*.json # llama.cpp cannot express it
expect 0 export wide-hf -o wide.gguf --to gguf --dtype Q8_0 --no-verify
expect 0 import wide.gguf -o wide-again;  has out "verified: "
finish
