#!/usr/bin/env bash
# athanor quickstart on small texts: what it writes, twice in the same folder, and how it fails.
. "$(dirname "$0")/strict.sh"

expect_text() { # WORDS FILE
    grep -q -- "$1" "$2" || fail "no \"$1\" in $2: $(cat "$2")"
}

# About 60 KB that something can be learned from.
awk 'BEGIN {
    srand(7)
    split("the a one no every", d); split("furnace fire metal salt master flame", s)
    split("feeds watches turns keeps loves hides", v)
    for (i = 0; i < 1900; i++)
        printf "%s %s %s %s %s.\n", d[int(rand()*5)+1], s[int(rand()*6)+1], v[int(rand()*6)+1],
            d[int(rand()*5)+1], s[int(rand()*6)+1]
}' >text.txt

# --json: one object on standard output, all else on standard error. It has learned: five words of 28
# letters' worth each are well below two bits a byte; a busy machine takes longer to come there.
for seconds in 2 8 32; do
    "$athanor" quickstart text.txt -o run --seconds $seconds --json >out 2>err || fail "$(cat err)"
    bpb=$(sed -E 's/.*"val_bpb": ?([0-9.]+).*/\1/' out)
    awk -v x="$bpb" 'BEGIN { exit !(x > 0.1 && x < 3.5) }' && learned=yes && break
    rm -r run
done
[ -n "${learned:-}" ] || fail "val_bpb is $bpb"
[ "$(wc -l <out)" = 1 ] || fail "standard output holds more than one line: $(cat out)"
for key in run train_s val_loss val_bpb sample; do expect_text "\"$key\":" out; done
expect_text "bits per byte" err
for file in tokenizer.json shards/train/manifest.json shards/valid/manifest.json checkpoints \
    metrics.jsonl report.html quickstart.yaml; do
    [ -e "run/$file" ] || fail "no run/$file"
done
[ ! -e run/.measure ] || fail "the measurement was left behind"
expect_text "<svg" run/report.html

# The config it wrote is one that others take, and that goes on from the run.
"$athanor" config print run/quickstart.yaml >/dev/null
"$athanor" plan run/quickstart.yaml >/dev/null
steps=$(sed -n 's/^  steps: //p' run/quickstart.yaml)
"$athanor" train run/quickstart.yaml train.steps=$((steps + 2)) >out 2>err || fail "$(cat out err)"
expect_text "resuming after step $steps" out
"$athanor" verify checkpoint "run/checkpoints/step-$((steps + 2))" >out || fail "$(cat out)"

# A second start replaces the run, and says so. What it proposes to try works.
"$athanor" quickstart text.txt -o run --seconds 1 >out 2>err || fail "$(cat out err)"
expect_text "replaced" out
expect_text "What to try next" out
expect_text "run/report.html" out
generate=$(sed -n 's/^  let it write  *//p' out)
[ -n "$generate" ] || fail "no generate command is proposed: $(cat out)"
eval "$generate --max-new 4" >written || fail "the proposed command failed: $generate"

# Folders and standard input are texts, too.
mkdir folder && head -c 30000 text.txt >folder/a.txt
"$athanor" quickstart - -o 'run 2' --seconds 1 --json <text.txt >out 2>err || fail "$(cat err)"
generate=$(sed -n 's/^  let it write  *//p' err)
eval "$generate --max-new 4" >written || fail "the proposed command failed: $generate"
if grep -q 'TEXT=' err; then fail "a text of one's own is proposed beside one"; fi
odd=$'odd\xe2\x80\xa8: #\x7f' # what ends a line, begins a comment, or is refused in YAML
"$athanor" quickstart folder -o "$odd" --seconds 1 --json >out 2>err || fail "$(cat out err)"
"$athanor" train "$odd/quickstart.yaml" >out 2>&1 || fail "a config with an odd name is not read: $(cat out)"
"$athanor" quickstart folder -o run3 --seconds 1 --json >out 2>err || fail "$(cat err)"

# Without a text: a damaged cache and a download with another SHA-256 are not used, and the Bible
# (here an imitation) comes without its verse numbers. Nothing here reaches the network.
mkdir -p fake cache/athanor
cp text.txt cache/athanor/tinyshakespeare.txt
awk '{ printf "1Sm%d:%d %s\n", NR / 30 + 1, NR % 30 + 1, $0 }' text.txt >verses
for _ in $(seq 70); do cat verses; done >all_verses
printf '#!/bin/sh\n/bin/cat %s/text.txt\n' "$work" >fake/curl
printf '#!/bin/sh\n/bin/cat %s/all_verses\n' "$work" >fake/bible
chmod +x fake/curl fake/bible
PATH=$work/fake XDG_CACHE_HOME=$work/cache "$athanor" quickstart -o run4 --seconds 1 >out 2>err ||
    fail "$(cat out err)"
expect_text "King James" out
expect_text "SHA-256" out
grep -q "1Sm" run4/corpus.txt && fail "verse numbers are left in the text"
rm fake/bible
expect_status 1 env PATH="$work/fake" XDG_CACHE_HOME="$work/cache" "$athanor" quickstart -o bad
expect_text "no text to learn from" err
[ ! -e bad ] || fail "a failed start left a folder"

# Bad input: one sentence, the right status, no traces of a run.
expect_status 3 "$athanor" quickstart missing.txt -o bad
expect_text "missing.txt" err
: >empty.txt
expect_status 2 "$athanor" quickstart empty.txt -o bad
expect_text "empty" err
head -c 200 text.txt >tiny.txt
expect_status 2 "$athanor" quickstart tiny.txt -o bad
expect_text "too little text" err
head -c 70000 "$athanor" >binary.txt
expect_status 3 "$athanor" quickstart binary.txt -o bad
expect_text "binary.txt" err
expect_status 3 "$athanor" quickstart binary.txt -o bad --json
expect_text '"kind":' out
expect_status 2 "$athanor" quickstart text.txt -o bad --seconds x
expect_status 2 "$athanor" quickstart text.txt text.txt
[ ! -e bad ] || fail "a failed start left a folder"
# What was there before stays: a run as it was, and a folder of the user's.
cp -r run kept
expect_status 3 "$athanor" quickstart missing.txt -o run
diff -r run kept || fail "a failed start changed the run that was there"
mkdir mine && touch mine/notes
expect_status 2 "$athanor" quickstart tiny.txt -o mine
[ -e mine/notes ] || fail "a failed start removed a file of the user"

# A signal saves the state and exits 75; the config goes on from there.
"$athanor" quickstart text.txt -o stopped --seconds 60 >out 2>err &
pid=$!
for _ in $(seq 600); do
    [ -s stopped/metrics.jsonl ] && break
    sleep 0.1
done
kill -TERM $pid
got=0
wait $pid || got=$?
if [ "$got" = 75 ]; then
    expect_text "stopped/quickstart.yaml" err
    [ -d stopped/checkpoints ] || fail "no state was saved"
else # it was done before the signal
    [ "$got" = 0 ] || fail "status $got after SIGTERM: $(cat err)"
fi
echo ok
