# `athanor verify checkpoint`: what it says of good, damaged and half-written checkpoints. $1 is the
# program.
. "$(dirname "$0")/lib.sh"
make_data
write_config c.yaml
expect 0 train c.yaml train.steps=12 checkpoint.keep=2 checkpoint.keep_best=1 eval.every=4
# 8 and 12 are the newest; the loss falls, so the best is one of them or 4.
expect 0 verify checkpoint run
has out "ok: run: all checkpoints are whole"
has out ", best"
has out "step-12"
grep -qE 'step-12 .* ok, newest' out || fail "step-12 is not the newest"
has out "a resume takes step-12"
expect 0 verify checkpoint run/checkpoints/step-8
has out "every file matches its checksum"
expect 0 verify checkpoint run --json
grep -q '"ok": true' out && grep -q '"resume": "run/checkpoints/step-12"' out || fail "the report is not so"
[ "$(grep -o '"val_loss": [0-9.]*' out | wc -l)" -ge 2 ] || fail "no validation losses"

# A name that is not UTF-8.
bytes=$(printf 'run-\377')
cp -r run "$bytes"
mkdir "$bytes/checkpoints/.tmp-$bytes"
expect 0 verify checkpoint "$bytes" --json
grep -q '"ok": true, "detail": "run-�: all checkpoints are whole' out || fail "the report is not so"
has out '"resume": "run-�/checkpoints/step-12"'
has out '"leftovers": [".tmp-run-�"]'

# A byte of the last tensor, a missing file, and what a crash leaves.
cp -r run bad
weights=bad/checkpoints/step-12/model.safetensors
printf '\377' | dd of=$weights bs=1 seek=$(($(wc -c <$weights) - 2)) conv=notrunc 2>log
rm bad/checkpoints/step-12/state/cursor.json
mkdir bad/checkpoints/.tmp-step-16-1
expect 1 verify checkpoint bad
has out "broken: bad: 1 of "
has out "model.safetensors: checksum differs (file damaged)"
[ "$(grep -c '^ *tensor ' out)" = 1 ] || fail "not one damaged tensor"
has out "state/cursor.json: the file is missing"
has out ".tmp-step-16-1: left by a crash"
has out "a resume takes step-8"
expect 1 verify checkpoint bad --json
grep -q '"ok": false' out && grep -q '"resume": "bad/checkpoints/step-8"' out || fail "the report is not so"
grep -qE '"tensors": \["[a-z0-9_.]+"\]' out || fail "the damaged tensor is not named"
has out '"leftovers": [".tmp-step-16-1"]'
expect 1 verify checkpoint bad/checkpoints/step-12
has out "use step-8, the newest good one of this run"
expect 0 train c.yaml run=bad train.steps=12 checkpoint.keep=2 checkpoint.keep_best=1 eval.every=4
expect 0 verify checkpoint bad
has out "a resume takes step-12"

# Nothing of that kind.
rm -rf bad/checkpoints
expect 3 verify checkpoint bad
has err "no checkpoint, model folder or run with checkpoints"
expect 3 verify checkpoint nowhere
finish
