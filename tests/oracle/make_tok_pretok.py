#!/usr/bin/env python3
"""Writes tests/golden/tok/pretok.json: pieces as Hugging Face tokenizers and tiktoken cut them.

Versions: tokenizers 0.23.3, tiktoken 0.14. Run from anywhere: python tests/oracle/make_tok_pretok.py

  texts, short   what is cut
  onig           by pre-tokenizer: for each text [start, end, start, end, ...] in characters
  words          by pre-tokenizer that changes text: for each text the pieces
  tiktoken       by pattern that means the same there: for each short text the matches
"""
import json
import pathlib

import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers

import tok_pretok_cases as cases

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok" / "pretok.json"

TEXTS = ["Hello, World!! don't WE'LL it'ſ  1234 x2\r\n\r\n\treturn(a+b);  ",
         "中文と々カナー〇⺀ Straße ÉÀé e\u0301\u0301x ǅungla İs HTTPServer'S ½²Ⅷ٣٤ हिन्दी\u0085\u00a0\u2003 👍🏽\u200d",
         "   a \n b\n\n  \n", "/ab/\n/c ...\n\x00\x01b ab aab 🄰ⓐ_\u203f\ufeff。，x، (y|z)"]
SHORT = ["don't WE'LL it'ſ 12345\r\n \n x", "É中a e\u0301Ab ½²٣ǅ\u2003\u2003!!/\n/x", "  x  \n\n  ", "ab\x01 'S1a."]
# `{1,3}+` and the set of bloom mean something else to tiktoken.
TIKTOKEN = [p for p in cases.PATTERNS.values() if "{1,3}+" not in p and p != cases.BLOOM]


def tiktoken_matches(pattern, text):
    """A match is looked up as a whole before anything else, so with every part of the text in the
    vocabulary each match is one token."""
    raw = text.encode()
    parts = {raw[i:j] for i in range(len(raw)) for j in range(i + 2, len(raw) + 1)}
    ranks = {bytes([i]): i for i in range(256)} | {p: 256 + i for i, p in enumerate(sorted(parts))}
    enc = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return [enc.decode_single_token_bytes(i).decode() for i in enc.encode_ordinary(text)]


def main():
    onig = []
    empty = Tokenizer(models.BPE())
    for name, part in cases.pre_tokenizers():
        if part is None or not name.startswith(("regex ", "pattern ")) and "(?=" in name:
            continue
        full = json.loads(empty.to_str()) | {"pre_tokenizer": part}
        split = Tokenizer.from_str(json.dumps(full)).pre_tokenizer
        cuts = [split.pre_tokenize_str(t) for t in TEXTS]
        onig.append({"pre_tokenizer": part,
                     "cuts": [[x for _, place in c for x in place] for c in cuts]})
        if any(w != t[s:e] for t, c in zip(TEXTS, cuts) for w, (s, e) in c):
            onig[-1]["words"] = [[w for w, _ in c] for c in cuts]
    matches = [{"pattern": p, "matches": [tiktoken_matches(p, t) for t in SHORT]} for p in TIKTOKEN]
    OUT.write_text(json.dumps({"texts": TEXTS, "short": SHORT, "onig": onig, "tiktoken": matches},
                              ensure_ascii=False, separators=(",", ":")).replace('},{', '},\n{') + "\n")
    print(f"{OUT}: {len(onig)} pre-tokenizers, {len(matches)} patterns, {OUT.stat().st_size} bytes")


main()
