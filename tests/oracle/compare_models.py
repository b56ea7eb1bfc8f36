#!/usr/bin/env python3
"""Compares the models Unigram, WordPiece and WordLevel with Hugging Face `tokenizers`, and Unigram
also with `sentencepiece`, on many texts: ids and offsets, with and without remembered words.

    compare_models.py ATHANOR [--texts N] FILE...

FILE is a tokenizer.json, or a sentencepiece .model of kind unigram. Texts are made from the pieces
of each vocabulary, from random Unicode and from fixed lines; every difference is printed.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizers

FIXED = ["", " ", "▁", "▁▁▁", "a", "Hello, world!", "x\n\ny\t z", "naïve e\u0301 \u0301\u200d한글 中文和English混排。",
         "<unk>", "a<unk>b <unk><unk>", "<0x41><0x0A>", "▁<0x41>q", "👩\u200d👩\u200d👧 👍🏽 🇩🇪!!!", "\x01\x02\x7f",
         "العربية हिन्दी ไทย", "\U0010ffff\ue000\ufffd\ufeff", "1234567890" * 9, "##a ##ing [UNK] [unk]"]


def random_char(rng):
    while True:
        c = rng.choice((rng.randrange(0x20, 0x7F), rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0xD800),
                        rng.randrange(0xE000, 0x110000), 0x2581, 0x20))
        return chr(c)


def texts(pieces, n):
    """Whole pieces in random order meet the lattice's ties; cut ones its unknown characters."""
    rng = random.Random(5)
    pieces = [p for p in pieces if p and len(p) < 40] or ["a"]
    chars = sorted({c for p in pieces for c in p})
    yield from FIXED
    for c in chars[:300]:
        yield c * rng.randrange(2, 40)
    for i in range(n):
        kind = i % 6
        size = rng.choice((2, 5, 12, 40))
        if kind == 0:
            yield "".join(rng.choice(pieces) for _ in range(size))
        elif kind == 1:
            yield "".join(rng.choice(pieces)[:rng.randrange(1, 4)] for _ in range(size))
        elif kind == 2:
            few = rng.sample(chars, min(len(chars), 3))
            yield "".join(rng.choice(few) for _ in range(size * 2))
        elif kind == 3:
            yield "".join(random_char(rng) if rng.random() < .3 else rng.choice(pieces) for _ in range(size))
        elif kind == 4:
            yield " ".join(rng.choice(pieces) + rng.choice(("", rng.choice(pieces))) for _ in range(size))
        else:
            yield "▁".join(rng.choice(pieces).strip("▁") for _ in range(size))
    yield "".join(rng.choice(pieces) for _ in range(60000))
    yield rng.choice(chars) * 50000
    yield "".join(random_char(rng) for _ in range(20000))


def ours(program, file, inputs, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.writelines(json.dumps(t) + "\n" for t in inputs)
        f.flush()
        run = subprocess.run([program, "tok", "encode", file, f.name, "--jsonl", *options], capture_output=True,
                             text=True, check=False)
    if run.returncode:
        sys.exit(f"{file}: {run.stderr}")
    rows = [json.loads(line) for line in run.stdout.split("\n") if line]
    return [(row["ids"], row.get("offsets")) for row in rows]


def huggingface(file, n):
    t = tokenizers.Tokenizer.from_file(file)
    inputs = list(texts(list(t.get_vocab()), n))
    encoded = [t.encode(x, add_special_tokens=False) for x in inputs]
    return inputs, [(e.ids, [list(o) for o in e.offsets]) for e in encoded]


def spm(file, n):
    sp = sentencepiece.SentencePieceProcessor(model_file=file)
    inputs = list(texts([sp.id_to_piece(i) for i in range(sp.get_piece_size())], n))
    return inputs, [(sp.encode(x), None) for x in inputs]


def compare(program, file, n):
    inputs, want = (spm if file.endswith(".model") else huggingface)(file, n)
    bad = 0
    for options in ([], ["--offsets"]):
        for text, (ids, offsets), (got, spans) in zip(inputs, want, ours(program, file, inputs, *options), strict=True):
            if got != ids or (options and offsets is not None and spans != offsets):
                at = next((i for i, (a, b) in enumerate(zip(got, ids)) if a != b), min(len(got), len(ids)))
                bad += 1
                if bad <= 5:
                    print(f"{file} {options}: {text[:200]!r}: at {at}: {got[at:at + 8]} {(spans or [])[at:at + 8]}, "
                          f"expected {ids[at:at + 8]} {(offsets or [])[at:at + 8]}")
    print(f"{pathlib.Path(file).name}: {len(inputs)} texts, {bad} differ")
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("files", nargs="+")
    p.add_argument("--texts", type=int, default=3000)
    args = p.parse_args()
    sys.exit(1 if sum(compare(args.program, f, args.texts) for f in args.files) else 0)


main()
