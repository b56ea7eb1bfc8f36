#!/usr/bin/env python3
"""Golden files of test_formats.c: small tokenizers in the formats of other programs, and what these
programs make of some texts.

Writes into tests/golden/tok/formats/:
  bpe.model, unigram.model, cased.model, char.model   sentencepiece
  pruned.model     bpe.model with equal scores and unused pieces
  llama2c.bin      llama.model as llama2.c's tokenizer.py exports it; llama.model itself
  ours.tiktoken    ranks
  gpt2/            vocab.json, merges.txt
  bert/            vocab.txt, tokenizer_config.json
  cases.json       {file: [{text, ids, decoded}]}; text is null where ids come from no text

Versions: sentencepiece 0.2.3, tokenizers 0.23.3, tiktoken 0.14.
"""
import base64
import json
import os
import pathlib
import random
import shutil
import struct
import tempfile

import sentencepiece as spm
import tiktoken
from tokenizers import BertWordPieceTokenizer, Regex, decoders, pre_tokenizers

from compare_formats import PATTERN, alphabet, change_pieces, trained_byte_level

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok"
OUT = GOLDEN / "formats"
CORPUS = str(GOLDEN / "corpus.txt")
TEXTS = [
    "", " ", "  ", "a", " a", "a ", "the furnace that feeds itself", "  two  spaces ", "\ttab\n\nline\r\n",
    "<s> </s> <unk> <0x0A>", "<sep>the<sep>x <sep>", "thethe the them", "x\u2581mark \u2581\u2581",
    "caf\u00e9 e\u0301 \u0130\ufb01\uff21\u00bd", "\u041c\u043e\u0441\u043a\u0432\u0430 \u043e\u0433\u043e\u043d\u044c",
    "\u7089\u706b\u91d1\u5c5e\u3002", "\u0646\u0627\u0631 \u0e44\u0e1f \u0906\u0917", "\U0001F44D\U0001F3FD \U0001F525",
    "1234567 3.14 2024", "we don't know what they'll find, it's there I'm sure",
    "if x_1 == 23:\n        return", "aaaaaaa ababababab", "\x01\x7f\u0085\u00a0\u200b", "qzjx zqzq zqzqz",
    "Hello WORLD [CLS] [UNK] unaffable",
]

SPM = {
    "bpe": dict(model_type="bpe", byte_fallback=True, user_defined_symbols=["<sep>", "the"],
                control_symbols=["<ctl>"], normalization_rule_name="identity"),
    "llama": dict(model_type="bpe", byte_fallback=True, split_digits=True,
                  normalization_rule_name="identity", remove_extra_whitespaces=False),
    "unigram": dict(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                    normalization_rule_name="identity"),
    "cased": dict(model_type="unigram", byte_fallback=True, user_defined_symbols=["<sep>", "the"],
                  add_dummy_prefix=False),
    "char": dict(model_type="char", normalization_rule_name="identity"),
}


def cases(encode, decode):
    return [{"text": text, "ids": encode(text), "decoded": decode(encode(text))} for text in TEXTS]


def unlikely(sp):
    """Ids that no text gives: unknown and control pieces, broken runs of bytes, marks at the start."""
    rng = random.Random(sp.vocab_size())
    odd = [i for i in range(sp.vocab_size())
           if sp.is_control(i) or sp.is_unknown(i) or sp.is_byte(i) or sp.id_to_piece(i).startswith("\u2581")]
    draw = [[rng.choice(odd) if rng.random() < 0.7 else rng.randrange(sp.vocab_size()) for _ in range(rng.randint(1, 9))]
            for _ in range(60)]
    return [{"text": None, "ids": ids, "decoded": sp.decode(ids)} for ids in draw]


