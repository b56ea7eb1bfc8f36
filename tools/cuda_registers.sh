#!/usr/bin/env bash
# What nvcc says of every kernel for one kind of GPU: registers, static shared memory, spilled bytes, how many of the 64
# warps of a multiprocessor the registers allow, and how many tensor-core instructions it has: HMMA in the machine's code where
# there is cuobjdump (of a toolkit, or by make deps-cuda), else mma.sync in PTX. Exits 1 if a kernel spills, or if one that is
# named mma has none of these; 77 without nvcc.
# Usage: tools/cuda_registers.sh [ARCH]      (default 90a)
set -euo pipefail

arch=${1:-90a}
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "there is no nvcc here" && exit 77; }
cuobjdump=$(command -v cuobjdump || find -L "${nvcc%/*}" build/cuda-libs -name cuobjdump -type f 2>/dev/null | head -n 1 || true)
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

# A block of T threads with R registers each: registers are given to warps, in units of 256.
cat "$work"/*.ptx ${cuobjdump:+"$work"/*.sass} "$work"/*.log | awk -v tensor="${cuobjdump:+HMMA[.]}" '
    /^\.visible \.entry/ { sub(/\(.*/, "", $3); name = $3 }
    /^\.maxntid/ { gsub(/,/, "", $2); threads[name] = $2 }
    BEGIN { if (tensor == "") tensor = "mma[.]sync" }
    $1 == "Function" && $2 == ":" { name = $3 }
    $0 ~ tensor { products[name]++ }
    /Compiling entry function/ { split($0, q, "\047"); kernel = q[2] }
    /bytes spill stores/ { spill[kernel] = $(NF - 6) + $(NF - 2) }
    /Used [0-9]+ registers/ {
        registers = $0; sub(/.*Used /, "", registers); sub(/ .*/, "", registers)
        shared = 0
        if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART) + 0
        per_warp = int((registers * 32 + 255) / 256) * 256
        warps = int(65536 / per_warp)
        block = int((threads[kernel] + 31) / 32)
        if (block > 0) warps = int((warps > 64 ? 64 : warps) / block) * block
        printf "%-36s %4d threads %4d registers %6d bytes shared %5d spilled %3d of 64 warps %4d tensor-core\n",
               kernel, threads[kernel], registers, shared, spill[kernel], warps, products[kernel]
        if (spill[kernel] > 0 || (kernel ~ /_mma_/ && !products[kernel])) bad = 1
    }
    END { exit bad }' | sort
exit "${PIPESTATUS[1]}"
