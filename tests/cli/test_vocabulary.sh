# A run that starts from weights, with a tokenizer that has more tokens: embedding and head grow. $1 is the
# program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
expect 0 tok add char.json --special '<|im_start|>,<|im_end|>' -o chat.json
expect 0 data build text.txt -o wide tokenizer=chat.json valid=0.1
expect 0 tok add char.json --special '<|im_start|>,<|im_end|>' -o chat/ # a folder is the same
[ -e chat/tokenizer_config.json ] && cmp chat/tokenizer.json chat.json || fail "a folder"
grown=(tokenizer=chat.json 'data={train: wide/train}')
still='optim={lr: 0, weight_decay: 0}'

# first_row FILE N: the first row of logits, N of its numbers.
first_row() { od -An -v -tx4 -w4 -j128 "$1" | head -n "$2"; }

# check NAME MODEL: its vocabulary grows; what it says of the old tokens stays to the last bit.
check() {
    local name=$1
    shift
    expect 0 train c.yaml run="$name" train.steps=4 "$@"
    sed "/^tokenizer/d; s|^model:.*|model: {from: $name}|" c.yaml >"$name.yaml"
    expect 0 train "$name.yaml" run="$name-grown" "${grown[@]}" "$still" train.steps=2
    has err "$name/checkpoints/step-4 has 26 tokens, the model 28: the new rows of"
    for m in "$name" "$name-grown"; do
        expect 0 generate "$m" --ids 3,7,1,12 --logits "$m.npy" --positions 3:4
        first_row "$m.npy" 26 >"$m.row"
    done
    cmp "$name.row" "$name-grown.row" || fail "other logits of the old tokens"
    [ "$(first_row "$name-grown.npy" 99 | wc -l)" = 28 ] || fail "28 logits"
}
check tied
check untied model.tie_word_embeddings=false
check phi 'model={model_type: phi, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 80, vocab_size: auto, max_position_embeddings: 64}'

# A run that has begun goes on from its checkpoint, and what comes of it has the new tokens everywhere.
expect 0 train untied.yaml run=untied-grown "${grown[@]}" "$still" train.steps=3
lacks err "has 26 tokens"
has untied-grown/checkpoints/step-3/config.json '"vocab_size": 28'
expect 0 export untied-grown -o folder --to hf
has out "verified"
expect 0 train untied.yaml run=third model.from=untied-grown 'data={train: wide/train}' tokenizer=chat.json train.steps=1
lacks err "the new rows"

# Every layout begins with the same weights.
for layout in "train.steps=1" "parallel.tp=2 train.steps=1" "parallel.zero=3 train.steps=1"; do
    ranks=1
    case $layout in parallel*) ranks=2 ;; esac
    # shellcheck disable=SC2086
    expect 0 launch --ranks $ranks -- train untied.yaml run="run-$ranks-${layout%%=*}" "${grown[@]}" $layout --json
    [ "$ranks" = 2 ] || field digest <(event start out) >digest
    field digest <(event start out) | cmp -s - digest || fail "another digest of the first weights"
done

# Adapters: embedding and head are trained beside them, and come with them.
expect 0 train untied.yaml run=adapted "${grown[@]}" lora.rank=2 train.steps=2
has err "has 26 tokens, the model 28"
has adapted/checkpoints/step-2/adapter_config.json '"modules_to_save": ["embed_tokens", "lm_head"]'
expect 0 train untied.yaml run=adapted "${grown[@]}" lora.rank=2 train.steps=3
expect 0 generate adapted --ids 3,7,27 --max-new 4 --json
ids_of ids out >adapted.ids
expect 0 export adapted -o merged --to hf
expect 0 generate merged --ids 3,7,27 --max-new 4 --json
ids_of ids out | cmp -s - adapted.ids || fail "the merged model writes otherwise"

# The plan is that of the larger model; a size beyond that is rows for later.
expect 0 plan untied.yaml "${grown[@]}" --json
params=$(field total out)
expect 0 plan untied.yaml --json
calc "$params == $(field total out) + 2 * 2 * 32" || fail "the plan has other parameters"
expect 0 plan untied.yaml "${grown[@]}" model.vocab_size=64 --json
calc "$(field total out) == $params + 2 * 36 * 32" || fail "64 rows"
expect 0 train untied.yaml run=padded "${grown[@]}" model.vocab_size=64 train.steps=1
has err "has 26 tokens, the model 64"
expect 0 plan untied.yaml "${grown[@]}" model.vocab_size=auto --json
[ "$(field total out)" = "$params" ] || fail "auto"

# A reference grows alike.
expect 0 plan untied.yaml "${grown[@]}" train.objective=dpo train.reference=tied/checkpoints/step-4
expect 0 plan untied.yaml "${grown[@]}" train.objective=dpo

# What nobody asked for is refused.
expect 0 tok train text.txt -o other.json --kind bpe --vocab-size 300
expect 2 train untied.yaml run=no tokenizer=other.json
has err "other.json is no extension of the tokenizer of untied/checkpoints/step-4: id"
has err "athanor tok add untied/checkpoints/step-4 --special"
# As many tokens, of which one is another: of the model, of a reference.
sed 's/"the"/"xyz"/; s/"t"/"\\u00e9"/' char.json >same-size.json
cmp -s char.json same-size.json && fail "no token was changed"
expect 2 train untied.yaml run=no tokenizer=same-size.json
has err "same-size.json is no extension of the tokenizer of untied/checkpoints/step-4: id"
cp -r tied/checkpoints/step-4 other-words
cp same-size.json other-words/tokenizer.json
expect 2 plan untied.yaml train.objective=dpo train.reference=other-words
has err "is no extension of the tokenizer of other-words: id"
# The same tokenizer in another format is no other one, though its special tokens have no bytes there.
expect 0 tok train text.txt -o uni.json --kind unigram --vocab-size 60
expect 0 tok convert uni.json -o uni.model --to sentencepiece
for format in json model; do expect 0 data build text.txt -o uni-$format tokenizer=uni.$format; done
expect 0 train c.yaml run=uni tokenizer=uni.json 'data={train: uni-json}' train.steps=1
expect 0 train untied.yaml run=uni-model model.from=uni tokenizer=uni.model 'data={train: uni-model}' train.steps=1
expect 2 plan untied.yaml model.vocab_size=20
has err "model.vocab_size is 20, but untied/checkpoints/step-4 has weights for 26 tokens"
expect 0 export untied -o bare --to hf
rm bare/tokenizer*
expect 2 train untied.yaml run=no model.from=bare "${grown[@]}"
has err "the tokenizer has 28 tokens, model.vocab_size is 26"
has err "set model.vocab_size=auto"
expect 0 train untied.yaml run=asked model.from=bare "${grown[@]}" model.vocab_size=auto train.steps=1
has err "bare has 26 tokens, the model 28"
expect 2 plan untied.yaml "${grown[@]}" train.objective=dpo train.reference=bare
has err "the reference has 26 tokens, the model 28"
finish
