#!/usr/bin/env python3
"""Compares training with Hugging Face `tokenizers` and `sentencepiece`.

    check_tok_train.py ATHANOR TEXT... [--sizes 600,4000]

For every kind, named pattern and vocabulary size, on each TEXT:
  - what `athanor tok train` writes loads in tokenizers and gives the same ids there as here, with
    and without special tokens;
  - byte-level BPE has the merges and ids of BpeTrainer behind the same pre-tokenizer;
  - the tokens of WordPiece are those of WordPieceTrainer, as far as that agrees with itself;
  - Unigram cuts the text into at most 1.01 times as many tokens as sentencepiece's.
Prints one line a check; exit status 1 if one failed.
"""
import argparse
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

PATTERNS = ["gpt2", "llama3", "cl100k", "qwen2", "o200k", "smollm", "deepseek-v3", "falcon", "tekken"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
EXTRA = ["", " ", "  two  spaces ", "\n\n", "a\r\nb\tc", "naïve e\u0301té 한글 中文和English混排。", "हिन्दी ไทย العربية",
         "👩\u200d👩\u200d👧 👍🏽 🇩🇪!!!", "\x01\x02\x7f", "\ufb01 ½ Ⅷ ２０２４", "▁▁x", "<unk></s>[MASK]<|endoftext|>", "1234567890" * 5]


class Checker:
    def __init__(self, athanor, folder):
        self.athanor, self.folder, self.failed = athanor, pathlib.Path(folder), 0

    def report(self, ok, what):
        print("ok  " if ok else "FAIL", what, flush=True)
        self.failed += not ok

    def train(self, path, *options):
        out = self.folder / "tok.json"
        subprocess.run([self.athanor, "tok", "train", path, "-o", out, *options], check=True,
                       stdout=subprocess.DEVNULL)
        return out

    def ids(self, path, texts, special):
        lines = self.folder / "texts.jsonl"
        lines.write_text("".join(json.dumps(t) + "\n" for t in texts))
        done = subprocess.run([self.athanor, "tok", "encode", path, lines, "--jsonl"] + ["--special"] * special,
                              check=True, capture_output=True, text=True)
        return [json.loads(line)["ids"] for line in done.stdout.splitlines()]

    def check_ids(self, path, texts, what):
        peer = Tokenizer.from_file(str(path))
        for special in (False, True):
            want = [e.ids for e in peer.encode_batch(texts, add_special_tokens=special)]
            got = self.ids(path, texts, special)
            wrong = [t for t, a, b in zip(texts, want, got) if a != b]
            self.report(len(want) == len(got) and not wrong,
                        f"{what}: ids of {len(texts)} texts, special {special}" + (f", first {wrong[0]!r}" if wrong else ""))

    def check_merges(self, path, text, size, what):
        ours = json.loads(path.read_text())
        tk = Tokenizer.from_str(json.dumps({**ours, "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}))
        tk.train_from_iterator([text], trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        want = json.loads(tk.to_str())["model"]
        same = want["merges"] == ours["model"]["merges"] and want["vocab"] == ours["model"]["vocab"]
        self.report(same, f"{what}: {len(want['merges'])} merges")

    def check_wordpiece(self, path, text, size, what):
        ours = json.loads(path.read_text())
        sets = []
        for _ in range(2):
            tk = Tokenizer.from_str(json.dumps({**ours, "added_tokens": [], "post_processor": None, "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": {}}}))
            tk.train_from_iterator([text], trainers.WordPieceTrainer(
                vocab_size=size, min_frequency=2, special_tokens=BERT, show_progress=False))
            sets.append(set(tk.get_vocab()))
        mine = set(ours["model"]["vocab"])
        ties, differ = len(sets[0] ^ sets[1]), min(len(mine ^ s) for s in sets)
        self.report(differ <= size // 10,  # ties are broken otherwise
                    f"{what}: {differ} tokens differ; the peer from itself: {ties}")

    def check_unigram(self, path, text, size, what):
        lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
        jsonl = self.folder / "lines.jsonl"
        jsonl.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        out = self.train(jsonl, "--kind", "unigram", "--vocab-size", str(size))
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=model, vocab_size=size, model_type="unigram",
                character_coverage=0.9995, max_sentence_length=1 << 20, minloglevel=2)
        except RuntimeError as e:
            print("    ", what, "not compared: sentencepiece:", str(e).split("] ")[-1])
            return
        sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        want = sum(map(len, sp.encode(lines)))
        got = sum(map(len, self.ids(out, lines, False)))
        self.report(got <= 1.01 * want, f"{what}: {got} tokens, sentencepiece {want} ({got / want:.4f})")


def sample(text):
    rng = random.Random(1)
    lines = text.splitlines(keepends=True)
    texts = EXTRA + rng.sample(lines, min(len(lines), 150))
    for _ in range(60):
        at = rng.randrange(max(1, len(text) - 400))
        texts.append(text[at:at + rng.randint(1, 400)])
        texts.append("".join(chr(rng.choice((rng.randint(1, 0x24F), rng.randint(0x250, 0xD7FF), rng.randint(0xE000, 0x10FFFF))))
                             for _ in range(20)))
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("athanor")
    parser.add_argument("text", nargs="+")
    parser.add_argument("--sizes", default="600,4000")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        c = Checker(args.athanor, folder)
        for path in args.text:
            text = pathlib.Path(path).read_bytes().decode()
            texts = sample(text)
            for size in map(int, args.sizes.split(",")):
                for pattern in PATTERNS:
                    what = f"{path} bpe {pattern} {size}"
                    out = c.train(path, "--vocab-size", str(size), "--pattern", pattern)
                    c.check_merges(out, text, size, what)
                    c.check_ids(out, texts, what)
                what = f"{path} bpe sentencepiece {size}"
                c.check_ids(c.train(path, "--vocab-size", str(size), "--pattern", "sentencepiece"), texts, what)
                what = f"{path} wordpiece {size}"
                out = c.train(path, "--kind", "wordpiece", "--vocab-size", str(size))
                c.check_wordpiece(out, text, size, what)
                c.check_ids(out, texts, what)
                for more in ([], ["--byte-fallback"]):
                    out = c.train(path, "--kind", "unigram", "--vocab-size", str(size), *more)
                    c.check_ids(out, texts, " ".join([path, "unigram", str(size), *more]))
                c.check_unigram(out, text, size, f"{path} unigram {size}")
    sys.exit(1 if c.failed else 0)


main()
