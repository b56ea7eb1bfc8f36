#!/usr/bin/env python3
"""Golden file of training, made by Hugging Face `tokenizers`: tests/golden/tok/train.json.

Trains on tests/golden/tok/corpus.txt and on texts of repeated characters, where a token can be made
from other parts a second time:
  bpe        [{text, pattern, vocab_size, merges, vocab}], byte-level; text null: the corpus
  words      {word: count}, the text of wordpiece; counts are such that there are few ties
  wordpiece  [{vocab_size, tokens}], for sizes at which the set of tokens does not depend on how ties
             are broken, which WordPieceTrainer does by numbers that differ from run to run
  unigram    [{vocab_size, length}]: into how many tokens sentencepiece's unigram of that size cuts
             the lines of the corpus

Versions: tokenizers 0.23.3, sentencepiece 0.2.3. Run from anywhere: python tests/oracle/make_tok_train.py
"""
import collections
import io
import json
import pathlib
import random

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok"
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def byte_level(pattern):
    if pattern == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bpe(corpus, text, pattern, vocab_size):
    tk = Tokenizer(models.BPE())
    tk.pre_tokenizer = byte_level(pattern)
    tk.train_from_iterator([corpus if text is None else text], trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(tk.to_str())["model"]
    merged = sorted((i, t) for t, i in model["vocab"].items() if i > 256)
    return {"text": text, "pattern": pattern, "vocab_size": vocab_size, "merges": model["merges"],
            "merged": [t for _, t in merged]}


def wordpiece(corpus, vocab_size):
    sets = []
    for _ in range(10):
        tk = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tk.normalizer = normalizers.BertNormalizer()
        tk.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tk.train_from_iterator([corpus], trainers.WordPieceTrainer(
            vocab_size=vocab_size, min_frequency=2, special_tokens=SPECIAL, show_progress=False))
        sets.append(sorted(tk.get_vocab()))
    return sets[0] if all(s == sets[0] for s in sets) else None


def depends_on_ties(corpus, vocab_size, tokens):
    """Whether merging with ties broken this way or that leads to other tokens."""
    words = collections.Counter(w for w, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(
        normalizers.BertNormalizer().normalize_str(corpus)))
    for sign in (1, -1):
        split = {w: [w[0]] + ["##" + c for c in w[1:]] for w in words}
        vocab = set(SPECIAL) | set("".join(words)) | {s for parts in split.values() for s in parts}
        while len(vocab) < vocab_size:
            pairs = collections.Counter()
            for w, parts in split.items():
                for pair in zip(parts, parts[1:]):
                    pairs[pair] += words[w]
            (a, b), _ = max(pairs.items(), key=lambda p: (p[1], [[sign * ord(c) for c in x] for x in p[0]]))
            merged = a + b.removeprefix("##")
            vocab.add(merged)
            for w, parts in split.items():
                out = []
                for part in parts:
                    if out and out[-1] == a and part == b:
                        out[-1] = merged
                    else:
                        out.append(part)
                split[w] = out
        if sorted(vocab) != tokens:
            return True
    return False


def unigram(corpus, vocab_size):
    lines = [" ".join(line.split()) for line in corpus.splitlines()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=vocab_size, model_type="unigram",
        character_coverage=1.0, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return {"vocab_size": vocab_size, "length": sum(map(len, sp.encode(lines)))}


def repeated(rng):
    alphabet = "ab=- "[:rng.choice((2, 3, 4))]
    words = [rng.choice(alphabet) * rng.randint(1, 40) for _ in range(rng.randint(2, 20))]
    words += ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 20))) for _ in range(20)]
    return " ".join(rng.choice(words) for _ in range(rng.randint(20, 80)))


def main():
    rng = random.Random(3)
    corpus = (GOLDEN / "corpus.txt").read_bytes().decode()
    made = [bpe(corpus, None, "llama3", 3000), bpe(corpus, None, "gpt2", 500)]
    made += [bpe(corpus, repeated(rng), "gpt2", rng.choice((300, 400, 1000))) for _ in range(24)]
    words = {"".join(rng.choice("abcdeghi") for _ in range(rng.randint(2, 5))): rng.randint(3, 900)
             for _ in range(150)}
    text = " ".join(w for w, count in words.items() for _ in range(count))
    pieces = [(n, wordpiece(text, n)) for n in range(24, 120, 3)]
    pieces = [{"vocab_size": n, "tokens": t} for n, t in pieces
              if t and not depends_on_ties(text, n, t)]
    assert len(pieces) >= 3, "too few sizes without ties"
    pieces = [pieces[0], pieces[len(pieces) // 2], pieces[-1]]
    (GOLDEN / "train.json").write_text(
        json.dumps({"bpe": made, "words": words, "wordpiece": pieces, "unigram": [unigram(corpus, n) for n in (170, 185, 200)]},
                   ensure_ascii=False, separators=(",", ":")))
    print([p["vocab_size"] for p in pieces])


main()
