#!/bin/sh
# Compares the training of tokenizers with Hugging Face `tokenizers`, in turn, in processor time on one thread:
#   bench/tok_train.sh [--kinds bpe,wordpiece,unigram] [--vocab-size 32768] [--bytes 9400000] [--rounds 5] [TEXT...]
# TEXT is repeated or cut to the number of bytes; without any it is the Bible as `bible` prints it.
#   VENV=FOLDER     the virtual environment, default build/venv
#   PYTHON=PROGRAM  the Python that makes it, default python3
#   ATHANOR=PROGRAM default build/athanor
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv=${VENV:-$root/build/venv}
if ! "$venv/bin/python" -c 'import tokenizers, numpy' 2>/dev/null; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet tokenizers==0.23.3 numpy==2.4.6
fi
exec "$venv/bin/python" "$root/bench/tok_train.py" compare --athanor "${ATHANOR:-$root/build/athanor}" "$@"
