# A small DeepSeek-V3 with a module that predicts further tokens: one digest in every layout and after an interruption, losses of
# the module in the steps, its tokens tried by a server that writes the same as without, and GGUF files. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/serve.sh"
make_data
write_config c.yaml
model='model={model_type: deepseek_v3, hidden_size: 32, num_hidden_layers: 3, first_k_dense_replace: 1, num_attention_heads: 4, q_lora_rank: 24, kv_lora_rank: 16, qk_nope_head_dim: 8, qk_rope_head_dim: 4, v_head_dim: 8, intermediate_size: 48, moe_intermediate_size: 16, n_routed_experts: 6, n_shared_experts: 1, num_experts_per_tok: 2, n_group: 3, topk_group: 2, router_aux_loss_coef: 0.01, num_nextn_predict_layers: 1, vocab_size: auto, max_position_embeddings: 128}'
fixed="train.deterministic=true train.steps=6 sample.every=0 eval.every=0 train.micro_batch_size=2 parallel.verify=false train.router.balance=sequence"

# same RUN LIKE: the steps of two runs are the same, with what routers and the module did.
same() {
    results step "$2" >want
    [ "$(grep -c '"mtp_loss_1"' want)" = 6 ] || fail "$2: no loss of the module in 6 steps"
    results step "$1" | cmp -s want - || fail "runs $1 and $2 differ"
}

expect 0 train c.yaml "$model" $fixed run=one
expect 0 train c.yaml "$model" $fixed run=recomputed train.recompute=full parallel.pp_schedule=afab
same recomputed one
expect 0 train c.yaml "$model" $fixed run=chunks parallel.virtual=3
same chunks one
expect 0 launch --ranks 2 -- train c.yaml "$model" $fixed run=zero3 parallel.dp=2 parallel.zero=3
same zero3 one
expect 0 train c.yaml "$model" $fixed run=cut train.steps=3
expect 0 train c.yaml "$model" $fixed run=cut
same cut one

# Heads and experts over two ranks, and 16 bits: other roundings of the same losses.
expect 0 launch --ranks 2 -- train c.yaml "$model" $fixed run=tp parallel.tp=2 parallel.sp=true
for precision in fp16 bf16; do expect 0 train c.yaml "$model" $fixed run=$precision train.precision=$precision; done
for run in tp fp16 bf16; do
    for loss in loss mtp_loss_1; do
        event step $run/metrics.jsonl >got
        event step one/metrics.jsonl >want
        calc "($(field $loss got) / $(field $loss want) - 1)^2 < 1e-4" ||
            fail "$run: $loss $(field $loss got), not $(field $loss want)"
    done
done

# A server tries the module's tokens: 40 greedy ones are the same without.
expect 0 train c.yaml "$model" run=long train.steps=60 sample.every=0 eval.every=0
expect 0 export long -o model --to hf
greedy='{"prompt": "the furnace", "max_tokens": 40, "temperature": 0, "ignore_eos": true}'
for draft in "" "--draft none"; do
    start_server model $draft
    answers 200 POST /v1/completions "$greedy"
    grep -o '"text": *"[^"]*"' body >text"${draft:+-none}"
    answers 200 GET /metrics
    tried=$(sed -n 's/^athanor_drafted_tokens_total[^ ]* //p' body)
    [ "${tried:-0}" = 0 ] && [ -z "$draft" ] && fail "nothing was tried"
    [ "${tried:-0}" != 0 ] && [ -n "$draft" ] && fail "$tried tokens were tried"
    stop_server
done
# So does generate, and chat takes the same words.
expect 0 generate model --prompt "the furnace" --max-new 40 --temperature 0 --draft none --json
cp out none.json
has out '"drafts": {"tried": 0, "right": 0}'
for draft in auto mtp ngram model; do
    expect 0 generate model --prompt "the furnace" --max-new 40 --temperature 0 --draft $draft --json
    [ "$(ids_of ids out)" = "$(ids_of ids none.json)" ] || fail "--draft $draft writes other tokens"
    [ "$(field tried out)" -gt 0 ] || fail "--draft $draft tried nothing"
done
expect 0 generate model --prompt "the furnace" --max-new 40 --temperature 0 --json
[ "$(ids_of ids out)" = "$(ids_of ids none.json)" ] || fail "without --draft it writes other tokens"
echo '{{ messages[0].content }}' >plain.jinja
expect 0 chat model --prompt "the furnace" --template plain.jinja --max-new 20 --draft mtp --json
[ "$(field tried out)" -gt 0 ] || fail "chat --draft mtp tried nothing"
expect 2 generate "$root/tests/golden/models/llama-gqa-tied" --ids 1,2 --draft mtp
has err "no module of multi-token prediction"
cmp -s text text-none || fail "with the module's tokens it writes: $(cat text), without: $(cat text-none)"

# Files of llama.cpp have no modules; they say the same. It cannot express this tokenizer.
rm model/tokenizer*.json
expect 0 export model -o model.gguf --to gguf --dtype F16
has out verified
expect 0 import model.gguf -o back
has out verified
sed -i 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 1e-5/' model/config.json
expect 2 export model -o other.gguf --to gguf --dtype F16
has err "cannot express the model's rms_norm_eps"
finish
