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

# ---- hosts: n1, n2, ... at 10.99.0.11, 10.99.0.12, ... and this one, `node`, at 10.99.0.1 ----

# start_hosts N: and the network between them.
start_hosts() {
    local n
    hostname node
    ip link set lo up
    ip link add name net type bridge
    ip addr add 10.99.0.1/24 dev net
    ip link set net up
    printf '127.0.0.1 localhost\n10.99.0.1 node\n' >hosts
    for ((n = 1; n <= $1; n++)); do echo "10.99.0.1$n n$n" >>hosts; done
    mount --bind hosts /etc/hosts
    for ((n = 1; n <= $1; n++)); do start_host $n; done
}
# start_host N: a process that holds host N's namespaces; its number is in host[N].
start_host() {
    unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc sh -c \
        "hostname n$1; mount -t tmpfs none /dev/shm; ip link set lo up; echo up >up.$1; exec sleep 100000" &
    await test -s up.$1
    host[$1]=$(cat /proc/$!/task/$!/children)
    host[$1]=${host[$1]% }
    ip link add v$1 type veth peer name eth0 netns "${host[$1]}"
    ip link set v$1 master net up
    on $1 sh -c "ip addr add 10.99.0.1$1/24 dev eth0; ip link set eth0 up"
}
# on N COMMAND...: runs it on host N.
on() { nsenter --target "${host[$1]}" --all --wd="$work" -- "${@:2}"; }
