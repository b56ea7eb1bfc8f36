#!/usr/bin/env bash
# What nvcc says of every kernel for one kind of GPU: registers, static and dynamic shared memory, spilled bytes, how many
# warps of a multiprocessor these allow, and how many tensor-core instructions it has: HMMA in the machine's code where
# there is cuobjdump (of a toolkit, or by make deps-cuda), else mma.sync in PTX. Dynamic shared memory is what a launch
# asks for: GRIDS is a file that a run on the emulated GPU has written, with ATHANOR_CUDA_GRIDS=FILE; without it none is
# counted. Exits 1 if a kernel spills, or if one that is named mma has no such instructions; 77 without nvcc.
# Usage: tools/cuda_registers.sh [ARCH [GRIDS]]      (default 90a)
set -euo pipefail

arch=${1:-90a}
grids=$(realpath "${2:-/dev/null}")
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "there is no nvcc here" && exit 77; }
cuobjdump=$(command -v cuobjdump || find -L "${nvcc%/*}" build/cuda-libs -name cuobjdump -type f 2>/dev/null | head -n 1 || true)
# What a multiprocessor has: warps, and shared memory in KB (CUDA C++ Programming Guide, "Technical Specifications per
# Compute Capability").
case $arch in
80*) most=64 room=164 ;;
90* | 100*) most=64 room=228 ;;
*) most=48 room=100 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for source in src/op/cuda/*.cu; do
    for storage in f32 bf16 f16; do
        echo "$source $storage"
    done
done | xargs -P "$(nproc)" -L 1 bash -c '
    out="$0"/$(basename "$3" .cu)_$4
    "$1" -ptx -O3 -std=c++17 -Werror all-warnings -arch=compute_"$2" -DKERNEL_SUFFIX="$4" -DCUDA_STORE_"${4^^}"=1 -Isrc "$3" -o "$out".ptx
    "${1%nvcc}"ptxas -v -arch=sm_"$2" "$out".ptx -o "$out".cubin 2>"$out".log
' "$work" "$nvcc" "$arch"
if [ -n "$cuobjdump" ]; then
    for cubin in "$work"/*.cubin; do "$cuobjdump" -sass "$cubin" >"${cubin%cubin}"sass; done
fi

# A block of T threads with R registers each: registers are given to warps, in units of 256, and a block takes 1 KB of
# shared memory beside its own.
cat "$grids" "$work"/*.ptx ${cuobjdump:+"$work"/*.sass} "$work"/*.log | awk -v tensor="${cuobjdump:+HMMA[.]}" -v most="$most" -v room="$room" '
    BEGIN { if (tensor == "") tensor = "mma[.]sync" }
    NF == 3 && $2 $3 ~ /^[0-9]+$/ { if ($3 > dynamic[$1]) dynamic[$1] = $3; next }
    /^\.visible \.entry/ { sub(/\(.*/, "", $3); name = $3 }
    /^\.maxntid/ { gsub(/,/, "", $2); threads[name] = $2 }
    $1 == "Function" && $2 == ":" { name = $3 }
    $0 ~ tensor { products[name]++ }
    /Compiling entry function/ { split($0, q, "\047"); kernel = q[2] }
    /bytes spill stores/ { spill[kernel] = $(NF - 6) + $(NF - 2) }
    /Used [0-9]+ registers/ {
        registers = $0; sub(/.*Used /, "", registers); sub(/ .*/, "", registers)
        shared = dynamic[kernel] + 0
        if (match($0, /[0-9]+ bytes smem/)) shared += substr($0, RSTART) + 0
        per_warp = int((registers * 32 + 255) / 256) * 256
        warps = int(65536 / per_warp)
        block = int((threads[kernel] + 31) / 32)
        if (block > 0) {
            blocks = int((warps > most ? most : warps) / block)
            fits = int(room * 1024 / (shared + 1024))
            warps = (blocks < fits ? blocks : fits) * block
        }
        printf "%-36s %4d threads %4d registers %6d bytes shared %5d spilled %3d of %d warps %4d tensor-core\n",
               kernel, threads[kernel], registers, shared, spill[kernel], warps, most, products[kernel]
        if (spill[kernel] > 0 || (kernel ~ /_mma_/ && !products[kernel])) bad = 1
    }
    END { exit bad }' | sort
exit "${PIPESTATUS[1]}"
