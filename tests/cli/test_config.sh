# The command-line frame and `athanor config`. $1 is the program.
. "$(dirname "$0")/lib.sh"
is_empty() { [ ! -s "$1" ] || fail "std$1 is not empty"; }

cat >tiny.yaml <<'END'
run: runs/tiny
model:
  hidden_size: 384
train:
  steps: 2000
data:
  train: [{path: shards/train, weight: 1.0}]
END

expect 0 --version;            has out "athanor "
expect 0 --help;               has out "config print"
expect 0 config --help;        has out "config why"
expect 0 config print --help;  has out "usage: athanor config print CONFIG"; has out "optim.schedule.warmup_steps"
expect 2;                      has out "usage:"
expect 2 confg print x;        has err "unknown command 'confg'"; has err "hint: did you mean 'athanor config'?"
expect 2 config prnt x;        has err "did you mean 'athanor config print'?"
: >empty.yaml
expect 2 plan empty.yaml;      has err "empty.yaml says nothing of a model"; has err "model.preset=smollm2-135m"
expect 0 plan empty.yaml model.preset=gpt2
expect 2 plan serch c.yaml;    has err "did you mean 'athanor plan search'?"
expect 2 config;               has err "needs one more word"
expect 2 config --json;        has out "needs one more word"; has out '"where": "command line"'
expect 2 confg --help;         has err "unknown command 'confg'"; lacks out "usage"
expect 2 config prnt --help;   has err "did you mean 'athanor config print'?"
expect 0 help;                 has out "athanor help [COMMAND]"; has out "config print"
expect 0 help config print;    has out "usage: athanor config print CONFIG"
expect 0 help config;          has out "config why"; lacks out "plan search"
expect 2 help config prnt;     has err "did you mean 'athanor config print'?"
for asked in --help --version "train --help"; do # all of it, or an error: the last one is longer than a buffer
    [ -e /dev/full ] || continue
    last="$asked > /dev/full"
    "$athanor" $asked >/dev/full 2>err && fail "full disk"
    has err "cannot write standard output"
done
[ -e /dev/full ] && { last="plan --json > /dev/full"; "$athanor" config schema --json >/dev/full 2>err && fail "full disk"; has err "cannot write standard output"; }

# "-" is no file's name where something is written.
expect 0 plan cluster h100-8;  cp out printed
expect 0 plan cluster h100-8 -o -;  cmp out printed || fail "-o - is not what is printed without"
expect 2 plan fit rows.csv -o -;    has err "-o of 'athanor plan fit' cannot be standard output"
expect 2 generate m --ids 1 --logits=-;  has err "--logits of 'athanor generate' cannot be"
[ ! -e ./- ] || fail "there is a file of the name -"

expect 2 config print;         has err "needs an input"
expect 2 config print a b;     has err "no use for 'b'"
expect 2 config print tiny.yaml --jsn;  has err "did you mean '--json'?"
expect 2 config print tiny.yaml --json=1;  has err "--json takes no value"
expect 2 plan cost --json;      has out '"where": "command line"'
expect 2 bench gemm nosuch=3;  has err "has no key 'nosuch'"; has err "hint: usage: athanor bench gemm"
expect 2 config print tiny.yaml -x;     has err "no option '-x'"
expect 2 config print tiny.yaml -o x;   has err "takes no -o"
expect 2 config schema a=b;    has err "takes no key=value"
expect 2 config schema --markdown --json;  has out "--markdown and --json exclude each other"
expect 2 config schema x.yaml;    has err "has no use for 'x.yaml'"

# Keys that do nothing are told, with their lines: of another schedule, without a validation set, of
# a stage that comes later. Defaults, what is switched off, and a file's keys after an override are not.
cat >idle.yaml <<'END'
model: {model_type: gpt2, hidden_size: 384, num_hidden_layers: 2, torch_dtype: float32, n_ctx: 64}
optim:
  schedule: {kind: constant, decay_steps: 10, gamma: 0.5, min_lr: 0, decay: linear}
eval: {patience: 3, every: 0}
sample: {max_new: 5}
train: {beta: 0.2, batch_ramp: {every: 7}, keep_collectives: true}
parallel: {sp: true, cp_kind: allgather}
stages:
  - {name: one, until: {steps: 5}}
  - {name: two, until: {steps: 9}, optim: {schedule: {kind: wsd, milestones: [2]}}}
END
for other in fp32 fp16; do # as a run writes what it has chosen
    expect 0 config print tiny.yaml train.precision.compute=$other train.precision.arithmetic=fp32; lacks err "does nothing"
