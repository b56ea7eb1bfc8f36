# Guards: a planted document that repeats one token is found and named, each action does what it says,
# and an interrupted run decides as an uninterrupted one. Early stop, keep-best, upload, and what is
# said about a damaged checkpoint. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_text 3000 7 >text.txt
awk 'BEGIN { s = ""; for (k = 0; k < 3000; k++) s = s "z"; print s }' >bad.txt
cat text.txt bad.txt | "$athanor" tok train - -o char.json --kind char >log 2>&1 || cat log
expect 0 data build text.txt -o set tokenizer=char.json valid=0.1
expect 0 data build bad.txt -o bad tokenizer=char.json
write_config c.yaml
sed -i 's#data: .*#data: {train: [{path: set/train, weight: 0.9975}, {path: bad, weight: 0.0025}], valid: set/valid}#
    s/lr: 1.0e-2/lr: 3.0e-3/; s/steps: 40/steps: 110/; s/decay_steps: 36/decay_steps: 140/
    s/every: 4}/every: 10}/' c.yaml

# ---- spikes ----
for action in log skip lower rewind; do
    expect 0 train c.yaml run=run-$action guard.action=$action --json
    cp out $action.out
    event alarm run-$action/metrics.jsonl >alarms
    kind=spike
    [ $action = rewind ] && kind=rewind
    grep -q "\"kind\": \"$kind\".*\"documents\": \[{\"set\": \"bad\", \"shard\": \"shard-00000.bin\", \"document\": 0, \"source\": \"bad.txt\"" alarms ||
        fail "$action: the planted document is not named first: $(cat alarms)"
    [ "$(results step run-$action | wc -l)" = 110 ] || fail "$action: not every step is in the record"
done
at=$(event alarm run-log/metrics.jsonl | head -n 1 | grep -o '"step": [0-9]*' | grep -o '[0-9]*')
loss_at() { event step "$2/metrics.jsonl" | grep "\"step\": $1," | grep -o '"loss": [^,]*'; }
digest_at() { event step "$2/metrics.jsonl" | grep "\"step\": $1," | grep -o '"digest": "[^"]*"'; }
[ "$(digest_at $at run-skip)" = "$(digest_at $((at - 1)) run-skip)" ] || fail "the spike's update was not left out"
[ "$(digest_at $at run-log)" != "$(digest_at $((at - 1)) run-log)" ] || fail "log left out the update"
grep -q "\"step\": $at,.*\"skipped\": true" run-skip/metrics.jsonl || fail "the step line does not say skipped"
lr_at() { event step "$2/metrics.jsonl" | grep "\"step\": $1," | grep -o '"lr": [^,]*' | grep -o '[0-9.e-]*$'; }
calc "$(lr_at $at run-lower) < 0.6 * $(lr_at $at run-log)" || fail "the rate was not lowered"
calc "$(lr_at $((at - 1)) run-lower) == $(lr_at $((at - 1)) run-log)" || fail "the rate was lowered too early"
# Rewind: the step has other samples now, what was before is unchanged.
[ "$(loss_at $at run-rewind)" != "$(loss_at $at run-log)" ] || fail "the samples were not left out"
[ "$(loss_at $((at - 1)) run-rewind)" = "$(loss_at $((at - 1)) run-log)" ] || fail "an earlier step differs"
expect 0 data show --run run-rewind --step $at
lacks out bad.txt
expect 0 data show --run run-log --step $at
has out bad.txt

# A skipped step is none to the optimizer: where the rate is constant, weights go on as if its samples had been left out.
for action in skip rewind; do
    expect 0 train c.yaml run=flat-$action guard.action=$action "optim.schedule={kind: constant}" train.steps=$((at + 4))
done
flat=$(event alarm flat-skip/metrics.jsonl | head -n 1 | grep -o '"step": [0-9]*' | grep -o '[0-9]*')
[ "$(digest_at $((flat + 3)) flat-skip)" = "$(digest_at $((flat + 2)) flat-rewind)" ] || fail "the optimizer counts a skipped step"

# ... and when it is interrupted before and after.
for action in skip rewind; do
    for stop in $((at - 3)) $((at + 2)); do
        rm -rf again
        expect 0 train c.yaml run=again guard.action=$action train.steps=$stop
        expect 0 train c.yaml run=again guard.action=$action
        results step run-$action >want
        results step again >got
        cmp -s want got || fail "$action: a run that stopped at step $stop decides otherwise"
    done
done

# Too many rewinds end the run; its checkpoints stand.
expect 5 train c.yaml run=bound guard.action=rewind guard.norm_z=0.5 guard.loss_z=0.5 --json
has out '"kind": "nonfinite"'
expect 0 verify checkpoint bound

# Back to the very beginning: what was usual before the spike is no measure for the first steps.
expect 0 train c.yaml run=zero guard.action=rewind guard.window=16 checkpoint.every=0
event alarm zero/metrics.jsonl >alarms
grep -q '"kind": "rewind".*"to_step": 0' alarms || fail "the run did not go back to its beginning"
lacks alarms '"from_step": 1,'
cp zero/metrics.jsonl out
[ "$(loss_at $((at - 1)) zero)" = "$(loss_at $((at - 1)) run-log)" ] || fail "the beginning was not the same"

