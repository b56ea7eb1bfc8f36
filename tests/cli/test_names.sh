# Names of files and folders that are not UTF-8: as text as they are; in JSON, which cannot hold such
# bytes, as U+FFFD. Nothing is left out. $1 is the program.
. "$(dirname "$0")/lib.sh"
bad=$'caf\351' good=$'caf\357\277\275'
# one_object: what was printed is one line of JSON in UTF-8.
one_object() {
    [ "$(wc -l <out)" = 1 ] && grep -q '^{.*}$' out || fail "not one object"
    iconv -f UTF-8 -t UTF-8 out >/dev/null 2>&1 || fail "not UTF-8"
}
make_data
write_config c.yaml
expect 0 train c.yaml train.steps=4 checkpoint.every=4 eval.every=0 sample.every=0
mkdir -p "runs/$bad"
mv run "runs/$bad/run"
cp -r "runs/$bad/run" "runs/$bad-2"

expect 0 runs list "runs/$bad" --json;             one_object; has out '"name": "run", "path": "runs/'$good'/run"'
expect 0 runs list --json;                         one_object; has out "\"name\": \"$good-2\""
expect 0 runs list;                                has out "$bad-2"
expect 0 runs show "runs/$bad-2" --json;           one_object; has out "\"name\": \"$good-2\""
expect 0 runs show "runs/$bad-2"
expect 0 runs diff "runs/$bad-2" "runs/$bad/run" --json; one_object; has out "\"path\": \"runs/$good/run\""
expect 0 runs report "runs/$bad-2" --json;         one_object; has out "runs/$good-2/report.html"
expect 0 verify checkpoint "runs/$bad-2" --json;   one_object; has out "\"resume\": \"runs/$good-2/checkpoints/step-4\""
mkdir "runs/$bad-2/checkpoints/.tmp-step-8-$bad"
rm "runs/$bad-2/checkpoints/step-4/state/cursor.json"
expect 1 verify checkpoint "runs/$bad-2" --json;   one_object; has out "\"leftovers\": [\".tmp-step-8-$good\"]"
expect 0 data show --run "runs/$bad/run" --step 2 --json; one_object; has out "\"run\": \"runs/$good/run\""
expect 0 generate "runs/$bad/run" --ids 1,2 --max-new 2 --json --logits "$bad.npy" 2>log
one_object; has out "\"logits\": \"$good.npy\""
cp char.json "$bad.json"
expect 0 data build text.txt -o "set-$bad" tokenizer="char.json" --json; has out "set-$good/shard-00000.bin"
cp text.txt "$bad.txt"
expect 0 data build "$bad.txt" -o set-2 tokenizer=char.json
expect 0 data show set-2 --json;                   one_object; has out "\"$good.txt\""
expect 0 tok report "$bad.json" text.txt --json;   has out "\"path\": \"$good.json\""
cp c.yaml "$bad.yaml"
expect 0 config why "$bad.yaml" train.steps --json; one_object; has out "\"origin\": \"$good.yaml:5\""
expect 3 runs show "$bad" --json;                  one_object; has out "\"where\": \"$good"
expect 3 plan "$bad-3.yaml" --json;                one_object; has out "$good-3.yaml"
finish
