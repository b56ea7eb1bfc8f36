# athanor recipe miniature with very small models: all stages, killed at operations on files and started again, a
# stage done again, refusals. $1 is the program.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1

make_text 6000 7 >text.txt
tiny="pretrain.model.hidden_size=32 pretrain.model.num_hidden_layers=1 pretrain.model.num_attention_heads=2
    pretrain.model.num_key_value_heads=1 pretrain.model.intermediate_size=64 pretrain.train.steps=60
    pretrain.train.seq_len=64 teach.train.epochs=null teach.train.steps=30 prefer.train.epochs=null
    prefer.train.steps=8"

# Killed at some of its operations on files, again and again, it comes to its end.
starts=0
for n in 3 9 15 21 27 33 39 45 51 60 70; do
    # shellcheck disable=SC2086 # the keys are words
    { ATHANOR_FAULT=kill:$n "$athanor" recipe miniature text.txt -o mini $tiny --json >out 2>err; } 2>/dev/null && break
    starts=$((starts + 1))
done
# Killed while a command of it trains: that one ends, too, and the next start waits for its end.
# shellcheck disable=SC2086
"$athanor" recipe miniature text.txt -o mini $tiny pretrain.train.steps=60 --json >out 2>err &
recipe=$!
await has_step mini/pretrain
{ kill -9 $recipe && wait $recipe; } 2>/dev/null
[ $starts -gt 3 ] || fail "killed only $starts times"
expect 0 recipe miniature text.txt -o mini --json
for stage in text tokenizer data tasks pretrain evaluate teach prefer evaluate-again chat export; do
    has out "\"$stage\""
done
[ "$(grep -o '"ok"' out | wc -l)" -eq 4 ] || fail "not four promises"
calc "$(field margin out) != 0" || fail "no margin"
for file in recipe.html export/hf/model.safetensors export/hf/athanor_ledger.json export/model.gguf configs/teach.yaml; do
    [ -s "mini/$file" ] || fail "no $file"
done
[ "$(wc -l <mini/tasks/cloze.jsonl)" -ge 500 ] || fail "too few questions"
grep -q 'im_start' mini/export/hf/chat_template.jinja || fail "the export has no chat template"
grep -q 'athanor train mini/configs/prefer.yaml' mini/recipe.html || fail "the page lacks a command"

# What is done is not done again; a stage on demand is, with a changed config.
before=$(stat -c %Y%i mini/prefer/config.json)
expect 0 recipe miniature -o mini
[ "$before" = "$(stat -c %Y%i mini/prefer/config.json)" ] || fail "preferring was done again"
cp mini/tasks/cloze.jsonl cloze.jsonl
sed -i 's/beta: 0.1/beta: 0.3/' mini/configs/prefer.yaml
expect 0 recipe miniature -o mini --from prefer --json
grep -q '"beta": 0.3' mini/prefer/config.json || fail "the changed config was not used"
cmp cloze.jsonl mini/tasks/cloze.jsonl || fail "an earlier stage was done again"

# Refusals.
expect 2 recipe maxiature
has err "athanor recipe list"
expect 2 recipe miniature -o mini --from preffer
has err "evaluate-again"
expect 2 recipe miniature text2.txt -o mini
has err "was begun with text.txt"
expect 2 recipe miniature text.txt -o mini data.train.steps=3
has err "no stage that trains"
expect 2 recipe miniature -o mini pretrain.train.steps=70
has err "--from pretrain does it"
mkdir other && touch other/mine
expect 2 recipe miniature text.txt -o other
has err "is not empty"
echo "too short" >short.txt
expect 2 recipe miniature short.txt -o short
has err "too few"
expect 0 recipe list --json
has out miniature

finish
