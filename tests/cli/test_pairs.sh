# Pairs of texts for an encoder and a decoder: what a set of them holds. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_text 60 3 >text.txt
expect 0 tok train text.txt -o tok.json --vocab-size 300
cat >pairs.jsonl <<'JSON'
{"source": "the fire", "target": "a furnace"}
{"translation": {"en": "iron", "fr": "gold"}}
{"src": "light", "tgt": "slow light"}
{"instruction": "turns", "input": "to gold", "output": "patient hands"}
{"prompt": "who waits", "response": "one"}
JSON
expect 0 data build pairs.jsonl -o set tokenizer=tok.json --template plain
has out "5 documents"
expect 0 data show set
for text in "[[the fire]]" "a furnace«<|endoftext|>»" "[[iron]]" "gold«<|endoftext|>»" "slow light«<|endoftext|>»" \
    "patient hands«<|endoftext|>»" "one«<|endoftext|>»"; do
    has out "$text"
done
[ "$(grep -cF 'template   [[«<|endoftext|>»]]' out)" = 5 ] || fail "not every source ends"

expect 0 tok train text.txt -o bare.json --vocab-size 300 --special ""
expect 2 data build pairs.jsonl -o none tokenizer=bare.json --template plain
has err "has no end of text, by which source and target end"
printf '{"translation": {"en": "iron"}}\n' >half.jsonl
expect 2 data build half.jsonl -o none tokenizer=tok.json --template plain --chat translation
has err "its \"translation\" is no object of two languages"
finish
