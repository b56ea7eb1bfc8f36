#!/bin/bash
# Does a busy neighbour change what auto chooses? Measures this machine anew ROUNDS times beside programs
# that keep every processor and the memory busy, and compares each choice with that of the quiet machine.
#
# Usage: bench/probe_busy.sh ATHANOR [ROUNDS] [NEIGHBOURS]     (20 rounds; one for each processor, and one)
# Exit status 1: a choice differed, or the probe of the quiet machine took longer than half a second.
set -eu
athanor=$(realpath "$1")
rounds=${2:-20}
neighbours=${3:-$(($(nproc) + 1))}
work=$(mktemp -d)
pids=()
finish() {
    for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

# choice: what auto makes of a machine that was never seen, and how long it took to see it.
choice() {
    rm -f "$work/machine.json"
    ATHANOR_MACHINE_FILE=$work/machine.json "$athanor" doctor --json >"$work/out" || true
    chosen=$(grep -o '"auto": {[^}]*}' "$work/out")
    seconds=$(grep -o '"probe_s": [0-9.]*' "$work/out" | cut -d' ' -f2)
}

choice
quiet=$chosen
echo "quiet: $quiet in $seconds s"
late=$(awk "BEGIN { print ($seconds > 0.5) }")
for ((i = 0; i < neighbours; i++)); do
    if ((i % 2)); then while :; do :; done & else dd if=/dev/zero of=/dev/null bs=64M status=none & fi
    pids+=($!)
done
same=0
longest=0
for ((i = 0; i < rounds; i++)); do
    choice
    if [ "$chosen" = "$quiet" ]; then same=$((same + 1)); else echo "otherwise: $chosen"; fi
    longest=$(printf "%s\n" "$longest" "$seconds" | sort -g | tail -n 1)
done
echo "$neighbours neighbours: $same of $rounds choices are the quiet machine's; the longest probe took $longest s"
[ $same -eq "$rounds" ] && [ $late -eq 0 ]
