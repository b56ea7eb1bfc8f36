# The chat page as the program serves it, in a headless Chromium. Skipped where there is none, or no Python.
command -v python3 >/dev/null || { echo "there is no Python here: the page was not looked at"; exit 77; }
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/serve.sh"
make_speaker chat
cp -r chat base
rm base/chat_template.jinja

start_server chat --model base=base --api-key open-sesame
last="page_test.py --served"
python3 "$root/tests/serve/page_test.py" --served "$url/" open-sesame >out 2>err
got=$?
[ $got = 77 ] && { cat out; kill "$server"; exit 77; }
[ $got = 0 ] || fail "exit $got"
stop_server
finish
