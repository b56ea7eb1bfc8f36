# Models and objectives under all layouts of two ranks, as threads, processes and under MPI, and some drawn at random.
# $1 is the program.
. "$(dirname "$0")/lib.sh"
bash "$root/tools/layout_matrix.sh" 2 4 "$athanor" >out 2>&1 || { last="layout_matrix.sh 2 4" && fail "a difference"; }
grep -v "all passed" out
finish
