# `athanor data build` and `data show`. $1 is the program.
golden=$(realpath "$(dirname "$0")/../golden/tok")
. "$(dirname "$0")/lib.sh"

cp "$golden/bpe_gpt2.json" tok.json
printf '%s\n' '{"text":"To be, or not to be"}' '{"text":"that is the question"}' >two.jsonl
printf 'line %d\n' 1 2 3 4 5 6 7 8 9 >lines.txt

expect 0 data build two.jsonl -o set tokenizer=tok.json --json
has out '"documents": 2'
has out '"text_bytes": 39'
has out '"path": "set/shard-00000.bin"'
expect 0 data show set --json --verify
has out '"text": "To be, or not to be'
has out '"source": "two.jsonl", "line": 2'
cmp -s tok.json set/tokenizer.json || fail "the tokenizer was not copied"

expect 0 data build lines.txt -o split tokenizer=tok.json valid=0.34
has out 'split/valid: '
has out '21 bytes of text'
expect 0 data show split/valid
has out 'line 7'
expect 2 data show split
has err 'use split/train or split/valid'

# Bad input: status, the thing by name, a hint.
: >empty.txt
printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\3\0\76\0\1\0\0\0' >binary.txt
printf '{"text":"x"}\n{"body":"x"}\n' >field.jsonl
expect 2 data build empty.txt -o bad tokenizer=tok.json
has err 'empty.txt'
expect 3 data build binary.txt -o bad tokenizer=tok.json
has err 'binary.txt is not text: there is a NUL byte at byte 7'
expect 3 data build field.jsonl -o bad tokenizer=tok.json --json
has out '"kind": "format"'
has out 'field.jsonl:2'
expect 2 data build two.jsonl -o bad tokeniser=tok.json
has err "did you mean 'tokenizer'"
expect 2 data build two.jsonl -o bad --tokenizer tok.json
has err "a key is given as tokenizer=VALUE"
expect 2 data build two.jsonl -o bad tokenizer=tok.json vlid=0.1
has err "did you mean 'valid'"
expect 2 data build two.jsonl -o bad tokenizer=tok.json valid=1
has err 'valid=1'
expect 2 data build two.jsonl tokenizer=tok.json
has err '-o'
expect 2 data build two.jsonl -o bad tokenizer=tok.json format=arrow
has err 'it is auto, text, jsonl, csv, tsv or parquet'
expect 2 data build two.jsonl -o bad tokenizer=tok.json append=true
has err 'no shard set to append to'
expect 2 data build two.jsonl -o bad tokenizer=tok.json threads=2.5
has err 'threads=2.5'

# Keys that would do nothing are refused by name.
expect 2 data build two.jsonl -o bad tokenizer=tok.json split=lines
has err 'split= does nothing without valid='
expect 2 data build two.jsonl -o bad tokenizer=tok.json seed=3
has err 'seed= does nothing without valid='
expect 2 data build two.jsonl -o bad tokenizer=tok.json field=text 'template={text}'
has err 'field= does nothing beside template='
expect 2 data build lines.txt -o bad tokenizer=tok.json field=text
has err 'field= does nothing: lines.txt is read as plain text'
has err 'hint: '
expect 2 data show set format=nanogpt
has err 'set was written by `data build`: it is not of format=nanogpt'
expect 2 data show set dtype=u32
has err 'dtype=u32 does nothing'
expect 0 data show set format=athanor
[ ! -e bad ] || fail "a refused build left bad behind"

# Fields, templates, ids and scores; bad records are counted, and too many of them end the build.
printf 'title,text,name,rank\nA,"one, two",n1,0.5\nB,"three\nfour",n2,2\n' >table.csv
expect 0 data build table.csv -o csv tokenizer=tok.json 'template={title}: {text}\n' id=name score=rank --json
lacks err "no record has"
has out '"records": 2, "bad": 0'
has out '"bad_samples": []'
has out '"resumed": false'
[ "$(field text_bytes out)" = 26 ] || fail "text_bytes is not 26"
expect 0 data show csv --verify
has out 'A: one, two'
printf '{"text": "a b", "rnak": 1}\n' >slip.jsonl
expect 0 data build slip.jsonl -o slip tokenizer=tok.json score=rank id=key --json
has err "no record has a number in its field 'rank'"; has err "no record has an id in its field 'key'"
expect 0 data build slip.jsonl -o slip tokenizer=tok.json score=rnak id=rnak --json
lacks err "no record has"
expect 2 data build slip.jsonl -o slip tokenizer=tok.json max_bad=1.5; has err "from 0 to 1"
# A text that is cut within a character, one with a byte of zero, and an id that a terminal would obey.
{ printf '{"key":"a\\u001b[31m","text":"'; for i in $(seq 200); do printf '“'; done; printf '"}\n{"text":"x\\u0000y"}\n'; } >odd.jsonl
expect 0 data build odd.jsonl -o odd tokenizer=tok.json id=key
expect 0 data show odd --json
has out '"text": "““““'; has out '"text": "x\u0000y"'
expect 0 data show odd
has out 'id a^[[31m'; has out 'x^@y'; lacks out $'\x1b'
{ for i in $(seq 300); do printf '{"text":"record %d"}\n' "$i"; done; printf '{"text":"cut off\n'; } >broken.jsonl
expect 0 data build broken.jsonl -o broken tokenizer=tok.json
has out '1 of 301 records were bad and left out:'
has out 'broken.jsonl:301'
expect 3 data build broken.jsonl -o broken2 tokenizer=tok.json max_bad=0.001
has err 'broken.jsonl:301'
printf 'sch\366nes Wetter, gr\374ne B\344ume und s\374\337e \304pfel\n' >latin.txt
expect 0 data build latin.txt -o latin tokenizer=tok.json
has out 'charsets:'

