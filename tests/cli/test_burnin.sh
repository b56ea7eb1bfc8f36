#!/usr/bin/env bash
# The burn-in names a GPU that is slow, that becomes slow, and one with a wrong bit in memory or in a product. What cores
# say is not looked at: other work on this machine may slow them. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1 ATHANOR_CUDA=emulated ATHANOR_CUDA_COUNT=2

# burn FAULT STATUS: all that is said goes to `out`. A slow core may fail beside it.
burn() {
    local rc=0
    ATHANOR_CUDA_FAULT=$1 "$athanor" doctor burnin --seconds 0.1 --json >out 2>err || rc=$?
    [ "$rc" = "$2" ] || [ "$rc$2" = 10 ] || fail "$1: exit status $rc"
}
# good NAME, bad NAME TEXT: what the check of that name says.
line() { grep -oE "\"name\": \"$1\", \"ok\": (true|false), \"detail\": \"[^\"]*\"" out; }
good() { line "$1" | grep -q '"ok": true' || fail "$1 is well, but: $(line "$1")"; }
bad() { line "$1" | grep -q "\"ok\": false.*$2" || fail "$1 does not say '$2': $(line "$1")"; }

burn none 0
for gpu in 0 1; do good "GPU $gpu products"; good "GPU $gpu memory"; good "GPU $gpu copies"; done
good memory
line cores | grep -q 'products on [0-9]' || fail "no word of cores"
burn slow:1 1
bad "GPU 1 products" "83 % of the speed of the best"
good "GPU 0 products"
burn slows:0 1
bad "GPU 0 products" "83 % of the speed of its first"
good "GPU 1 products"
burn flip:1 1
bad "GPU 1 memory" "byte 32768 of chunk [0-9] is 0x.* and must be 0x"
good "GPU 0 memory"
burn wrong:0 1
bad "GPU 0 products" "an element of product [0-9]* is .* and must be"
good "GPU 1 products"

expect 2 doctor --seconds 3
has err "athanor doctor burnin --seconds N"
expect 2 doctor burnout
has err "athanor doctor burnin"
finish
