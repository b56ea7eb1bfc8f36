#!/usr/bin/env python3
"""Compares athanor with Hugging Face tokenizers on whole tokenizers: ids, offsets and decoded text.

Texts: every assigned code point, alone and between letters, digits and spaces; several scripts; emoji sequences; all control
characters; white-space runs; code; random Unicode; and the lines of any FILEs. Exits 1 at the first kind of difference and
prints some.

Usage: compare_tok.py ATHANOR TOKENIZER.json... [--text FILE]... [--seed N]
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

SCRIPTS = {
    "latin": "The quick brown fox can't, won't; it's I'LL we've 3.14159 naïve café Straße Ångström ﬁne œuvre",
    "arabic": "مرحبا بالعالم، كيف حالك؟ السَّلَامُ عَلَيْكُمْ ١٢٣٤٥ لا إله",
    "thai": "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง ๑๒๓ น้ำ",
    "devanagari": "नमस्ते दुनिया क्षत्रिय ज्ञान १२३ हिन्दी में",
    "cjk": "你好，世界！這是繁體字。日本語のテキスト、カタカナ。한국어 텍스트 입니다 ㄱㄴ ﾊﾝｶｸ １２３",
    "cyrillic": "Привет, мир! Ёжик ёлка Їжак И\u0306 й 2024г.",
    "greek": "Γειά σου Κόσμε ΣΊΣΥΦΟΣ ά ὰ ᾳ",
    "hebrew": "שָׁלוֹם עוֹלָם \u200fאבג 123",
    "marks": "e\u0301 a\u030a\u0323 o\u0323\u030a \u0301x q\u0307\u0323 \u1e9b\u0323 \u212b \ud55c \u1112\u1161\u11ab",
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ☺️ ☺ 🏳️‍🌈 1️⃣ 👨🏿‍🚀",
    "code": "for (int i = 0; i < n; ++i) {\r\n\tx[i] += y[i]*2.5e-3; // done\r\n}\n    def f(x):\n        return x**2\n",
    "spaces": "a b  c   d    e     f\n\n\ng\t\th \n i\r\n\r\nj\u00a0k\u3000l\u2003m\u2028n\u2029o\u0085p\x0bq\x0cr \n",
    "special": "<|endoftext|> <s>x</s> <unk> [CLS] a [SEP] [MASK]. <pad><|im_start|>user\nhi<|im_end|>\n <|endoftext|>",
    "odd": "ſ'ſ 'S 'LL K Å ǅ ⅷ Ⅷ ½ ² ₃ ① ㈠ ﷺ \ufdfa \ufeff \u200b\u200c\u200d \u2060 \ufffd \ue000 \U0010ffff \U000e0041",
}


def assigned():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]


def texts(seed):
    rng = random.Random(seed)
    out = ["", " ", "  ", "\n", "a", "\x00", "a\x00b"] + list(SCRIPTS.values()) + [" " + s for s in SCRIPTS.values()]
    out += ["".join(chr(c) for c in range(32)), "".join(chr(c) + "a" for c in range(127, 161))]
    out += [" " * n for n in (3, 7, 16, 33, 100)] + ["\n" * 5 + "x", "x" + " \n" * 9, "\t" * 17 + "a"]
    out += ["a" * n for n in (17, 63, 500)] + ["1" * 41, "中" * 300, "=" * 80, "ab " * 200]
    points = [chr(c) for c in assigned() if not 0xE000 <= c < 0xF900 and c < 0xF0000]
    for size, glue in ((40, ""), (40, " "), (30, "a"), (30, "1 ")):
        for at in range(0, len(points), size):
            out.append(glue.join(points[at:at + size]))
    pools = [list("".join(SCRIPTS.values())), points, [chr(c) for c in range(0x180)]]
    for k in range(600):
        out.append("".join(rng.choice(pools[k % 3]) for _ in range(rng.randint(1, 120))))
    return out


def run(athanor, command, path, lines, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write("".join(json.dumps(x) + "\n" for x in lines))
        f.flush()
        done = subprocess.run([athanor, "tok", command, path, f.name, "--jsonl", *options], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{path}: {done.stderr}")
    return [json.loads(x) for x in done.stdout.split("\n") if x]


def report(what, path, wrong, total):
    print(f"{path}: {what}: {total - len(wrong)} of {total} the same")
    for text, ours, theirs in wrong[:3]:
        print(f"    {text!r:.300}\n      ours   {str(ours):.400}\n      theirs {str(theirs):.400}")
    return not wrong


def show(text, spans, ids, codec):
    return [(i, codec.id_to_token(i), s) for i, s in zip(ids, spans)] if len(text) < 60 else list(zip(ids, spans))


def check_encode(athanor, path, codec, lines, special):
    ours = run(athanor, "encode", path, lines, "--offsets", *(["--special"] if special else []))
    wrong_ids, wrong_offsets = [], []
    for text, got in zip(lines, ours):
        want = codec.encode(text, add_special_tokens=special)
        if got["ids"] != want.ids:
            wrong_ids.append((text, got["ids"], want.ids))
        elif [tuple(x) for x in got["offsets"]] != want.offsets:
            at = next(i for i, (a, b) in enumerate(zip(got["offsets"], want.offsets)) if tuple(a) != b)
            wrong_offsets.append((text, (at, got["offsets"][max(0, at - 2):at + 4]),
                                  (codec.id_to_token(want.ids[at]), want.offsets[max(0, at - 2):at + 4])))
    name = "with specials" if special else "plain"
    good = report(f"ids, {name}", path, wrong_ids, len(lines))
    return report(f"offsets, {name}", path, wrong_offsets, len(lines)) and good


def check_decode(athanor, path, codec, lines, skip):
    ids = [codec.encode(t).ids for t in lines]
    ours = run(athanor, "decode", path, ids, *(["--skip-special"] if skip else []))
    wrong = [(i, a, b) for i, a, b in ((i, a, codec.decode(i, skip_special_tokens=skip)) for i, a in zip(ids, ours)) if a != b]
    return report("decoded text" + (", specials skipped" if skip else ""), path, wrong, len(lines))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("athanor")
    p.add_argument("tokenizers", nargs="+")
    p.add_argument("--text", action="append", default=[])
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    lines = texts(a.seed)
    for file in a.text:
        lines += open(file, encoding="utf-8", errors="replace", newline="").read().splitlines(keepends=True)
    good = True
    for path in a.tokenizers:
        codec = Tokenizer.from_file(path)
        codec.no_truncation()
        codec.no_padding()
        for special in (False, True):
            good &= check_encode(a.athanor, path, codec, lines, special)
        for skip in (False, True):
            good &= check_decode(a.athanor, path, codec, lines, skip)
    sys.exit(0 if good else 1)


main()
