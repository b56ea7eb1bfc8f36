#!/usr/bin/env bash
# The shape check passes on this tree, and finds each kind of breach in a tree made up for it.
set -euo pipefail

tools/check_layers.sh

bad=$(mktemp -d)
trap 'rm -rf "$bad"' EXIT
mkdir -p "$bad"/src/{base,op/cpu,train,extra}

expect_breach() { # NAME PATTERN: the check fails and its output has the pattern
    if out=$("$PWD"/tools/check_layers.sh "$bad" 2>&1); then
        echo "FAIL: $1 was not found"
        exit 1
    fi
    if ! grep -qE "$2" <<<"$out"; then
        printf 'FAIL: %s: expected "%s", got:\n%s\n' "$1" "$2" "$out"
        exit 1
    fi
}

body() { # LINES: a function of that many lines
    echo 'static int f(int a,'
    echo '             int b) {'
    for ((i = 0; i < $1 - 3; i++)); do echo '    a++;'; done
    echo '}'
}

rmdir "$bad/src/extra"
printf '#include "base/a.h"\n#include <stdio.h>\n#include <sys/stat.h>\n' >"$bad/src/train/ok.c"
body 120 >"$bad/src/train/long.c"
body 200 >"$bad/src/op/cpu/kernel.c"
"$PWD"/tools/check_layers.sh "$bad"

printf '/* x */\n#include "train/loop.h"\n' >"$bad/src/base/a.c"
expect_breach 'a higher module' '^src/base/a.c:2: .*train/loop.h.*higher module train'
printf '#  include <op/op.h>\n' >"$bad/src/base/a.c"
expect_breach 'a higher module in angle brackets' '^src/base/a.c:1: .*higher module op'
printf '#include "../op/op.h"\n' >"$bad/src/base/a.c"
expect_breach 'a relative path' '^src/base/a.c:1: .*relative path'
printf '#include "nowhere/op.h"\n' >"$bad/src/base/a.c"
expect_breach 'no module' '^src/base/a.c:1: .*nowhere is no module'
rm "$bad/src/base/a.c"

body 121 >"$bad/src/train/long.c"
expect_breach 'a long function' '^src/train/long.c:1: the function has 121 lines'
rm "$bad/src/train/long.c"
body 201 >"$bad/src/op/cpu/kernel.c"
expect_breach 'a long kernel' '^src/op/cpu/kernel.c:1: the function has 201 lines'
rm "$bad/src/op/cpu/kernel.c"

seq 1000 | sed 's|.*|int x&;|' >"$bad/src/base/big.c"
"$PWD"/tools/check_layers.sh "$bad"
echo 'int y;' >>"$bad/src/base/big.c"
expect_breach 'a long file' '^src/base/big.c:1001: the file has more than 1000'
rm "$bad/src/base/big.c"

mkdir -p "$bad/src/model/families"
echo '    return graph_linear(r->g, x, r->w); /* what a parallel residual adds; q_lora_rank */' >"$bad/src/model/families/f.c"
"$PWD"/tools/check_layers.sh "$bad"
for line in 'x = graph_tp_in(r->g, x);' 'int n = r->ranks->size[MESH_TP];' 'if (mc->tp > 1) return;' '/* not there with context parallelism */'; do
    echo "$line" >"$bad/src/model/families/f.c"
    expect_breach "an axis in a family: $line" '^src/model/families/f.c:1: a family file names an axis'
done
rm -r "$bad/src/model"

mkdir "$bad/src/extra"
echo 'int z;' >"$bad/src/extra/z.c"
expect_breach 'a folder that is no module' '^src/extra/z.c:1: src/extra is not'
echo "ok"
