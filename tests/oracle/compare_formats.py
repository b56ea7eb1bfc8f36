#!/usr/bin/env python3
"""Compares athanor with sentencepiece, tokenizers and tiktoken on files in their own formats.

    compare_formats.py ATHANOR [--corpus FILE]... [--texts N]

Trains tokenizers with the Python packages, reads their files with athanor, and the other way round;
ids and decoded text must be the same for every text. Exits with 1 and prints the first differences
if not."""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece as spm
import tiktoken
import tiktoken.load
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers


def texts_of(corpus, n, seed):
    """Texts in which tokenizers like to differ, and stretches of real and of random text."""
    rng = random.Random(seed)
    assigned = [c for c in range(1, 0x110000)
                if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"]
    out = ["", " ", "  ", "\n", "a", " a", "a ", "  a  b  ", "\u2581", "\u2581a", "a\u2581b", "\t",
           "Hello world", " Hello  world ", "line\r\nline\n\n\nend\n", "<s> </s> <unk> <0x0A> [CLS]",
           "12345 1,234.5", "\u0130\u0131\u017f\ufb01\u2126\uff21\uff42", "e\u0301 \u0915\u094d\u0937",
           "\u0645\u0631\u062d\u0628\u0627 \u0643\u0650\u062a", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
           "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u4e2d\u6587\uff0c", "\ud55c\uad6d\uc5b4",
           "\U0001F469\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA \U0001F44D\U0001F3FD",
           "def f(x):\n\treturn {'a': x**2}  # c", "a" * 300, "ab" * 200, " " * 100, "\u2581" * 50,
           "<sep>the<sep>", "ab cab c", "thethe the", "x<sep> y", "<sep>", " <sep> ", "ofthe of the",
           "\u00a0\u3000\u2003x\u200by\ufeffz\u00ad", "".join(chr(c) for c in range(1, 256))]
    out += ["a" + chr(c) + "b " + chr(c) for c in range(1, 0x3000)]
    out += ["".join(chr(c) for c in assigned[i:i + 500]) for i in range(0, len(assigned), 500)]
    body = "".join(open(f, encoding="utf-8").read() for f in corpus)
    for _ in range(n):
        kind = rng.random()
        if kind < 0.5 and body:
            at = rng.randrange(len(body))
            out.append(body[at:at + rng.choice([5, 40, 300, 2000])])
        elif kind < 0.7:
            out.append("".join(chr(rng.choice(assigned)) for _ in range(rng.randrange(1, 60))))
        elif kind < 0.85:
            out.append("".join(rng.choice("ab \u2581cthe<sp>\n\u4e2d") for _ in range(rng.randrange(40))))
        else:
            out.append(" ".join(rng.choice(["the", "a", "", "\u2581", "7", "caf\u00e9", "<sep>", "12"])
                                for _ in range(rng.randrange(1, 30))))
    return out


class Athanor:
    def __init__(self, program):
        self.program = program

    def run(self, *args, ok=True):
        p = subprocess.run([self.program, *args], capture_output=True)
        if ok and p.returncode:
            sys.exit(f"{' '.join(args)}: {p.stderr.decode()}")
        return p

    def lines(self, command, tokenizer, values, *flags):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.writelines(json.dumps(v) + "\n" for v in values)
            f.flush()
            out = self.run("tok", command, tokenizer, f.name, "--jsonl", *flags).stdout
        return [json.loads(line) for line in out.decode().split("\n") if line]

    def encode(self, tokenizer, texts):
        return [o["ids"] for o in self.lines("encode", tokenizer, texts)]

    def decode(self, tokenizer, ids):
        return self.lines("decode", tokenizer, ids, "--skip-special")

    def convert(self, source, to, *flags):
        return json.loads(self.run("tok", "convert", source, "-o", to, "--json", *flags).stdout)


failures = 0


def compare(name, texts, ours, theirs):
    global failures
    bad = [i for i in range(len(texts)) if ours[i] != theirs[i]]
    print(f"{'same' if not bad else 'DIFFERENT':9} {name}: {len(texts) - len(bad)} of {len(texts)}",
          flush=True)
    for i in bad[:3]:
        print(f"    {texts[i]!r:.200}\n      ours   {ours[i]!r:.300}\n      theirs {theirs[i]!r:.300}")
    failures += bool(bad)


# ---- sentencepiece ----

IDENTITY = dict(normalization_rule_name="identity", remove_extra_whitespaces=False)
SPM = {
    "bpe, like Llama 2": dict(model_type="bpe", byte_fallback=True, split_digits=True,
                              allow_whitespace_only_pieces=True, **IDENTITY),
    "bpe, nmt_nfkc, no bytes": dict(model_type="bpe"),
    "bpe, user-defined, nmt_nfkc_cf": dict(
        model_type="bpe", byte_fallback=True, control_symbols=["<ctl>"],
        user_defined_symbols=["<sep>", "ab c", "the", "\u2581\u2581", "\n"],
        normalization_rule_name="nmt_nfkc_cf"),
    "bpe, pieces across spaces, no dummy prefix": dict(
        model_type="bpe", byte_fallback=True, add_dummy_prefix=False, split_by_whitespace=False,
        **IDENTITY),
    "unigram, nmt_nfkc": dict(model_type="unigram"),
    "unigram, bytes, user-defined": dict(
        model_type="unigram", byte_fallback=True, split_digits=True, control_symbols=["<ctl>"],
        user_defined_symbols=["<sep>", "the", "of"], **IDENTITY),
    "unigram, like T5": dict(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "unigram, pieces across spaces": dict(model_type="unigram", split_by_whitespace=False),
    "characters": dict(model_type="char"),
}


def surrogate_free(s):
    return s.encode("utf-8", "replace").decode()


def check_sentencepiece(ath, folder, corpus, texts):
    for name, options in SPM.items():
        prefix = os.path.join(folder, "spm")
        spm.SentencePieceTrainer.train(input=",".join(corpus), model_prefix=prefix, vocab_size=2500,
                                       character_coverage=0.995, hard_vocab_limit=False,
                                       minloglevel=2, num_threads=2, max_sentence_length=100000,
                                       **options)
        check_model(ath, folder, f"sentencepiece {name}", prefix + ".model", texts)


def check_model(ath, folder, name, model, texts):
    sp = spm.SentencePieceProcessor(model_file=model)
    ids = sp.encode(texts)
    compare(f"{name}: ids", texts, ath.encode(model, texts), ids)
    # Byte pieces stand for their whole character here, for nothing or the character there.
    ours = [[s for s, i in zip(o["offsets"], o["ids"]) if not sp.is_byte(i)]
            for o in ath.lines("encode", model, texts, "--offsets")]
    theirs = [[list(s) for s, i in zip(o["offsets"], o["ids"]) if not sp.is_byte(i)]
              for o in map(sp.EncodeAsOffsetMapping, texts)]
    compare(f"{name}: offsets", texts, ours, theirs)
    clean = [i for i in ids if sp.unk_id() not in i]
    compare(f"{name}: text", clean, ath.decode(model, clean), sp.decode(clean))
    # tokenizer.json: what tokenizers makes of it is what athanor makes of it.
    out = os.path.join(folder, "tokenizer.json")
    report = ath.convert(model, out)
    hf = Tokenizer.from_file(out)
    plain = [t for t in texts if len(t) < 3000]
    theirs = [hf.encode(t, add_special_tokens=False).ids for t in plain]
    compare(f"{name}: tokenizer.json in tokenizers", plain, ath.encode(out, plain), theirs)
    same = sum(a == b for a, b in zip(theirs, sp.encode(plain)))
    print(f"          (tokenizer.json and .model agree on {same} of {len(plain)}; probe "
          f"{report['probe_same']} of {report['probe_texts']})")
    # Written back from tokenizer.json, where that is possible.
    back = os.path.join(folder, "back.model")
    p = ath.run("tok", "convert", out, "-o", back, ok=False)
    if p.returncode:
        print(f"          (not written back: {p.stderr.decode().splitlines()[0]})")
    else:
        compare(f"{name}: .model -> .json -> .model in sentencepiece", texts,
                spm.SentencePieceProcessor(model_file=back).encode(texts), ids)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(number, value) of a message; value is an int, four bytes of a float, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            n, at = varint(data, at) if key & 7 == 2 else (4, at)
            value, at = data[at:at + n], at + n
        yield key >> 3, value


def number(value):
    out = b""
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(number_, body):
    return number(number_ << 3 | 2) + number(len(body)) + body


def change_pieces(model, change, keep_bytes):
    """The model with change(text, score, type) -> the same three, for each normal piece."""
    out = b""
    for field, value in fields(model):
        if field == 1:
            f = dict(fields(value))
            piece = f[1].decode(), struct.unpack("<f", f[2])[0], f.get(3, 1)
            if piece[2] == 6 and not keep_bytes:
                continue
            text, score, kind = change(*piece) if piece[2] == 1 else piece
            value = (message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18"
                     + number(kind))
        if field == 2 and not keep_bytes:
            value += number(35 << 3) + b"\0"
        out += message(field, value)
    return out


def check_pruned_models(ath, folder, corpus, texts):
    """Vocabularies that no trainer makes: equal scores, unused pieces, characters that are none."""
    source, path = os.path.join(folder, "spm.model"), os.path.join(folder, "pruned.model")
    rng = random.Random(7)
    changes = {
        "equal scores": lambda t, s, k: (t, float(round(s / 40)), k),
        "unused pieces": lambda t, s, k: (t, s, 5 if rng.random() < 0.3 else k),
        "characters that are none": lambda t, s, k: (
            "\ue000%d" % rng.getrandbits(50) if len(t) == 1 and rng.random() < 0.3 else t, s, k),
    }
    for kind in ("bpe", "unigram"):
        spm.SentencePieceTrainer.train(input=",".join(corpus), model_prefix=source[:-6],
                                       vocab_size=2500, model_type=kind, byte_fallback=True,
                                       character_coverage=0.98, minloglevel=2,
                                       hard_vocab_limit=False, max_sentence_length=100000)
        for name, change in changes.items():
            for keep_bytes in (True, False):
                model = change_pieces(open(source, "rb").read(), change, keep_bytes)
                open(path, "wb").write(model)
                compare(f"sentencepiece {kind}, {name}{', bytes' * keep_bytes}: ids", texts,
                        ath.encode(path, texts),
                        spm.SentencePieceProcessor(model_file=path).encode(texts))


# ---- tiktoken, GPT-2, BERT ----

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
           r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def trained_byte_level(corpus, pre, vocab_size=3000):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train(corpus, trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [b for b in range(256) if b not in kept]
    return {**{chr(b): b for b in kept}, **{chr(256 + i): b for i, b in enumerate(other)}}


def check_tiktoken(ath, folder, corpus, texts):
    import base64
    t = trained_byte_level(corpus, pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    to_byte = alphabet()
    ranks = {bytes(to_byte[c] for c in s): i for s, i in t.get_vocab().items()}
    # Some tokens that merging never makes, as published files have.
    for extra in [b"qzjx", b" zqzq"]:
        ranks.setdefault(extra, len(ranks))
    path = os.path.join(folder, "ours.tiktoken")
    with open(path, "wb") as f:
        for token, rank in sorted(ranks.items(), key=lambda x: x[1]):
            f.write(base64.b64encode(token) + b" " + str(rank).encode() + b"\n")
    enc = tiktoken.Encoding("test", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    texts = texts + ["qzjx", "a qzjx zqzq zqzqz"]
    ids = [enc.encode_ordinary(x) for x in texts]
    out = os.path.join(folder, "tokenizer.json")
    ath.convert(path, out, "--pattern", "llama3")
    compare("tiktoken: ids", texts, ath.encode(out, texts), ids)
    hf = Tokenizer.from_file(out)
    compare("tiktoken: tokenizer.json in tokenizers", texts,
            [hf.encode(x).ids for x in texts], ids)
    ath.convert(out, os.path.join(folder, "back.tiktoken"))
    same = open(path, "rb").read() == open(os.path.join(folder, "back.tiktoken"), "rb").read()
    compare("tiktoken: written back", ["the file"], [same], [True])


def check_gpt2(ath, folder, corpus, texts):
    t = trained_byte_level(corpus, pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.add_special_tokens(["<|endoftext|>"])
    where = os.path.join(folder, "gpt2")
    os.makedirs(where)
    t.model.save(where)
    vocab = json.load(open(os.path.join(where, "vocab.json")))
    vocab["<|endoftext|>"] = len(vocab)
    json.dump(vocab, open(os.path.join(where, "vocab.json"), "w"))
    ids = [t.encode(x).ids for x in texts]
    compare("GPT-2 files: ids", texts, ath.encode(where, texts), ids)
    back = os.path.join(folder, "gpt2-back")
    ath.convert(where, back, "--to", "gpt2")
    model = models.BPE.from_file(os.path.join(back, "vocab.json"), os.path.join(back, "merges.txt"))
    hf = Tokenizer(model)
    hf.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    hf.add_special_tokens(["<|endoftext|>"])
    compare("GPT-2 files: written back, in tokenizers", texts, [hf.encode(x).ids for x in texts],
            ids)


def check_bert(ath, folder, corpus, texts):
    from tokenizers import BertWordPieceTokenizer
    for lower in (True, False):
        t = BertWordPieceTokenizer(lowercase=lower)
        t.train(corpus, vocab_size=2500, show_progress=False)
        where = os.path.join(folder, f"bert{int(lower)}")
        os.makedirs(where)
        t.save_model(where)
        bert = BertWordPieceTokenizer(os.path.join(where, "vocab.txt"), lowercase=lower)
        ids = [bert.encode(x, add_special_tokens=False).ids for x in texts]
        compare(f"vocab.txt, lowercase {lower}: ids", texts, ath.encode(where, texts), ids)
        back = os.path.join(folder, f"bert{int(lower)}-back")
        ath.convert(where, back, "--to", "bert")
        same = (open(os.path.join(where, "vocab.txt")).read()
                == open(os.path.join(back, "vocab.txt")).read())
        compare(f"vocab.txt, lowercase {lower}: written back", ["the file"], [same], [True])


# ---- from here to there ----

def check_ours(ath, folder, corpus, texts):
    base = os.path.join(folder, "trained")
    for kind, flags, to in [
        ("bpe", ["--pattern", "sentencepiece"], "model"),
        ("unigram", [], "model"),
        ("bpe", ["--pattern", "llama3"], "tiktoken"),
    ]:
        json_file, out = f"{base}.json", f"{base}.{to}"
        p = ath.run("tok", "train", *corpus, "-o", json_file, "--kind", kind, "--vocab-size", "4000",
                    *flags, ok=False)
        if p.returncode:
            print(f"          (tok train --kind {kind}: {p.stderr.decode().splitlines()[0]})")
            continue
        p = ath.run("tok", "convert", json_file, "-o", out, ok=False)
        if p.returncode:
            print(f"DIFFERENT {kind} trained here, to .{to}: {p.stderr.decode()}")
            globals()["failures"] += 1
            continue
        # Texts of special tokens are special tokens in tokenizer.json, Metaspace puts no mark before a
        # text that has one, and rules for NFKC do not see what marks become.
        usual = [x for x in texts if not any(s in x for s in ("<s>", "</s>", "<unk>", "<pad>"))
                 and (kind == "bpe" or unicodedata.normalize("NFKC", x)[:1] not in (" ", "\u2581")
                      and not set("\u0340\u0341\u0343\u0344") & set(x))]
        ours = ath.encode(json_file, usual)
        if to == "model":
            theirs = spm.SentencePieceProcessor(model_file=out).encode(usual)
        else:
            ranks = tiktoken.load.load_tiktoken_bpe(out)
            enc = tiktoken.Encoding("x", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
            theirs = [enc.encode_ordinary(x) for x in usual]
        compare(f"{kind} trained here, as .{to} there", usual, ours, theirs)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("athanor")
    a.add_argument("--corpus", action="append", required=True)
    a.add_argument("--texts", type=int, default=2000)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--only", help="spm, pruned, tiktoken, gpt2, bert or ours")
    o = a.parse_args()
    ath, texts = Athanor(o.athanor), texts_of(o.corpus, o.texts, o.seed)
    parts = {"spm": lambda d: check_sentencepiece(ath, d, o.corpus, texts),
             "pruned": lambda d: check_pruned_models(ath, d, o.corpus, texts),
             "tiktoken": lambda d: check_tiktoken(ath, d, o.corpus, texts),
             "gpt2": lambda d: check_gpt2(ath, d, o.corpus, texts),
             "bert": lambda d: check_bert(ath, d, o.corpus, texts),
             "ours": lambda d: check_ours(ath, d, o.corpus, texts)}
    for name, check in parts.items():
        if o.only and name != o.only:
            continue
        with tempfile.TemporaryDirectory() as d:
            check(d)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
