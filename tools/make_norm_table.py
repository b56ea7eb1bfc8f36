#!/usr/bin/env python3
"""Writes src/tok/normalize/norm_table.h: what the normalizers must know of every code point.

Everything is asked of Hugging Face `tokenizers` itself, code point by code point, because its
parts know different versions of Unicode (normal forms 9, lower case and clusters 17) and equal
text needs equal tables. Only the classes of grapheme clusters cannot be asked: they are read from
src/tables.rs of the crate unicode-segmentation 1.13. Needs: pip install tokenizers. Usage:

    python tools/make_norm_table.py unicode-segmentation/src/tables.rs \
        > src/tok/normalize/norm_table.h
"""
import re
import sys

import tokenizers
from tokenizers import normalizers as N

LIMIT, BLOCK = 0x110000, 128
ALL = [c for c in range(LIMIT) if not 0xD800 <= c < 0xE000]
FLAGS = ["NFC", "NFD", "NFKC", "NFKD", "MARK", "NONSPACING", "OTHER", "SPACE"]
CLUSTER = ["Any", "CR", "Control", "Extend", "Extended_Pictographic", "InCB_Consonant", "L", "LF",
           "LV", "LVT", "Prepend", "Regional_Indicator", "SpacingMark", "T", "V", "ZWJ"]


def each(normalizer, before="", after="", sep="\n"):
    """normalize(before + c + after) of every code point c, by code point."""
    out = {}
    for i in range(0, len(ALL), 8192):
        part = ALL[i:i + 8192]
        text = sep.join(before + ("x" if chr(c) == sep else chr(c)) + after for c in part)
        done = normalizer.normalize_str(text).split(sep)
        assert len(done) == len(part), hex(part[0])
        out.update(zip(part, done))
    return out


def flags():
    """Bit by name for the code points that have it."""
    forms = {f: each(getattr(N, f)()) for f in FLAGS[:4]}
    has = {f: set() for f in FLAGS}
    # U+0345 has the highest combining class (240): whatever has one and is below goes before it.
    for form in ("NFD", "NFKD"):
        after_0345 = each(getattr(N, form)(), before="\u0345")
        for c in ALL:
            if after_0345[c] != "\u0345" + forms[form][c]:
                for f in FLAGS[:4]:
                    has[f].add(c)
    for f in FLAGS[:4]:
        has[f].add(0x345)
        has[f].update(c for c in ALL if c != 10 and forms[f][c] != chr(c))
    # What composes with the character before it.
    second = {ord(forms["NFD"][c][-1]) for c in ALL
              if c != 10 and forms["NFD"][c] != chr(c) and forms["NFC"][c] == chr(c)}
    has["NFC"] |= second
    has["NFKC"] |= second
    gone = each(N.StripAccents(), sep="\n")
    has["MARK"] = {c for c in ALL if gone[c] == ""}
    bert = each(N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True,
                                 lowercase=False))
    has["NONSPACING"] = {c for c in ALL if bert[c] == ""}
    clean = each(N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False,
                                  lowercase=False), sep="|")
    has["OTHER"] = {c for c in ALL if clean[c] == ""}
    strip = N.Strip()
    has["SPACE"] = {c for c in ALL if strip.normalize_str(chr(c)) == ""}
    return has


def clusters(path):
    text = open(path).read()
    body = text[text.index("mod grapheme"):text.index("mod word")]
    char = r"'\\u\{([0-9a-f]+)\}'"
    table = bytearray(LIMIT)
    for lo, hi, name in re.findall(rf"\({char},\s*{char},\s*GC_(\w+)\)", body):
        for c in range(int(lo, 16), int(hi, 16) + 1):
            table[c] = CLUSTER.index(name)
    for c in range(0x7F):
        table[c] = 0 if c >= 32 else CLUSTER.index({10: "LF", 13: "CR"}.get(c, "Control"))
    derived = text[text.index("InCB_Extend_table"):text.index("fn InCB_Extend")]
    extend = set()
    for lo, hi in re.findall(rf"\({char},\s*{char}\)", derived):
        extend.update(range(int(lo, 16), int(hi, 16) + 1))
    linker = text[text.index("fn is_incb_linker"):text.index("pub mod grapheme")]
    return table, extend, {int(c, 16) for c in re.findall(r"\\u\{([0-9A-Fa-f]+)\}", linker)}


def lower_ranges():
    """(first, last, step, delta) of the characters with a lower case of one character."""
    lower = each(N.Lowercase())
    lower[10] = "\n"
    runs, special = [], []
    for c in ALL:
        if lower[c] == chr(c):
            continue
        if len(lower[c]) != 1:
            special.append(c)
            continue
        delta = ord(lower[c]) - c
        if runs and runs[-1][3] == delta and c - runs[-1][1] in (1, 2):
            first, last, step, _ = runs[-1]
            if first == last or step == c - last:
                runs[-1] = (first, c, c - last, delta)
                continue
        runs.append((c, c, 1, delta))
    assert special == [0x130] and lower[0x130] == "i\u0307"
    return runs, {c for c in ALL if lower[c] != chr(c)}


def rows(kind, name, items):
    print(f"const {kind} {name}[] = {{")
    line = ""
    for item in items:
        if len(line) + len(item) + 1 > 100:
            print(line)
            line = ""
        line += f"{item},"
    print(line)
    print("};")


def main():
    has = flags()
    cluster, incb_extend, incb_linker = clusters(sys.argv[1])
    runs, lowered = lower_ranges()
    combos, table = [], bytearray(LIMIT)
    for c in range(LIMIT):
        props = sum(1 << i for i, f in enumerate(FLAGS) if c in has[f])
        props |= cluster[c] << 8 | (c in incb_extend) << 12 | (c in incb_linker) << 13
        props |= (c in lowered) << 14
        if props not in combos:
            combos.append(props)
        table[c] = combos.index(props)
    blocks, index = {}, []
    for base in range(0, LIMIT, BLOCK):
        index.append(blocks.setdefault(bytes(table[base:base + BLOCK]), len(blocks)))
    print("/* Generated by tools/make_norm_table.py; do not edit.")
    print(f" * Source: tokenizers {tokenizers.__version__}, unicode-segmentation 1.13. "
          "Code points by property:")
    counts = [f"{f} {len(has[f])}" for f in FLAGS]
    print(" * " + ", ".join(counts[:5]) + ",")
    print(" * " + ", ".join(counts[5:]) + f", UPPER {len(lowered)}. */")
    print("/* clang-format off */")
    assert len(blocks) <= 256 and len(combos) <= 256
    rows("uint8_t", "norm_index", [str(i) for i in index])
    rows("uint8_t", "norm_block", [str(b) for block in blocks for b in block])
    rows("uint16_t", "norm_props_of", [hex(p) for p in combos])
    print("/* Characters first, first + step, ... last become themselves + delta. */")
    rows("norm_lower_run", "norm_lower", ["{0x%x, 0x%x, %d, %d}" % r for r in runs])
    print(f"const int norm_n_lower = {len(runs)};")
    print("/* clang-format on */")


main()
