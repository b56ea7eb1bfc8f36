#!/usr/bin/env python3
"""What bench/tok_train.sh runs.

    tok_train.py compare [options] [TEXT...]       athanor and Hugging Face tokenizers in turn, a table
    tok_train.py peer KIND VOCAB_SIZE TEXT         trains with Hugging Face tokenizers, one document
    tok_train.py text english|chinese BYTES OUT    a synthetic text, the same for the same arguments

english: words from a Zipf law with an open vocabulary (about as many distinct words as real text of
the size), lines of sentences. chinese: characters from a Zipf law over 3500, words of two to four of
them from one over 4000, punctuation once in about 60 words, no spaces: pre-tokens are sentences of
some 400 bytes that hardly ever repeat.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

BLOCK = 1 << 20  # words drawn at a time


def zipf_index(np, rng, n, size, exponent):
    weight = 1.0 / np.arange(1, size + 1) ** exponent
    return np.searchsorted(np.cumsum(weight / weight.sum()), rng.random(n), side="right")


def chinese(np, rng):
    order = rng.permutation(3500)
    chars = np.array([chr(0x4E00 + 5 * int(i)) for i in order])
    words = ["".join(chars[zipf_index(np, rng, int(rng.integers(2, 5)), 3500, 0.9)])
             for _ in range(4000)]
    pool = np.array(list(chars) + words, dtype=object)
    marks = np.array(["，", "。", "！", "。\n"], dtype=object)
    while True:
        single = zipf_index(np, rng, BLOCK, 3500, 1.0)
        word = 3500 + zipf_index(np, rng, BLOCK, 4000, 1.0)
        parts = pool[np.where(rng.random(BLOCK) < 0.4, single, word)]
        stop = rng.random(BLOCK) < 1 / 60
        parts[stop] = marks[rng.integers(0, 4, int(stop.sum()))]
        yield "".join(parts)


ONSETS = "b c d f g h l m n p r s t v w st tr pl ch sh".split()
VOWELS = "a e i o u ea ou ai".split()


def spell(rank):
    """The word of a rank: short for frequent ones."""
    syllables = []
    rank += 1
    while rank > 0:
        rank, k = divmod(rank, len(ONSETS) * len(VOWELS))
        syllables.append(ONSETS[k // len(VOWELS)] + VOWELS[k % len(VOWELS)])
    return "".join(syllables)


def english(np, rng):
    known = {}
    while True:
        # P(rank >= r) falls as r ** -0.28, like the tail of real text; ranks stay below 2 ** 40.
        ranks = np.minimum(rng.random(BLOCK) ** (-1 / 0.28), 2.0 ** 40).astype(np.int64)
        unique, index = np.unique(ranks, return_inverse=True)
        words = np.array([known.get(r) or known.setdefault(r, spell(r)) if r < 100000 else spell(r)
                          for r in unique.tolist()], dtype=object)
        ends = rng.random(BLOCK)
        tail = np.where(ends < 0.06, ".\n", np.where(ends < 0.12, ", ", " ")).astype(object)
        yield "".join(words[index] + tail)


def make_text(kind, n_bytes, path):
    import numpy as np
    rng = np.random.Generator(np.random.PCG64(7))
    written = 0
    with open(path, "wb") as out:
        for block in {"english": english, "chinese": chinese}[kind](np, rng):
            data = block.encode()
            if written + len(data) >= n_bytes:
                out.write(data[:n_bytes - written].decode("utf-8", "ignore").encode())
                return
            written += out.write(data)


LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def train_peer(kind, vocab_size, path):
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    with open(path, encoding="utf-8", newline="") as f:
        text = f.read()
    options = {"vocab_size": vocab_size, "show_progress": False}
    if kind == "bpe":
        tk = Tokenizer(models.BPE())
        tk.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        trainer = trainers.BpeTrainer(special_tokens=["<|endoftext|>"], min_frequency=2,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    elif kind == "wordpiece":
        tk = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tk.normalizer = normalizers.BertNormalizer()
        tk.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], min_frequency=2, **options)
    else:
        tk = Tokenizer(models.Unigram())
        tk.normalizer = normalizers.NFKC()
        tk.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(special_tokens=["<pad>", "</s>", "<unk>"],
                                          unk_token="<unk>", **options)
    tk.train_from_iterator([text], trainer)


# ---- in turn ----

def run(command):
    """User and system seconds and peak resident MB of a process."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def corpus(paths, n_bytes, out):
    if paths:
        data = b"\n".join(open(p, "rb").read() for p in paths)
    else:
        data = subprocess.run(["bible", "-f", "-l9999", "gen1:1-rev22:21"], check=True, capture_output=True).stdout
    data = (data * (n_bytes // len(data) + 1))[:n_bytes].decode("utf-8", "ignore").encode()
    with open(out, "wb") as f:
        f.write(data)


def compare(arguments):
    parser = argparse.ArgumentParser(prog="bench/tok_train.sh")
    parser.add_argument("--athanor", default="build/athanor")
    parser.add_argument("--kinds", default="bpe,wordpiece,unigram")
    parser.add_argument("--vocab-size", default="32768")
    parser.add_argument("--bytes", type=float, default=9.4e6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("text", nargs="*")
    args = parser.parse_intermixed_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "corpus.txt")
        corpus(args.text, int(args.bytes), text)
        base, _ = run([sys.executable, "-c", "import tokenizers"])
        print(f"{int(args.bytes) / 1e6:.1f} MB, {args.vocab_size} tokens, one thread; medians of {args.rounds}; "
              f"the peer without its {base:.2f} s of start-up\n")
        print("| kind | athanor s | tokenizers s | ratio | athanor MB | tokenizers MB |\n|---|---|---|---|---|---|")
        for kind in args.kinds.split(","):
            ours, peers = [], []
            for _ in range(args.rounds):
                ours.append(run([args.athanor, "tok", "train", text, "-o", os.path.join(folder, "tok.json"),
                                 "--kind", kind, "--vocab-size", args.vocab_size]))
                peers.append(run([sys.executable, __file__, "peer", kind, args.vocab_size, text]))
            a, b = (statistics.median(t for t, _ in x) for x in (ours, peers))
            rss = [statistics.median(m for _, m in x) for x in (ours, peers)]
            print(f"| {kind} | {a:.2f} | {b - base:.2f} | {a / (b - base):.3f} | {rss[0]:.0f} | {rss[1]:.0f} |", flush=True)


def main():
    command, *args = sys.argv[1:]
    if command == "text":
        make_text(args[0], int(float(args[1])), args[2])
    elif command == "peer":
        train_peer(args[0], int(args[1]), args[2])
    else:
        compare(args)


main()