# Broken characters of texts are replaced, which is said once, with the first of them; a record that has some is left out.
mkdir torn
printf 'rest\377 b\303\n' >torn/2.txt
for i in 1 2 3; do for k in 1 2 3; do echo 'Fünf grüne Äpfel für Käthe über Köln, größer.'; done >>torn/$i.txt; done
printf '\200\n' >>torn/3.txt
told="3 broken characters in 2 texts became U+FFFD; the first is byte 4 of torn/2.txt"
expect 0 data build torn -o torn-set tokenizer=tok.json
has err "warning: $told"; [ "$(grep -c U+FFFD err)" = 1 ] || fail "it is said again"
expect 0 data show torn-set --json; has out 'rest� b�\n'
expect 0 data build torn -o torn-set tokenizer=tok.json --json
has out "\"replaced\": {\"characters\": 3, \"texts\": 2, \"first\": \"torn/2.txt\", \"at\": 4}"
expect 0 tok train torn -o torn.json --vocab-size 300; has err "$told"
expect 0 tok report tok.json torn;                     has err "$told"
printf '\377\376' >half.txt # UTF-16 with half a pair
printf 'A long text, %.0s' 1 2 3 4 5 6 7 8 | iconv -t UTF-16LE >>half.txt
printf '\000\330' >>half.txt && printf 'and its end' | iconv -t UTF-16LE >>half.txt
expect 0 data build half.txt -o half tokenizer=tok.json
has err "1 broken character in 1 text became U+FFFD; the first is in half.txt"
has out " tokens, 1 document, " # and not "1 documents"
expect 0 data show half; has out "1 shard, 1 source, "
{ for i in $(seq 300); do printf '{"text":"record %d"}\n' "$i"; done; printf '{"text":"\377"}\n'; } >torn.jsonl
expect 0 data build torn.jsonl -o torn-lines tokenizer=tok.json
has out "torn.jsonl:301 is not JSON: there are bytes that are not UTF-8"
expect 0 tok train torn.jsonl -o torn.json --vocab-size 300
has err "warning: 1 of 301 records was left out; the first is torn.jsonl:301, which is not JSON"

# Rows of Parquet, in whose columns the same lies as in lines of JSON.
parquet=$golden/../parquet/large-dictionary
for kind in parquet jsonl; do expect 0 data build "$parquet.$kind" -o $kind tokenizer=tok.json field=key id=n --json; done
has out '"documents": 2000'
for part in bin ids; do cmp parquet/shard-00000.$part jsonl/shard-00000.$part || fail "Parquet gives another .$part"; done
expect 0 data show parquet --json --limit 2 --verify
has out 'large-dictionary.parquet", "line": 2'
expect 3 data build "$parquet.parquet" -o bad tokenizer=tok.json
has err 'large-dictionary.parquet has no column text'
has err 'key, n'

# The same bytes from any number of threads, packed or not, from a file or a pipe, at once or appended.
make_text 4000 3 >long.txt
gzip -k long.txt
split -n l/2 long.txt half.
for n in 1 2 3; do expect 0 data build long.txt -o threads$n tokenizer=tok.json threads=$n; done
cmp threads1/shard-00000.bin threads2/shard-00000.bin || fail "2 threads differ from 1"
cmp threads1/shard-00000.bin threads3/shard-00000.bin || fail "3 threads differ from 1"
expect 0 data build long.txt.gz -o packed tokenizer=tok.json
cmp threads1/shard-00000.bin packed/shard-00000.bin || fail "the packed file gives other tokens"
"$athanor" data build - -o piped tokenizer=tok.json <long.txt >out 2>err || fail "standard input"
cmp threads1/shard-00000.bin piped/shard-00000.bin || fail "standard input gives other tokens"
expect 0 data build half.aa -o halves tokenizer=tok.json format=text
expect 0 data build half.ab -o halves tokenizer=tok.json format=text append=true
has out '2 documents'
expect 0 data show halves --verify
expect 0 data build half.ab -o second tokenizer=tok.json format=text
tail_of() { tail -c +65 "$1/$2"; } # what follows the header, which has the shard's number
cmp <(tail_of halves shard-00001.bin) <(tail_of second shard-00000.bin) || fail "what was appended is not the second half"

# Killed in the exchange of an old set for a new one: the same command finishes it.
cp -r set old
for n in $(seq 12 4 60); do
    rm -rf kill && cp -r old kill
    { ATHANOR_FAULT=kill:$n "$athanor" data build long.txt -o kill tokenizer=tok.json >log 2>&1; } 2>killed && break
    if [ ! -e kill/.build/state.json ]; then
        expect 0 data show kill --verify
    fi
    expect 0 data build long.txt -o kill tokenizer=tok.json
    cmp -s kill/shard-00000.bin threads1/shard-00000.bin || fail "another result after kill:$n"
    [ ! -e kill/.build ] || fail "kill/.build was left"
done
[ "$n" -gt 20 ] || fail "no build was killed"

# Damage: a cut is seen on opening, a flipped bit by --verify.
size=$(stat -c %s set/shard-00000.bin)
printf '\377' | dd of=set/shard-00000.bin bs=1 seek=$((size - 3)) conv=notrunc 2>dd.log
expect 3 data show set --verify
has err 'set/shard-00000.bin is corrupt'
truncate -s -1 set/shard-00000.bin
expect 3 data show set
has err 'truncated'

finish
