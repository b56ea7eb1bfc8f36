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
expect 2 config;               has err "needs one more word"
expect 2 config print;         has err "needs an input"
expect 2 config print a b;     has err "no use for 'b'"
expect 2 config print tiny.yaml --jsn;  has err "did you mean '--json'?"
expect 2 config print tiny.yaml -x;     has err "no option '-x'"
expect 2 config print tiny.yaml -o x;   has err "takes no -o"
expect 2 config schema a=b;    has err "takes no key=value"

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
