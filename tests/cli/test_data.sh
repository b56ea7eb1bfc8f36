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
printf 'a\0b' >binary.txt
printf '{"text":"x"}\n{"body":"x"}\n' >field.jsonl
expect 2 data build empty.txt -o bad tokenizer=tok.json
has err 'empty.txt'
expect 3 data build binary.txt -o bad tokenizer=tok.json
has err 'binary.txt is not text: there is a NUL byte at byte 1'
expect 3 data build field.jsonl -o bad tokenizer=tok.json --json
has out '"kind": "format"'
has out 'field.jsonl:2'
expect 2 data build two.jsonl -o bad tokenizer=tok.json vlid=0.1
has err "did you mean 'valid'"
expect 2 data build two.jsonl -o bad tokenizer=tok.json valid=1
has err 'valid=1'
expect 2 data build two.jsonl tokenizer=tok.json
has err '-o'

# Damage: a cut is seen on opening, a flipped bit by --verify.
size=$(stat -c %s set/shard-00000.bin)
printf '\377' | dd of=set/shard-00000.bin bs=1 seek=$((size - 3)) conv=notrunc 2>dd.log
expect 3 data show set --verify
has err 'set/shard-00000.bin is corrupt'
truncate -s -1 set/shard-00000.bin
expect 3 data show set
has err 'truncated'

finish
