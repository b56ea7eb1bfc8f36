#!/usr/bin/env python3
"""Checks `athanor tok add|prune|extend` with Hugging Face tokenizers: the results load there, number
tokens as ours do, and texts whose tokens stay have the same ones.

    check_tok_edit.py ATHANOR TOKENIZER.json... --texts corpus.jsonl --others other.txt

`--texts` is what is pruned to; `--others` (a text a line) must not become unknown either."""
import argparse
import json
import pathlib
import subprocess
import tempfile

from tokenizers import Tokenizer


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout}")
    return json.loads(done.stdout)


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def unknown(tokenizer):
    model = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return model["unk_id"]
    return tokenizer.token_to_id(model.get("unk_token") or "")


def same_on_kept(old, new, new_id, texts):
    """Texts all of whose tokens stay; each must have the same ones, special ones included."""
    kept = 0
    for text in texts:
        ids = old.encode(text).ids
        if any(i not in new_id for i in ids):
            continue
        kept += 1
        assert [new_id[i] for i in ids] == new.encode(text).ids, text
    return kept


def check_prune(athanor, path, folder, corpus, texts, others):
    old = Tokenizer.from_file(path)
    size = old.get_vocab_size()
    for option in (["--min-count", "1"], ["--min-count", "5"], ["--keep", str(size * 2 // 3)]):
        out, rows = folder / "pruned.json", folder / "rows.json"
        said = run(athanor, "tok", "prune", path, corpus, "-o", out, "--map", rows, "--json", *option)
        new = Tokenizer.from_file(str(out))
        row = json.loads(rows.read_text())["rows"]
        assert new.get_vocab_size() == len(row) == said["vocab_size"]
        assert all(new.id_to_token(n) == old.id_to_token(o) for n, o in enumerate(row))
        new_id = {o: n for n, o in enumerate(row)}
        kept = same_on_kept(old, new, new_id, texts + others)
        if option == ["--min-count", "1"]:
            assert same_on_kept(old, new, new_id, texts) == len(texts)
        assert said["tokens_before"] == sum(len(encode(old, t)) for t in texts)
        assert said["tokens_after"] == sum(len(encode(new, t)) for t in texts)
        unk_old, unk_new = unknown(old), unknown(new)
        for text in others:
            assert encode(new, text).count(unk_new) <= encode(old, text).count(unk_old), text
        print(f"  prune {' '.join(option)}: {len(row)} of {size} tokens, {kept} texts keep theirs")


def check_add(athanor, path, folder, texts):
    old = Tokenizer.from_file(path)
    out = folder / "added.json"
    new_tokens = ["<|check_a|>", "<|check_b|>"]
    run(athanor, "tok", "add", path, "--special", ",".join(new_tokens), "-o", out, "--multiple", "64",
        "--json")
    new = Tokenizer.from_file(str(out))
    assert new.get_vocab_size() % 64 == 0
    assert [new.token_to_id(t) for t in new_tokens] == [old.get_vocab_size() + i for i in (0, 1)]
    assert all(encode(old, t) == encode(new, t) for t in texts)
    print(f"  add: {new.get_vocab_size()} tokens")
    return out


def check_extend(athanor, path, second, folder, texts):
    old, other = Tokenizer.from_file(path), Tokenizer.from_file(second)
    out, lines = folder / "extended.json", folder / "texts.jsonl"
    done = subprocess.run([athanor, "tok", "extend", path, second, "-o", out, "--allow", "--json"],
                          stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"  extend with {second}: {json.loads(done.stdout)['error']['message']}")
        return
    new = Tokenizer.from_file(str(out))
    vocab = new.get_vocab()
    assert all(vocab[token] == i for token, i in old.get_vocab().items())
    missing = set(other.get_vocab()) - set(vocab)
    assert len(missing) <= 1, missing  # the unknown token
    lines.write_text("".join(json.dumps(t) + "\n" for t in texts))
    ours = subprocess.run([athanor, "tok", "encode", out, lines, "--jsonl"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert [json.loads(line)["ids"] for line in ours] == [encode(new, t) for t in texts]
    print(f"  extend with {second}: {len(vocab)} tokens")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("athanor")
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--others", required=True)
    args = parser.parse_args()
    texts = [json.loads(line)["text"] for line in open(args.texts, encoding="utf-8")]
    others = open(args.others, encoding="utf-8").read().split("\n")[:2000]
    with tempfile.TemporaryDirectory() as folder:
        for path in args.tokenizers:
            print(path)
            folder = pathlib.Path(folder)
            added = check_add(args.athanor, path, folder, texts)
            check_prune(args.athanor, path, folder, args.texts, texts, others)
            for second in args.tokenizers:
                check_extend(args.athanor, path, second, folder, texts)
            check_extend(args.athanor, str(added), path, folder, texts)
    print("all agree")


if __name__ == "__main__":
    main()
