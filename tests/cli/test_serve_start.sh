# athanor serve: how it starts, who may ask, what it logs, how it stops. $1 is the program.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/serve.sh"
make_speaker m

# What is refused before it listens.
expect 2 serve absent;                              has err "there is no model at absent"
expect 2 serve m --port 70000;                      has err "--port"
expect 2 serve m --host 0.0.0.0 --port 0;           has err "there is no API key"; has err "ATHANOR_API_KEY"
expect 2 serve m --host no-such-host.invalid --port 0; has err "no-such-host.invalid is no address"
expect 2 serve m --ctx 65;                          has err "65"; has err "64"
expect 2 serve m --model other;                     has err "'other' is not NAME=PATH"
expect 2 serve m --model m=m;                       has err "m"
expect 2 serve m --template chatml;                 has err "m has no tokens <|im_start|> and <|im_end|>"
expect 2 serve m --name '';                         has err "a model needs a name"
expect 2 serve m --api-key-file /dev/null;          has err "there is no API key in /dev/null"
expect 2 serve m --cache f8
expect 2 serve m --allow-origin https://a.example/; has err "https://a.example/' is no site"; has err "without a path"
expect 2 serve m --allow-origin '*,a.example';      has err "a.example"
expect 2 serve m --allow-host a.example:80;         has err "'a.example:80' is no name"

# One that listens, and another at the same port.
start_server m
[ "$(wc -l <served)" = 1 ] || fail "more than one line: $(cat served)"
expect 2 serve m --port "$port";                    has err "cannot listen on 127.0.0.1 port $port"; has err "--port 0"
answers 200 GET /health
answers 200 GET /v1/models;                         has out '"id": "m"'
answers 404 GET /v1/models/../../etc/passwd
answers 405 DELETE /health;                         has out "Allow: OPTIONS, GET, HEAD"
answers 403 GET /v1/models "" "Origin: https://evil.example"
stop_server
grep -qE '[0-9:]{8} GET /v1/models 200 .*[0-9] ms$' log || fail "no line for the request"
has err "DELETE /health 405"

# A name as clients put it into a path.
start_server m --name 'org/a b'
for name in org/a%20b org%2Fa%20b org%2fa%20b; do answers 200 GET "/v1/models/$name"; has out '"id": "org/a b"'; done
for path in models/org%2Fa%2 models/org%2Fa%20b%00 models/org%2Fa%20 %6dodels mo%64els; do answers 404 GET "/v1/$path"; done
stop_server

# Keys: from the command line, a file, the environment; never in the log, nor is what was asked.
printf '# ours\nfrom-file \n \n' >keys
ATHANOR_API_KEY=from-env start_server m --api-key from-line --api-key-file keys
for key in from-line from-file from-env; do
    answers 200 GET /v1/models "" "Authorization: Bearer $key"
done
answers 401 GET /v1/models;                         has out "WWW-Authenticate: Bearer"
answers 401 GET /v1/models "" "Authorization: Bearer # ours"
answers 401 POST /v1/completions '{"prompt": "secret"}' "Authorization: Bearer wrong-key"
answers 200 GET /health
answers 200 POST '/v1/completions?x=y' '{"prompt": "secret", "max_tokens": 3, "ignore_eos": true}' "Authorization: Bearer from-env"
has out '"completion_tokens": 3'
stop_server
has err "POST /v1/completions 200"
for word in from- secret wrong-key; do lacks err "$word"; done

# Other names, other sites, no lines.
start_server m --name poet --allow-origin https://app.example --quiet
answers 200 GET /v1/models "" "Origin: https://app.example"
has out '"id": "poet"'; has out "Access-Control-Allow-Origin: https://app.example"
stop_server
lacks err "GET /v1/models"

# A text goes on the prompt with the space of its first word; an answer of a chat begins without.
make_words words
go='"max_tokens": 2, "ignore_eos": true, "temperature": 0'
start_server words
answers 200 POST /v1/completions '{"prompt": "w1 w2", "echo": true, '"$go}"
grep -qE '"text": "w1 w2 w[0-9]+ w[0-9]+"' out || fail "the texts are not joined: $(cat body)"
answers 200 POST /v1/completions '{"prompt": "w1 w2", '"$go}"
grep -qE '"text": " w[0-9]+ w[0-9]+"' out || fail "the space is lost: $(cat body)"
answers 200 POST /v1/completions '{"prompt": [96], '"$go}"
grep -qE '"text": "w[0-9]+ w[0-9]+"' out || fail "a text that begins has a space: $(cat body)"
answers 200 POST /v1/chat/completions '{"messages": [{"role": "user", "content": "w3"}], '"$go}"
grep -qE '"content": "w[0-9]+ w[0-9]+"' out || fail "an answer begins with a space: $(cat body)"
stop_server
for how in "--temperature 0" "--beams 2"; do
    expect 0 generate words --prompt "w1 w2" --max-new 2 $how
    grep -qE '^w1 w2 w[0-9]+ w[0-9]+$' out || fail "not joined"
    expect 0 generate words --prompt "w1 w2" --max-new 2 $how --json
    grep -qE '"text": " w[0-9]+ w[0-9]+"' out || fail "the space is lost"
done

# SIGTERM while answers are written: each of them ends, whole, and then the program does.
start_server m --streams 2
for n in 1 2 3 4; do
    {
        exec 7<>"/dev/tcp/127.0.0.1/$port"
        text='{"prompt": "go", "max_tokens": 60, "n": 8, "stream": true, "ignore_eos": true}'
        printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
            ${#text} "$text" >&7
        cat <&7 >stream.$n
    } &
    clients[n]=$!
done
streaming() { grep -q '^data: ' stream.1 && grep -q '^data: ' stream.2 && grep -q '^data: ' stream.3 && grep -q '^data: ' stream.4; }
await streaming 2>/dev/null || fail "no answers"
stop_server
has err "stopping when running answers have ended"
wait "${clients[@]}"
for n in 1 2 3 4; do
    perl -0pi -e 's/\r\n[0-9a-fA-F]+\r\n//g' stream.$n # borders of chunks, which may cut an event
    grep -q '^data: \[DONE\]' stream.$n || fail "answer $n is not whole: $(tail -c 300 stream.$n)"
    [ "$(grep -c '"finish_reason": "length"' stream.$n)" = 8 ] || fail "answer $n lacks texts"
done
finish
