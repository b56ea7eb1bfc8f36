#!/usr/bin/env bash
# The chat page in a headless Chromium (tests/serve/page_test.py). Skipped where there is none, or no Python.
set -u
page=$(dirname "$(realpath "$1")")/page/chat.html
command -v python3 >/dev/null || { echo "there is no Python here: the page was not looked at"; exit 77; }
exec python3 tests/serve/page_test.py "$page"
