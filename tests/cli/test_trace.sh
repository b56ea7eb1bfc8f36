#!/usr/bin/env bash
# train --trace: one file for all ranks that were launched. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1
make_data
write_config c.yaml

# spans PID TID: how many there are.
spans() { grep -c "\"ph\": \"X\", \"pid\": $1, \"tid\": $2," t.json; }

export ATHANOR_LINK=200,0.1 # a slow link
expect 0 launch --ranks 2 -- train c.yaml train.steps=6 train.threads=1 parallel.zero=3 --trace t.json
unset ATHANOR_LINK
has err 'trace of steps 2 to 4: t.json'
[ "$(grep -c 'trace of' err)" = 1 ] || fail "rank 0 alone speaks of it"
for pid in 0 1; do
    [ "$(spans $pid 0)" -gt 60 ] && [ "$(spans $pid 1)" -gt 20 ] || fail "rank $pid has no spans"
    grep -q "\"name\": \"step 3\".*\"pid\": $pid," t.json || fail "rank $pid has no step 3"
done
for name in 'rank 0' 'rank 1' 'side stream' 'forward layers.1' 'weights of model.embed_tokens.weight'; do
    has t.json "\"name\": \"$name\""
done
lacks t.json '"step": 5'
# The link is slow: no transfer is shorter than its latency.
grep '"kind": "' t.json | grep -v '"sent_bytes": 0}' | sed 's/.*"dur": \([0-9.]*\).*/\1/' |
    awk '$1 < 200 { exit 1 }' || fail "a transfer was faster than the link"

# One rank; a run that is resumed; a run that ends before the trace.
expect 0 train c.yaml run=alone train.steps=3 train.threads=1 --trace t.json --trace-steps 1
has t.json '"name": "step 2"'
lacks t.json '"name": "step 3"'
expect 0 train c.yaml run=alone train.steps=5 train.threads=1 --trace t.json
has err 'trace of steps 5 to 5: t.json'

# A run of an earlier program, whose config has a key that is none any more, goes on.
sed -i 's/"parallel": {/&"link": {"latency_us": 5.0, "gb_per_s": 0.0}, /' alone/config.json
grep -q '"link"' alone/config.json || fail "the old key is not there"
expect 0 train c.yaml run=alone train.steps=6 train.threads=1
expect 0 runs diff alone alone

# Wrong use is told before the run begins.
expect 1 train c.yaml run=new train.steps=3 --trace nowhere/t.json
has err 'nowhere/t.json'
lacks out '  step 1 '
expect 2 train c.yaml run=other train.steps=3 --trace t.json --trace-steps 0
ATHANOR_LINK=-1,0 expect 2 train c.yaml run=other train.steps=3
has err 'where: ATHANOR_LINK'

finish
