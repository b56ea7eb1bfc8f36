#!/usr/bin/env python3
"""Writes tests/golden/tok/pretok.json: pieces as Hugging Face tokenizers and tiktoken cut them.

Versions: tokenizers 0.23.3, tiktoken 0.14. Run from anywhere: python tests/oracle/make_tok_pretok.py

  texts, short   what is cut
  onig           by pre-tokenizer: for each text [start, end, start, end, ...] in characters
  words          by pre-tokenizer that changes text: for each text the pieces
  rust           by pattern, as .tiktoken files have it: for each short text the matches
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
RUST = [*cases.PATTERNS.values(), "\\w+", "\\W+", "\\bx\\b|\\B.", "(?s:.)+", ".+", "^x|a$", "(?m)^ab|x$",
        "\\p{N}{1,3}+", "\\d{2}?", "(?i)[a-e]+", "a(?i)b|c", "\\p{sc=Han}|\\p{Script=Latin}+", "\\pL+",
        "(?P<n>a)b", "\\xe9|\\u{4e2d}", "\\h+", "(?<!\\s)\\p{L}++", "[\\w&&[^a-z]]+", "\\s+$", "x\\z"]


def rust_matches(pattern, text):
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
    rust = [{"pattern": p, "matches": [rust_matches(p, t) for t in SHORT]} for p in RUST]
    OUT.write_text(json.dumps({"texts": TEXTS, "short": SHORT, "onig": onig, "rust": rust},
                              ensure_ascii=False, separators=(",", ":")).replace('},{', '},\n{') + "\n")
    print(f"{OUT}: {len(onig)} pre-tokenizers, {len(rust)} patterns, {OUT.stat().st_size} bytes")


main()
