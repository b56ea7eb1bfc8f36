#!/usr/bin/env bash
# athanor tok convert: every format there and back, and what is refused.
. tests/cli/lib.sh

golden=$root/tests/golden/tok/formats

# same_ids A B [FLAGS...]: both tokenizers give the same ids.
same_ids() {
    "$athanor" tok encode "$1" text.jsonl --jsonl >a 2>err || fail "$1 does not encode"
    "$athanor" tok encode "$2" text.jsonl --jsonl >b 2>err || fail "$2 does not encode"
    cmp -s a b || fail "$1 and $2 give other ids"
}

cat >text.jsonl <<'TEXT'
"the furnace that feeds itself"
"  two  spaces, 12 caf\u00e9 \u7089\u706b \ud83d\ude00\n"
"we don't know"
TEXT

expect 0 tok convert "$golden/llama.model" -o llama.json
has out "sentencepiece"
has out "have the same ids"
same_ids "$golden/llama.model" llama.json
expect 0 tok convert llama.json -o back.model
same_ids "$golden/llama.model" back.model
expect 0 tok convert llama.json -o llama.bin
cmp -s llama.bin "$golden/llama2c.bin" || fail "llama2.c's tokenizer.bin is another"
expect 0 tok convert "$golden/llama2c.bin" -o folder --json
[ "$(field from out)" = llama2c ] && [ "$(field to out)" = json ] || fail "what it says of the formats"
[ -s folder/tokenizer.json ] && [ -s folder/tokenizer_config.json ] || fail "no folder"

expect 3 tok convert "$golden/ours.tiktoken" -o ranks.json
has err "--pattern"
expect 0 tok convert "$golden/ours.tiktoken" -o ranks.json --pattern llama3 --special "<|a|>,<|b|>"
has ranks.json "<|b|>"
expect 0 tok convert ranks.json -o ranks.tiktoken
has out "pattern llama3"
has out "<|b|> ="
cmp -s ranks.tiktoken "$golden/ours.tiktoken" || fail "the ranks are others"

expect 0 tok convert "$golden/gpt2" -o gpt2.json
same_ids "$golden/gpt2" gpt2.json
expect 0 tok convert gpt2.json -o gpt2 --to gpt2
cmp -s gpt2/merges.txt "$golden/gpt2/merges.txt" || fail "merges.txt is another"
expect 0 tok convert "$golden/bert" -o bert.json
expect 0 tok convert bert.json -o vocab.txt
cmp -s vocab.txt "$golden/bert/vocab.txt" || fail "vocab.txt is another"

# What is trained here goes out, too.
make_text 300 3 >text.txt
expect 0 tok train text.txt -o sp.json --kind bpe --pattern sentencepiece --vocab-size 350
expect 0 tok convert sp.json -o sp.model
same_ids sp.json sp.model

expect 2 tok convert gpt2.json -o gpt2.model
has err "bytes"
expect 2 tok convert gpt2.json
has err "-o"
expect 2 tok convert gpt2.json -o x --to gpt3
has err "gpt2"
expect 2 tok convert gpt2.json -o x.json --pattern llama3
expect 3 tok convert text.txt -o x.json
has err "not a tokenizer"
[ -e gpt2.model ] && fail "a refused conversion left a file"

finish
