#!/bin/sh
# Compares athanor's training speed with PyTorch's on this machine's CPU: sets up PyTorch in a virtual environment once,
# then runs both in turn (see vs_pytorch.py --help for the options).
#   VENV=FOLDER     the virtual environment, default build/venv
#   PYTHON=PROGRAM  the Python that makes it, default python3
# pip takes PyTorch's smaller CPU-only wheel where PIP_EXTRA_INDEX_URL names an index that has it.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-build/venv}
if ! "$venv/bin/python" -c 'import torch, numpy, yaml, transformers; assert torch.__version__.split("+")[0] == "2.13.0"' 2>/dev/null; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pyyaml==6.0.3 transformers==5.23.0
fi
exec "$venv/bin/python" bench/vs_pytorch.py "$@"
