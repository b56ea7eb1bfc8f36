# athanor chat: lines, JSON, one message, options, what ends an answer, the prompt on a terminal, and
# refusals. $1 is the program.
. "$(dirname "$0")/lib.sh"
# say WANT LINES ARGS...: a chat whose input are the lines.
say() {
    local want=$1 lines=$2 got=0
    shift 2
    printf '%b' "$lines" | "$athanor" chat "$@" >out 2>err || got=$?
    last="printf '$lines' | athanor chat $*"
    [ $got -eq "$want" ] || fail "exit $got, not $want"
}

# A model that talks: random weights, 95 characters and <end>, a context of 64.
awk 'BEGIN { for (i = 32; i < 127; i++) printf "%c%c", i, 158 - i; print "" }' | tr -d '\n' >chars.txt
"$athanor" tok train chars.txt -o char.json --kind char --special "<end>" >log 2>&1 || { cat log; exit 1; }
mkdir m
cp "$root"/tests/golden/models/llama-gqa-tied/{config.json,model.safetensors} m
cp char.json m/tokenizer.json
cat >m/chat_template.jinja <<'JINJA'
{%- if enable_thinking is defined %}{{ 'T;' if enable_thinking else 'N;' }}{% endif %}
{%- if mood %}{{ mood }};{% endif %}
{%- for m in messages %}
{%- if '!' in m.content %}{{ raise_exception('no shouting') }}{% endif %}
{{- m.role[0] }}:{{ m.content }}{{ '<end>' if m.role == 'assistant' }};
{%- endfor %}
{%- if add_generation_prompt %}a:{% endif %}
JINJA
expect 0 tok chat m <(echo '[{"role": "user", "content": "hi"}]')
[ "$(cat out)" = "u:hi;a:" ] || fail "the template gives '$(cat out)'"

# Lines in, answers out, the same as in JSON; empty lines are no message.
say 0 'hi\n\n \t\nand\r\n' m --max-new 5 --seed 3
[ -s err ] && fail "something on standard error"
cp out plain
say 0 'hi\n\nand\n' m --max-new 5 --seed 3 --json
[ "$(wc -l <out)" = 2 ] || fail "two messages, other lines"
for key in role content ids finish prompt_tokens reused_tokens new_tokens dropped_turns prefill_tok_per_s decode_tok_per_s; do
    [ "$(grep -c "\"$key\": " out)" = 2 ] || fail "no $key"
done
for n in 1 2; do
    sed -n ${n}p out >answer
    "$athanor" tok decode char.json --ids "$(ids_of ids answer)" >text
    cmp <(sed -n ${n}p plain) <(cat text; echo) || fail "answer $n is not its ids"
done
[ "$(field prompt_tokens <(head -n 1 out))" = 7 ] || fail "prompt_tokens of u:hi;a:"
[ "$(field prompt_tokens out)" = $((7 + 5 + 2 + 8)) ] || fail "prompt_tokens of the second message"
[ "$(field reused_tokens out)" -ge 11 ] || fail "the second message is computed from the beginning"
has out '"finish": "length"'
cp out seed3

# The ids are those of generate on the rendered text; one message alone; any number of threads.
expect 0 generate m --prompt "u:hi;a:" --max-new 5 --seed 3 --temperature 0.6 --top-p 0.9 --min-p 0.05 --json
[ "$(ids_of ids out)" = "$(ids_of ids <(head -n 1 seed3))" ] || fail "generate gives other ids"
expect 0 chat m --prompt hi --max-new 5 --seed 3
cmp out <(head -n 1 plain) || fail "--prompt differs"
OMP_NUM_THREADS=1 "$athanor" chat m --prompt hi --max-new 5 --seed 3 >out
cmp out <(head -n 1 plain) || fail "one thread differs"
expect 0 chat m --prompt hi --max-new 5 --seed 4
cmp -s out <(head -n 1 plain) && fail "another seed gives the same"

# What the template is given.
tokens() { "$athanor" chat m --max-new 1 --prompt hi --json "$@" >out 2>err; field prompt_tokens out; }
[ "$(tokens --system be)" = 12 ] || fail "--system"
[ "$(tokens --think)" = 9 ] || fail "--think"
[ "$(tokens --no-think)" = 9 ] || fail "--no-think"
[ "$(tokens mood=good)" = 12 ] || fail "mood=good"
echo '{{ messages[0].content }}' >bare.jinja
[ "$(tokens --template bare.jinja)" = 2 ] || fail "--template"

# Ends: the ids of generation_config.json, of config.json, the token after an answer, a stop string.
expect 0 chat m --prompt hi --max-new 9 --temperature 0 --json
all=$(ids_of ids out)
third=$(cut -d, -f3 <<<"$all")
before=$(tr , '\n' <<<"$all" | grep -nx "$third" | head -n 1 | cut -d: -f1)
ends() { # the answer ends before the third token of the long one
    has out '"finish": "eos"'
    [ "$(field new_tokens out)" = $((before - 1)) ] || fail "$(field new_tokens out) tokens before the end"
}
cp -r m ends
echo "{\"eos_token_id\": [96, $third]}" >ends/generation_config.json
expect 0 chat ends --prompt hi --max-new 9 --temperature 0 --json && ends
rm ends/generation_config.json
sed -i "s/\"eos_token_id\": [0-9]*/\"eos_token_id\": $third/" ends/config.json
expect 0 chat ends --prompt hi --max-new 9 --temperature 0 --json && ends
cp -r m turn
token=$("$athanor" tok decode char.json --ids "$third")
sed "s/\"content\": *\"<end>\"/\"content\":\"$token\"/" char.json >turn/tokenizer.json
expect 0 chat m --prompt hi --max-new 9 --temperature 0 --stop "$token" --json
has out '"finish": "stop"'
# Advice of the makers is taken where nothing else is said.
echo '{"do_sample": true, "temperature": 0.0}' >m/generation_config.json
expect 0 chat m --prompt hi --max-new 9 --json
[ "$(ids_of ids out)" = "$all" ] || fail "temperature of generation_config.json"
expect 0 chat m --prompt hi --max-new 9 --json --temperature 50 --top-k 0
[ "$(ids_of ids out)" != "$all" ] || fail "--temperature does not overrule"
rm m/generation_config.json

