#!/bin/sh
# Compares athanor's training speed with PyTorch's on this machine's CPU: sets up PyTorch in a virtual environment once,
# then runs both in turn (see vs_pytorch.py --help for the options).
#   VENV=FOLDER     the virtual environment, default build/venv
#   PYTHON=PROGRAM  the Python that makes it, default python3
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-build/venv}
if ! "$venv/bin/python" -c 'import torch, numpy, yaml; assert torch.__version__.split("+")[0] == "2.13.0"' 2>/dev/null; then
    "${PYTHON:-python3}" -m venv "$venv"
    # The CPU wheels are a tenth of the size; where that index cannot be reached, the default wheels do the same work.
    "$venv/bin/pip" install --quiet numpy==2.4.6 pyyaml==6.0.3
    "$venv/bin/pip" install --quiet --index-url https://download.pytorch.org/whl/cpu torch==2.13.0 ||
        "$venv/bin/pip" install --quiet torch==2.13.0
fi
exec "$venv/bin/python" bench/vs_pytorch.py "$@"
