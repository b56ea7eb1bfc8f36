#!/usr/bin/env python3
"""Golden cases of the models Unigram, WordPiece and WordLevel: tests/golden/tok/models.json.

    [{"name", "tokenizer": a tokenizer.json, "types": piece types of sentencepiece or absent,
      "cases": [{"text", "ids", "offsets": absent for sentencepiece}]}]

The ids of groups with "types" are those of `sentencepiece`, for text that its normalizer has been
through; all others are those of Hugging Face `tokenizers`.

The trainers of `tokenizers` break ties in the order of a hash, so the vocabularies change a little
from run to run. Versions: tokenizers 0.23.3, sentencepiece 0.2.3. Run from anywhere, after make_tok_golden.py:
python tests/oracle/make_tok_models.py
"""
import itertools
import json
import pathlib
import random
import struct
import tempfile

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok"
LINES = (OUT / "corpus.txt").read_text().split("\n")[:200]
SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False}
TIED = "ЂЃЄ"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def shell(model, pre_tokenizer=None):
    level = pre_tokenizer is BYTE_LEVEL
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": BYTE_LEVEL if level else {"type": "Fuse"}, "model": model}


def trained(model, trainer, pre_tokenizer):
    t = Tokenizer(model)
    t.pre_tokenizer = pre_tokenizer
    t.train_from_iterator(LINES, trainer)
    return json.loads(t.to_str())["model"]


def unigram(size, pre_tokenizer=None, **options):
    model = trained(models.Unigram(), trainers.UnigramTrainer(
        vocab_size=size, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False, **options),
        pre_tokenizer or pre_tokenizers.Metaspace())
    return model


def with_bytes(model, missing=()):
    low = min(score for _, score in model["vocab"])
    extra = [[f"<0x{b:02X}>", low - b % 2] for b in range(256) if b not in missing]
    return {**model, "vocab": model["vocab"] + extra, "byte_fallback": True}


def ties():
    rng = random.Random(1)
    pieces = ["".join(p) for n in (1, 2, 3) for p in itertools.product("ab▁", repeat=n)]
    return {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
            "vocab": [["<unk>", 0.0]] + [[p, -float(rng.randrange(1, 6))] for p in pieces]}


def positive():
    """An unknown character scores more than known pieces, and a run of them spells one."""
    vocab = [["<unk>", 0.0], ["a", 100.0], ["xy", 100.0], ["x<unk>", 99.5], ["ab", 120.0], ["▁", 101.0], ["▁a", 150.0]]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False}


def huggingface():
    u = unigram(300)
    short = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "", "max_input_chars_per_word": 7,
             "vocab": {p: i for i, p in enumerate(["[UNK]", "a", "ab", "abc", "b", "é", "日本", "c#", "#"])}}
    wordpiece = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[UNK]"], show_progress=False), pre_tokenizers.WhitespaceSplit())
    wordlevel = trained(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(
        vocab_size=120, special_tokens=["[UNK]"], show_progress=False), pre_tokenizers.WhitespaceSplit())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "unigram", shell(u)
    yield "unigram words", shell(u, SPACES)
    yield "unigram bytes", shell(with_bytes(u))
    yield "unigram some bytes", shell(with_bytes(u, missing=(0x9F,)), SPACES)
    yield "unigram ties", shell(ties())
    yield "unigram positive", shell(positive())
    yield "unigram byte level", shell(unigram(150, level, initial_alphabet=level.alphabet()[:60]), BYTE_LEVEL)
    yield "wordpiece", shell(wordpiece, SPACES)
    yield "wordpiece no prefix", shell(short, SPACES)
    yield "wordlevel", shell(wordlevel, SPACES)


def spm(folder, name, user=(), **options):
    prefix = str(pathlib.Path(folder) / name)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=prefix, model_type="unigram", normalization_rule_name="identity",
        vocab_size=400, minloglevel=2, num_threads=1, user_defined_symbols=list(user), **options)
    return sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def written(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def edited(sp, change):
    """The processor whose piece messages have the bytes of change(i) appended: later fields count."""
    data, at, out, i = sp.serialized_model_proto(), 0, b"", 0
    while at < len(data):
        tag, at = varint(data, at)
        n, at = varint(data, at)
        body = data[at:at + n]
        at += n
        if tag == 0x0A:
            if not (sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i)):
                body += change(i)
            i += 1
        out += written(tag) + written(len(body)) + body
    return sentencepiece.SentencePieceProcessor(model_proto=out)


