# Ledgers and cards: a checkpoint says its data and config, a run from weights its base, an export and a merge
# carry the ledgers of what they were made from; a person's README.md stays. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
make_data
write_config tiny.yaml

expect 0 train tiny.yaml train.steps=8 --json
ledger=run/checkpoints/step-8/athanor_ledger.json
fingerprint=$(field fingerprint run/data.json)
for word in '"kind": "run"' '"steps": 8' '"given": "set/train"' "\"fingerprint\": \"$fingerprint\"" '"objective": "lm"' \
    '"seq_len": 32' '"revision"' '"last_step": 8'; do
    grep -qF -- "$word" $ledger || fail "$ledger lacks $word"
done
grep -q 'set/train' run/checkpoints/step-8/README.md || fail "the card names no data"
grep -q '^license: "unknown"' run/checkpoints/step-8/README.md || fail "the card knows a license"
grep -q '"val_loss": [0-9]' $ledger || grep -q '"val_loss": null' $ledger || fail "no validation"

# A card may be changed; the ledger is part of the checkpoint.
echo "mine" >run/checkpoints/step-8/README.md
expect 0 verify checkpoint run/checkpoints/step-8
sed 's/"steps": 8/"steps": 9/' $ledger >changed && cp -r run/checkpoints/step-8 damaged && cp changed damaged/athanor_ledger.json
expect 1 verify checkpoint damaged
has out athanor_ledger.json

# A run from weights names its base by digest, also when it goes on and the base is gone.
expect 0 export run -o base --to hf --license mit
grep -q '^license: "mit"' base/README.md || fail "the license was not taken"
grep -qE '^- validation at step 8: loss [0-9.]+ nats per token, [0-9.]+ bits per byte$' base/README.md ||
    fail "the card does not tell the validation loss"
hash=$(field xxh3 base/athanor_ledger.json)
expect 0 train tiny.yaml run=tuned 'model={from: base}' train.steps=4 --json
tuned=tuned/checkpoints/step-4/athanor_ledger.json
for word in '"role": "base"' "\"path\": \"base\"" '"kind": "export"' "$fingerprint"; do
    grep -qF -- "$word" $tuned || fail "$tuned lacks $word"
done
digest=$(grep -o '"digest": "[0-9a-f]*"' $tuned | head -1)
expect 0 train tiny.yaml run=tuned 'model={from: base}' train.steps=8 --json
grep -qF -- "$digest" tuned/checkpoints/step-8/athanor_ledger.json || fail "the base's digest is lost on the way"

# An export and a merge carry them on; base_model is what the run began with, not its checkpoint.
expect 0 export tuned -o given --to hf
grep -q '^- "base"' given/README.md || fail "base_model is missing"
grep -q 'step-8' <(sed -n '1,/^---$/d;/^base_model/,/^tags/p' given/README.md) && fail "a checkpoint is no base model"
grep -qF -- "$fingerprint" given/athanor_ledger.json || fail "the base's data are lost"
grep -q '"event": "valid"' given/athanor_ledger.json || fail "what was evaluated is lost"
printf 'method: linear\nmodels: [{model: given, weight: 2}, {model: base, weight: 1}]\n' >merge.yaml
expect 0 merge merge.yaml -o both --json
[ "$(grep -c '"kind": "run"' both/athanor_ledger.json)" -ge 3 ] || fail "the merge lacks ledgers of its models"
grep -q '"weight": 2' both/athanor_ledger.json || fail "the merge lacks weights"

# Of a GGUF file it lies beside.
expect 0 export "$root/tests/golden/models/llama-gqa-tied" -o model.gguf --to gguf --no-verify
grep -q '"role": "source"' model.gguf.ledger.json || fail "no ledger beside the GGUF file"
grep -q '"name": "model.gguf"' model.gguf.ledger.json || fail "the ledger names another file"
finish
