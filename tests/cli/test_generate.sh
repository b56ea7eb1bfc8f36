# athanor generate: golden ids, seeds, filters, stop strings, streaming, and refusals. $1 is the
# program.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden/models

# Greedy continuation of every golden model.
for m in "$golden"/*/; do
    prompt=$(ids_of prompt_ids "$m/generate.json")
    want=$(ids_of ids "$m/generate.json")
    [ -n "$want" ] || fail "no golden ids in $m"
    # transformers goes on beyond the context that a model was made for
    room=$(grep -oE '"(max_position_embeddings|n_positions|max_context_length)": *[0-9]+' "$m/config.json" | sed 's/.*: *//' | sort -n | head -n 1)
    room=$((${room:-1000} - $(tr ',' '\n' <<<"$prompt" | wc -l) + 1))
    want=$(cut -d, -f1-$room <<<"$want")
    n=$(tr ',' '\n' <<<"$want" | wc -l)
    expect 0 generate "$m" --ids "$prompt" --max-new "$n" --temperature 0 --json
    [ "$(ids_of ids out)" = "$want" ] || fail "ids $(ids_of ids out) instead of $want"
    [ "$(ids_of prompt_ids out)" = "$prompt" ] || fail "prompt_ids"
    has out '"finish": "length"'
    expect 0 generate "$m" --ids "$prompt" --max-new "$n" --temperature 5 --top-k 1 --seed 9 --json
    [ "$(ids_of ids out)" = "$want" ] || fail "top-k 1 is not greedy"
    expect 0 generate "$m" --ids "$prompt" --max-new "$n" --temperature 0
    [ "$(cat out)" = "$want" ] || fail "ids as text"
done

# Beams: the best first; one beam is the greedy text; no two tokens come twice in a row.
m=$golden/llama-gqa-tied
expect 0 generate "$m" --ids 1,2,3 --max-new 8 --temperature 0 --json
greedy=$(ids_of ids out)
expect 0 generate "$m" --ids 1,2,3 --max-new 8 --beams 1 --json
[ "$(ids_of ids out | head -n 1)" = "$greedy" ] || fail "one beam is not greedy"
expect 0 generate "$m" --ids 1,2,3 --max-new 8 --beams 4 --length-penalty 0.5 --early-stopping never --json
[ "$(grep -o '"score": ' out | wc -l)" = 5 ] || fail "not the best and four beams: $(cat out)"
expect 0 generate "$m" --ids 1,2,3 --max-new 30 --temperature 0 --no-repeat-ngram 2 --json
[ -z "$(ids_of ids out | tr ',' '\n' | paste -d, - <(ids_of ids out | tr ',' '\n' | tail -n +2) | sed '$d' | sort | uniq -d)" ] ||
    fail "two tokens come twice: $(cat out)"
expect 2 generate "$m" --ids 1,2 --beams 2 --temperature 1
expect 2 generate "$m" --ids 1,2 --length-penalty 2

# Threads change no token.
expect 0 generate "$m" --ids 1,2,3 --max-new 8 --temperature 0 --json --threads 2
[ "$(ids_of ids out)" = "$greedy" ] || fail "two threads write otherwise"
expect 2 generate "$m" --ids 1,2 --threads 0;  has err "--threads must be an integer from 1"

# Logits of a prompt as .npy: [T,V] in fp32; positions select rows.
m=$golden/llama-gqa-tied
expect 0 generate "$m" --ids 1,2,3,4,5 --logits all.npy --json
has out '"shape": [5, 97]'
expect 0 generate "$m" --ids 1,2,3,4,5 --logits some.npy --positions 3:5
head -c 128 all.npy | grep -aq "'descr': '<f4'.*(5, 97" || fail "the header of all.npy"
cmp <(tail -c $((2 * 97 * 4)) all.npy) <(tail -c $((2 * 97 * 4)) some.npy) || fail "positions 3:5"
[ "$(stat -c %s some.npy)" = $((128 + 2 * 97 * 4)) ] || fail "the size of some.npy"
expect 0 generate "$m" --ids 1,2,3,4,5 --logits more.npy --max-new 3 --temperature 0 --json
cmp all.npy more.npy || fail "logits beside generation"
has out '"ids": [' && has out '"finish": "length"' && has out '"shape": [5, 97]'
printf '{"ids": [1]}\n{"ids": [2]}\n' >two.jsonl
expect 2 generate "$m" --batch two.jsonl --logits x.npy
has err "one prompt, not 2"
expect 2 generate "$m" --ids 1,2,3 --logits x.npy --positions 2:9
has err "--positions 2:9"
expect 2 generate "$m" --ids 1,2,3 --positions 0:2
has err "--positions does nothing without --logits"
expect 2 generate "$m" --ids 1,2,3 --prompt a
has err "--prompt and --ids exclude each other"

