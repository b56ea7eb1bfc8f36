#!/usr/bin/env bash
# Builds for ARM in 64 bits with Debian's cross compiler, and runs tests of the result in an emulator.
# Usage, in the source folder: tools/arm.sh [CTEST-OPTION...]   e.g. tools/arm.sh -R '^op_'
#
# The build is build/arm, the libraries of the other architecture lie in build/arm-root; nothing of it is installed.
# Tests that start the program (cli_*) run only where the kernel hands ARM programs to the emulator (binfmt_misc).
# op_gemm and others that judge rates, and those that ask addr2line for a line, may fail under an emulator.
set -euo pipefail

root=$PWD/build/arm-root
libraries=(libc6-dev libstdc++6 libgomp1 libdnnl-dev libyaml-dev libjansson-dev libutf8proc-dev libxxhash-dev
    zlib1g-dev libzstd-dev libsnappy-dev libmicrohttpd-dev libcmocka-dev)

tools/deps.sh cmake ninja-build pkg-config gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user

# apt as on such a machine, with folders of its own.
if ! [ -f "$root/complete" ]; then
    state=$PWD/build/arm-apt
    rm -rf "$root"
    mkdir -p "$root" "$state/state" "$state/cache/archives/partial"
    : >"$state/status"
    apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state/state"
        -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" -o Dpkg::Use-Pty=0)
    "${apt[@]}" update
    "${apt[@]}" install --download-only --no-install-recommends -y "${libraries[@]}" >/dev/null
    for package in "$state"/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
    find "$root" -type l -lname '/*' | while read -r link; do ln -sfn "$root$(readlink "$link")" "$link"; done
    touch "$root/complete"
fi

include=$root/usr/include/aarch64-linux-gnu
export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
cmake -S . -B build/arm -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_SYSROOT="$root" \
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    -DCMAKE_C_FLAGS="-isystem $include" -DCMAKE_CXX_FLAGS="-isystem $include" \
    "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;$root;-cpu;max" >/dev/null
cmake --build build/arm
QEMU_LD_PREFIX=$root QEMU_CPU=max OMP_NUM_THREADS=1 ctest --test-dir build/arm "$@"
