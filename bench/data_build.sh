#!/usr/bin/env bash
# What building shards costs beside encoding the same documents (`athanor bench data`), for a long text and for JSONL
# with documents of a few paragraphs; the bar is a ratio of 0.9 in processor time.
#   bench/data_build.sh TOKENIZER TEXT... [--bytes 50000000] [--threads "1 2"] [--rounds 5]
# TEXT is repeated to that number of bytes, so words are met more often than in a real corpus: encoding is at its
# fastest, and the rest weighs most.
#   ATHANOR=PROGRAM default build/athanor
#   TMPDIR=FOLDER   where the inputs and shards are written
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
athanor=${ATHANOR:-$root/build/athanor}
bytes=50000000 threads="1 2" rounds=5 files=()
while [ $# -gt 0 ]; do
    case $1 in
        --bytes) bytes=$2; shift 2 ;;
        --threads) threads=$2; shift 2 ;;
        --rounds) rounds=$2; shift 2 ;;
        *) files+=("$1"); shift ;;
    esac
done
[ ${#files[@]} -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
tokenizer=$(realpath "${files[0]}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=passive # threads that wait for others must not count as work

cat "${files[@]:1}" >"$work/once"
size=$(stat -c %s "$work/once")
for ((done = 0; done < bytes; done += size)); do cat "$work/once"; done >"$work/text.txt"
# Lines are gathered to documents of some 1,500 bytes.
LC_ALL=C awk '
    function put() { printf "{\"id\": \"doc-%d\", \"url\": \"https://example.org/%d\", \"text\": \"%s\"}\n", n, n, s; n++; s = "" }
    { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/\t/, "\\t"); gsub(/[\001-\037]/, ""); s = s $0 "\\n" }
    length(s) > 1500 { put() }
    END { if (s != "") put() }' "$work/text.txt" >"$work/text.jsonl"

for n in $threads; do
    for input in text.txt text.jsonl; do
        printf '== %s, %s thread(s): ' "$input" "$n"
        "$athanor" bench data "$tokenizer" "$work/$input" -o "$work" --threads "$n" --repeat "$rounds"
        echo
    done
done
