# Ranks that are killed lose nothing that was saved. $1 is the program.
. "$(dirname "$0")/lib.sh"
bash "$root/tools/kill_ranks_test.sh" 8 "$athanor" >out 2>&1 || { last="kill_ranks_test.sh 8" && fail "a difference"; }
grep -v "all passed" out
finish
