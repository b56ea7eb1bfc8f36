# The planner for browsers, where `make web` has built it: says what the native program says (node), and its page in a
# headless Chromium, served by the program. Skipped where it is not built.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/serve.sh"
web=$(dirname "$athanor")/web

last="athanor serve --plan, without the page"
"$athanor" serve --plan --plan-page nowhere.html >out 2>err && fail "it serves what is not there"
grep -q nowhere.html err || fail "it does not say which file is missing"
"$athanor" serve --plan a-model >out 2>err && fail "it takes a model beside the planner"
grep -q "a-model" err || fail "it does not name what it has no use for"

"$athanor" serve --plan --draft ngram >out 2>err && fail "it takes the draft of no model"
grep -q -e "--draft" err || fail "it does not name the option that does nothing"

if [ ! -f "$web/plan.html" ]; then
    [ "$failures" = 0 ] || finish
    echo "make web was not run: the planner's page was not looked at"
    exit 77
fi
last="the planner in WebAssembly"
"$athanor" plan cluster l40s-4 >cluster.yaml 2>err || fail "no cluster"
cat >config.yaml <<'YAML'
model:
  hidden_size: 256
  num_hidden_layers: 6
  num_attention_heads: 8
  intermediate_size: 1024
  vocab_size: 8192
  num_experts: 8
  num_experts_per_tok: 2
YAML
node "$root/tests/web/compare.mjs" "$athanor" "$web"  >out 2>err || { cat out; fail "it says something else"; }
cat out

command -v python3 >/dev/null || { echo "there is no Python here: the page was not looked at"; finish; }
start_server --plan --plan-page "$web/plan.html"
last="plan_page_test.py"
python3 "$root/tests/web/plan_page_test.py" "$url/" >out 2>err
got=$?
cat out
[ $got = 77 ] || [ $got = 0 ] || fail "exit $got"
stop_server
finish
