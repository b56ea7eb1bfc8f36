# Pipes and devices in the places of files: refused by name, never waited for, and memory stays
# small. What the user names may be a pipe. $1 is the program.
. "$(dirname "$0")/lib.sh"
program=$athanor
# Every start of the program: 1 GB of memory, and 20 s are given up on. Under a sanitizer it cannot start with such a
# limit, since it reserves more for its own use.
limit='ulimit -d 1000000'
bash -c "$limit; '$program' --version; exit \$?" >version 2>&1 || limit=
cat >bounded <<SH
#!/usr/bin/env bash
$limit
exec timeout 20 "$program" "\$@"
SH
chmod +x bounded
make_data
write_config c.yaml
expect 0 train c.yaml train.steps=8 checkpoint.every=8 eval.every=0 sample.every=0
athanor=$work/bounded

# not_a_file FILE COMMAND...: with a pipe and with an endless device in the place of FILE.
not_a_file() {
    local file=$1
    shift
    mv "$file" kept
    for kind in pipe zero; do
        if [ $kind = pipe ]; then mkfifo "$file"; else ln -s /dev/zero "$file"; fi
        "$@" $kind
        rm "$file"
    done
    mv kept "$file"
}
refused() { # STATUS WORDS ARGS... KIND
    local want=$1 words=$2
    shift 2
    expect "$want" "${@:1:$#-1}"
    grep -qF "$words" out err || fail "no '$words' with a ${*: -1}"
}
checkpoint=run/checkpoints/step-8
not_a_file $checkpoint/state/manifest.json refused 1 "not a regular file" verify checkpoint run
not_a_file $checkpoint/model.safetensors refused 1 "0 bytes instead of" verify checkpoint run
not_a_file $checkpoint/state/guard.json refused 3 "0 bytes instead of" data show --run run --step 3
not_a_file run/config.json refused 3 "not a regular file" runs show run
not_a_file run/config.json refused 3 "not a regular file" train c.yaml
not_a_file run/metrics.jsonl refused 3 "not a regular file" runs show run
not_a_file set/train/manifest.json refused 3 "not a regular file" data show set/train
not_a_file set/train/manifest.json refused 3 "not a regular file" train c.yaml run=new
rm run/.lock && mkfifo run/.lock
expect 0 runs show run
rm run/.lock

# Named on the command line: a pipe with an end is read, an endless device is refused.
last="train from a pipe"
"$athanor" plan <(cat c.yaml) >out 2>err || fail "a config from a pipe"
"$athanor" tok encode char.json <(head -n 1 text.txt) >out 2>err || fail "a text from a pipe"
refused 3 "too large: at most 4194304 bytes" plan /dev/zero -
finish
