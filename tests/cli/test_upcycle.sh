# A dense model as one of experts: the same logits, trained on, with noise, and what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"
golden=$(cd "$(dirname "$0")/../golden/models" && pwd)

# One expert with the whole weight gives the bits of the dense part, several its sum: within rounding.
for name in llama-gqa-tied qwen3-tied mistral gemma2; do
    expect 0 upcycle "$golden/$name" -o one --experts 3 --per-token 1 --force --json
    has out '"max_abs_logit_diff": 0.0,'
    expect 0 upcycle "$golden/$name" -o several --experts 5 --per-token 3 --force --json
    has out '"verified": true'
    sed 's/.*"max_rel_logit_diff": \([^,]*\),.*/\1/' out | awk '{ exit !($1 < 5e-6) }' || fail "$name: $(cat out)"
done
expect 0 upcycle "$golden/llama-gqa-tied" -o llama --experts 4 --json
has out '"model_type": "mixtral"'
grep -q MixtralForCausalLM llama/config.json || fail "no Mixtral"

# Noise makes another model, the same one each time.
expect 0 upcycle "$golden/llama-gqa-tied" -o noisy --experts 4 --noise 0.1 --seed 3 --json
has out '"verified": false'
expect 0 upcycle "$golden/llama-gqa-tied" -o again --experts 4 --noise 0.1 --seed 3 --json
cmp -s noisy/model.safetensors again/model.safetensors || fail "noise depends on something"
cmp -s noisy/model.safetensors llama/model.safetensors && fail "there is no noise"

# It trains.
make_data
write_config tiny.yaml
expect 0 train tiny.yaml train.steps=2
expect 0 upcycle "$(sed -n 's/^run: *//p' tiny.yaml)" -o experts --experts 4
sed 's/^run:.*/run: sparse/; s/^model:.*/model: {from: experts}/' tiny.yaml >sparse.yaml
expect 0 train sparse.yaml train.steps=2

# A dense model may name shared parts, which it has not.
expect 0 train tiny.yaml train.steps=2 run=named --fresh model.num_shared_experts=1
expect 0 upcycle named -o shared --experts 4

expect 2 upcycle "$golden/gpt2-tanh-tied" -o none
has err biases
expect 2 upcycle "$golden/mixtral" -o none
has err experts
expect 2 upcycle "$golden/mistral" -o none --experts 2 --per-token 3
has err 'goes through 3 experts'

finish
