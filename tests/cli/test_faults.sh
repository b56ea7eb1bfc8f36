# Single failing operations of building, training and starting again; see tools/fault_test.sh, which
# can try all of them. $1 is the program.
exec bash tools/fault_test.sh 5 "$1"
