#!/usr/bin/env python3
"""Compares normalizers with Hugging Face tokenizers: text and places, by `tok encode --offsets`.

Each normalizer stands in a tokenizer whose tokens are the single characters of the normalized
texts, so ids are the text and offsets the places. Texts: fixed ones, random Unicode, some with
added tokens; with --all every code point between letters and marks. Usage:

    python tests/oracle/compare_norm.py build/athanor [--texts 300] [--seed 1] [--all]
"""
import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile

import norm_cases as nc
from tokenizers import Tokenizer

NAMED_RULES = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc")


def tokenizer(normalizer, texts):
    norm = nc.load(normalizer)
    alphabet = sorted(set("".join(map(norm.normalize_str, texts))) - {"\0"})  # no NUL in a key
    added = [{"id": len(alphabet) + 1 + i, "content": c, "single_word": False, "lstrip": lstrip,
              "rstrip": False, "normalized": not special, "special": special}
             for i, (c, lstrip, special) in enumerate([("[X]", False, True), ("[yé]", True, False)])]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer, "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Fuse"},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False,
                      "vocab": {c: i for i, c in enumerate(["<unk>", *alphabet])}, "merges": []}}


def compare(athanor, normalizer, texts, folder):
    tree = json.dumps(tokenizer(normalizer, texts))
    with open(folder + "/tokenizer.json", "w") as f:
        f.write(tree)
    with open(folder + "/texts.jsonl", "w") as f:
        f.writelines(json.dumps(t) + "\n" for t in texts)
    done = subprocess.run([athanor, "tok", "encode", folder + "/tokenizer.json",
                           folder + "/texts.jsonl", "--jsonl", "--offsets"],
                          capture_output=True, text=True)
    name = json.dumps(normalizer)[:100]
    if done.returncode != 0:
        print("FAILED", name, done.stderr)
        return 1
    oracle, wrong = Tokenizer.from_str(tree), 0
    lines = done.stdout.strip("\n").split("\n")
    assert len(lines) == len(texts)
    for text, line in zip(texts, lines):
        want, got = oracle.encode(text), json.loads(line)
        if got["ids"] == want.ids and [tuple(o) for o in got["offsets"]] == want.offsets:
            continue
        wrong += 1
        if wrong <= 3:
            print("  text", ascii(text), "\n  want", want.ids, want.offsets, "\n  got ", got)
    print("equal" if wrong == 0 else f"{wrong} DIFFER", "of", len(texts), name)
    return wrong


def with_added(n, seed):
    """Texts that added tokens cut before and after normalization."""
    rng, parts = random.Random(seed), ("[X]", "[yé]", "[ye\u0301]", *"aéक \n[É\u0301", "ab", "[Y")
    return ["".join(rng.choices(parts, k=rng.randint(1, 8))) for _ in range(n)]


def all_code_points():
    for c in itertools.chain(range(1, 0xD800), range(0xE000, 0x32000), range(0xE0000, 0xE0200)):
        yield f"{chr(c)}a{chr(c)}\u0323b\u0345{chr(c)}\u1161"


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("athanor")
    args.add_argument("--texts", type=int, default=300)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--all", action="store_true")
    args = args.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rules = nc.charsmap_of(nc.sentencepiece_model(tsv=folder + "/rules.tsv"))
        steps = nc.normalizers(rules) + [
            nc.precompiled(nc.charsmap_of(nc.sentencepiece_model(rule=r))) for r in NAMED_RULES]
        texts = list(all_code_points()) if args.all else (
            nc.texts(args.texts, args.seed) + with_added(args.texts, args.seed))
        wrong = sum(compare(args.athanor, s, texts, folder) for s in steps)
    sys.exit(wrong > 0)


main()
