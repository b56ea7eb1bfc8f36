#!/usr/bin/env bash
# athanor tok train: every kind from text to ids and back, the same file for any number of threads,
# and refusals.
. "$(dirname "$0")/lib.sh"

make_text 400 3 >text.txt
printf 'the furnace keeps iron\n' >line

# KIND AND OPTIONS...: trains on one and on three threads, encodes and decodes a line.
check() {
    OMP_NUM_THREADS=1 expect 0 tok train text.txt -o one.json "$@"
    OMP_NUM_THREADS=3 expect 0 tok train text.txt -o many.json "$@" --json
    [ -n "$(field vocab_size out)" ] && [ -n "$(field seconds out)" ] || fail "--json"
    cmp -s one.json many.json || fail "threads change the result"
    expect 0 tok encode one.json line
    expect 0 tok decode one.json --ids "$(tr ' ' , <out)"
    [ "$(tr -d '\n' <out)" = "$(tr -d '\n' <line)" ] || fail "the line came back otherwise"
}
check --kind bpe --vocab-size 400
check --kind bpe --vocab-size 400 --pattern qwen2 --special '<a>,<b>' --min-frequency 5
check --kind bpe --vocab-size 330 --pattern sentencepiece --coverage 1
check --kind unigram --vocab-size 90
check --kind unigram --vocab-size 350 --byte-fallback
check --kind wordpiece --vocab-size 120
check --kind bpe --vocab-size 400 --ram 192Mi

expect 0 tok train text.txt -o tok.json --kind unigram --vocab-size 80
[ ! -s err ] || fail "progress where there is no terminal"
has tok.json '"Unigram"'

# The keys that say how text is read; a bad record among many is left out, and told.
for i in $(seq 300); do echo "{\"meta\": {\"body\": \"keep the iron $i\"}, \"title\": \"t\"}"; done >rows.jsonl
echo 'no JSON' >>rows.jsonl
expect 0 tok train rows.jsonl -o rows.json --vocab-size 280 field=meta.body
has err '1 of 301 records was left out'
has rows.json 'iron'
expect 0 tok train rows.jsonl -o both.json --vocab-size 280 template='{title}: {meta.body}'
expect 3 tok train rows.jsonl -o no.json
has err 'field=NAME'
expect 2 tok train rows.jsonl -o no.json feild=meta.body
has err "did you mean 'field'"
expect 3 tok train rows.jsonl -o no.json field=meta.body max_bad=0

expect 2 tok train text.txt -o no.json --kind bpe --pattern nowhere
has err 'llama3'
expect 2 tok train text.txt -o no.json --kind unigram --vocab-size 10
has err 'vocab'
expect 2 tok train text.txt -o no.json --kind unigram --special '<a>'
has err '<unk>'
expect 2 tok train text.txt -o no.json --ram 1M
has err 'ram'
expect 2 tok train text.txt -o no.json --coverage 2
[ ! -e no.json ] || fail "a refused training left a file"
finish
