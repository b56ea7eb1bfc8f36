#!/usr/bin/env bash
# mixture_shares.sh [PROGRAM]: shares of three sources in 100,000 samples, counted from what
# `data show --run` says of each of 100 steps of 1,000 sequences, beside their weights.
here=$(cd "$(dirname "$0")/.." && pwd)
set -- "${1:-build/athanor}"
. "$here/tests/cli/lib.sh"
make_data
for s in a b c; do cp -r set/train $s; done
write_config c.yaml
expect 0 train c.yaml data='{train: [{path: a, weight: 0.61, epochs: 1e6}, {path: b, weight: 0.3, epochs: 1e6}, {path: c, weight: 0.09, epochs: 1e6}]}' \
    train.seq_len=8 train.global_batch_size=1000 train.micro_batch_size=100 train.steps=2 eval.every=0 sample.every=0
sed -i 's/"steps": 2,/"steps": 100,/' run/config.json
for step in $(seq 100); do
    "$athanor" data show --run run --step "$step" --json | grep -o '"row": [0-9]*, "set": "[abc]"' | sort -u | grep -o '"[abc]"'
done | sort | uniq -c | awk '
    BEGIN { w["\"a\""] = 0.61; w["\"b\""] = 0.3; w["\"c\""] = 0.09 }
    { n[$2] = $1; all += $1 }
    END { for (s in n) printf "%s: %d of %d, %.4f %%, weight %.4f %%, off by %+.4f %% of it\n", s, n[s], all,
              100 * n[s] / all, 100 * w[s], 100 * (n[s] / all / w[s] - 1) }' | sort
