#!/usr/bin/env python3
"""Compares pre-tokenizers with Hugging Face tokenizers: pieces and characters, with their places.

    python tests/oracle/compare_pretok.py build/athanor [--quick] [--only NAME]

For each pre-tokenizer of tok_pretok_cases.py and many texts (every assigned code point among
letters, digits and spaces; random text of many scripts; white space, punctuation and code) the ids
and offsets of two models must agree: one that makes each piece one unknown token, which shows where
pieces lie, and one of single characters, which shows how their text was changed.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

import tok_pretok_cases as cases


def tokenizer_json(pre_tokenizer, model):
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                       "normalizer": None, "pre_tokenizer": pre_tokenizer, "post_processor": None,
                       "decoder": None, "model": model}, ensure_ascii=False)


def piece_model():
    return {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}


def char_model(pre_tokenizer, texts):
    alphabet = cases.alphabet(pre_tokenizer, texts)
    vocab = {"<unk>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "vocab": vocab, "merges": []}


def ours(athanor, text_json, texts, folder):
    tk, lines = folder / "tokenizer.json", folder / "texts.jsonl"
    tk.write_text(text_json)
    lines.write_text("".join(json.dumps(t) + "\n" for t in texts))
    run = subprocess.run([athanor, "tok", "encode", str(tk), str(lines), "--jsonl", "--offsets"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        return run.stderr.strip() or f"exit status {run.returncode}"
    return [json.loads(line) for line in run.stdout.splitlines()]


def compare(athanor, name, pre_tokenizer, model, texts, folder):
    text_json = tokenizer_json(pre_tokenizer, model)
    try:
        oracle = Tokenizer.from_str(text_json)
    except Exception as e: # pylint: disable=broad-except
        print(f"{name}: the oracle refuses it: {e}")
        return 0
    got = ours(athanor, text_json, texts, folder)
    if isinstance(got, str):
        print(f"{name}: {got}")
        return 1
    bad = 0
    for text, mine in zip(texts, got, strict=True):
        want = oracle.encode(text)
        mine = (mine["ids"], [tuple(o) for o in mine["offsets"]])
        if mine == (want.ids, want.offsets):
            continue
        bad += 1
        if bad == 1:
            k = next((i for i, (a, b) in enumerate(zip(want.offsets, mine[1])) if a != b), -1)
            at = max(0, (want.offsets[k][0] if k >= 0 else 0) - 6)
            print(f"{name}: text {text[at:at + 30]!r}: token {k}: want {want.offsets[k:k + 3]} "
                  f"{want.ids[k:k + 3]}, got {mine[1][k:k + 3]} {mine[0][k:k + 3]}; "
                  f"{len(want.ids)} and {len(mine[0])} tokens")
    if bad:
        print(f"{name}: {bad} of {len(texts)} texts differ")
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("athanor")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", default="")
    args = p.parse_args()
    texts, bad, n = cases.texts(args.quick), 0, 0
    with tempfile.TemporaryDirectory() as tmp:
        for name, pre_tokenizer in cases.pre_tokenizers():
            if args.only not in name:
                continue
            few = texts if args.quick else texts[::7]
            runs = [(piece_model(), few if name.startswith("regex ") else texts)]
            if not name.startswith(("regex ", "pattern ")): # those change no text
                runs.append((char_model(pre_tokenizer, few), few))
            for model, some in runs:
                label = f"{name} ({model['type']})"
                bad += compare(args.athanor, label, pre_tokenizer, model, some, pathlib.Path(tmp)) > 0
                n += 1
                print(f"\r{n} ", end="", file=sys.stderr, flush=True)
    print(f"{n} comparisons over {len(texts)} texts, {bad} with differences")
    sys.exit(bad > 0)


main()
