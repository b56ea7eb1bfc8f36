# Sourced by the scripts of this folder, with the program as their $1: namespaces in which a cluster is played.
#
# The script runs again in namespaces of its own: networks, mounts, host name, shared memory and process numbers.
# When its first process ends, however it ends, the kernel kills all others and takes the networks and mounts away:
# daemons, hosts and links need no tidying up, and cannot meet those of this machine.
set -u

# skip WHY: this machine cannot play a cluster.
skip() {
    echo "skipped: $*"
    exit 77
}
# need PROGRAM COMMANDS...: what is to be tested, what it takes, and the right to make namespaces.
need() {
    local command
    [ -e "$(dirname "$1")/athanor-mpi.so" ] || skip "the program has no MPI: make deps-mpi, then make"
    for command in ip unshare nsenter "${@:2}"; do
        [ -n "$(PATH=$PATH:/usr/sbin command -v "$command")" ] || skip "there is no $command: make deps-cluster"
    done
    [ "$(id -u)" = 0 ] || skip "namespaces of networks need root"
    unshare --net --mount --uts --ipc --pid --fork --kill-child true 2>/dev/null || skip "no namespaces can be made here"
    unshare --net ip link add name b type bridge 2>/dev/null || skip "this kernel has no bridges"
}
# enter SCRIPT ARGS...: goes on in the namespaces.
enter() {
    [ -n "${ATHANOR_CLUSTER:-}" ] && return
    ATHANOR_CLUSTER=1 PATH=$PATH:/usr/sbin exec unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc \
        bash "$@"
}
