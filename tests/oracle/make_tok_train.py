#!/usr/bin/env python3
"""Golden file of training, made by Hugging Face `tokenizers`: tests/golden/tok/train.json.

Trains on tests/golden/tok/corpus.txt and on texts of repeated characters, where a token can be made
from other parts a second time:
  bpe        [{text, pattern, vocab_size, merges, vocab}], byte-level; text null: the corpus
  wordpiece  [{vocab_size, tokens}], for sizes at which WordPieceTrainer, which breaks ties at random,
             gives the same set of tokens ten times
  unigram    [{vocab_size, length}]: into how many tokens sentencepiece's unigram of that size cuts
             the lines of the corpus

Versions: tokenizers 0.23.3, sentencepiece 0.2.3. Run from anywhere: python tests/oracle/make_tok_train.py
"""
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
    pieces = [(n, wordpiece(corpus, n)) for n in range(240, 420, 10)]
    pieces = [{"vocab_size": n, "tokens": t} for n, t in pieces if t]
    assert len(pieces) >= 2, "no size without ties"
    pieces = [pieces[0], pieces[len(pieces) // 2], pieces[-1]]
    (GOLDEN / "train.json").write_text(
        json.dumps({"bpe": made, "wordpiece": pieces, "unigram": [unigram(corpus, n) for n in (250, 350, 450)]},
                   ensure_ascii=False, separators=(",", ":")))
    print([p["vocab_size"] for p in pieces])


main()
