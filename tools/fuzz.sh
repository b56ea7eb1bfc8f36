#!/usr/bin/env bash
# Replays the corpus of every fuzzer, then fuzzes each for SECONDS (default 5): tools/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
for f in build/fuzz/fuzz_*; do
    [ -f "$f" ] && [ -x "$f" ] || continue
    name=$(basename "$f")
    corpus=tests/fuzz/corpus/${name#fuzz_}
    found=$(mktemp -d)
    dictionary=tests/fuzz/${name#fuzz_}.dict
    echo "$name: ${seconds} s"
    log=build/fuzz/$name.log
    "$f" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
        ${dictionary:+$([ -f "$dictionary" ] && echo "-dict=$dictionary")} \
        -artifact_prefix="build/fuzz/$name-" "$found" "$corpus" \
        >"$log" 2>&1 || { tail -n 60 "$log"; echo "$name found something: $log"; exit 1; }
    rm -rf "$found"
done
echo "no findings"
