# athanor bench serve, and the server under its load: every answer is what it is alone, those that clients give up or spoil
# cost the others nothing, descriptors come back, SIGTERM loses no answer. $1 is the program.
. "$(dirname "$0")/lib.sh"
make_data
write_config tiny.yaml
expect 0 train tiny.yaml
cut -c1-30 text.txt | head -n 40 >prompts.txt
row() { grep -oF "{\"name\": \"$1\", \"value\": " out >/dev/null && sed 's/{"name"/\n&/g' out | grep -F "\"$1\"" | grep -o '"value": [^,}]*' | cut -d' ' -f2; }
is() { [ "$(row "$1")" = "$2" ] || fail "row $1 is '$(row "$1")', not $2"; }

# A server of its own, by one client and by eight.
load="--requests 60 --prompts prompts.txt --new 1:16"
expect 0 bench serve run --clients 1,8 $load --cancel 0.1 --malformed 0.1 --check --json -- --streams 4 --threads 1
is differ 0.0
for name in "1 client" "8 clients"; do
    for end in turned_away unreachable cut wrong; do is "$name: $end" 0.0; done
    calc "$(row "$name: answered") + $(row "$name: given_up") == 60" || fail "$name: not 60"
    calc "$(row "$name: tok_per_s") > 0 && $(row "$name: first_p50") > 0" || fail "$name: nothing measured"
    calc "$(row "$name: first_p50") <= $(row "$name: first_p90") && $(row "$name: first_p90") <= $(row "$name: first_p99")" ||
        fail "$name: percentiles"
done
calc "$(row "1 client: given_up") > 0" || fail "nothing is given up"

# A model that writes bytes of zero: such text is no wrong answer.
mkdir zero
cp "$root"/tests/golden/models/llama-gqa-tied/{config.json,model.safetensors} zero
awk 'BEGIN { printf "{\"added_tokens\":[{\"id\":96,\"content\":\"<end>\",\"special\":true}],\"pre_tokenizer\":{\"type\":\"ByteLevel\","
    printf "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"},"
    printf "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\\u0120\":0,\"\\u0100\":1"
    for (i = 33; i < 127; i++) printf ",\"%s%c\":%d", i == 34 || i == 92 ? "\\" : "", i, i - 31
    print "}}}" }' >zero/tokenizer.json
expect 0 bench serve zero --clients 2 --requests 40 --new 30 --prompt-words 2 --temperature 5 --json -- --threads 1
is "2 clients: answered" 40.0; is "2 clients: wrong" 0.0

# A server that stands already, which is its own peer; requests at a rate; a table.
listens() { grep -q '"url"' url; }
"$athanor" serve run --port 0 --json --streams 4 --threads 1 >url 2>log &
server=$!
await listens || fail "nobody listens"
url=$(field url url)
fds() { ls "/proc/$server/fd" | wc -l; }
before=$(fds)
expect 0 bench serve "$url" --peer "$url" --rate 500 $load --rounds 3 --cancel 0.2
has out "500/s"; has out "peer, 500/s"; has out "ratio, 500/s"; has out "medians of 3 rounds"
expect 0 bench serve "$url" --peer "$url" --clients 4 $load --rounds 1 --json
calc "$(row "ratio, 4 clients: tok_per_s") > 0" || fail "no ratio"
is "peer, 4 clients: answered" 60.0
is_back() { [ "$(fds)" -le "$before" ]; }
await is_back || fail "$(fds) descriptors, $before before"

# Words that are no load, and servers that are none.
printf '{"prompt": "the fire"}\n{"text": "x"}\n' >bad.jsonl
expect 3 bench serve "$url" --prompts bad.jsonl; has err "bad.jsonl:2"
expect 2 bench serve "$url" --prompts prompts.txt --prompt-words 3
expect 2 bench serve "$url" --clients 0;             has err "--clients"
expect 2 bench serve "$url" --clients 1 --rate 1
expect 2 bench serve "$url" --new 9:3;               has err "LEAST:MOST"
expect 2 bench serve "$url" --cancel 0.6 --malformed 0.6
expect 2 bench serve "$url" -- --streams 4;          has err "started here"
expect 2 bench serve https://127.0.0.1;              has err "only http://"
expect 1 bench serve nosuch;                         has err "did not begin"
expect 1 bench serve "$url/nothing";                 has err "status 404"

# The end under load: what had begun is whole, the rest is told so or finds nobody.
"$athanor" bench serve "$url" --clients 8 --requests 20000 --prompts prompts.txt --new 16 --json >out 2>err &
client=$!
works() { [ "$(grep -c ' 200 ' log)" -gt 500 ]; }
await works || fail "no answers"
kill -TERM $server
wait $server || fail "the server ended with $?"
wait $client # with 1: some came too late
last="the end under load"
is "8 clients: cut" 0.0
is "8 clients: wrong" 0.0
calc "$(row "8 clients: answered") > 0" || fail "nothing was answered"
calc "$(row "8 clients: unreachable") + $(row "8 clients: turned_away") > 0" || fail "it was not in the middle"
expect 1 bench serve "$url";                         has err "no connection"
finish
