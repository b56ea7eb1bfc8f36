#!/usr/bin/env bash
# athanor tok chat: text, ids and masks of conversations, and how it fails.
. "$(dirname "$0")/lib.sh"

make_text 20 3 >text.txt
mkdir folder
"$athanor" tok train text.txt -o folder --kind byte >log 2>&1 || { cat log; exit 1; }
cat >folder/chat_template.jinja <<'EOF'
{%- for m in messages %}
{{- m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}.{% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ '\n' }}
{%- endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- if mode is defined %}<{{ mode }}{{ deep.x }}>{% endif %}
{%- if add_generation_prompt %}assistant: {% endif %}
EOF
echo '[{"role": "user", "content": "é?"}, {"role": "assistant", "content": "ab"}]' >messages.json
echo '{"messages": [{"role": "user", "content": "x"}], "tools": [{"a": 1}]}' >row.json
echo '[{"b": [1.0, null]}]' >tools.json

expect 0 tok chat folder messages.json
printf 'user: é?\nassistant: ab.\nassistant: ' | cmp - out || fail "the text"
expect 0 tok chat folder/chat_template.jinja messages.json --no-generation-prompt
printf 'user: é?\nassistant: ab.\n' | cmp - out || fail "the text of a template file"
expect 0 tok chat folder messages.json --continue
printf 'user: é?\nassistant: ab' | cmp - out || fail "the open text"
expect 0 tok chat folder row.json --no-generation-prompt
printf 'user: x\n[{"a": 1}]' | cmp - out || fail "a row with tools"
expect 0 tok chat folder messages.json --tools tools.json mode=fast 'deep={"x": 2}' --no-generation-prompt
printf 'user: é?\nassistant: ab.\n[{"b": [1.0, null]}]<fast2>' | cmp - out || fail "tools and variables"

# Bytes are tokens here, so the mask is that of the bytes.
expect 0 tok chat folder messages.json --ids --mask --no-generation-prompt
ids=$(sed -n 1p out | wc -w)
[ "$ids" -eq 25 ] || fail "$ids ids"
[ "$(sed -n 2p out | tr -d ' ')" = 0000000000000000000001110 ] || fail "the mask"
expect 0 tok chat folder messages.json --ids --mask --json
has out '"byte_spans": [[21, 24]]'
has out '"mask": ['
expect 0 tok chat folder messages.json --mask
grep -qF $'\x1b[32mab.\x1b[0m' out || fail "no colour"

expect 3 tok chat folder/tokenizer.json none.json
expect 3 tok chat text.txt messages.json
has err 'there is no chat template'
mkdir -p a-run/checkpoints
expect 3 tok chat a-run plain.json
has err 'it is a run: give one of its checkpoints, a-run/checkpoints/step-N'
expect 3 tok encode a-run plain.json
has err 'it is a run: give one of its checkpoints, a-run/checkpoints/step-N'
echo '{"a": 1}' >wrong.json
expect 3 tok chat folder wrong.json
has err 'messages'
echo '{{ messages[0].content' >bad.jinja
expect 3 tok chat bad.jinja messages.json
has err 'line 1'
echo '{{ raise_exception("no " ~ messages[0].role) }}' >no.jinja
expect 3 tok chat folder messages.json --template no.jinja
has err 'no user'
expect 2 tok chat folder messages.json --template no.jinja --mask
has err 'generation'
expect 2 tok chat folder messages.json --name rag
expect 2 tok chat folder
finish