# Logits that are not finite: the first token with such is named, and what was there before stays.
cp -r "$m" bad
printf '\377\377\377\177' | # the last weight of the last norm
    dd of=bad/model.safetensors bs=1 seek=$(($(stat -c %s bad/model.safetensors) - 4)) conv=notrunc 2>/dev/null
expect 5 generate bad --ids 1,2,3,4,5 --logits bad.npy --positions 2:4
has err "the logits after token 3 are not finite"
[ ! -e bad.npy ] || fail "logits with a NaN were written"
expect 5 generate bad --ids 1,2,3,4,5 --logits all.npy --json
has out '"kind": "nonfinite"'
cmp all.npy more.npy || fail "a failure has replaced all.npy"
# Nor has a token a log-probability where one of the logits is no number.
cp "$m/model.safetensors" bad/
printf '\377\377\377\177' | # the embedding of token 50, and its row of the head
    dd of=bad/model.safetensors bs=1 seek=$((8 + $(od -An -tu8 -N8 bad/model.safetensors) + 50 * 36 * 4)) conv=notrunc 2>/dev/null
expect 5 generate bad --ids 1,2,3,4,5 --max-new 2 --json --logprobs
has out "the logits after token 5 are not finite"
expect 5 generate bad --ids 1,2,3,4,5 --max-new 2 --beams 2
# Weights are sound where the request itself leaves no token.
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200/' "$m/config.json" >bad/config.json
cp "$m/model.safetensors" bad/
expect 2 generate bad --ids 1,2,3,4,5 --no-repeat-ngram 1 --max-new 120
has err "after 97 tokens each that could follow would repeat 1 of them in a row"

# A folder is computed with as it is stored: the same logits as from its weights in fp32, bit for bit.
for format in bf16 f16; do
    expect 0 export "$m" -o $format --to hf --dtype $format --no-verify
    expect 0 export $format -o $format-wide --to hf --dtype f32 --no-verify
    ids=1,2,3,4,5,6,7,8,9,10,11,12
    expect 0 generate $format --ids $ids --logits a.npy
    expect 0 generate $format-wide --ids $ids --logits b.npy
    cmp a.npy b.npy || fail "logits of $format"
done
expect 2 generate bf16 --ids 1,2 --logits x.npy --precision bf16
has err "leave --precision out: logits are computed in fp32"
expect 2 generate bf16 --ids 1,2 --precision fp8
has err "give auto, fp32, bf16 or fp16"
expect 2 generate bf16 --ids 1,2 --precision bf16 --cache f16
has err "a model that computes in bf16 keeps keys and values so, not in f16"
# What it computes in changes the numbers, a little; a cache of fp32 is one of programs of fp32.
for p in "fp32" "bf16" "auto --cache f32"; do
    expect 0 generate bf16 --ids $ids --max-new 1 --temperature 0 --logprobs --json --precision $p
    cp out "out-${p%% *}"
done
cmp out-fp32 out-auto || fail "a cache of f32 does not compute in fp32"
cmp -s out-fp32 out-bf16 && fail "--precision changes nothing"

# Text: a small model of our own.
make_data
write_config c.yaml
expect 0 train c.yaml train.steps=40

# Quantised weights keep keys and values as f16 unless told otherwise; others as f32.
mkdir bare
cp run/checkpoints/step-40/{config.json,model.safetensors} bare/
expect 0 export bare -o q8.gguf --to gguf --dtype Q8_0 --no-verify
expect 0 plan q8.gguf;                                   has out ", keys and values as f16"
expect 0 export bare -o f16.gguf --to gguf --dtype F16 --no-verify
expect 0 plan f16.gguf;                                  lacks out "keys and values"
expect 0 generate q8.gguf --ids 1,2,3 --max-new 8 --temperature 0 --json
cp out auto
expect 0 generate q8.gguf --ids 1,2,3 --max-new 8 --temperature 0 --json --cache f16
cmp auto out || fail "auto is not f16"

text_of() { sed -E 's/.*"text": "(([^"\\]|\\.)*)".*/\1/' "$1"; }
seed=3 # of a text of one line that needs no escapes
while expect 0 generate run --prompt "the fire" --seed $seed --max-new 40 --json && text_of out | grep -q '\\'; do
    seed=$((seed + 1))
done
cp out first
expect 0 generate run --prompt "the fire" --seed $seed --max-new 40 --json
cmp out first || fail "the same seed gives another text"
OMP_NUM_THREADS=1 "$athanor" generate run --prompt "the fire" --seed $seed --max-new 40 --json >out
cmp out first || fail "one thread gives another text"
expect 0 generate run --prompt "the fire" --seed $((seed + 1)) --max-new 40 --json
cmp -s out first && fail "another seed gives the same text"
expect 0 generate run/checkpoints/step-40 --prompt "the fire" --seed $seed --max-new 40 --json
cmp out first || fail "the checkpoint and its run differ"

