#!/usr/bin/env bash
# athanor tok: train, encode, decode from the command line, and how each fails.
. "$(dirname "$0")/strict.sh"

mkdir -p in/deeper
for _ in 1 2 3 4 5 6 7 8; do echo 'the furnace feeds the fire, and the fire feeds the furnace'; done >in/a.txt
printf '{"text": "the fire is \\u00f6ld"}\n{"text": "the end"}\n' >in/deeper/b.jsonl

"$athanor" tok train in -o tok.json --kind bpe --vocab-size 280 --pattern gpt2 --json >out
grep -q '"vocab_size":' out && grep -q '"seconds":' out || fail "tok train --json: $(cat out)"
grep -q '"merges"' tok.json || fail "no merges in tok.json"

# Any bytes come back exactly.
printf 'the fire\xff\x00\xc3 f\xc3\xb6ld\r\n  end' >text
ids=$("$athanor" tok encode tok.json text | tr ' ' ,)
"$athanor" tok decode tok.json --ids "$ids" >back
cmp text back || fail "encode and decode changed the bytes"
[ "$("$athanor" tok encode tok.json - <text | tr ' ' ,)" = "$ids" ] || fail "standard input differs"
"$athanor" tok encode tok.json text --json | tr -d ' ' | grep -q "{\"ids\":\[$ids\]}" || fail "--json ids"
"$athanor" tok decode tok.json --ids "$ids" --json | grep -q '"text":' || fail "--json text"

# Characters: as many tokens as the text has, none special when none is asked for.
"$athanor" tok train in/a.txt -o char.json --kind char --special "" --json | tr -d ' ' |
    grep -q '"vocab_size":15' || fail "char vocabulary"
printf 'the Fire' >unknown
expect_status 3 "$athanor" tok encode char.json unknown
grep -q 'byte 4' err || fail "offset of the unknown character: $(cat err)"

# Writing ids as JSON takes no longer than encoding: as long as writing them plainly.
awk 'BEGIN { for (i = 0; i < 500000; i++) print "hello world" }' >long.txt
"$athanor" tok train text -o bytes.json --kind byte >out
TIMEFORMAT='(%U + %S)'
plain=$({ time "$athanor" tok encode bytes.json long.txt >out; } 2>&1)
json=$({ time "$athanor" tok encode bytes.json long.txt --json >out.json; } 2>&1)
awk "BEGIN { exit !($json < 1.6 * $plain + 0.1) }" || fail "--json takes $json s, without it $plain s"
tr -d '[]{}:,"a-z' <out.json | sed 's/^  *//' | cmp - out || fail "--json has other ids"

# A folder gets what Hugging Face readers need.
mkdir folder
"$athanor" tok train in -o folder --kind byte >out
[ -s folder/tokenizer.json ] && [ -s folder/tokenizer_config.json ] || fail "folder output"

: >empty.txt
expect_status 2 "$athanor" tok train empty.txt -o no.json
expect_status 2 "$athanor" tok train in
expect_status 2 "$athanor" tok train in -o no.json --kind words
expect_status 2 "$athanor" tok train in -o no.json --vocab-size 100
"$athanor" tok train in -o fewer.json --vocab-size 30000 2>err || fail "a text with fewer tokens"
grep -q "30000 tokens were asked for, and this text gives [0-9]*: take more text" err || fail "fewer tokens than were asked for"
expect_status 2 "$athanor" tok train in -o no.json --pattern words
expect_status 2 "$athanor" tok decode tok.json
expect_status 2 "$athanor" tok decode tok.json --ids 1,x
expect_status 2 "$athanor" tok decode tok.json text --ids 1 --jsonl
expect_status 2 "$athanor" tok decode tok.json --ids 99999
for line in '[4294967363]' '[1, -1]' '["a"]' '[1.5]'; do
    echo "$line" >line.jsonl
    expect_status 3 "$athanor" tok decode tok.json line.jsonl --jsonl
done
expect_status 3 "$athanor" tok encode none.json text
head -c 500 tok.json >cut.json
expect_status 3 "$athanor" tok encode cut.json text
[ ! -e no.json ] || fail "a failed training left a file"