def score(value):
    return b"\x15" + struct.pack("<f", value)


def renamed(piece, value):
    return b"\x0A" + written(len(piece.encode())) + piece.encode() + score(value)


def types(sp, user):
    def kind(i):
        return (2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i)
                else 4 if sp.id_to_piece(i) in user else 1)
    return [kind(i) for i in range(sp.get_piece_size())]


def spm_groups(folder):
    """Beside models as they are trained: pieces that are UNUSED; scores near those of user-defined
    symbols; and ways through a text that differ by as little as the rounding of a sum."""
    rng = random.Random(4)
    user = ["<sep>", "ing", "▁the▁"]
    bytes_ = spm(folder, "a", byte_fallback=True, character_coverage=0.98)
    symbols = spm(folder, "b", user, character_coverage=0.98, hard_vocab_limit=False)
    every = spm(folder, "c", character_coverage=1.0, hard_vocab_limit=False)
    unused = edited(every, lambda i: b"\x18\x05" if i % 3 == 0 and len(every.id_to_piece(i)) > 1 else b"")
    near = edited(symbols, lambda i: b"" if symbols.id_to_piece(i) in user else score(rng.randrange(1, 9) / 10))
    near_ties = ["▁"] + ["".join(p) for n in (1, 2, 3) for p in itertools.product(TIED, repeat=n)]
    ties_ = edited(every, lambda i: renamed(near_ties[i - 3], -300 * len(near_ties[i - 3]) - rng.random() / 500)
                   if 3 <= i < 3 + len(near_ties) else b"")
    for name, sp, listed in (("sentencepiece bytes", bytes_, ()), ("sentencepiece symbols", near, user),
                             ("sentencepiece unused", unused, ()), ("sentencepiece ties", ties_, ())):
        size = sp.get_piece_size()
        model = {"type": "Unigram", "unk_id": sp.unk_id(), "byte_fallback": any(sp.is_byte(i) for i in range(size)),
                 "vocab": [[sp.id_to_piece(i), sp.get_score(i)] for i in range(size)]}
        yield name, shell(model), sp, types(sp, listed)


def texts(pieces):
    rng = random.Random(9)
    chars = sorted({c for p in pieces for c in p})
    yield from ["", " ", "▁▁", "the furnace", "▁the▁furnace▁that▁feeds▁itself", "a<unk>b <unk><unk>", "<0x41><0x0A>x",
                "xyxyx axy x<unk>", "naïve e\u0301 한글 中文 👍🏽 \U0010ffff", "abcabc abab abcdefgh ##a c## 日本c#", "\x01\x7f"]
    for i in range(24):
        words = [rng.choice(pieces) + (rng.choice(chars) if i % 2 else "") for _ in range(rng.choice((1, 3, 9)))]
        yield rng.choice(("", " ", "▁")).join(words)
        yield "".join(rng.choice(rng.sample(chars, 2)) for _ in range(rng.choice((4, 30))))


def tied_texts():
    rng = random.Random(3)
    for n in (1, 3, 10, 30, 100, 100, 100, 100):
        yield " ".join("".join(rng.choice(TIED) for _ in range(rng.randrange(1, 9))) for _ in range(n))


def main():
    groups = []
    for name, root in huggingface():
        t = Tokenizer.from_str(json.dumps(root))
        encoded = [(x, t.encode(x)) for x in texts(sorted(t.get_vocab()))]
        groups.append({"name": name, "tokenizer": root, "cases": [
            {"text": x, "ids": e.ids, "offsets": e.offsets} for x, e in encoded]})
    with tempfile.TemporaryDirectory() as folder:
        for name, root, sp, kinds in spm_groups(folder):
            inputs = list(texts([piece for piece, _ in root["model"]["vocab"]]))
            if name.endswith("ties"):
                inputs = tied_texts()
            groups.append({"name": name, "tokenizer": root, "types": kinds, "cases": [
                {"text": sp.normalize(x), "ids": sp.encode(x)} for x in inputs]})
    (OUT / "models.json").write_text(json.dumps(groups, ensure_ascii=False, separators=(",", ":")))


main()
