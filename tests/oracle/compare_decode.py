#!/usr/bin/env python3
"""Decoders and post-processors against Hugging Face `tokenizers`.

    compare_decode.py ATHANOR [TOKENIZER.json ...] [--rounds N] [--seed N]

Every decoder type, alone and in random sequences, decodes random ids of a vocabulary made of awkward
tokens; every post-processor works on encodings with offsets. Then the same for the given tokenizers.
Prints each difference and exits 1 if there is any.

tokenizers panics where Strip takes more than a token has; such cases are counted apart.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok"

TOKENS = [
    "a", "the", "ing", "x y", "▁", "▁the", "▁▁", "▁▁a▁", "a▁b", "b▁",
    "<0x41>", "<0x20>", "<0xE4>", "<0xBD>", "<0xA0>", "<0xF0>", "<0x9F>", "<0x91>", "<0x8D>", "<0xff>",
    "<0xC3>", "<0xa9>", "<0x+9>", "<0x9+>", "<0xZZ>", "<0x4>", "<0x041>", "<0x0A>", "a<0x41>",
    "##ing", "##", "#", "##.", "x##y", "##n't",
    "low</w>", "</w>", "</w></w>x", "a</w>b</w>", "</", "w>",
    "|", "a|b", "||", "h", "hh", "pad",
    ".", "!", "?", ",", "'", "n't", "'m", "do", "not", " do not", "'s", "'ve", "'re", " .", " ' ", "' ",
    "  .", " !?",
    "Ġ", "Ġthe", "Ċ", "ä½ł", "Ã", "ł", "Ġä½", "©", "ð", "ðŁĳį", "Â",
    "é", "e\u0301", "中", "中国", "👍", "👩\u200d👧", "\u00a0", "\u3000", " ", "  ", "   ", "\n", "\t", "\ufffd",
    "ab", "aba", "aaa", "baab",
]
ADDED = [
    ("<s>", True, False), ("</s>", True, False), ("<pad>", True, False), ("[MASK]", True, False),
    ("plain", False, False), ("▁added", False, False), ("##more", False, False), ("Ġword", False, False),
    ("two words", False, True), ("UP", False, True), (" . ", False, False), ("<0x42>", False, False),
]
METASPACE = [{"type": "Metaspace", "replacement": c, "prepend_scheme": s, "split": True}
             for c in "▁a" for s in ("always", "first", "never")]
STEPS = METASPACE + [
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "WordPiece", "prefix": "##", "cleanup": False},
    {"type": "WordPiece", "prefix": "", "cleanup": True},
    {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "BPEDecoder", "suffix": "a"},
    {"type": "BPEDecoder", "suffix": ""},
    {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
    {"type": "CTC", "pad_token": "a", "word_delimiter_token": "th", "cleanup": True},
    {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": False},
] + [{"type": "Strip", "content": c, "start": a, "stop": b}
     for c, a, b in ((" ", 1, 0), (" ", 0, 1), ("▁", 1, 0), (" ", 2, 2), ("a", 1, 1), ("中", 3, 0), ("a", 0, 40))] + [
    {"type": "Replace", "pattern": p, "content": c}
    for p, c in (({"String": "▁"}, " "), ({"String": " "}, ""), ({"String": "aba"}, "<X>"), ({"String": "aa"}, "a"),
                 ({"String": "the"}, "der"), ({"String": ""}, "-"), ({"Regex": "a+"}, "A"), ({"Regex": "b*"}, "_"),
                 ({"Regex": "$"}, "!"), ({"Regex": "\\s+"}, " "), ({"Regex": "(?=t)"}, "^"), ({"String": "中"}, "zhong"),
                 ({"Regex": "[▁ ]t"}, "T"), ({"String": "\ufffd"}, "?"), ({"String": "n't"}, " not"))]
PREPEND = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
LLAMA = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


def base():
    vocab = {t: i for i, t in enumerate(TOKENS)}
    added = [{"id": len(vocab) + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": n, "special": s} for i, (c, s, n) in enumerate(ADDED)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": []}}


def decoders(rng, rounds):
    yield None
    yield {"type": "Sequence", "decoders": []}
    yield LLAMA
    yield from STEPS
    for _ in range(rounds):
        yield {"type": "Sequence", "decoders": [rng.choice(STEPS) for _ in range(rng.randint(1, 4))]}


def id_lists(rng, n_ids, n):
    yield from ([], [0])
    for i in range(n):
        pool = rng.sample(range(n_ids), min(n_ids, rng.choice((2, 5, 20, n_ids))))
        yield [rng.choice(pool) for _ in range(rng.randint(1, 30))]


class Ours:
    def __init__(self, athanor):
        self.athanor = athanor

    def lines(self, command, tokenizer, lines, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.writelines(json.dumps(x) + "\n" for x in lines)
            f.flush()
            p = subprocess.run([self.athanor, "tok", command, tokenizer, f.name, "--jsonl", *options],
                               capture_output=True, text=True)
        if p.returncode:
            return p.stderr.strip()
        return [json.loads(x) for x in p.stdout.split("\n") if x]


def oracle_decode(tk, ids, skip):
    try:
        return tk.decode(ids, skip_special_tokens=skip)
    except BaseException as e:  # a Rust panic
        if "Panic" not in type(e).__name__:
            raise
        return None


class Tally:
    def __init__(self):
        self.checked = self.panics = self.wrong = 0

    def differs(self, *what):
        self.wrong += 1
        if self.wrong <= 20:
            print(*what, sep="\n  ")


def compare_decoder(ours, path, root, lists, tally):
    tk = Tokenizer.from_file(path)
    for skip in (False, True):
        got = ours.lines("decode", path, lists, *(["--skip-special"] if skip else []))
        if isinstance(got, str):
            return tally.differs(json.dumps(root["decoder"]), got)
        for ids, text in zip(lists, got):
            want = oracle_decode(tk, ids, skip)
            tally.panics += want is None
            tally.checked += want is not None
            if want is None:
                continue
            if want != text:
                tokens = [tk.id_to_token(i) for i in ids]
                tally.differs(json.dumps(root["decoder"], ensure_ascii=False), "skip %s %r" % (skip, tokens),
                              "want %r" % want, "got  %r" % text)


# ---- post-processors ----

def posts(a, b):
    level = [{"type": "ByteLevel", "add_prefix_space": p, "trim_offsets": t, "use_regex": True}
             for p in (True, False) for t in (True, False)]
    pair = {"sep": [b[0], b[1]], "cls": [a[0], a[1]]}
    bert = {"type": "BertProcessing", **pair}
    roberta = [{"type": "RobertaProcessing", **pair, "trim_offsets": t, "add_prefix_space": p}
               for p in (True, False) for t in (True, False)]
    special = {x[0]: {"id": x[0], "ids": [x[1]], "tokens": [x[0]]} for x in (a, b)}
    special["many"] = {"id": "many", "ids": [b[1], a[1], a[1]], "tokens": [b[0], a[0], a[0]]}

    def part(kind, name, type_id=0):
        return {kind: {"id": name, "type_id": type_id}}
    text, second = part("Sequence", "A"), part("Sequence", "B", 1)
    templates = [{"type": "TemplateProcessing", "single": single, "pair": [text, second], "special_tokens": special}
                 for single in ([text], [part("SpecialToken", a[0]), text], [text, part("SpecialToken", b[0])],
                                [part("SpecialToken", "many"), part("SpecialToken", a[0]), text,
                                 part("SpecialToken", b[0], 1), part("SpecialToken", "many")])]
    yield from level + [bert] + roberta + templates
    for steps in ([level[0], templates[3]], [templates[3], level[0]], [bert, level[0]], [level[2], roberta[0]],
                  [bert, roberta[2], level[0]], [templates[1], level[2], level[2]], [bert, bert]):
        yield {"type": "Sequence", "processors": steps}


def texts(rng):
    pool = list("abXY  \n\t.,'0é中 👍\u00a0\u3000") + ["  ", "the ", " and", "<mask>", " <mask> ", "word", "<left>", "<right> "]
    yield from ("", " ", "  ", "a", " a", "  a", "a ", " a b  c   d ", "\n a\n\n b", "\u00a0x \u3000y", " <mask>  x", "é  é")
    for _ in range(60):
        yield "".join(rng.choice(pool) for _ in range(rng.randint(1, 40)))


def compare_posts(ours, file, rng, tally, folder):
    root = json.loads((GOLDEN / file).read_text())
    names = {t["content"]: t["id"] for t in root["added_tokens"]}
    a, b = list(names.items())[0], list(names.items())[-1]
    lines = list(texts(rng))
    path = str(folder / "post.json")
    for prefix in (False, True):
        for post in posts(a, b):
            level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
            patched = {**root, "post_processor": post, "pre_tokenizer": level, "normalizer": None}
            pathlib.Path(path).write_text(json.dumps(patched))
            tk = Tokenizer.from_file(path)
            for special in (False, True):
                got = ours.lines("encode", path, lines, "--offsets", *(["--special"] if special else []))
                if isinstance(got, str):
                    tally.differs(file, json.dumps(post), got)
                    continue
                for text, x in zip(lines, got):
                    e = tk.encode(text, add_special_tokens=special)
                    tally.checked += 1
                    if e.ids != x["ids"] or e.offsets != [tuple(o) for o in x["offsets"]]:
                        tally.differs(file, json.dumps(post), "special %s prefix %s %r" % (special, prefix, text),
                                      "want %s %s" % (e.tokens, e.offsets), "got  %s" % x["offsets"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("athanor")
    p.add_argument("tokenizer", nargs="*")
    p.add_argument("--rounds", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng, tally, ours = random.Random(a.seed), Tally(), Ours(a.athanor)
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "decoder.json")
        for normalizer in (None, {"type": "Lowercase"}, PREPEND):
            for decoder in decoders(rng, a.rounds):
                root = {**base(), "decoder": decoder, "normalizer": normalizer}
                pathlib.Path(path).write_text(json.dumps(root))
                n = len(root["model"]["vocab"]) + len(root["added_tokens"])
                compare_decoder(ours, path, root, list(id_lists(rng, n, 80)), tally)
        compare_posts(ours, "bpe_gpt2.json", rng, tally, pathlib.Path(folder))
    for name in a.tokenizer:
        root = json.loads(pathlib.Path(name).read_text())
        tk = Tokenizer.from_file(name)
        lists = [[i for i in x if tk.id_to_token(i) is not None] for x in id_lists(rng, tk.get_vocab_size(), 3000)]
        compare_decoder(ours, name, root, lists, tally)
    print("%d compared, %d left out (tokenizers panicked), %d differ" % (tally.checked, tally.panics, tally.wrong))
    sys.exit(tally.wrong > 0)


if __name__ == "__main__":
    main()
