#!/usr/bin/env python3
"""Golden file of decoders and post-processors, made by Hugging Face `tokenizers` 0.23.3.

Writes tests/golden/tok/decode.json:
  base      a tokenizer.json whose vocabulary is made of awkward tokens
  decoders  [{patch, cases: [{ids, text, skipped}]}]: `patch` replaces top-level keys of base; `skipped`
            is the text without special tokens
  posts     [{patch, cases: [{text, ids, offsets, special_ids, special_offsets}]}]: `patch` is for
            bpe_gpt2.json; offsets in characters

Run from anywhere: python tests/oracle/make_tok_decode_golden.py
"""
import json
import random

from tokenizers import Tokenizer

import compare_decode as c


def tokenizer(root):
    return Tokenizer.from_str(json.dumps(root))


def decoder_group(patch, lists):
    tk = tokenizer({**c.base(), **patch})
    cases = []
    for ids in lists:
        text, skipped = c.oracle_decode(tk, ids, False), c.oracle_decode(tk, ids, True)
        if text is not None and skipped is not None:
            cases.append({"ids": ids, "text": text, "skipped": skipped})
    return {"patch": patch, "cases": cases}


def decoder_groups(rng):
    n = len(c.TOKENS) + len(c.ADDED)
    for decoder in c.decoders(rng, 34):
        yield decoder_group({"decoder": decoder}, [x[:14] for x in c.id_lists(rng, n, 6)])
    for decoder in (None, c.STEPS[0], c.STEPS[6], c.STEPS[9]):  # added tokens are shown in lower case
        added = [n - len(c.ADDED) + i for i in range(len(c.ADDED))]
        yield decoder_group({"decoder": decoder, "normalizer": {"type": "Lowercase"}}, [added, added[::-1]])


def post_case(tk, text):
    bare, special = tk.encode(text, add_special_tokens=False), tk.encode(text)
    return {"text": text, "ids": bare.ids, "offsets": bare.offsets, "special_ids": special.ids,
            "special_offsets": special.offsets}


def post_groups(rng):
    root = json.loads((c.GOLDEN / "bpe_gpt2.json").read_text())
    names = [(t["content"], t["id"]) for t in root["added_tokens"]]
    texts = list(c.texts(rng))
    for prefix in (False, True):
        for post in c.posts(names[0], names[-1]):
            patch = {"post_processor": post, "normalizer": None, "pre_tokenizer": {
                "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}}
            tk = tokenizer({**root, **patch})
            yield {"patch": patch, "cases": [post_case(tk, x) for x in rng.sample(texts, 3)]}


def main():
    rng = random.Random(3)
    golden = {"base": c.base(), "decoders": list(decoder_groups(rng)), "posts": list(post_groups(rng))}
    text = json.dumps(golden, separators=(",", ":"), ensure_ascii=False)
    (c.GOLDEN / "decode.json").write_text(text)
    print("%d bytes" % len(text.encode()))


main()
