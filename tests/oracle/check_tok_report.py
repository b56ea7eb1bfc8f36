#!/usr/bin/env python3
"""Compares the figures of `athanor tok report` with Hugging Face tokenizers, exactly.

    check_tok_report.py ATHANOR --tokenizers a.json b.json --texts one.txt two.jsonl

Words are those of src/tok/tok_report.h: runs of letters, marks and numbers; in Han, Kana, Thai, Lao,
Khmer and Myanmar one letter with its marks."""
import argparse
import json
import subprocess

import regex
from tokenizers import Tokenizer

NO_SPACES = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3021-\u3029\u3038-\u303b"
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff"
    "\uff66-\uff9f\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
WORD = regex.compile(
    rf"(?=[\p{{L}}\p{{N}}])[{NO_SPACES}]\p{{M}}*|(?:(?![{NO_SPACES}])[\p{{L}}\p{{N}}]|\p{{M}})+"
)


def documents(path):
    if path.endswith(".jsonl"):
        return [json.loads(line)["text"] for line in open(path, encoding="utf-8")]
    return [open(path, encoding="utf-8", newline="").read()]


def unknown_bytes(tokenizer, unk, encoding, text):
    if unk is None:
        return 0
    return sum(
        len(text[a:b].encode()) for i, (a, b) in zip(encoding.ids, encoding.offsets) if i == unk
    )


def measure(tokenizer, texts):
    unk = json.loads(tokenizer.to_str())["model"]
    unk = unk.get("unk_id") if "unk_id" in unk else tokenizer.token_to_id(unk.get("unk_token") or "")
    sums = dict.fromkeys(
        "documents bytes chars words tokens word_tokens split_words unk_bytes exact_documents".split(), 0
    )
    seen, used = {}, set()
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        words = WORD.findall(text)
        for word in set(words) - seen.keys():
            seen[word] = len(tokenizer.encode(word, add_special_tokens=False).ids)
        sums["documents"] += 1
        sums["bytes"] += len(text.encode())
        sums["chars"] += len(text)
        sums["words"] += len(words)
        sums["tokens"] += len(encoding.ids)
        sums["word_tokens"] += sum(seen[w] for w in words)
        sums["split_words"] += sum(seen[w] > 1 for w in words)
        sums["unk_bytes"] += unknown_bytes(tokenizer, unk, encoding, text)
        sums["exact_documents"] += tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
        used |= set(encoding.ids)
    return {
        **{k: sums[k] for k in ("documents", "bytes", "chars", "words", "tokens", "exact_documents")},
        "used_tokens": len(used),
        "fertility": sums["word_tokens"] / sums["words"],
        "pcw": sums["split_words"] / sums["words"],
        "bytes_per_token": sums["bytes"] / sums["tokens"],
        "tokens_per_char": sums["tokens"] / sums["chars"],
        "coverage": (sums["bytes"] - sums["unk_bytes"]) / sums["bytes"],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("athanor")
    parser.add_argument("--tokenizers", nargs="+", required=True)
    parser.add_argument("--texts", nargs="+", required=True)
    args = parser.parse_args()
    command = [args.athanor, "tok", "report", *args.tokenizers, *args.texts, "--json"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    rows = [r for r in report["rows"] if r["by"] == "file"]
    different = compared = 0
    for k, path in enumerate(args.texts):
        texts = documents(path)
        for i, name in enumerate(args.tokenizers):
            ours = rows[k * len(args.tokenizers) + i]
            for key, value in measure(Tokenizer.from_file(name), texts).items():
                compared += 1
                if ours[key] == value:
                    continue
                different += 1
                print(f"{name} {path}: {key} is {ours[key]} here and {value} there")
    print(f"{compared} figures compared, {different} differ")
    raise SystemExit(different > 0)


if __name__ == "__main__":
    main()
