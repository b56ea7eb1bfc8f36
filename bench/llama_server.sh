#!/usr/bin/env bash
# Builds llama.cpp's server, the peer of bench/vs_server.py, from the sources that PyPI's llama-cpp-python carries: the
# newest release, or VERSION. All that the machine has is used (GGML_NATIVE), as for athanor.
#
#     bench/llama_server.sh [FOLDER [VERSION]]     the program is FOLDER/build/bin/llama-server (build/llama_server)
set -euo pipefail
folder=${1:-build/llama_server}
mkdir -p "$folder"
python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$folder" "llama-cpp-python${2:+==$2}"
archive=$(ls -t "$folder"/llama_cpp_python-*.tar.gz | head -n 1)
tar -xzf "$archive" -C "$folder"
cmake -S "${archive%.tar.gz}/vendor/llama.cpp" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
    -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DBUILD_SHARED_LIBS=OFF
nice cmake --build "$folder/build" --target llama-server -j "${JOBS:-$(nproc)}"
echo "$archive: $folder/build/bin/llama-server"
