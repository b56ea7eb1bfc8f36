#!/usr/bin/env bash
# Installs those of the named Debian packages that are missing; quick and silent when none is.
# Usage: tools/deps.sh PACKAGE...
set -euo pipefail

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "athanor: this is no Debian system; please see to it that these are installed: $*" >&2
    exit 0
fi

missing=()
for package in "$@"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "athanor: installing Debian packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "athanor: no right to install packages; run this as root: apt-get install" \
            "--no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
quiet=(-o Dpkg::Use-Pty=0 -qq)
"${as_root[@]}" apt-get "${quiet[@]}" update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get "${quiet[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
