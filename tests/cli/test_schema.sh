# athanor generate --schema: JSON from a model that has never seen any, and what is refused. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
"$athanor" tok train text.txt -o byte.json --kind byte >log 2>&1 || fail "the tokenizer of bytes"
expect 0 data build text.txt -o bytes tokenizer=byte.json valid=0.1
write_config c.yaml
sed -i 's/char.json/byte.json/; s,set/,bytes/,g; s/embeddings: 64/embeddings: 512/' c.yaml
expect 0 train c.yaml train.steps=10

cat >person.json <<'J'
{"type": "object", "required": ["name", "age", "tags"], "additionalProperties": false,
 "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{1,9}$"}, "age": {"type": "integer", "minimum": 18, "maximum": 120},
                "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 2}, "note": {"type": "null"}}}
J
space='( |\\n *)?'
age='(1[89]|[2-9][0-9]|1[01][0-9]|120)'
person="\\{$space\\\\\"name\\\\\": ?\\\\\"[A-Z][a-z]{1,9}\\\\\",$space\\\\\"age\\\\\": ?$age,$space\\\\\"tags\\\\\": ?\\[$space\\\\\"(red|green)\\\\\"(,$space\\\\\"(red|green)\\\\\")?$space\\](,$space\\\\\"note\\\\\": ?null)?$space\\}"
for seed in 1 2 3 4 5; do
    expect 0 generate run --prompt "the fire" --schema person.json --seed $seed --temperature 1 --max-new 300 --json
    has out '"finish": "eos"'
    grep -qE "\"text\": \"$person\"" out || fail "$(cat out)"
    # as few tokens as the shortest value has: it ends all the same
    expect 0 generate run --prompt "the fire" --schema person.json --seed $seed --temperature 1 --max-new 45 --json
    has out '"finish": "eos"'
    grep -qE "\"text\": \"$person\"" out || fail "$(cat out)"
done
expect 0 generate run --prompt "the fire" --schema person.json --max-new 8 --json
has out '"finish": "length"'
expect 0 generate run --prompt "the fire" --schema object --temperature 1 --max-new 60
grep -q '^the fire{' out || fail "$(cat out)"

# Every line of a batch is held to it, and is what it is alone.
printf '%s\n' '{"prompt": "the fire"}' '{"prompt": "a fire"}' >two.jsonl
expect 0 generate run --batch two.jsonl --schema person.json --seed 3 --max-new 200 --json
[ "$(grep -cE "\"text\": \"$person\"" out)" = 2 ] || fail "$(cat out)"
head -n 1 out >first
expect 0 generate run --prompt "the fire" --schema person.json --seed 3 --max-new 200 --json
cmp out first || fail "the first line differs"

# What is not supported is refused by name and place; so are files that are no schemas.
echo '{"properties": {"a": {"not": {}}}}' >not.json
expect 2 generate run --prompt a --schema not.json
has err "not: this keyword is not supported" && has err "#/properties/a/not"
echo '[]' >list.json
expect 2 generate run --prompt a --schema list.json
has err "a JSON Schema is an object"
echo '{' >broken.json
expect 3 generate run --prompt a --schema broken.json
has err "broken.json"
expect 3 generate run --prompt a --schema none.json
has err "none.json"
# A tokenizer of the characters of a text has no braces.
write_config chars.yaml
expect 0 train chars.yaml train.steps=4 run=chars
expect 2 generate chars --prompt a --schema object
has err "no token for the character"
expect 2 generate "$root/tests/golden/models/llama-gqa-tied" --ids 1 --schema object
has err "has no tokenizer.json"
finish
