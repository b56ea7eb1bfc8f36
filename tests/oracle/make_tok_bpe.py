#!/usr/bin/env python3
"""Golden cases of BPE over characters, as Hugging Face `tokenizers` does it: tests/golden/tok/bpe_chars.json.

    [{"name", "tokenizer": a tokenizer.json, "cases": [{"text", "ids", "offsets"}]}]

Byte fallback (whole and with bytes missing), fused and single unknowns, affixes, ignore_merges, text with and without
pre-tokens. Version: tokenizers 0.23.3. Run from anywhere, after make_tok_golden.py: python tests/oracle/make_tok_bpe.py
"""
import json
import pathlib
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok"
LINES = (OUT / "corpus.txt").read_text().split("\n")[:160]
MARK = "▁"
NAMES = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]


def trained(size, pre_tokenizer, specials, **model):
    t = Tokenizer(models.BPE(unk_token="<unk>", **model))
    t.pre_tokenizer = pre_tokenizer
    affixes = {k: model[k] for k in ("continuing_subword_prefix", "end_of_word_suffix") if k in model}
    lines = [x.replace(" ", MARK) if pre_tokenizer is None else x for x in LINES]
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                                     min_frequency=3, limit_alphabet=60, **affixes))
    root = json.loads(t.to_str())
    root["added_tokens"] = []
    root["decoder"] = {"type": "Fuse"}
    return root


def with_marks(root):
    """Text as it comes, its spaces as marks, no pre-tokens: Llama 2."""
    return {**root, "pre_tokenizer": None, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": MARK}}


def changed(root, drop=(), **model):
    vocab = {k: v for k, v in root["model"]["vocab"].items() if k not in drop}
    return {**root, "model": {**root["model"], "vocab": vocab, **model}}


def crossing(root):
    """A token that goes on across a space, so that a text cannot be cut before it."""
    model = root["model"]
    vocab, merges = dict(model["vocab"]), list(model["merges"])
    left, right = "e", MARK + "t"
    vocab[left + right] = max(vocab.values()) + 1
    return {**root, "model": {**model, "vocab": vocab, "merges": merges + [[left, right]]}}


def texts():
    rng = random.Random(5)
    pool = list("abcdefghiklmnorstuvw    ") + list("ÖßéМояΑ炉火中文불नسไ😀\n\t▁<>0x41\u0301") + ["the ", " heat", "▁▁", "it's"]
    fixed = ["", " ", "  ", "a", "the heat of the furnace", "théé", "😀😀x😀", "x▁y", "▁", "▁▁the", "the▁▁heat", "<0x41>A",
             "中文中文 the 中文", "\n\n", "e the", "the the the", "a" * 60, "the\x04\x00 heat\u00a2 of\x13\x14\x04", "\x04", "zq quiz zzzz of § it", " " * 9 + "the"]
    return fixed + ["".join(rng.choice(pool) for _ in range(n)) for n in (6, 9, 14, 20, 30, 50, 110) for _ in range(2)]


def groups():
    space = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)
    words = pre_tokenizers.WhitespaceSplit()
    llama = with_marks(trained(380, space, NAMES, byte_fallback=True, fuse_unk=True))
    yield "byte fallback", llama
    yield "byte fallback, one byte missing", changed(llama, drop=["<0xE4>"])
    yield "byte fallback, a token across spaces", crossing(llama)
    plain = with_marks(trained(300, space, ["<unk>"], fuse_unk=True))
    yield "fused unknowns", plain
    yield "single unknowns", changed(plain, fuse_unk=False)
    yield "ignore_merges", changed(llama, ignore_merges=True)
    yield "prefix", trained(300, words, ["<unk>"], continuing_subword_prefix="##")
    yield "suffix", trained(300, words, ["<unk>"], end_of_word_suffix="</w>")
    yield "both affixes", trained(300, words, ["<unk>"], continuing_subword_prefix="##", end_of_word_suffix="</w>")
    yield "bytes missing", bytes_missing()
    yield "all merges dropped", changed(llama, dropout=1.0)


def bytes_missing():
    """Byte-level, without the tokens of some bytes: they are left out, and what follows moves up."""
    root = json.loads((OUT / "bpe_llama3.json").read_text())
    lost = set("ĀĄċĴĵ¢§zq")
    vocab = {k: v for k, v in root["model"]["vocab"].items() if not lost & set(k)}
    merges = [m for m in root["model"]["merges"] if not lost & set("".join(m))]
    root["model"].update(vocab=vocab, merges=merges)
    return root


def main():
    out = []
    for name, root in groups():
        t = Tokenizer.from_str(json.dumps(root))
        cases = [(x, t.encode(x, add_special_tokens=False)) for x in texts()]
        out.append({"name": name, "tokenizer": root,
                    "cases": [{"text": x, "ids": e.ids, "offsets": e.offsets} for x, e in cases]})
    (OUT / "bpe_chars.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")))


main()
