#!/usr/bin/env bash
# Saved under one layout, continued under another: data-parallel pairs compute what a straight run on
# one rank does, in every step; with tensor parallelism the program itself compares the digest of the
# weights that it has read with that of those it wrote.
. "$(dirname "$0")/lib.sh"
. "$root/tests/cli/ranks.sh"
make_data
write_ranks_config d.yaml
keys="train.steps=6 eval.every=0 sample.every=0 checkpoint.every=3"
expect 0 train d.yaml run=straight $keys
results step straight >want

pairs=0
while IFS=: read -r a b; do
    pairs=$((pairs + 1))
    rm -rf r
    train_on 0 "$a" run=r $keys train.steps=3
    train_on 0 "$b" run=r $keys
    last="from '$a' to '$b'"
    case $a$b in
        *tp*)
            event start r/metrics.jsonl | tail -n 1 | grep -q '"step": 3,' || fail "it does not go on at 3"
            [ "$(results step r | wc -l)" = 6 ] || fail "not every step was taken"
            ;;
        *) results step r | cmp -s want - || fail "it differs from a straight run" ;;
    esac
done <<'PAIRS'
1:2 parallel.zero=3
2 parallel.zero=1:1
2 parallel.zero=2:4 parallel.zero=0
4 parallel.zero=3:2 parallel.zero=1
4 parallel.zero=0:8 parallel.zero=3
8 parallel.dp_replicate=4 parallel.zero=1:4 parallel.zero=2
4 parallel.dp_replicate=2 parallel.zero=3:2 parallel.zero=3
2 parallel.tp=2:2 parallel.zero=3
4 parallel.zero=3:4 parallel.tp=2 parallel.sp=true parallel.zero=3
4 parallel.tp=4 parallel.sp=true:2 parallel.tp=2 parallel.zero=1
PAIRS
[ $pairs = 10 ] || fail "$pairs pairs"
finish