done
expect 0 config print tiny.yaml train.precision.compute=fp32 train.precision.arithmetic=bf16;  has err "does nothing"
expect 0 config print idle.yaml
for idle in "optim.schedule.gamma (idle.yaml:3) does nothing where optim.schedule.kind is wsd" \
    "stages.1.optim.schedule.milestones (idle.yaml:10) does nothing where" \
    "eval.patience (idle.yaml:4) does nothing without data.valid" \
    "sample.max_new (idle.yaml:5) does nothing without sample.prompts" \
    "train.beta (idle.yaml:6) does nothing where train.objective is lm" \
    "train.batch_ramp.every (idle.yaml:6) does nothing without train.batch_ramp.start" \
    "parallel.sp (idle.yaml:7) does nothing unless parallel.tp is above 1" \
    "train.keep_collectives (idle.yaml:6) does nothing unless parallel.tp or parallel.cp or parallel.ep is above 1" \
    "model.torch_dtype (idle.yaml:1) does nothing"; do
    has err "athanor: warning: $idle"
done
[ "$(grep -c warning err)" = 9 ] || fail "not nine warnings"
expect 0 config print idle.yaml stages=[] optim.schedule.kind=cosine sample.prompts=[]
lacks err decay; lacks err sample; lacks err gamma
for axis in tp cp ep; do
    expect 0 config print idle.yaml train.keep_collectives=true parallel.$axis=2
    lacks err keep_collectives
done
expect 0 config print idle.yaml lora.dropout=0.1
has err "lora.dropout (command line) does nothing without lora.rank or lora.from"
expect 0 config print idle.yaml lora.dropout=0.1 lora.from=adapter
lacks err lora.dropout

expect 0 config print tiny.yaml
has out "steps: 2000"; has out "# tiny.yaml:5"; has out "# default"
cp out again.yaml
expect 0 config diff tiny.yaml again.yaml;  is_empty out
expect 0 config print tiny.yaml --json;     is_empty err; has out '"steps": 2000'
cp out again.json
expect 0 config diff tiny.yaml again.json --json;  has out '{"differences": []}'
expect 0 config diff tiny.yaml again.json train.seed=2;  is_empty out
sed 's/2000/10B/' tiny.yaml >other.yaml
expect 0 config diff tiny.yaml other.yaml;  has out "train.steps: 2000 -> 10000000000"
"$athanor" config print - --json <tiny.yaml >out 2>err || fail "standard input"
cmp -s out again.json || fail "standard input gives another config"

expect 0 config why tiny.yaml train.steps;  has out "train.steps = 2000  # tiny.yaml:5"
expect 0 config why tiny.yaml train.seed;   has out "# default"
expect 0 config why tiny.yaml train.precision train.precision=bf16; has out "# command line"
expect 0 config why tiny.yaml train.steps --train.steps=64k --json
has out '{"key": "train.steps", "value": 64000, "origin": "command line"}'
expect 0 config why tiny.yaml model.hidden_size;      has out "# tiny.yaml:3"
expect 0 config why tiny.yaml data.train.0.weight data.train.0.weight=2;  has out "= 2.0  # command line"

expect 0 config presets;            has out "smollm2-135m  "; has out " 405853388800 "
expect 0 config presets gemma- qwen3-0;  has out "gemma-3-1b "; has out "qwen3-0.6b "; lacks out "gpt2"
expect 0 config presets gpt2 --json
has out '{"name": "gpt2", "model_type": "gpt2", "params": 124439808, "num_hidden_layers": 12,'
expect 2 config presets gpt9;       has err "no preset begins with 'gpt9'"; has err "hint: athanor config presets shows all"

expect 2 config why tiny.yaml train.stps;   has err "there is no key 'train.stps'"

sed 's/  steps/  stps/' tiny.yaml >bad.yaml
expect 2 config print bad.yaml;  is_empty out
has err "athanor: error: unknown key 'train.stps' (bad.yaml:5); nearest: train.steps"
has err "  where: bad.yaml:5"; has err "  hint: did you mean 'train.steps'?"
expect 2 config print bad.yaml --json;  is_empty err
has out '{"error": {"kind": "usage", "message": "unknown key '"'train.stps'"' (bad.yaml:5); nearest: train.steps"'
has out '"where": "bad.yaml:5"'
expect 2 config print tiny.yaml train.steps=many;  has err "must be an integer"; has err "command line"
expect 0 config print -- tiny.yaml
"$athanor" config print absent.yaml >out 2>err && fail "absent file"
has err "absent.yaml"
[ -e /dev/full ] && { last="config print > /dev/full"; "$athanor" config print tiny.yaml >/dev/full 2>err && fail "full disk"; }

expect 0 config schema;  has out '"$schema": "https://json-schema.org/draft/2020-12/schema"'
expect 0 config schema --markdown;  has out '| `train.steps` |'

finish