# What is streamed equals the JSON text, after the prompt.
expect 0 generate run --prompt "the fire" --seed $seed --max-new 40
printf 'the fire%b\n' "$(text_of first)" | cmp - out || fail "streamed text differs"

# Stop strings end the text before them, wherever the tokens fall.
whole=$(text_of first)
for stop in "${whole:10:1}" "${whole:7:3}" "${whole:20:5}"; do
    before=${whole%%"$stop"*}
    expect 0 generate run --prompt "the fire" --seed $seed --max-new 40 --stop "$stop" --json
    has out '"finish": "stop"'
    [ "$(text_of out)" = "$before" ] || fail "stop '$stop' gives '$(text_of out)', not '$before'"
    expect 0 generate run --prompt "the fire" --seed $seed --max-new 40 --stop "$stop"
    [ "$(cat out)" = "the fire$before" ] || fail "stop '$stop' streams '$(cat out)'"
done
expect 0 generate run --prompt "the fire" --seed $seed --max-new 40 --stop QQQ --json
cmp out first || fail "a stop string that does not occur changes the text"

# The context ends generation; an end-of-text token does too.
expect 0 generate run --prompt "the fire" --max-new 500 --json
has out '"finish": "length"'
n=$(ids_of ids out | tr ',' '\n' | wc -l)
[ $((n + 8)) -ge 64 ] && [ $((n + 8)) -le 65 ] || fail "$n new tokens in a context of 64"
cp -r run/checkpoints/step-40 ends
id=$(ids_of ids first | cut -d, -f6)
at=$(ids_of ids first | tr ',' '\n' | grep -nx "$id" | head -n 1 | cut -d: -f1)
tok=$(head -c 1 <<<"$("$athanor" tok decode char.json --ids "$id")" )
sed -i "s/\"eos_token\": *[^,}]*/\"eos_token\": \"$tok\"/" ends/tokenizer_config.json
expect 0 generate ends --prompt "the fire" --seed $seed --max-new 40 --json
has out '"finish": "eos"'
[ "$(ids_of ids out | tr ',' '\n' | grep -c .)" = $((at - 1)) ] || fail "ids after the end"

echo "{\"eos_token_id\": [0, $id]}" >ends/generation_config.json
cp run/checkpoints/step-40/tokenizer_config.json ends
expect 0 generate ends --prompt "the fire" --seed $seed --max-new 40 --json
has out '"finish": "eos"'
[ "$(ids_of ids out | tr ',' '\n' | grep -c .)" = $((at - 1)) ] || fail "ids after an end of the list"

# The first line of a batch gives what it gives alone; every line draws for itself, by its number.
printf '%s\n' '{"prompt": "the fire"}' '' '{"ids": [1, 2, 3]}' >batch.jsonl
expect 0 generate run --batch batch.jsonl --seed $seed --max-new 40 --json
[ "$(wc -l <out)" = 2 ] || fail "two prompts, other lines"
[ "$(text_of <(head -n 1 out))" = "$whole" ] || fail "the first of a batch differs"
cp out both
printf '\n\n%s\n' '{"ids": [1, 2, 3]}' >third.jsonl
expect 0 generate run --batch third.jsonl --seed $seed --max-new 40 --json
cmp out <(tail -n 1 both) || fail "the third line depends on the others"
expect 0 generate run --batch batch.jsonl --seed $seed --max-new 40 --temperature 0 --json
cp out both
expect 0 generate run --ids 1,2,3 --temperature 0 --max-new 40 --json
cmp out <(tail -n 1 both) || fail "the third line differs without draws"
for i in 1 2 3 4; do echo '{"ids": [1, 2, 3]}'; done >equal.jsonl
expect 0 generate run --batch equal.jsonl --seed $seed --max-new 40 --temperature 2 --json
[ "$(sort -u out | wc -l)" = 4 ] || fail "equal prompts give equal draws"

# What is wrong with a line is at that line.
printf '%s\n' '{"ids": [1, 2]}' '' '{"ids": [1, 16777215]}' >far.jsonl
{ printf '\357\273\277'; sed 's/$/\r/' batch.jsonl; } >marked.jsonl # as Windows writes it
expect 0 generate run --batch batch.jsonl --seed $seed --max-new 4 --json
cp out want
expect 0 generate run --batch marked.jsonl --seed $seed --max-new 4 --json
cmp out want || fail "a batch that begins with a mark differs"
expect 2 generate run --batch far.jsonl;               has err "token id 16777215"; has err "far.jsonl:3"
printf '%s\n' '{"ids": [1, 2]}' '{"ids": []}' >none.jsonl
expect 2 generate run --batch none.jsonl --max-new 2;  has err "empty"; has err "none.jsonl:2"
expect 2 generate run --batch none.jsonl --max-new 2 --beams 2; has err "none.jsonl:2"

