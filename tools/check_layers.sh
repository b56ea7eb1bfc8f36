#!/usr/bin/env bash
# Checks the shape of the source tree; prints each breach as file:line and exits 1 if there is one.
#   layers     a file of src/M includes only headers of module M and of lower modules
#   axes       no line of a family file names an axis over which ranks share a model
#   length     files up to 1000 lines (generated tables aside), functions up to 120, kernels 200
# Usage: tools/check_layers.sh [ROOT]      (ROOT/src is checked; default: this repository)
set -euo pipefail

root=${1:-$(dirname "$0")/..}
cd "$root"
modules="base gpu dev jinja tok comm data op prog param model optim io infer step plan interchange run serve eval train app"

find src -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' -o -name '*.inc' -o -name '*.cu' \) |
    sort | xargs -r awk -v modules="$modules" '
    function breach(line, text) { print FILENAME ":" line ": " text; bad = 1 }

    function check_include(   target, parts) {
        match($0, /["<][^">]*[">]/)
        target = substr($0, RSTART + 1, RLENGTH - 2)
        if (target ~ /(^|\/)\.\.?\//) breach(FNR, "includes by a relative path: " target)
        if (split(target, parts, "/") < 2) return
        if (!(parts[1] in rank)) {
            if ($0 ~ /"/) breach(FNR, "includes " target ", and " parts[1] " is no module")
        } else if (rank[parts[1]] > rank[module])
            breach(FNR, "module " module " includes " target " of the higher module " parts[1])
    }

    BEGIN {
        n = split(modules, list, " ")
        for (i = 1; i <= n; i++) rank[list[i]] = i
    }

    FNR == 1 {
        split(FILENAME, path, "/")
        module = path[2]
        if (!(module in rank)) breach(1, "src/" module " is not in the list of modules")
        limit = module == "op" ? 200 : 120
        in_function = generated = 0
    }

    FNR <= 3 && /(Made|Generated) by tools\// { generated = 1 }
    FNR == 1001 && !generated { breach(1001, "the file has more than 1000 lines") }

    /^[ \t]*#[ \t]*include[ \t]*["<]/ { check_include() }

    FILENAME ~ /^src\/model\/families\// &&
        /(^|[^A-Za-z0-9_])(tp|sp|cp|pp|dp|ep|zero|MESH_[A-Z]+|SPLIT_[A-Z]+|(graph|model|plan)_(tp|sp|cp|pp|dp|ep|context)[a-z_]*|(tensor|sequence|context|pipeline|data|expert)[_ -]parallel[a-z]*)($|[^A-Za-z0-9_])/ {
        breach(FNR, "a family file names an axis of ranks")
    }

    # A function: from the last line that starts with a letter before ") {", up to "}" in column one.
    !in_function && /^[A-Za-z_]/ { start = FNR }
    !in_function && /^[^#].*\) *\{$/ { in_function = 1 }
    in_function && /^\}/ {
        in_function = 0
        if (FNR - start + 1 > limit)
            breach(start, "the function has " FNR - start + 1 " lines, more than " limit)
    }

    END { exit bad }
'
