#!/usr/bin/env python3
"""Golden files of the tokenizer tests, made by Hugging Face `tokenizers`.

Writes into tests/golden/tok/:
  corpus.txt        generated text in several scripts
  bpe_llama3.json   trained on it, Llama-3 pattern; bpe_gpt2.json: GPT-2 pattern, NFC, added tokens
                    of every kind, a template that adds two special tokens
  char.json         characters without merges, unknown ones become <unk>
  cases.json        [{file, patch, cases: [{text, ids, special_ids}]}]: `patch` replaces top-level
                    keys (and model options under "model.") of the file

Versions: tokenizers 0.23.3. Run from anywhere: python tests/oracle/make_tok_golden.py
"""
import copy
import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "tok"
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
QWEN2 = LLAMA3.replace("\\p{N}{1,3}", "\\p{N}")

WORDS = ("the a furnace that feeds itself holds its heat for weeks and turns lead into gold she said "
         "we don't know what they'll find it's there I'm sure you've seen he'd go they're early "
         "model token weight layer learn train loss step data text word").split()
FOREIGN = ("Öfen größer Straße naïve café déjà señor Москва огонь печь Αθήνα φωτιά 炉火 金属 錬金術 "
           "ほのお 불꽃 연금술 نار ذهب आग सोना ไฟ").split()
MARKS = [".", ",", "!", "?", ";", ":", " —", "...", "?!", " (see 12)", " 3.14", " 2024", " 1000000"]


def corpus():
    rng = random.Random(7)
    lines = []
    for _ in range(420):
        words = [rng.choice(FOREIGN if rng.random() < 0.12 else WORDS)
                 for _ in range(rng.randint(3, 14))]
        line = " ".join(words) + rng.choice(MARKS)
        if rng.random() < 0.1:
            line = "    " * rng.randint(1, 3) + "if x_%d == %d:" % (rng.randint(0, 9), rng.randint(0, 999))
        lines.append(line)
    return "\n".join(lines) + "\n"


def texts():
    rng = random.Random(11)
    pool = list("abcXYZ  \n\r\t'.,!?0123456789-_#@ſéüß中文日本語한국어العربيةहिन्दी😀👍🏽"
                "\u200d\u0301\u00a0\u2003\u3000\u0085²½Ⅷ٣\x01\x1c\x1f\x7f")
    pool += ["'s", "'T", "'ll", "'Re", "  ", "   ", "\r\n", "\n\n", " \n ", "<|endoftext|>", "<mask>"]
    fixed = ["", " ", "  ", "a", "Hello, world!", "don't DON'T we'LL it'ſ 'sfoo 'x", "''s '",
             "tabs\t\tand\n\n\nnewlines \n \r\n  end  ", "x   y    z     ", "\n", " \n", "\n ", "a \n b",
             "12345678901234567890 1,000.5 ½ ² Ⅷ ٣٤٥٦", "naïve e\u0301 \u0301 \u212b \u1e9b\u0323 한글 한",
             "👩\u200d👩\u200d👧 👍🏽 🇩🇪!!!", "\x01\x02\x7f\x1c \u0085\u00a0\u1680\u2028\u3000x",
             "中文和English混排。日本語も！한국어도.", "for (i = 0; i < 10; i++) {\r\n\treturn x[i];\r\n}",
             "<|endoftext|>a<|endoftext|><|endoftext|> b", "see <mask> here, <mask>  <mask>\n",
             "wordy word words sword word", "strip  <left> x <right>   y <both> z", "e\u0301té été <É>",
             "the furnace that feeds itself", "\U0010ffff\ue000\ufffd\ufeff", "_a __b c_d",
             "a" * 70, "= " * 20, " " * 33 + "x", "1" * 50]
    return fixed + ["".join(rng.choice(pool) for _ in range(n)) for n in (40, 80, 160, 600)]


def byte_level(**options):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, **options)


def train(pre_tokenizer, vocab_size, text):
    tk = Tokenizer(models.BPE())
    tk.pre_tokenizer = pre_tokenizer
    tk.decoder = decoders.ByteLevel()
    tk.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tk


def llama3(text):
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    return train(pre_tokenizers.Sequence([split, byte_level(use_regex=False)]), 1000, text)


def gpt2(text):
    tk = train(byte_level(), 700, text)
    tk.normalizer = normalizers.NFC()
    tk.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True, special=True)])
    tk.add_tokens([AddedToken("word", single_word=True), AddedToken("<left>", lstrip=True),
                   AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True),
                   AddedToken("<E\u0301>", normalized=True), "    ", "   ", "  "])
    tk.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>",
        special_tokens=[("<s>", tk.token_to_id("<s>")), ("</s>", tk.token_to_id("</s>"))])
    return tk


def char(text):
    chars = ["<unk>"] + sorted(set(text))
    tk = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(chars)}, merges=[], unk_token="<unk>"))
    tk.decoder = decoders.Fuse()
    tk.add_special_tokens(["<unk>"])
    return tk


def patches():
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

    def split(pattern, behavior, invert=False):
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}

    def sequence(*steps):
        return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}

    yield {}
    yield {"model.ignore_merges": True}
    yield {"pre_tokenizer": {**level, "use_regex": True, "add_prefix_space": True}}
    yield {"pre_tokenizer": level}
    yield sequence(split({"Regex": LLAMA3}, "Removed", True), level)
    yield sequence(split({"Regex": QWEN2}, "Isolated"), level)
    yield sequence({"type": "Digits", "individual_digits": True}, {**level, "use_regex": True})
    yield sequence({"type": "Digits", "individual_digits": False}, {**level, "use_regex": True})
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield sequence(split({"Regex": "\\s|[aeiou]{2}|\\p{Lu}"}, behavior, invert), level)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield sequence(split({"Regex": "(?=[aeiou])|\\s+"}, behavior), level)
    yield sequence(split({"String": " "}, "MergedWithNext"), level)
    yield sequence(split({"Regex": "\\p{N}{1,3}"}, "Isolated"),
                   split({"Regex": "[一-龥぀-ゟ゠-ヿ]+"}, "Isolated"),
                   split({"Regex": "[!-/:-~]?\\p{L}+|\\s+(?!\\S)|\\s+"}, "Isolated"), level)


def patched(base, patch):
    root = copy.deepcopy(base)
    for key, value in patch.items():
        if key.startswith("model."):
            root["model"][key[6:]] = value
        else:
            root[key] = value
    return root


def run(file, base, patch, inputs):
    tk = Tokenizer.from_str(json.dumps(patched(base, patch)))
    return {"file": file, "patch": patch, "cases": [
        {"text": t, "ids": tk.encode(t, add_special_tokens=False).ids,
         "special_ids": tk.encode(t).ids} for t in inputs]}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    text = corpus()
    (OUT / "corpus.txt").write_bytes(text.encode())
    made = {"bpe_llama3.json": llama3(text), "bpe_gpt2.json": gpt2(text), "char.json": char(text)}
    groups = []
    for file, tk in made.items():
        root = json.loads(tk.to_str())
        (OUT / file).write_text(json.dumps(root, ensure_ascii=False, separators=(",", ":")))
        for patch in patches() if file == "bpe_llama3.json" else [{}]:
            inputs = texts() if not patch or "model.ignore_merges" in patch else texts()[4:]
            groups.append(run(file, root, patch, inputs[:27] if patch else inputs))
    (OUT / "cases.json").write_text(json.dumps(groups, separators=(",", ":")))


main()
