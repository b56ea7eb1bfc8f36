# `athanor data show`: sets, token files of others, and which documents a step of a run reads. $1 is
# the program.
. "$(dirname "$0")/lib.sh"

# Documents of 6 to 60 words, with ids, so that a row holds parts of several.
make_text 400 5 | awk 'BEGIN { n = 0 } {
    doc = doc (doc == "" ? "" : " ") $0
    if (NR % (1 + NR % 7) == 0) { printf "{\"id\": \"doc-%d\", \"text\": \"%s\"}\n", n++, doc; doc = "" }
}' >docs.jsonl
sed 's/[{}"]//g' docs.jsonl >plain.txt
expect 0 tok train plain.txt -o tok.json --kind bpe --vocab-size 300
expect 0 data build docs.jsonl -o set tokenizer=tok.json id=id
write_config c.yaml
sed -i 's/char.json/tok.json/; s/data: .*/data: {train: [{path: set}]}/' c.yaml
expect 0 train c.yaml train.steps=6 eval.every=0 sample.every=0
rows=8 T=32

expect 0 data show set --limit 2 --json --verify
has out '"id": "doc-0"'
has out '"line": 1'

# Every step up to the end of the run, and beyond what was trained; each row is full.
expect 0 data show --run run --step 3 --json
cp out step3
last="step 3"
[ "$(field first_sample step3)" = 16 ] || fail "first sample $(field first_sample step3)"
[ "$(field sequences step3)" = $rows ] || fail "sequences"
grep -o '"row": [0-9]*' step3 | sort -u | wc -l | grep -qx $rows || fail "not every row has documents"

# What is said agrees with the text: document ids, record numbers, tokens in a row.
grep -o '{"sample": [^}]*}' step3 >spans
awk -v T=$T '
    function value(key,   m) { match($0, "\"" key "\": [^,}]*"); m = substr($0, RSTART, RLENGTH); sub(/^[^:]*: /, "", m); return m }
    { row = value("row"); first = value("row_first"); end = value("row_end")
      if (row != last_row) { if (NR > 1 && last_end < T) bad = 1; if (first != 0) bad = 1 }
      else if (first != last_end) bad = 1
      if (value("end_tok") - value("first_tok") != end - first) bad = 1
      if (value("first_tok") < value("document_first_tok") || value("end_tok") > value("document_end_tok")) bad = 1
      if (value("line") != value("document") + 1) bad = 1
      if (value("id") != "\"doc-" value("document") "\"") bad = 1
      if (value("source") != "\"docs.jsonl\"") bad = 1
      last_row = row; last_end = end }
    END { exit bad || last_end < T }' spans || fail "spans do not fit: $(cat spans)"

# With text: the tokens of the rows, in the order of the documents that are named.
expect 0 data show --run run --step 3 --json --render
has out '"samples": [{"sample": 16, "row": 0'
grep -o '"targets": \[[^]]*\]' out | grep -q -- '-100' || fail "rows of several documents, and no target is masked"
grep -o '"ids": \[[^]]*\]' out | head -n 1 | tr -dc '0-9, ' | awk -F, -v T=$T '{ exit NF != T }' || fail "not $T ids"
sed -n 1p spans >span
id=$(field line span)
sed -n "${id}p" docs.jsonl >record
text=$(grep -o '"text": "[^"]*"' out | head -n 1 | sed 's/"text": "//; s/<|endoftext|>.*//; s/"$//')
grep -qF "$text" record || fail "row 0 begins with '$text', record $id is $(cat record)"

# For people: documents, text, and what is not learned in brackets.
expect 0 data show --run run --step 3 --render
has out 'step 3 of 6: 8 sequences of 32 tokens, samples 16 to 23'
has out 'docs.jsonl:'
has out '--- docs.jsonl:'
has out '[['
lacks out "$(printf '\033')"
expect 0 data show --run run --step 3 --limit 2
has out 'more rows'

# From a document on, of a set and of files without an index.
expect 0 data show set --from 1 --limit 1
has out '#1  docs.jsonl:2'
lacks out '#0  '
printf '\1\0\0\0\2\0\0\0' >plain.bin
expect 0 data show plain.bin format=nanogpt tokenizer=set/tokenizer.json --from 1 --json
expect 2 data show set --from 9999
has err 'there is no document 9999'
expect 2 data show plain.bin format=nanogpt tokenizer=set/tokenizer.json --from 9
has err 'plain.bin has fewer'

