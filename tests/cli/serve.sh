# Sourced by scripts that start a server, after lib.sh: one with a tiny model, and requests by bash alone.

# make_speaker FOLDER: a model that talks: random weights, 95 characters and <end>, a context of 64.
make_speaker() {
    awk 'BEGIN { for (i = 32; i < 127; i++) printf "%c%c", i, 158 - i; print "" }' | tr -d '\n' >chars.txt
    "$athanor" tok train chars.txt -o char.json --kind char --special "<end>" >log 2>&1 || { cat log; exit 1; }
    mkdir "$1"
    cp "$root"/tests/golden/models/llama-gqa-tied/{config.json,model.safetensors} "$1"
    cp char.json "$1/tokenizer.json"
    echo '{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}' \
        >"$1/chat_template.jinja"
}

# make_words FOLDER: a model of the same weights with words w0 to w95, which have their spaces as SentencePiece does.
make_words() {
    mkdir "$1"
    cp "$root"/tests/golden/models/llama-gqa-tied/{config.json,model.safetensors} "$1"
    awk 'BEGIN { mark = "\\u2581"
        space = "{\"type\":\"Metaspace\",\"replacement\":\"" mark "\",\"prepend_scheme\":\"always\",\"split\":true}"
        printf "{\"added_tokens\":[{\"id\":96,\"content\":\"<end>\",\"special\":true}],\"pre_tokenizer\":%s,\"decoder\":%s,", space, space
        printf "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"%sw0\",\"vocab\":{", mark
        for (i = 0; i < 96; i++) printf "%s\"%sw%d\":%d", i ? "," : "", mark, i, i
        print "}}}" }' >"$1/tokenizer.json"
    echo '{% for m in messages %}{{ m.content }} {% endfor %}' >"$1/chat_template.jinja"
}

# start_server ARGS...: its url is in `url`, its port in `port`, its process in `server`; what it says in
# served and log. It listens before this returns.
start_server() {
    last="athanor serve $*"
    : >served
    "$athanor" serve "$@" --port 0 --json >served 2>log </dev/null &
    server=$!
    await listens || { fail "it does not listen"; cat log; finish; }
    url=$(field url served)
    port=${url##*:}
}
listens() { grep -q '"event": "listening"' served || ! kill -0 "$server" 2>/dev/null; }

# ask METHOD PATH [BODY [HEADER...]]: one request; the answer is in head and body, its status in `status`.
ask() {
    local method=$1 path=$2 text=${3-} header headers=
    last="$method $path"
    shift $(($# < 3 ? $# : 3))
    for header in "$@"; do headers+="$header"$'\r\n'; done
    exec 7<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n%s\r\n%s' \
        "$method" "$path" "${#text}" "$headers" "$text" >&7
    tr -d '\r' <&7 >answer
    exec 7>&-
    sed '/^$/q' answer >head
    sed '1,/^$/d' answer >body
    status=$(sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p' head)
}
# answers STATUS METHOD PATH ...: as ask, with that status.
answers() {
    local want=$1
    shift
    ask "$@"
    cp answer out
    [ "$status" = "$want" ] || fail "status '$status', not $want"
}
# stop_server [STATUS]: by SIGTERM; its exit status.
stop_server() {
    local got=0
    kill -TERM "$server"
    wait "$server" || got=$?
    cp log err
    last="the end of the server"
    [ $got = "${1:-0}" ] || fail "exit $got, not ${1:-0}"
}
