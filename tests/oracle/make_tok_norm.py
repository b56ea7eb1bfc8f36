#!/usr/bin/env python3
"""Golden file of the normalizer tests, tests/golden/tok/norm.json:

  normalizers    [{normalizer, cases: [[text, normalized, places]]}] by Hugging Face tokenizers;
                 places: start, end of each character in bytes of the text, flat
  code_points    [{normalizer, crc32}] over what becomes of every code point in a small context
  charsmap, symbols  of the sentencepiece models that are "ruled" (base64)
  sentencepiece  [{options, ruled, cases: [[text, normalized, starts]]}]

Versions: tokenizers 0.23.3, sentencepiece 0.2.3. Usage: python tests/oracle/make_tok_norm.py
"""
import base64
import itertools
import json
import pathlib
import tempfile
import zlib

import norm_cases as nc
import sentencepiece

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok" / "norm.json"


def cases(normalizer, seed):
    norm, out = nc.load(normalizer), []
    for text in nc.texts(12, seed):
        done, where = nc.places(norm, text)
        out.append([text, done, [edge for place in where for edge in place]])
    return {"normalizer": normalizer, "cases": out}


def code_points(normalizer):
    norm, crc = nc.load(normalizer), 0
    for c in itertools.chain(range(1, 0xD800), range(0xE000, 0x32000), range(0xE0000, 0xE0200)):
        c = chr(c)
        text = f"{c}a{c}\u0323b\u0345{c}\u1161"
        crc = zlib.crc32(norm.normalize_str(text).encode(), crc)
    return {"normalizer": normalizer, "crc32": crc}


def sentencepieces(tsv):
    out = []
    for dummy, trim, suffix, ruled in itertools.product((True, False), repeat=4):
        symbols = nc.SYMBOLS if ruled else []
        options = dict(add_dummy_prefix=dummy, remove_extra_whitespaces=trim,
                       treat_whitespace_as_suffix=suffix)
        model = nc.sentencepiece_model(tsv=tsv if ruled else None, user_defined_symbols=symbols,
                                       **options)
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        done = []
        for text in nc.texts(8, 5) + ["<x> <x>", " \u3000 x \u3000 ", "¨¨  ¨", "a a b c  ab  "]:
            norm, starts = sp.normalize(text, with_offsets=True)
            done.append([text, norm, [len(text[:i].encode()) for i in starts]])
        out.append(dict(options, ruled=ruled, cases=done))
    return out


def main():
    with tempfile.TemporaryDirectory() as folder:
        tsv = folder + "/rules.tsv"
        rules = nc.charsmap_of(nc.sentencepiece_model(tsv=tsv))
        golden = {
            "normalizers": [cases(n, i) for i, n in enumerate(nc.normalizers(rules))],
            "code_points": [code_points(n) for n in (
                *(nc.step(t) for t in ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase",
                                       "StripAccents")),
                nc.bert(True, True, None, True), nc.precompiled(rules))],
            "charsmap": base64.b64encode(rules).decode(),
            "symbols": nc.SYMBOLS,
            "sentencepiece": sentencepieces(tsv),
        }
    text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    OUT.write_text(text.replace('{"normalizer"', '\n{"normalizer"') + "\n")


main()
