#!/usr/bin/env python3
"""Compares how text is read with Python: its csv and json modules, gzip, and its codecs.

Documents are built into shards with a byte tokenizer and shown again. The table of charsets says
what files of real sentences were taken for: messages of installed programs (`*.mo`) in many
languages, in files of several lengths. Usage:

    python tests/oracle/compare_readers.py build/athanor [--rounds 30] [--files 40] [--seed 1]
"""
import argparse
import collections
import csv
import glob
import gzip
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

PARTS = ["a", "plain words", ",", "\t", '"', '""', "\n", "\r\n", "é", "中文", "😀", "\\", "{", "}", " ", "x" * 30]

# What it is in, in which languages, and what it should be taken for; None: unknown.
CHARSETS = [
    ("utf-8", "de fr ru zh_CN ja ko el pl he ar", "UTF-8"),
    ("utf-8-sig", "de ru", "UTF-8"),
    ("utf-16-le", "en de ru zh_CN ja ko el", "UTF-16LE"),
    ("utf-16-be", "en de ru zh_CN ja ko el", "UTF-16BE"),
    ("utf-16", "de ru zh_CN", "UTF-16LE"),
    ("gb18030", "zh_CN zh_TW", "GB18030"),
    ("iso-8859-1", "de fr es it pt_BR sv da fi nl ca", "ISO-8859-1"),
    ("cp1252", "de fr es it pt_BR sv", "WINDOWS-1252"),
    ("koi8-r", "ru", None), ("cp1251", "ru uk bg", None), ("iso-8859-5", "ru", None), ("cp866", "ru", None),
    ("big5", "zh_TW", None), ("euc-jp", "ja", None), ("shift-jis", "ja", None), ("euc-kr", "ko", None),
    ("iso-8859-7", "el", None), ("iso-8859-2", "pl cs hu", None), ("cp1250", "pl cs hu", None),
    ("cp437", "de fr", None), ("mac-roman", "de fr", None), ("iso-8859-9", "tr", None),
]
SAME = {"ISO-8859-1": {"WINDOWS-1252"}, "WINDOWS-1252": {"ISO-8859-1"}}  # one holds the other


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder
        self.tokenizer = folder + "/byte.json"
        with open(folder + "/any.txt", "w") as f:
            f.write("any text")
        self.run("tok", "train", folder + "/any.txt", "-o", self.tokenizer, "--kind", "byte")

    def run(self, *args):
        done = subprocess.run([self.path, *args, "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stdout}

    def build(self, source, *options):
        shutil.rmtree(self.folder + "/shards", ignore_errors=True)
        return self.run("data", "build", source, "-o", self.folder + "/shards", "tokenizer=" + self.tokenizer,
                        "max_bad=1", *options)

    def documents(self, source, *options):
        built = self.build(source, *options)
        if "error" in built:
            return built, built["error"]
        shown = self.run("data", "show", self.folder + "/shards", "--limit", "100000")
        return built, [d["text"] for d in shown["documents"]]


SHOWN_BYTES = 120  # `data show` gives the first 128 tokens, here bytes


def words(rng):
    text = "".join(rng.choices(PARTS, k=rng.randrange(12)))
    return text.encode()[:SHOWN_BYTES].decode(errors="ignore")


def tell(what, want, got):
    if want == got:
        return 0
    where = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
    print(f"DIFFERENT {what}: at {where} {want[where:where + 1]!r} is read as {got[where:where + 1]!r} {str(got)[:200]}")
    return 1


def compare_csv(program, rng):
    columns = rng.sample(["id", "text", "title", 'a "b"', "x,y"], 5)
    out = io.StringIO(newline="")
    end = rng.choice(["\n", "\r\n"])
    writer = csv.writer(out, lineterminator=end, quoting=rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
    writer.writerow(columns)
    for _ in range(rng.randrange(1, 200)):
        writer.writerow([words(rng) for _ in columns])
    text = out.getvalue()
    if rng.random() < 0.3:
        text = text.removesuffix(end)
    packed = rng.random() < 0.3
    path = program.folder + "/a.csv" + (".gz" if packed else "")
    data = rng.choice([b"", b"\xef\xbb\xbf"]) + text.encode()
    with open(path, "wb") as f:
        f.write(gzip.compress(data[:99]) + gzip.compress(data[99:]) if packed else data)
    want = [row["text"] for row in csv.DictReader(io.StringIO(text, newline="")) if row["text"]]
    return tell(path, want, program.documents(path)[1]) if want else 0


def lone_surrogate(text):
    return any(0xD800 <= ord(c) < 0xE000 for c in text)


def compare_json(program, rng):
    lines, want, bad = [], [], 0
    for i in range(rng.randrange(1, 200)):
        row = {"id": i, "text": words(rng), "meta": {"text": words(rng), "list": [1.5, None, {"text": "no"}]}}
        line = json.dumps(row, ensure_ascii=rng.random() < 0.5)
        if rng.random() < 0.2:  # break something
            at = rng.randrange(len(line))
            line = line[:at] + rng.choice(['"', "}", "\\", "", "é", "\\ud800"]) + line[at + 1:]
        try:
            row = json.loads(line)
            text = row["text"]
            if isinstance(text, str) and len(text.encode(errors="replace")) > SHOWN_BYTES:
                continue
            # Python lets half pairs and NaN pass
            if not isinstance(text, str) or lone_surrogate(json.dumps(row, ensure_ascii=False)):
                bad += 1
            elif text:
                want.append(text)
        except (ValueError, KeyError, TypeError):
            bad += 1
        lines.append(line)
    path = program.folder + "/a.jsonl"
    with open(path, "w", newline="\n") as f:
        f.write("\n".join(lines))
    built, got = program.documents(path)
    return tell(path, want, got) + tell(path + " bad", [bad], [built.get("bad")]) if want else 0


def sentences(language):
    """English ones are the originals of the German."""
    found, folder = set(), "de" if language == "en" else language
    for path in sorted(glob.glob(f"/usr/share/locale/{folder}/LC_MESSAGES/*.mo")):
        try:
            data = open(path, "rb").read()
            n, ids, strings = (int.from_bytes(data[k:k + 4], "little") for k in (8, 12, 16))
            for i in range(n):
                at = strings + 8 * i if language != "en" else ids + 8 * i
                size, start = (int.from_bytes(data[k:k + 4], "little") for k in (at, at + 4))
                text = data[start:start + size].decode().split("\4")[-1]
                text = " ".join(text.replace("\0", " ").split())
                if len(text) > 20 and "charset=" not in text:
                    found.add(text)
        except (UnicodeDecodeError, OSError):
            continue
    return sorted(found)


def one_file(rng, texts, size, codec, path):
    """Lines of about `size` bytes in all that this codec can write and ASCII cannot."""
    lines, total = [], 0
    for _ in range(2000):
        line = rng.choice(texts)
        try:
            total += len(line.encode("utf-16-le" if codec == "utf-16" else codec))
        except UnicodeEncodeError:
            continue
        lines.append(line)
        if total >= size and not "".join(lines).isascii():
            break
    text = "\n".join(["text", *lines]) + "\n"
    if total < size or (text.isascii() and "16" not in codec):
        return False
    data = text.encode(codec)
    if codec == "iso-8859-1" and any(0x80 <= b < 0xA0 for b in data):
        return False
    with open(path, "wb") as f:
        f.write(data)
    return True


def charset_row(program, rng, codec, language, size, files):
    texts = sentences(language)
    folder = program.folder + "/files"
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    made = sum(one_file(rng, texts, size, codec, f"{folder}/{i}.tsv") for i in range(files)) if texts else 0
    if made == 0:
        return None
    built = program.build(folder)
    if "no text" in str(built.get("error", "")):
        return collections.Counter(unknown=made)
    return collections.Counter(built.get("charsets", {"error " + str(built): made}))


def compare_charsets(program, rng, files):
    """Two kinds of error: another charset (wrong text), and "unknown" for one that should be known."""
    wrong, unknown, total = collections.Counter(), collections.Counter(), collections.Counter()
    print(f"{'written in':12} {'language':8} {'bytes':>6}  taken for")
    for codec, languages, want in CHARSETS:
        for language in languages.split():
            for size in (60, 300, 3000, 30000):
                got = charset_row(program, rng, codec, language, size, files)
                if got is None:
                    continue
                good = {want or "unknown"} | SAME.get(want, set())
                missed = got["unknown"] if want else 0
                errors = sum(n for name, n in got.items() if name not in good) - missed
                kind = "told apart" if want else "others"
                wrong[kind, size] += errors
                unknown[kind, size] += missed
                total[kind, size] += sum(got.values())
                if errors or missed or size == 3000:
                    print(f"{codec:12} {language:8} {size:6}  {dict(got)}{'  <--' if errors or missed else ''}")
    for kind, size in total:
        print(f"charsets that are {kind}, {size} bytes: of {total[kind, size]} files {wrong[kind, size]} were taken "
              f"for another, {unknown[kind, size]} for unknown")
    return wrong["told apart", 3000] + unknown["told apart", 3000] > 0.01 * total["told apart", 3000]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("athanor")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(os.path.abspath(args.athanor), folder)
        different = sum(compare_csv(program, rng) + compare_json(program, rng) for _ in range(args.rounds))
        print(f"{2 * args.rounds} files of records, {different} read differently from Python")
        different += compare_charsets(program, rng, args.files)
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