# A NUL ends neither a prompt nor a batch.
printf '%s\n' '{"prompt": "the\u0000 fire"}' >nul.jsonl
expect 3 generate run --batch nul.jsonl;               has err "byte"; has err "nul.jsonl:1"
printf '{"ids": [1]}\n\0\n{"ids": [2]}\n' >nul.jsonl
expect 3 generate run --batch nul.jsonl;               has err "not JSON"; has err "nul.jsonl:2"

# A small top-p keeps the most likely token, and so does 0; 1 keeps all.
expect 0 generate run --prompt "the fire" --temperature 0 --max-new 20 --json
cp out greedy
for p in 0 0.0001; do
    expect 0 generate run --prompt "the fire" --temperature 3 --top-p $p --max-new 20 --json
    cmp out greedy || fail "--top-p $p is not greedy"
done
expect 0 generate run --prompt "the fire" --temperature 3 --top-p 1 --max-new 20 --json
cmp -s out greedy && fail "--top-p 1 keeps one token"

# Beam search: one beam is greedy; with --json all beams, the best first. N-grams that do not come twice.
expect 0 generate run --prompt "the fire" --beams 1 --max-new 20 --json
[ "$(ids_of ids out | tail -n 1)" = "$(ids_of ids greedy)" ] || fail "one beam is not greedy"
expect 0 generate run --prompt "the fire" --beams 4 --length-penalty 0.5 --early-stopping never --max-new 20 --json
[ "$(grep -o '"score"' out | wc -l)" = 5 ] || fail "not the best and 4 beams"
expect 0 generate run --prompt "the fire" --beams 4 --length-penalty 0.5 --early-stopping never --max-new 20
has out "the fire"
expect 0 generate "$m" --ids 1,2,3,4,5 --beams 3 --no-repeat-ngram 1 --max-new 30
[ "$(tr ',' '\n' <out | sort | uniq -d | wc -l)" = 0 ] || fail "a token comes twice"
expect 0 generate "$m" --ids 1,2,3,4,5 --no-repeat-ngram 1 --temperature 2 --max-new 30
[ "$(tr ',' '\n' <out | sort | uniq -d | wc -l)" = 0 ] || fail "a token that was drawn comes twice"
expect 2 generate run --prompt the --beams 65;         has err "--beams must be"
expect 2 generate run --prompt the --beams 2 --top-k 3; has err "beam search draws nothing"
expect 2 generate run --prompt the --length-penalty 2; has err "add --beams N"
expect 2 generate run --prompt the --beams 2 --early-stopping no
has err "--early-stopping no is not true, false or never"

# Refusals.
expect 2 generate run --prompt "" --json;              has out "the prompt is empty"; has out '"kind": "usage"'
expect 2 generate run --ids "" ;                       has err "the prompt is empty"
expect 2 generate run --ids 1,x;                       has err "'x' is not a token id"
expect 2 generate run --ids 1,,2;                      has err "'' is not a token id"
expect 2 generate run --ids 1,9999 --json;             has out "token id 9999 is outside the vocabulary"
expect 2 generate run --ids=-1;                        has err "-1"
expect 3 generate run --prompt "the FIRE";             has err "byte"
expect 2 generate run --prompt "$(text_of first)$whole"; has err "the context holds 64"
expect 2 generate run;                                 has err "--prompt TEXT"
expect 2 generate run --prompt a --ids 1;              has err "one of"
expect 2 generate absent --prompt a;                   has err "there is no model at absent"
expect 2 generate smollm2-135m --prompt a;             has err "smollm2-135m is a preset, which has sizes and no weights"
expect 2 generate "$m" --prompt a;                     has err "no tokenizer.json"
expect 2 generate run --prompt the --top-p 2;          has err "--top-p"
expect 2 generate run --prompt the --positions 0:1;    has err "--positions"; has err "--logits"
for bad in temperature=nan top-p=nan min-p=-1 repetition-penalty=0 top-k=-1 seed=-1 temperature=inf top-p= seed=0x1; do
    expect 2 generate run --prompt the --$bad;         has err "--${bad%%=*} must be"
done
expect 2 generate run --prompt the --min-p 1.1;        has err "--min-p must be a number from 0 to 1"
expect 2 generate run --prompt the --top-k 1.5;        has err "--top-k must be an integer"
expect 2 generate run --prompt the --max-new 0;        has err "--max-new"
printf '{"prompt": "the"}\n{oops\n' >bad.jsonl
expect 3 generate run --batch bad.jsonl --json;        has out 'bad.jsonl:2'
printf '{"ids": [1, "a"]}\n' >bad2.jsonl
expect 3 generate run --batch bad2.jsonl --json;       has out 'bad2.jsonl:1'
finish
