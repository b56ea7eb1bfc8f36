# athanor merge: killed at every operation on files it goes on and comes to the same bytes; reports, refusals,
# a person's README.md. $1 is the program.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden/models
export OMP_NUM_THREADS=1

cat >merge.yaml <<YAML
method: dare_ties
base: $golden/llama-gqa-tied
models:
  - {model: other, weight: 0.7, density: 0.5}
  - {model: third, weight: 0.4, density: 0.8}
seed: 3
YAML
# Models with other weights: the same one, seen through less precise formats.
expect 0 export "$golden/llama-gqa-tied" -o other --to hf --dtype BF16 --json
expect 0 export "$golden/llama-gqa-tied" -o third.gguf --to gguf --dtype Q8_0 --json
expect 0 import third.gguf -o third --json

expect 0 merge merge.yaml -o whole --json
[ "$(field method out)" = dare_ties ] || fail "another method"
calc "$(field tensors out) > 5" || fail "too few tensors"
cmp -s whole/model.safetensors "$golden/llama-gqa-tied/model.safetensors" && fail "nothing was merged"
for file in config.json generation_config.json README.md athanor_ledger.json; do
    [ -s "whole/$file" ] || fail "no $file"
done
grep -q '^base_model:' whole/README.md || fail "the card names no models"
OMP_NUM_THREADS=3 expect 0 merge merge.yaml -o threads --json
cmp whole/model.safetensors threads/model.safetensors || fail "threads change the result"
expect 0 merge merge.yaml -o seed seed=4 --json
cmp -s whole/model.safetensors seed/model.safetensors && fail "the seed changes nothing"

# killed_merge N OUT: dies at its Nth operation on files; the shell's word about that goes nowhere.
killed_merge() {
    { ATHANOR_FAULT=kill:$1 "$athanor" merge merge.yaml -o "$2" --json >out 2>err; } 2>/dev/null
}
# Killed at each operation in turn, and started again.
taken=0
for n in $(seq 1 3 400); do
    rm -rf cut
    killed_merge "$n" cut && break
    expect 0 merge merge.yaml -o cut --json
    [ "$(field taken_up out)" -gt 0 ] 2>/dev/null && taken=$((taken + 1))
    cmp whole/model.safetensors cut/model.safetensors || fail "killed at operation $n: other weights"
    [ -z "$(ls -A | grep '^\.part')" ] || fail "killed at operation $n: hidden files are left"
    cmp whole/athanor_ledger.json cut/athanor_ledger.json || fail "killed at operation $n: another ledger"
done
[ "$n" -gt 20 ] && [ "$n" -lt 400 ] || fail "killed $n times"
[ $taken -gt 5 ] || fail "only $taken merges went on where they were"

# Another config does not go on with the tensors of this one.
killed_merge 30 cut2
expect 0 merge merge.yaml -o cut2 seed=4 --json
cmp seed/model.safetensors cut2/model.safetensors || fail "a mixture of two merges"

# The base is no model of its own, by whatever name it stands in the list; so is the model whose tokenizer is wanted.
ln -s "$golden/llama-gqa-tied" link
for name in "$golden/llama-gqa-tied" "$golden/llama-gqa-tied/" link; do
    rm -rf alone
    expect 0 merge merge.yaml -o alone method=task_arithmetic parameters.normalize=true tokenizer_source=other/ \
        "models=[{model: $name}, {model: other}]"
    has out "from 2 models" # the other one and the base
    [ -e by-name ] || cp -r alone by-name
    cmp alone/model.safetensors by-name/model.safetensors || fail "$name is a model of its own"
done

# What stands there stays, unless --force; a README.md that a person wrote stays then, too.
expect 2 merge merge.yaml -o whole seed=5
has err "exists already"
rm seed/model.safetensors
expect 2 merge merge.yaml -o seed seed=4
has err "exists already"
echo "my own words" >whole/README.md
expect 0 merge merge.yaml -o whole seed=5 --force
[ "$(cat whole/README.md)" = "my own words" ] || fail "a person's README.md was replaced"
cmp -s whole/model.safetensors threads/model.safetensors && fail "not replaced"

# Shards, another format, and the result as a model.
expect 0 merge merge.yaml -o shards dtype=bf16 --max-shard-size 10k --json
[ -s shards/model.safetensors.index.json ] || fail "no index"
[ "$(field dtype out)" = BF16 ] || fail "another format"
expect 0 generate shards --ids 1,2,3 --max-new 2 --json
expect 2 merge merge.yaml -o never models.0.weigth=1
has err "did you mean weight?"
expect 2 merge merge.yaml -o never --allow everything
printf 'models: [{model: third}, {model: other}]\n' >none.yaml
expect 2 merge none.yaml -o no; has err "method is missing"; has err "use linear, soup, slerp"
printf 'method: linear\nmodels: [{model: third, weight: 1}, {model: other, weight: -1}]\n' >cancel.yaml
expect 5 merge cancel.yaml -o never
has err "whose sum is not 0"
[ -z "$(ls -A | grep '^\.part')" ] || fail "hidden folders are left"

finish
