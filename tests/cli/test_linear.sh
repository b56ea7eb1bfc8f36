# Linear layers beside attention: tensor-parallel ranks share their heads, checkpoints go from any layout to any other, a
# server writes what generate does, whoever else asks, and reads long prompts in pieces. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/serve.sh"
make_data
write_config c.yaml
model='model={model_type: llama, hidden_size: 32, num_hidden_layers: 4, linear_layers: [1, 0, 1, 1], linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 8, linear_value_head_dim: 8, linear_conv_kernel_dim: 4, num_attention_heads: 4, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 512}'
fixed="train.deterministic=true train.steps=6 sample.every=0 eval.every=0 train.micro_batch_size=2 parallel.verify=false"

export OMP_NUM_THREADS=1 ATHANOR_TIMEOUT=60

# Two key heads on four ranks; a run that goes on with fewer, and on its own; texts in between.
expect 0 train c.yaml "$model" $fixed run=one sample.every=3
same_losses() {
    results step one | grep -o '"loss": [^,]*' | cut -d' ' -f2 >want
    results step "$1" | grep -o '"loss": [^,]*' | cut -d' ' -f2 >got
    [ "$(wc -l <want)" = 6 ] || fail "$(wc -l <want) steps"
    [ "$(wc -l <want)" = 6 ] || fail "$(wc -l <want) steps"
    while read -r a b; do
        calc "($a / $b - 1)^2 < 1e-10" || fail "$1: loss $a, not $b"
    done < <(paste got want)
    results sample one >want
    [ "$(wc -l <want)" = 2 ] || fail "$(wc -l <want) samples"
    results sample "$1" | cmp -s want - || fail "$1: other samples"
}
expect 0 launch --ranks 4 -- train c.yaml "$model" $fixed run=tp4 sample.every=3 parallel.tp=4 parallel.sp=true
same_losses tp4
expect 0 launch --ranks 2 -- train c.yaml "$model" $fixed run=turns sample.every=3 parallel.tp=2 train.steps=3
expect 0 launch --ranks 4 -- train c.yaml "$model" $fixed run=turns sample.every=3 parallel.tp=2 parallel.dp=2 parallel.zero=3
same_losses turns
expect 0 verify layouts c.yaml "$model" --ranks 2 --steps 2
expect 2 launch --ranks 2 -- train c.yaml "$model" model.linear_num_key_heads=3 model.linear_num_value_heads=3 $fixed run=odd parallel.tp=2
has err "3 value heads and 3 key heads of the linear layer 0 do not divide over 2"
expect 0 export one -o model --to hf
long=$(for i in $(seq 40); do printf 'the furnace '; done)
start_server model --streams 3 --ctx 512
for prompt in "the furnace" "$long"; do
    expect 0 generate model --prompt "$prompt" --max-new 20 --temperature 0 --json
    field text out >want
    answers 200 POST /v1/completions "{\"prompt\": \"$prompt\", \"max_tokens\": 20, \"temperature\": 0, \"ignore_eos\": true}"
    field text body >got
    cmp -s got want || fail "the server writes $(cat got), generate $(cat want)"
done
expect 0 bench serve "$url" --clients 5 --requests 20 --new 1:16 --prompt-words 4:60 --check --cancel 0.2 --json
has out "\"differ\", \"value\": 0.0"
stop_server
expect 2 serve model --draft ngram
has err "from whose states no token that was tried can be taken back"
# llama.cpp knows no Llama with such layers. (Nor can it express this tokenizer.)
rm model/tokenizer*.json
expect 2 export model -o model.gguf --to gguf
has err "cannot express the model's linear_layers"
finish
