# Sourced by scripts that end at their first failure, with the program as their $1: a temporary folder
# to work in. lib.sh is for those that count failures.
set -euo pipefail
athanor=$(realpath "$1")
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive # other tests run beside this one

fail() {
    echo "FAIL: $*"
    exit 1
}

# expect_status STATUS COMMAND...: it exits so.
expect_status() {
    local want=$1 got=0
    shift
    "$@" >out 2>err || got=$?
    [ "$got" = "$want" ] || fail "status $got instead of $want: $* $(cat out err)"
}
