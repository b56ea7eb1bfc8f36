# `athanor runs list|show|diff|report`. $1 is the program.
. "$(dirname "$0")/lib.sh"

make_run() {
    mkdir -p "runs/$1"
    printf '{"model": {"hidden_size": 64}, "train": {"steps": 2, "seed": %s}}\n' "$2" \
        >"runs/$1/config.json"
    printf '%s\n' '{"event": "start", "params": 1200000}' \
        '{"event": "step", "step": 1, "loss": 4.5}' \
        '{"event": "step", "step": 2, "loss": 3.25}' \
        '{"event": "valid", "step": 2, "val_loss": 3.5, "val_bpb": 2.0}' >"runs/$1/metrics.jsonl"
}

expect 1 runs list;                   has err "there is no folder runs"
mkdir runs
expect 0 runs list;                   has out "no runs in runs"
make_run one 1
make_run two 2
mkdir runs/model
echo '{"model_type": "llama"}' >runs/model/config.json
expect 0 runs list;                   has out "one   finished     1.2M        2    3.2500     3.5000"
expect 0 runs list runs --json;       has out '"name": "two"'
grep -q other out && fail "lists a folder that is no run"
expect 0 runs show runs/one;          has out "best_val_loss"
expect 0 runs show runs/one/ --json;  has out '"val_bpb": 2.0'
expect 3 runs show runs/model;        has err "runs/model is not a run folder"
expect 0 runs diff runs/one runs/two; has out "train.seed"
has out "1 -> 2"
expect 0 runs diff runs/one runs/two --json; has out '"key": "train.seed"'
expect 0 runs diff runs/one runs/one; has out "the configs are equal"
expect 0 runs report runs/one;        has out "runs/one/report.html"
grep -q "1.2M parameters" runs/one/report.html || fail "the report does not name the parameters"
printf '%s\n' '{"event": "stage", "step": 1, "name": "base", "seq_len": 64, "batch": 8, "sources": [{"path": "shards/web/train", "share": 0.7}, {"path": "code", "share": 0.3}]}' \
    '{"event": "alarm", "step": 2, "kind": "spike", "action": "log", "message": "loss 9 (z 8.0)", "documents": [{"source": "a", "line": 3}, {"source": "b", "line": 4}]}' \
    >>runs/one/metrics.jsonl
expect 0 runs show runs/one;          has out "from step 1  base: 64 tokens x 8; web 70 %, code 30 %"
has out "step 2  spike: loss 9 (z 8.0)"
has out "      b:4"
has out "finished"
expect 0 runs show runs/one --json;   has out '"kind": "spike"'
has out '"n_alarms": 1'
echo broken >>runs/two/metrics.jsonl
expect 3 runs show runs/two;          has err "line 5"
expect 0 runs list;                   has err "runs/two is left out"
echo '{"model": ' >runs/two/config.json
expect 0 runs list;                   has err "runs/two is left out: runs/two/config.json is not JSON"
lacks err "runs/model"
mkdir runs/round
ln -s config.json runs/round/config.json
expect 0 runs list;                   has err "runs/round is left out: cannot open runs/round/config.json"

finish
