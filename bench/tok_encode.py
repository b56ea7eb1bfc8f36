"""Encoding speed of athanor beside tiktoken and Hugging Face tokenizers: one vocabulary, the same texts, in turn.

Every round runs each program once in a process of its own, which encodes the text unmeasured and then measured; the table
has the medians over the rounds. The vocabulary is a byte-level tokenizer.json; tiktoken gets its ranks and pattern from
it. Ids are compared before anything is timed.

Usage: python tok_encode.py ATHANOR TOKENIZER.json FILE... [--rounds 5] [--threads 1]
       python tok_encode.py --peer tiktoken|tokenizers TOKENIZER.json FILE --threads N      (one measurement, JSON)
Needs: pip install tokenizers tiktoken.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def byte_alphabet():
    """The character that stands for each byte in byte-level vocabularies, and back."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}


def find_pattern(part):
    if part["type"] == "Sequence":
        found = [find_pattern(p) for p in part["pretokenizers"]]
        return next((f for f in found if f), None)
    if part["type"] == "Split":
        return part["pattern"]["Regex"]
    return GPT2 if part["type"] == "ByteLevel" and part.get("use_regex", True) else None


def tiktoken_encode(path, threads):
    import tiktoken
    root = json.load(open(path, encoding="utf-8"))
    byte_of = byte_alphabet()
    ranks = {bytes(byte_of[c] for c in token): i for token, i in root["model"]["vocab"].items()
             if all(c in byte_of for c in token)}
    codec = tiktoken.Encoding("bench", pat_str=find_pattern(root["pre_tokenizer"]), mergeable_ranks=ranks, special_tokens={})
    if threads == 1:
        return codec.encode_ordinary, lambda docs: [codec.encode_ordinary(d) for d in docs]
    return codec.encode_ordinary, lambda docs: codec.encode_ordinary_batch(docs, num_threads=threads)


def tokenizers_encode(path, threads):
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    from tokenizers import Tokenizer
    codec = Tokenizer.from_file(path)
    return (lambda text: codec.encode(text, add_special_tokens=False).ids,
            lambda docs: [x.ids for x in codec.encode_batch(docs, add_special_tokens=False)])


PEERS = {"tiktoken": tiktoken_encode, "tokenizers": tokenizers_encode}


def documents(text):
    """Lines joined until there are 1,000 bytes, as `athanor bench tok` does."""
    out, at = [], 0
    data = text.encode()
    while at < len(data):
        end = data.find(b"\n", min(at + 1000, len(data)))
        end = len(data) if end < 0 else end + 1
        out.append(data[at:end].decode(errors="replace"))
        at = end
    return out


def timed(call, argument):
    start = time.perf_counter()
    call(argument)
    return time.perf_counter() - start


def measure(name, path, file, threads):
    whole, batch = PEERS[name](path, threads)
    text = open(file, encoding="utf-8", newline="").read()
    docs, mb = documents(text), len(text.encode()) / 1e6
    whole(text)
    return {"encode": mb / timed(whole, text), "documents": mb / timed(batch, docs)}


def ids_of(command, file):
    return list(map(int, subprocess.run([*command, file], capture_output=True, check=True, text=True).stdout.split()))


def athanor(program, path, file, threads):
    out = subprocess.run([program, "bench", "tok", path, file, "--repeat", "1", "--threads", str(threads), "--json"],
                         capture_output=True, check=True, text=True).stdout
    rates = {r["name"]: r["value"] for r in json.loads(out)["rows"]}
    return {"encode": rates["encode " + file], "documents": rates["encode documents " + file]}


def peer(name, path, file, threads):
    out = subprocess.run([sys.executable, __file__, "--peer", name, path, file, "--threads", str(threads)],
                         capture_output=True, check=True, text=True).stdout
    return json.loads(out)


def compare_ids(program, path, file):
    text = open(file, encoding="utf-8", newline="").read()
    ours = ids_of([program, "tok", "encode", path], file)
    theirs = tokenizers_encode(path, 1)[0](text)
    same = "the same ids" if ours == theirs else "DIFFERENT IDS"
    print(f"{file}: {len(ours):,} tokens, {same} as tokenizers")
    return ours == theirs


def table(program, path, files, rounds, threads):
    print(f"\n{threads} thread{'s' if threads > 1 else ''}, MB/s, medians of {rounds} rounds in turn\n")
    print(f"| text | how | athanor | tiktoken | tokenizers | to tiktoken | to tokenizers |\n|---|---|---|---|---|---|---|")
    for file in files:
        got = {n: [] for n in ("athanor", *PEERS)}
        for _ in range(rounds):
            got["athanor"].append(athanor(program, path, file, threads))
            for n in PEERS:
                got[n].append(peer(n, path, file, threads))
        for how in ("encode", "documents"):
            m = {n: statistics.median(r[how] for r in got[n]) for n in got}
            print(f"| {os.path.basename(file)} | {'one text' if how == 'encode' else how} | {m['athanor']:.1f} | "
                  f"{m['tiktoken']:.1f} | {m['tokenizers']:.2f} | {m['athanor'] / m['tiktoken']:.2f} | "
                  f"{m['athanor'] / m['tokenizers']:.1f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("words", nargs="+")
    p.add_argument("--peer", choices=PEERS)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    if a.peer:
        print(json.dumps(measure(a.peer, a.words[0], a.words[1], a.threads)))
        return
    program, path, *files = a.words
    if not all([compare_ids(program, path, f) for f in files]):
        sys.exit(1)
    table(program, path, files, a.rounds, a.threads)


main()