# A run that leaves out every step, because no loss is finite any more, does not pass for trained.
expect 5 train c.yaml run=blind guard.action=skip optim.lr=1e6 optim.clip_norm=0 optim.eps=1e-30
[ "$(grep -c '"skipped": true' blind/metrics.jsonl)" -lt 8 ] || fail "steps that teach nothing go on and on"

# ---- a NaN in the gradients of one batch ----
golden=$root/tests/golden/models/llama-gqa-tied
# bad_weight BYTES: the last weight of the model in from/ becomes these.
bad_weight() {
    rm -rf from && cp -r "$golden" from
    printf "$1" | dd of=from/model.safetensors bs=1 seek=$(($(stat -c %s from/model.safetensors) - 4)) \
        conv=notrunc 2>/dev/null
}
echo 'model: {from: from}' >from.yaml
bad_weight '\377\377\377\177'
expect 5 train from.yaml --dump-grads g.safetensors --ids-file "$golden/ids.npy"
has err "parameter model.norm.weight holds a NaN or Inf at element"
has err "hint: look at the weights of model.from"
expect 5 train from.yaml --dump-grads g.safetensors --ids-file "$golden/ids.npy" --json
has out '"kind": "nonfinite"'
bad_weight '\377\377\177\177' # the largest float
expect 5 train from.yaml --dump-grads g.safetensors --ids-file "$golden/ids.npy"
has err "wrote a NaN or Inf into"
[ ! -e g.safetensors ] || fail "gradients with a NaN were written"
# What stands in the place of the result and cannot be written stays.
cp "$golden/model.safetensors" from/ && mkdir taken
expect 1 train from.yaml --dump-grads taken --ids-file "$golden/ids.npy"
has err "cannot create taken"
[ -d taken ] || fail "a folder of the user was removed"

# ---- early stop and the best checkpoint ----
expect 0 train c.yaml run=early optim.lr=0 optim.schedule.min_lr=0 eval.patience=2 eval.every=10 checkpoint.async=false --json
has out '"kind": "early_stop"'
[ "$(field steps out)" = 30 ] || fail "ended after $(field steps out) steps, not 30"
[ "$(event checkpoint early/metrics.jsonl | wc -l)" = 3 ] || fail "the last step is saved twice"
expect 0 train c.yaml run=early optim.lr=0 optim.schedule.min_lr=0 eval.patience=2 eval.every=10 --json
lacks out '"event": "step"'
# A stage that validates otherwise has losses of its own.
cat c.yaml - >two.yaml <<'YAML'
stages:
  - {name: one, until: {steps: 40}}
  - {name: two, train: {seq_len: 4}, optim: {lr: 0, schedule: {min_lr: 0}}}
YAML
expect 0 train two.yaml run=two eval.patience=3 eval.every=5 train.steps=60 --json
[ "$(field steps out)" = 60 ] || fail "losses of another length ended the run after step $(field steps out)"
expect 0 train c.yaml run=best checkpoint.keep=1 checkpoint.keep_best=1 eval.every=10 optim.lr=0.5 optim.clip_norm=0
best=$(event valid best/metrics.jsonl | sed -E 's/.*"step": ([0-9]+), "val_loss": ([^,]*),.*/\2 \1/' | sort -g | head -n 1 | cut -d ' ' -f 2)
[ -d best/checkpoints/step-$best ] || fail "the best checkpoint, step $best, is gone: $(ls best/checkpoints)"
[ "$(ls best/checkpoints | wc -l)" -le 2 ] || fail "more than the newest and the best are kept: $(ls best/checkpoints)"

# ---- upload ----
expect 0 train c.yaml run=up checkpoint.upload='mkdir -p store && cp -r "$ATHANOR_CHECKPOINT" "store/$ATHANOR_STEP"'
[ "$(ls store | wc -l)" = 11 ] || fail "uploaded: $(ls store)"
[ "$(ls up/checkpoints | wc -l)" = 3 ] || fail "what was uploaded was not pruned: $(ls up/checkpoints)"

expect 0 verify checkpoint store/110
expect 1 train c.yaml run=down train.steps=20 checkpoint.upload='exit 3' --json
has out '"kind": "upload_failed"'
has out '"event": "end"'
tail -n 1 out | grep -q '"message": "the upload command of step 20 ended with status 3"' || fail "the end does not say why"
[ "$(ls down/checkpoints | wc -l)" = 2 ] || fail "what was not uploaded was deleted"

# ---- a damaged checkpoint ----
printf x | dd of=run-log/checkpoints/step-110/model.safetensors bs=1 seek=2000 conv=notrunc 2>/dev/null
expect 0 train c.yaml run=run-log --json
has out '"kind": "checkpoint_damaged"'
has out "step-110 is passed over"
[ "$(results step run-log | wc -l)" = 110 ] || fail "the steps after the good checkpoint are not there once"
finish
