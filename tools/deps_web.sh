#!/usr/bin/env bash
# Fetches the sources of jansson and libyaml, in the versions of this machine's packages, for the planner in a browser:
# no package has them compiled to WebAssembly. They come from where the machine's packages come from, are checked by apt,
# and lie in a folder of our own; nothing is installed. Quick and silent when they are there.
# Usage: tools/deps_web.sh FOLDER
set -euo pipefail

folder=$(realpath -m "$1")
if compgen -G "$folder/jansson-*/src" >/dev/null && compgen -G "$folder/libyaml-*/src" >/dev/null; then exit 0; fi

echo "athanor: fetching the sources of jansson and libyaml into $folder"
mkdir -p "$folder/lists/partial" "$folder/sources"
cd "$folder"
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ ! -f "$list" ] || sed -n 's/^deb /deb-src /p' "$list" >"sources/$(basename "$list" .list).list"
done
for list in /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"sources/$(basename "$list")"
done
own=(-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$folder/sources" -o Dir::State::lists="$folder/lists" -qq)
apt-get "${own[@]}" update
apt-get "${own[@]}" source --download-only jansson libyaml
for archive in ./*.orig.tar.*; do tar -xf "$archive"; done
