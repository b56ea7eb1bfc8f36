# Conversations, looked at token by token: before a set is made of them, in a set, in a step of a run; and what
# the run's checkpoints say of the way it was taught. $1 is the program.
. "$(dirname "$0")/lib.sh"
export TMPDIR=$PWD # other programs may do the same in /tmp
make_text 200 3 >text.txt
expect 0 tok train text.txt -o plain.json --kind bpe --vocab-size 290
expect 0 tok add plain.json --special '<|im_start|>,<|im_end|>' -o tok.json
for i in 1 2 3 4 5 6 7 8; do
    echo '{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "who waits? '$i'"}, {"role": "assistant", "content": "One."}, {"role": "user", "content": "And who\ttoo?"}, {"role": "assistant", "content": "No\u200bbody. \ud83d\udd25"}]}'
done >chats.jsonl
cat >pairs.jsonl <<'JSON'
{"prompt": "who waits?", "chosen": "One does.", "rejected": "No."}
{"prompt": "who feeds?", "chosen": "The fire.", "rejected": "Iron."}
JSON

# ---- a set ----
expect 0 data build chats.jsonl -o set tokenizer=tok.json --template chatml
expect 0 data show set --limit 2
has out 'set: conversations: 8; tokens: '
has out 'chats.jsonl: 8 documents, '
has out '#0  chats.jsonl:1  '
has out '  system     [[Be brief.]]'
has out '  template   [[«<|im_end|>»⏎'
has out '             «<|im_start|>»user⏎]]'
has out '  user       [[And who⇥too?]]'
has out '  assistant  One.«<|im_end|>»'
has out '  assistant  No‹U+200B›body. 🔥«<|im_end|>»'
has out '... and 6 more'
lacks out "$(printf '\033')"
expect 0 data show set --limit 1 --tokens
has out '‹f0›│‹9f›│‹94›│‹a5›'
expect 0 data show set --limit 1 --json
has out '"role_names": ["template", "system", "user", "assistant", "tool", "reasoning", "text"]'
has out '[240], [159], [148], [165]'
[ "$(ids_of roles out | tr ',' '\n' | grep -c .)" = "$(ids_of ids out | tr ',' '\n' | grep -c .)" ] || fail "a role for each token"
expect 0 data show set --html set.html
has set.html 'title="'
has set.html '<div class="line r3"><b>assistant</b>'
lacks set.html 'class="bad"'
lacks set.html http

# ---- pairs ----
expect 0 data build pairs.jsonl -o pairs tokenizer=tok.json --template chatml
expect 0 data show pairs
has out 'pairs of a chosen and a rejected conversation: 2'
has out '  chosen  '
has out '  rejected  '
grep -A9 '  rejected  ' out | grep -q 'assistant  Iron.' || fail "the rejected answer of the second pair"
expect 0 data show pairs --html pairs.html
has pairs.html '<div class="rows n2">'

