#!/usr/bin/env bash
# Replays the corpus of every fuzzer, then fuzzes each for SECONDS (default 5): tools/fuzz.sh [SECONDS] [SEED]
# Each run looks elsewhere, unless SEED is a number other than 0: the same mutations in the same order then.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5} seed=${2:-0}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
export seconds seed
export LSAN_OPTIONS=intercept_tls_get_addr=0 # see CMakeLists.txt: its leak check fails by chance otherwise

# One fuzzer; its findings are told at the end of its log.
fuzz() {
    local f=$1 name corpus found dictionary log
    name=$(basename "$f")
    corpus=tests/fuzz/corpus/${name#fuzz_}
    found=$(mktemp -d)
    dictionary=tests/fuzz/${name#fuzz_}.dict
    echo "$name: ${seconds} s"
    log=build/fuzz/$name.log
    "$f" -max_total_time="$seconds" -seed="$seed" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
        ${dictionary:+$([ -f "$dictionary" ] && echo "-dict=$dictionary")} \
        -artifact_prefix="build/fuzz/$name-" "$found" "$corpus" \
        >"$log" 2>&1 || { tail -n 60 "$log"; echo "$name found something: $log"; return 1; }
    rm -rf "$found"
}
export -f fuzz

# Two at a time.
find build/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable | sort | xargs -P 2 -I{} bash -c 'fuzz {}'
echo "no findings"
