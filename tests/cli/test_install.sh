# The installed program runs through its link in bin/, also after its folder has been moved, and finds
# what lies beside it. $1 is the program.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$athanor")
cmake --install "$build" --prefix "$work/there" >out 2>err || fail "cmake --install"
DESTDIR=$work/image cmake --install "$build" --prefix /usr >out 2>err || fail "cmake --install with DESTDIR"
[ -x image/usr/bin/athanor ] || fail "nothing in DESTDIR"
mv there moved
athanor=$work/moved/bin/athanor
expect 0 --version
expect 0 plan smollm2-135m
for beside in athanor-mpi.so web/plan.html; do
    [ ! -e "$build/$beside" ] || [ -e "moved/lib/athanor/${beside##*/}" ] || fail "$beside was not installed"
done
finish