# ---- before a set is made: hard stops, with the sample ----
sed "s/\"system\"/\"user\"/; 3s/.*/{\"messages\": [{\"role\": \"system\", \"content\": \"Listen.\"}, {\"role\": \"user\", \"content\": \"so\"}, {\"role\": \"assistant\", \"content\": \"Yes.\"}]}/" chats.jsonl >mixed.jsonl
cat >deaf.jinja <<'JINJA'
{% for m in messages %}{% if m.role != 'system' %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
JINJA
expect 2 data build mixed.jsonl -o never tokenizer=tok.json --template deaf.jinja
expect 0 data show mixed.jsonl tokenizer=tok.json --template deaf.jinja --limit 1
has out 'a build stops at system_dropped: the template drops the system prompt of this conversation; 1 conversation, the first is mixed.jsonl:3'
grep -A1 '^system_dropped$' out | grep -q '^#2  mixed.jsonl:3' || fail "the sample with the stop comes first"
has out '#0  mixed.jsonl:1'
expect 0 data show mixed.jsonl tokenizer=tok.json --template deaf.jinja --html mixed.html
has mixed.html '<section class="bad"><h2>A build stops here</h2>'
has mixed.html '(<a href="#s0">shown below</a>)'
ls -d "$TMPDIR"/athanor-show-* >left 2>/dev/null && fail "a folder is left behind: $(cat left)"
expect 0 data build mixed.jsonl -o deaf tokenizer=tok.json --template deaf.jinja allow=system_dropped
expect 0 data show deaf
has out 'accepted: system_dropped'
expect 2 data show deaf --from 99
has err 'there is no sample 99'
expect 2 data show chats.jsonl
has err 'give tokenizer=FILE'
expect 3 data show chats.jsonl tokenizer=tok.json
has err 'no chat template'

# ---- a step, and what the run leaves ----
write_config c.yaml
sed -i 's/char.json/tok.json/; s/data: .*/data: {train: set, packing: bestfit}/; s/seq_len: 32/seq_len: 128/; s/embeddings: 64/embeddings: 128/' c.yaml
expect 0 train c.yaml train.steps=2 eval.every=0 sample.every=0
expect 0 data show --run run --step 1 --render
has out '  --- chats.jsonl:'
has out '  assistant  One.«<|im_end|>»'
expect 0 data show --run run --step 1 --html step.html
has step.html 'The mixture of this step'
has step.html 'How documents lie in the rows'
checkpoint=run/checkpoints/step-2
cmp -s set/chat_template.jinja $checkpoint/chat_template.jinja || fail "the template of the set is not that of the checkpoint"
stop=$(grep -o '"id": *[0-9]*, *"content": *"<|im_end|>"' tok.json | tr -dc '0-9 ' | awk '{ print $1 }')
[ -n "$stop" ] || stop=291
eos=$(field eos_token_id $checkpoint/config.json)
[ "$eos" = "$stop" ] || fail "config.json ends at $eos, not at $stop"
[ "$(ids_of eos_token_id $checkpoint/generation_config.json)" = "$stop,0" ] || fail "generation_config.json: $(cat $checkpoint/generation_config.json)"
[ "$(field eos_token $checkpoint/tokenizer_config.json)" = "<|im_end|>" ] || fail "tokenizer_config.json"
expect 0 verify checkpoint $checkpoint
expect 0 chat run --prompt hello --max-new 3 --json
expect 0 export run -o folder --to hf
cmp -s set/chat_template.jinja folder/chat_template.jinja || fail "the export has another template"
[ "$(field eos_token_id folder/config.json)" = "$stop" ] || fail "the export ends elsewhere"

# Of a file of conversations, with a template in the config.
expect 0 train c.yaml run=direct 'data={train: chats.jsonl, template: chatml}' train.steps=1 eval.every=0 sample.every=0
cmp -s set/chat_template.jinja direct/checkpoints/step-1/chat_template.jinja || fail "another template"
expect 0 data show --run direct --step 1 --render
has out '  assistant  One.«<|im_end|>»'

# Texts and conversations in one step.
yes 'The furnace waits.' | head -n 40 >lines.txt
expect 0 data build lines.txt -o lines tokenizer=tok.json
expect 0 train c.yaml run=both 'data={train: [{path: set}, {path: lines}], packing: bestfit}' train.steps=1 eval.every=0 sample.every=0
expect 0 data show --run both --step 1 --html both.html
has both.html '<div class="line r3"><b>assistant</b>'
has both.html '<div class="line r6"><b>text</b>'

# What is taught on from there keeps them.
sed '/^tokenizer/d; s/^model:.*/model: {from: run}/' c.yaml >on.yaml
expect 0 train on.yaml run=on train.steps=1 eval.every=0 sample.every=0
[ "$(ids_of eos_token_id on/checkpoints/step-1/generation_config.json)" = "$stop,0" ] || fail "the second run ends elsewhere"
# A run of texts is as it was.
expect 0 data build text.txt -o texts tokenizer=plain.json
expect 0 train c.yaml run=text tokenizer=plain.json 'data={train: texts}' train.steps=1 eval.every=0 sample.every=0
[ ! -e text/checkpoints/step-1/chat_template.jinja ] || fail "a template out of nowhere"
has text/checkpoints/step-1/generation_config.json '"eos_token_id": 0'
finish
