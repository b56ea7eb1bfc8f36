#!/usr/bin/env python3
"""Compares token files of other programs, as athanor reads them, with what their writers put in.

    compare_token_files.py BUILD [--rounds N] [--megatron CHECKOUT] [--datatrove CHECKOUT]

BUILD is athanor's build folder: a small reader is compiled against its libraries. Random corpora are
written in every format, with the writers of the checkouts where these are given; all tokens and all
document ends must come back. Exits with 1 and names the first file that differs."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import token_files as tf

HERE = pathlib.Path(__file__).resolve().parent


def compile_reader(build, out):
    subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-I", HERE.parent.parent / "src",
                    HERE / "dump_tokens.c", f"{build}/libath_data.a", f"{build}/libath_base.a",
                    "-ljansson", "-lxxhash", "-lm", "-lpthread", "-o", out], check=True)


def read_set(reader, path, width, vocab, eos):
    done = subprocess.run([reader, path, str(width), str(vocab), str(eos)], capture_output=True)
    if done.returncode:
        return done.stderr.decode().strip()
    n, documents, n_ends = np.frombuffer(done.stdout, dtype=np.int64, count=3)
    ids = np.frombuffer(done.stdout, dtype=np.int32, count=n, offset=24)
    ends = np.frombuffer(done.stdout, dtype=np.int64, count=n_ends, offset=24 + 4 * n)
    return ids, ends, documents


def random_corpus(rng, vocab, eos):
    docs = []
    for _ in range(int(rng.integers(1, 400))):
        n = int(rng.choice([1, 2, 7, 60, 900])) + int(rng.integers(0, 30))
        ids = rng.integers(0, vocab - 1, n)
        docs.append((ids + (ids >= eos)).tolist())
    return docs


def cut(docs, rng):
    """Two lists of documents."""
    at = int(rng.integers(0, len(docs) + 1))
    return docs[:at], docs[at:]


def write_all(folder, rng, args):
    """Yields (path, width, vocabulary, end-of-text, documents as they lie in the set, indexed)."""
    for vocab in [120, 50257, 128256]:
        eos = int(rng.choice([0, vocab - 1, vocab // 2]))
        docs = random_corpus(rng, vocab, eos)
        ended, begun = tf.ends_with_eos(docs, eos), tf.begins_with_eos(docs, eos)
        dtype, width = (np.uint16, 2) if vocab <= 65536 else (np.uint32, 4)
        tf.write_flat(folder / f"nanogpt{vocab}.bin", ended, dtype)
        yield folder / f"nanogpt{vocab}.bin", 0, vocab, eos, ended, False
        tf.write_flat(folder / f"wide{vocab}.npy", ended, np.uint32)
        yield folder / f"wide{vocab}.npy", 4, vocab, eos, ended, False
        for kind in ([np.uint16] if width == 2 else []) + [np.uint32, np.int32]:
            path = folder / f"numpy{vocab}{np.dtype(kind).name}.npy"
            tf.write_numpy(path, ended, kind)
            yield path, 0, vocab, eos, ended, False
        olmo = folder / f"olmo{vocab}"
        olmo.mkdir()
        for i, part in enumerate(cut(ended, rng)):
            if part:
                tf.write_flat(olmo / f"part-{i}.npy", part, dtype)
        yield olmo, 0, vocab, eos, ended, False
        llmc, whole = folder / f"llmc{vocab}", tf.flat(begun)
        llmc.mkdir()
        at = int(rng.integers(0, len(whole) + 1))
        tf.write_llmc(llmc / "train_0.bin", [whole[:at]], dtype)
        tf.write_llmc(llmc / "train_1.bin", [whole[at:]], dtype)
        yield f"{llmc}/train_*.bin", 0, vocab, eos, begun, False
        kinds = [d for d in tf.MEGATRON_CODES if np.iinfo(d).max >= vocab - 1]
        for kind in kinds:
            for pieces in [1, 4]:
                prefix = folder / f"megatron{vocab}{kind}{pieces}"
                tf.write_megatron(prefix, ended, kind, pieces=pieces, modes=pieces == 4,
                                  checkout=args.megatron)
                yield prefix, 0, vocab, eos, ended, True
        nanotron = folder / f"nanotron{vocab}"
        nanotron.mkdir()
        for i, part in enumerate(cut(ended, rng)):
            tf.write_nanotron(nanotron / f"{i}.ds", part, width, checkout=args.datatrove)
        yield nanotron, 0, vocab, eos, ended, True
        bare = folder / f"bare{vocab}.ds"
        tf.write_nanotron(bare, ended, width, index=False, metadata=False)
        yield bare, width, vocab, eos, ended, False


def check(reader, path, width, vocab, eos, docs, indexed):
    got = read_set(reader, path, width, vocab, eos)
    if isinstance(got, str):
        return got
    ids, ends, documents = got
    if not np.array_equal(ids, np.array(tf.flat(docs), dtype=np.int32)):
        return "other tokens"
    if not np.array_equal(ends, np.cumsum([len(d) for d in docs])):
        return "other documents"
    if documents != (len(docs) if indexed else 0):
        return f"says {documents} documents"
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("build")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--megatron")
    p.add_argument("--datatrove")
    args = p.parse_args()
    rng = np.random.default_rng(1)
    sets = 0
    with tempfile.TemporaryDirectory() as top:
        reader = f"{top}/reader"
        compile_reader(args.build, reader)
        for r in range(args.rounds):
            folder = pathlib.Path(top) / str(r)
            folder.mkdir()
            for case in write_all(folder, rng, args):
                wrong = check(reader, *case)
                if wrong:
                    print(f"{case[0]}: {wrong}")
                    return 1
                sets += 1
    print(f"{sets} sets of token files are read as they were written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