def sentencepieces(golden):
    # Models name their files: those of a folder, so that they do not depend on where it is.
    with tempfile.TemporaryDirectory() as d:
        os.chdir(d)
        shutil.copy(CORPUS, "corpus.txt")
        rules = pathlib.Path("rules.tsv")
        # A small charsmap: A-Z to a-z, U+FB01 to "fi", U+00A0 and tab to a space, U+200B away.
        lines = [f"{ord(c):X}\t{ord(c.lower()):X}" for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
        lines += ["FB01\t66 69", "A0\t20", "9\t20", "A\t20", "D\t20", "200B\t", "65 301\tE9"]
        rules.write_text("\n".join(lines) + "\n")
        for name, options in SPM.items():
            extra = dict(normalization_rule_tsv=str(rules)) if name == "cased" else {}
            spm.SentencePieceTrainer.train(input="corpus.txt", model_prefix=name, vocab_size=600,
                                           hard_vocab_limit=False, minloglevel=2, num_threads=1,
                                           character_coverage=0.98, **options, **extra)
            (OUT / f"{name}.model").write_bytes(pathlib.Path(f"{name}.model").read_bytes())
        os.chdir("/")
    number = iter(range(10**6))
    pruned = change_pieces((OUT / "bpe.model").read_bytes(),
                           lambda t, s, k: (t, float(round(s / 20)), 5 if next(number) % 4 == 0 else k),
                           True)
    (OUT / "pruned.model").write_bytes(pruned)
    for name in [*SPM, "pruned"]:
        sp = spm.SentencePieceProcessor(model_file=str(OUT / f"{name}.model"))
        golden[f"{name}.model"] = cases(sp.encode, sp.decode) + unlikely(sp)


def llama2c(golden):
    """As export() of llama2.c's tokenizer.py writes it."""
    sp = spm.SentencePieceProcessor(model_file=str(OUT / "llama.model"))
    tokens = []
    for i in range(sp.vocab_size()):
        text = sp.id_to_piece(i)
        text = f"\n{text}\n" if i in (sp.bos_id(), sp.eos_id()) else text
        tokens.append((text.replace("\u2581", " ").encode(), sp.get_score(i)))
    with open(OUT / "llama2c.bin", "wb") as f:
        f.write(struct.pack("I", max(len(t) for t, _ in tokens)))
        for t, score in tokens:
            f.write(struct.pack("fI", score, len(t)) + t)
    golden["llama2c.bin"] = golden["llama.model"]


def ranks(golden):
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    t = trained_byte_level([CORPUS], pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 700)
    to_byte = alphabet()
    table = {bytes(to_byte[c] for c in s): i for s, i in t.get_vocab().items()}
    for never_made in (b"qzjx", b" zqzq"):
        table[never_made] = len(table)
    with open(OUT / "ours.tiktoken", "wb") as f:
        for token, rank in sorted(table.items(), key=lambda x: x[1]):
            f.write(base64.b64encode(token) + b" " + str(rank).encode() + b"\n")
    enc = tiktoken.Encoding("ours", pat_str=PATTERN, mergeable_ranks=table, special_tokens={})
    golden["ours.tiktoken"] = cases(enc.encode_ordinary, enc.decode)


def gpt2(golden):
    t = trained_byte_level([CORPUS], pre_tokenizers.ByteLevel(add_prefix_space=False), 600)
    t.add_special_tokens(["<|endoftext|>"])
    (OUT / "gpt2").mkdir(exist_ok=True)
    t.model.save(str(OUT / "gpt2"))
    vocab = json.loads((OUT / "gpt2" / "vocab.json").read_text())
    vocab["<|endoftext|>"] = len(vocab)
    (OUT / "gpt2" / "vocab.json").write_text(json.dumps(vocab))
    golden["gpt2"] = cases(lambda s: t.encode(s).ids, lambda i: t.decode(i, skip_special_tokens=False))


def bert(golden):
    (OUT / "bert").mkdir(exist_ok=True)
    t = BertWordPieceTokenizer(lowercase=True)
    t.train([CORPUS], vocab_size=500, min_frequency=2, show_progress=False)
    # The trainer's choice among equals varies from run to run; what is committed stays.
    if not (OUT / "bert" / "vocab.txt").exists():
        t.save_model(str(OUT / "bert"))
    (OUT / "bert" / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')
    t = BertWordPieceTokenizer(str(OUT / "bert" / "vocab.txt"), lowercase=True)
    t.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    golden["bert"] = cases(lambda s: t.encode(s, add_special_tokens=False).ids,
                           lambda i: t.decode(i, skip_special_tokens=False))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    golden = {}
    sentencepieces(golden)
    llama2c(golden)
    ranks(golden)
    gpt2(golden)
    bert(golden)
    text = ",\n".join(f"{json.dumps(k)}: [\n" + ",\n".join(json.dumps(c) for c in v) + "\n]"
                      for k, v in golden.items())
    (OUT / "cases.json").write_text("{" + text + "}\n")


if __name__ == "__main__":
    main()