# Token by token, of a set and of a step; and as a page without network.
expect 0 data show set --from 1 --limit 2 --tokens
has out '#1  docs.jsonl:2'
has out '#2  docs.jsonl:3'
lacks out '#0  '
lacks out '#3  '
has out '│'
has out '«<|endoftext|>»'
expect 0 data show set --limit 3 --html set.html --json
[ "$(head -c 1 out)" = "{" ] || fail "standard output is not JSON alone"
expect 0 data show set --limit 3 --html set.html
has out 'set.html: 3 samples'
has set.html '<h2><a href="#s2">sample 2</a></h2>'
lacks set.html 'http'
expect 0 data show --run run --step 3 --tokens
has out '--- docs.jsonl:'
has out '[['
has out '│'
expect 0 data show --run run --step 3 --html step.html --json
[ "$(head -c 1 out)" = "{" ] || fail "standard output is not JSON alone"
expect 0 data show --run run --step 3 --html step.html
has out 'step.html: 8 samples'
has step.html 'How documents lie in the rows'
has step.html '<span class="off">'
has step.html '<span class="on">'

# The same step says the same, before and after, and another says something else.
expect 0 train c.yaml train.steps=7 eval.every=0 sample.every=0
expect 0 data show --run run --step 3 --json
cmp -s <(sed 's/"steps": [0-9]*//' out) <(sed 's/"steps": [0-9]*//' step3) || fail "step 3 changed"
expect 0 data show --run run --step 4 --json
cmp -s <(grep -o '"documents.*' out) <(grep -o '"documents.*' step3) && fail "steps 3 and 4 are the same"

# Bits per byte: of "abc" and the end of the text behind a document mask, b, c and the end are targets,
# which stand for two bytes.
yes '{"text": "abc"}' | head -n 40 >abc.jsonl
expect 0 tok train abc.jsonl -o char.json --kind char
expect 0 data build abc.jsonl -o abc tokenizer=char.json
expect 0 train c.yaml run=abc-run tokenizer=char.json 'data={train: abc, valid: abc}' train.steps=1 \
    eval.every=1 eval.batches=0 'sample={prompts: []}'
event valid abc-run/metrics.jsonl >valid
[ "$(field targets valid)" = 120 ] || fail "targets: $(cat valid)"
awk -v loss="$(field val_loss valid)" -v bpb="$(field val_bpb valid)" 'BEGIN {
    want = loss * 120 / log(2) / 80; exit !(bpb > want * 0.99999 && bpb < want * 1.00001) }' ||
    fail "bits per byte: $(cat valid)"

# Mistakes.
expect 2 data show --run run --step 8
has err '8'
expect 2 data show --run run
has err '--step'
expect 2 data show --run run --step 1 set
expect 2 data show
expect 3 data show --run nowhere --step 1
has err 'nowhere'
expect 2 data show set --step 3
expect 2 data show run --run run --step 1
expect 2 data show --run run --step 1 --from 2
has err '--run and --from exclude each other'
expect 2 data show set --template chatml
has err 'set is no file of conversations'
expect 2 data show set --from -1
expect 1 data show set --html nowhere/page.html
has err 'nowhere/page.html'
cp -r set bare
rm bare/tokenizer.json
expect 2 data show bare --tokens
has err 'bare has no tokenizer beside it'
expect 0 data show bare --tokens --json
has out '"pieces": null'
expect 2 data show --run run --step 1 --verify
expect 2 train c.yaml run=other 'data.train=[{path: set, format: olmo}]'
has err 'it is not of format=olmo'
expect 2 data show set format=nanogtp
has err 'did you mean nanogpt'

# Token files of others: nanoGPT's are nothing but ids, and a document ends with end-of-text.
eos=$(grep -o '"id": *[0-9]*, *"content": *"<|endoftext|>"' tok.json | tr -dc 0-9)
[ -n "$eos" ] || eos=0
ids="70 71 72 $eos 73 74 $eos"
for i in $ids; do printf "\\$(printf %o $((i % 256)))\\$(printf %o $((i / 256)))"; done >train.bin
expect 0 data show train.bin tokenizer=tok.json --json
has out '"tokens": 4'
has out '"tokens": 3'
has out '"document": null'
expect 0 data show train.bin format=nanogpt dtype=u16
has out '7 tokens'

# No terminal obeys what is in the data.
printf '{"text": "red \\u001b[31m and \\u009b32m", "id": "\\u001b]0;title\\u0007"}\n' >hostile.jsonl
expect 0 data build hostile.jsonl -o hostile tokenizer=tok.json id=id
expect 0 train c.yaml run=obeyed data.train=hostile train.steps=1 train.seq_len=8 eval.every=0 sample.every=0
for args in "hostile" "--run obeyed --step 1" "--run obeyed --step 1 --render"; do
    expect 0 data show $args
    ! LC_ALL=C grep -q "$(printf '[\033\007\302\233]')" out || fail "a control character"
done
finish