# A full context leaves the oldest turns out and goes on.
say 0 'abcdefgh\nabcdefgh\nabcdefgh\nabcdefgh\n' m --max-new 4 --json
grep -q '"dropped_turns": [1-9]' out || fail "nothing is left out"
[ "$(wc -l <out)" = 4 ] || fail "it does not go on"
expect 0 chat m --prompt hi --temperature 0 --json
has out '"finish": "length"'
[ "$(field new_tokens out)" = $((64 - 7 + 1)) ] || fail "$(field new_tokens out) tokens in a context of 64"

# On a terminal: commands, Ctrl-C, Ctrl-D.
if type -P expect >/dev/null; then
    term() { # LINES
        local got=0 lines
        last="$1 on a terminal"
        mapfile -t lines <<<"$1"
        TERM=dumb command expect -f "$root/tests/cli/terminal.exp" "${lines[@]}" -- \
            "$athanor" chat m --max-new 5 >out 2>err </dev/null || got=$?
        sed -i 's/\r//g' out
        [ $got -eq 0 ] || fail "exit $got"
    }
    term 'hi\n
/tokens\n
/retry\n
/set temprature=1\n
/set temperature=0\n
/system be kind\n
/save -\n
/save talk.json\n
/undo\n
/undo\n
/clear\n
/tokens\n
/helb\n
/help\n
/exit\n'
    has out "context of 64 tokens"
    has out "last prompt: 7 tokens, 7 of them new"
    has out "[ended after max_new = 5 tokens"
    has out "did you mean 'temperature'?"
    has out "temperature 0, top_k 0, top_p 0.9"
    has out "the system message is set"
    has out "/save needs the name of a file"
    has out "3 messages in talk.json"
    has out "the last message and its answer are gone; 0 left"
    has out "there is nothing to take back"
    has out "0 of 64 tokens of context in use"
    [ "$(grep -c "last prompt:" out)" = 1 ] || fail "/tokens tells of what is forgotten"
    has out "did you mean /help?"
    has out "Ctrl-C stops an answer"
    [ "$(grep -c "ended after" out)" = 2 ] || fail "/retry makes no other answer"
    expect 0 tok chat m talk.json
    has out "s:be kind;u:hi;a:"
    term 'hey!\n
a\\\\\n
b\n
"""\n
c\n
"""\n
\003
hi\n
\003
\003'
    has out "no shouting"
    has out "Ctrl-C again, or Ctrl-D, ends"
    has out "is not in the vocabulary" # the newline of the message of two lines
    export ATHANOR_FAULT=write:1
    term 'hi\n
/save other.json\n
/save other.json\n
/exit\n'
    unset ATHANOR_FAULT
    has out "No space left on device"
    has out "2 messages in other.json" # the next one works
    term '/nothing\n
\004'
    has out "there is no command /nothing"
    lacks out $'\033'
else
    echo "skipped: what a terminal shows; expect is not installed"
fi

# Refusals.
mkdir bare && cp m/config.json m/model.safetensors bare
expect 2 chat bare --prompt hi;              has err "no tokenizer"
cp char.json bare/tokenizer.json
expect 3 chat bare --prompt hi --json;       has out "there is no chat template"; has out "athanor generate"
expect 0 chat bare --prompt hi --template m/chat_template.jinja
expect 2 chat absent;                        has err "there is no model at absent"
expect 2 chat m --prompt hi --template chatml;   has err "m has no tokens <|im_start|> and <|im_end|>"
expect 2 chat m --prompt hi --ctx 65;        has err "--ctx 65"; has err "at most 64"
expect 2 chat m --prompt hi --top-p 2;       has err "--top-p"
expect 2 chat m --prompt hi --max-new 0;     has err "--max-new"
expect 2 chat m --prompt hi --seed 1.5;      has err "--seed"
expect 0 chat m temperature=0 --prompt hi --max-new 2; has err "the chat template of m has no variable 'temperature'"
expect 0 chat m --think --prompt hi --max-new 2; lacks err "has no variable"
expect 2 chat m --prompt hi --think --no-think; has err "--think and --no-think"
expect 3 chat m --prompt 'hey!';             has err "no shouting"
expect 3 chat m --prompt hi --template char.json
say 2 "hi\n$(printf 'x%.0s' {1..70})\n" m --max-new 5
has err "the context holds 64"; has err "line 2"
[ -s out ] || fail "the first answer is lost"
echo '{"eos_token_id": "x"}' >m/generation_config.json
expect 3 chat m --prompt hi --json;          has out "eos_token_id"; has out "generation_config.json"
rm m/generation_config.json

# Every read that fails is told, whatever it was for.
ATHANOR_FAULT=count:counts "$athanor" chat m --prompt hi --max-new 2 >out 2>err
reads=$(sed -n 's/^read //p' counts)
[ "$reads" -gt 3 ] || fail "$reads reads"
for ((n = 1; n <= reads; n++)); do
    got=0
    ATHANOR_FAULT=read:$n "$athanor" chat m --prompt hi --max-new 2 >out 2>err || got=$?
    last="read:$n"
    [ $got = 0 ] || [ $got = 1 ] || [ $got = 3 ] || fail "exit $got"
    [ $got = 0 ] || has err "error: "
done
finish
