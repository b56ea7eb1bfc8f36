#!/usr/bin/env bash
# athanor tok add, prune, extend: what they write, what they say, what they refuse.
. "$(dirname "$0")/lib.sh"

# encode TOKENIZER TEXT: its ids.
encode() { printf '%s' "$2" | "$athanor" tok encode "$1" -; }

make_text 400 1 >one.txt
make_text 20 2 | tr a-m n-z >two.txt
expect 0 tok train one.txt -o one.json --kind bpe --vocab-size 360
expect 0 tok train two.txt -o two.json --kind bpe --vocab-size 320

# add: new ids at the end, padded; what texts it changes is said.
expect 0 tok add one.json --special '<|user|>,<|bot|>' --token furnace -o added.json --multiple 64
has out "added.json: 384 tokens (360 before)"
has out "  360  <|user|>"
has out "texts that hold it get other ids"
has out "21 reserved tokens"
[ "$(encode added.json '<|bot|>furnace<|reserved_20|>')" = "361 362 383" ] || fail "new ids"
[ "$(encode added.json 'the fire')" = "$(encode one.json 'the fire')" ] || fail "old ids changed"
expect 0 tok add one.json --special '<|user|>' -o a.json --json
[ "$(field vocab_size out)" = 361 ] && has out '"ids_before": ['
mkdir folder
expect 0 tok add one.json --special '<|user|>' -o folder
[ -s folder/tokenizer_config.json ] || fail "no tokenizer_config.json"
expect 2 tok add one.json --special '<|endoftext|>' -o no.json
expect 2 tok add one.json --token e -o no.json
has err "is a token of the model"
expect 0 tok add one.json --token e -o a.json --allow
expect 2 tok add one.json --special 'x<|end' -o no.json
has err "would hide"
expect 2 tok add one.json -o no.json
expect 2 tok add one.json --special '<|a|>'

# prune: the tokens that stay are the same ones, texts decode exactly, the map names old rows.
expect 0 tok prune one.json two.txt -o small.json --min-count 1 --map rows.json --json
size=$(field vocab_size out)
calc "$size < 360 && $size >= 257 && $(field tokens_before out) == $(field tokens_after out)" ||
    fail "prune"
[ "$(tr -cd , <rows.json | wc -c)" -eq $((size - 1)) ] || fail "the map has not $size rows"
ids=$(encode small.json 'nothing is lost: ž')
[ "$("$athanor" tok decode small.json --ids "${ids// /,}")" = 'nothing is lost: ž' ] || fail "text lost"
expect 0 tok prune one.json one.txt -o small.json --keep 300
has out "small.json: 300 tokens (360 before)"
has out "1 of 1 documents decode exactly"
expect 2 tok prune one.json one.txt -o no.json
expect 2 tok prune one.json one.txt -o no.json --keep 256
has err "keep 257 or more"
expect 2 tok prune one.json - -o no.json --keep 300
has err "read twice"

# extend: ids of the first stay, the second's tokens follow.
expect 0 tok extend one.json two.json -o both.json --probe two.txt --json
calc "$(field tokens_after out) < $(field tokens_before out)" || fail "no fewer tokens"
calc "$(field vocab_size out) == 360 + $(field tokens out)" || fail "sizes"
[ "$(encode both.json '<|endoftext|>')" = "$(encode one.json '<|endoftext|>')" ] || fail "old id"
expect 0 tok extend one.json two.json -o both.json
has out "ids that existed mean what they did"
expect 0 tok train one.txt -o char.json --kind char
expect 2 tok extend one.json char.json -o no.json
has err "do not go together"
expect 0 tok train one.txt -o gpt2.json --kind bpe --vocab-size 300 --pattern gpt2
expect 2 tok extend one.json gpt2.json -o no.json
has err "pre_tokenizer"
expect 0 tok extend one.json gpt2.json -o both.json --allow

# A result is never written over what is read: the file itself, a link to it, one of a folder's.
cp one.json mine.json
ln -s mine.json link.json
ln mine.json hard.json
mkdir home
cp one.json home/tokenizer.json
cp two.txt in.txt
kept() {
    expect 2 "$@"
    has err "would be written over the input"
    cmp -s one.json mine.json && cmp -s one.json home/tokenizer.json && cmp -s two.txt in.txt ||
        fail "an input is gone"
}
for out in mine.json link.json hard.json; do
    kept tok add mine.json --special '<|u|>' -o $out
    kept tok convert mine.json -o $out
    kept tok prune mine.json in.txt --keep 300 -o $out
    kept tok extend two.json mine.json -o $out
done
for out in home home/tokenizer.json; do
    kept tok add home --special '<|u|>' -o $out
    kept tok convert home -o $out
done
kept tok prune mine.json in.txt --keep 300 -o no.json --map in.txt
kept tok report mine.json in.txt --svg in.txt
kept tok train in.txt -o in.txt --kind byte
mkdir corpus
ln in.txt corpus/a.txt
kept tok train corpus -o corpus/a.txt --kind byte
kept tok train corpus -o in.txt --kind byte
expect 0 tok train in.txt -o byte.json --kind byte --vocab-size 300 --min-frequency 3
has err "--vocab-size changes nothing with kind byte"
has err "--min-frequency changes nothing with kind byte"
expect 0 tok train in.txt -o byte.json --kind bpe --vocab-size 300 --min-frequency 3
lacks err "changes nothing"
expect 0 tok train in.txt -o byte.json --vocab-size 300 --coverage 0.99
has err "--coverage changes nothing with kind bpe"
[ ! -e no.json ] || fail "a refused command left a file"
finish
