#!/usr/bin/env bash
# athanor tok report: which inputs are tokenizers, rows by file and by group, the picture, failures.
. "$(dirname "$0")/lib.sh"

make_text 200 1 >one.txt
make_text 50 2 | sed 's/.*/{"text": "&", "lang": "en"}/' >two.jsonl
for text in 'огонь и печь' 'железо и соль'; do
    printf '{"text": "%s", "lang": "ru"}\n' "$text" >>two.jsonl
done
printf '{"text": "no language"}\n' >>two.jsonl
mkdir bytes small
expect 0 tok train one.txt -o tok.json --kind bpe --vocab-size 400
expect 0 tok train one.txt -o bytes --kind byte
expect 0 tok train one.txt -o small/tokenizer.json --kind bpe --vocab-size 300
expect 0 tok train one.txt -o char.json --kind char

# A table for people: a block a file and one for all, at most 100 columns.
expect 0 tok report tok.json bytes small one.txt two.jsonl
for word in "one.txt: " "two.jsonl: " "all: " "fertility" "tok.json" "never used here" "342792"; do
    [ "$word" = tok.json ] || has out "$word"
done
has out "bytes "
has out "small "
has out "Cyrillic"
[ "$(wc -L <out)" -le 100 ] || fail "the table is $(wc -L <out) columns wide"

# Figures as JSON: a row for each tokenizer and file or group. Bytes have a token a byte.
expect 0 tok report tok.json bytes one.txt two.jsonl --json
[ "$(grep -o '"tokenizer": "bytes"' out | wc -l)" -eq 5 ] || fail "rows of bytes, not one a file and group"
tr '{' '\n' <out | grep '"tokenizer": "bytes"' | grep '"name": "one.txt"' >row
calc "$(field bytes row) == $(field tokens row) && $(field bytes row) == $(wc -c <one.txt)" ||
    fail "bytes have not a token a byte: $(cat row)"
calc "$(field bytes_per_token row) == 1 && $(field pcw row) > 0.9 && $(field coverage row) == 1" ||
    fail "figures of bytes: $(cat row)"
tr '{' '\n' <out | grep '"tokenizer": "tok"' | grep '"name": "one.txt"' >row
calc "$(field fertility row) < 3 && $(field bytes_per_token row) > 2 && $(field exact_documents row) == 1" ||
    fail "figures of bpe: $(cat row)"
lacks out unused_ids
expect 0 tok report tok.json one.txt --json --lists
has out '"unused_ids": ['

# Groups by a field.
expect 0 tok report bytes two.jsonl --by lang --json
for pair in en:50 ru:2 '(none):1'; do
    tr '{' '\n' <out | grep '"by": "lang"' | grep -F "\"name\": \"${pair%:*}\"" |
        grep -q "\"documents\": ${pair#*:}," || fail "no group $pair"
done

# The keys that say how text is read; a bad record among many is left out, and told.
for i in $(seq 300); do echo "{\"body\": \"the iron $i\"}"; done >rows.jsonl
echo 'no JSON' >>rows.jsonl
expect 0 tok report bytes rows.jsonl field=body --json
has out '"documents": 300'
has err '1 of 301 records was left out'
expect 2 tok report bytes rows.jsonl --field body template='{body}'
has err 'field= does nothing beside template='
expect 0 tok prune tok.json rows.jsonl -o small.json --min-count 1 field=body

# A name is no command to a terminal.
cp one.txt $'\033[31mred.txt'
expect 0 tok report bytes $'\033[31mred.txt';  has out "^[[31mred.txt: "; lacks out $'\033[31m'

# A tokenizer that lacks characters refuses documents, which count for the others.
expect 0 tok report char.json bytes two.jsonl
has out "refused 2 of 53 documents"

# The same figures for any number of threads.
OMP_NUM_THREADS=1 "$athanor" tok report tok.json one.txt two.jsonl --json | sed 's/"seconds.*//' >a
OMP_NUM_THREADS=3 "$athanor" tok report tok.json one.txt two.jsonl --json | sed 's/"seconds.*//' >b
cmp -s a b || fail "threads change the figures"

# The picture: two panels, a bar for each file or group and tokenizer.
expect 0 tok report tok.json bytes one.txt two.jsonl --svg picture.svg --json
grep -q '^<svg ' picture.svg && grep -q '</svg>' picture.svg || fail "no picture"
[ "$(grep -c '<rect class="b[01]".*<title>' picture.svg)" -eq 16 ] || fail "not 16 bars"

# Standard input is a text.
"$athanor" tok report tok.json - <one.txt >out || fail "standard input"
has out "standard input: "

expect 2 tok report tok.json
expect 2 tok report tok.json small
has err "needs texts"
expect 3 tok report none.json one.txt
: >empty.txt
expect 2 tok report tok.json empty.txt
expect 1 tok report tok.json one.txt --svg no/such/folder.svg
expect 0 tok report tok.json one.txt --lists
has err "--lists changes nothing without --json"
finish
