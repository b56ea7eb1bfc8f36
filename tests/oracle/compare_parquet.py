#!/usr/bin/env python3
"""Compares how Parquet is read with pyarrow: random tables, written in every way that pyarrow knows (and duckdb and
polars, where they are installed), and files that are given, such as those of github.com/apache/parquet-testing. Usage:

    python tests/oracle/compare_parquet.py build [FILE...] [--rounds 100] [--seed 1]
"""
import argparse
import decimal
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

import parquet_rows

HERE = pathlib.Path(__file__).resolve().parent
DELTA = {pa.int32(): "DELTA_BINARY_PACKED", pa.int64(): "DELTA_BINARY_PACKED", pa.string(): "DELTA_BYTE_ARRAY",
         pa.binary(): "DELTA_LENGTH_BYTE_ARRAY", pa.large_string(): "DELTA_LENGTH_BYTE_ARRAY",
         pa.binary(5): "DELTA_BYTE_ARRAY", pa.bool_(): "RLE"}
SPLIT = (pa.float16(), pa.float32(), pa.float64(), pa.int32(), pa.int64(), pa.binary(5))


def build_dump(build, folder):
    libraries = [build / "libath_data.a", build / "libath_base.a", "-ljansson", "-lxxhash", "-lyaml", "-lz", "-lzstd",
                 "-lsnappy", "-lm"]
    subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-I", HERE.parent.parent / "src", HERE / "dump_parquet.c",
                    *libraries, "-o", folder / "dump"], check=True)
    return folder / "dump"


def encodings(rng, schema):
    """Of flat columns, by name; what is left takes a dictionary or PLAIN."""
    found = {}
    for field in schema:
        known = [DELTA[field.type]] if field.type in DELTA else []
        known += ["BYTE_STREAM_SPLIT"] if field.type in SPLIT else []
        if known and rng.random() < 0.6:
            found[field.name] = rng.choice(known)
    return found


def write_pyarrow(rng, table, path):
    chosen = encodings(rng, table.schema)
    dictionary = [f.name for f in table.schema if f.name not in chosen and rng.random() < 0.5]
    int96 = rng.random() < 0.2
    pq.write_table(
        table, path, version=rng.choice(["1.0", "2.4", "2.6"]), data_page_version=rng.choice(["1.0", "2.0"]),
        compression=rng.choice(["none", "snappy", "gzip", "zstd"]), use_dictionary=dictionary, column_encoding=chosen,
        row_group_size=rng.choice([1, 7, 100, 10**6]), data_page_size=rng.choice([1, 100, 2**20]),
        write_batch_size=rng.choice([1, 10, 1024]), dictionary_pagesize_limit=rng.choice([50, 2**20]),
        write_page_checksum=rng.random() < 0.5, write_page_index=rng.random() < 0.3,
        use_deprecated_int96_timestamps=int96, store_decimal_as_integer=rng.random() < 0.5,
        use_compliant_nested_type=rng.random() < 0.7, store_schema=not int96 and rng.random() < 0.5)


def write_polars(rng, table, path):
    import polars
    polars.from_arrow(table).write_parquet(
        path, compression=rng.choice(["uncompressed", "snappy", "gzip", "zstd"]), row_group_size=rng.choice([7, 10**6]),
        data_page_size=rng.choice([100, 2**20]))


def write_duckdb(rng, table, path):
    import duckdb
    db = duckdb.connect()
    db.register("t", table)
    codec, version, size = rng.choice(["uncompressed", "snappy", "gzip", "zstd"]), rng.choice(["V1", "V2"]), rng.choice([2048, 10**5])
    db.execute(f"copy t to '{path}' (format parquet, codec '{codec}', parquet_version '{version}', row_group_size {size})")


def writers():
    found = [write_pyarrow]
    for name, write in (("polars", write_polars), ("duckdb", write_duckdb)):
        try:
            __import__(name)
            found.append(write)
        except ImportError:
            print(f"without {name}, which is not installed")
    return found


def dump(program, path, columns=()):
    done = subprocess.run([program, path, *columns], capture_output=True)
    lines = done.stdout.decode(errors="surrogateescape").split("\n")[:-1]
    if done.returncode != 0:
        return None, lines[-1] if lines else f"status {done.returncode}"
    return [json.loads(line, parse_float=decimal.Decimal) for line in lines], None


def read_pyarrow(path):
    return parquet_rows.rows(pq.ParquetFile(path, page_checksum_verification=True).read())


def read_duckdb(path):
    """pyarrow does not read pages of differences that hold no or one value, as duckdb writes them."""
    import duckdb
    db = duckdb.connect()
    db.execute("set timezone = 'UTC'")
    return parquet_rows.rows(db.sql(f"from read_parquet('{path}')").to_arrow_table())


def compare(program, path, tell_refused, read=read_pyarrow):
    """1 when it is read differently."""
    try:
        want = read(path)
    except Exception as e:  # of any kind: the file is bad, or pyarrow cannot say it
        want = e
    got, error = dump(program, path)
    if isinstance(want, Exception) or error:
        odd = not error or not isinstance(want, Exception)
        if odd or tell_refused:
            print(f"{'ONE REFUSES' if odd else 'refused'} {path}: pyarrow: {str(want)[:90] if isinstance(want, Exception) else 'reads'}; we: {error or 'read'}")
        return bool(odd)
    for i, (a, b) in enumerate(zip(want, got)):
        if not parquet_rows.is_same(a, b):
            for name in a:
                if not parquet_rows.is_same(a[name], b.get(name)):
                    print(f"DIFFERENT {path}: row {i + 1}, {name}: {a[name]!r} is read as {b.get(name)!r}"[:400])
            return 1
    if len(want) != len(got):
        print(f"DIFFERENT {path}: {len(want)} rows are read as {len(got)}")
    return len(want) != len(got)


def random_file(rng, write, path):
    flat, nested = parquet_rows.columns(rng)
    chosen = {**flat, **nested}
    for name in rng.sample(sorted(chosen), rng.randrange(len(chosen))):
        del chosen[name]
    if write is not write_pyarrow:  # what they have no type for, or say otherwise
        chosen["int64"] = flat["int64"]  # and not without columns
        for name in ("half", "decimal76", "uuid", "fixed", "map", "time", "decimal38"):
            chosen.pop(name, None)
    table = parquet_rows.table(rng, chosen, rng.choice([0, 1, 2, 50, 3000]), [n for n in chosen if rng.random() < 0.3])
    write(rng, table, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    different = count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program, known = build_dump(args.build, folder), writers()
        for path in args.files:
            different += compare(program, path, True)
        for seed in range(args.seed, args.seed + args.rounds):
            for write in known:
                path = folder / f"{write.__name__}-{seed}.parquet"
                random_file(random.Random(seed), write, path)
                different += compare(program, path, True, read_duckdb if write is write_duckdb else read_pyarrow)
                count += 1
                path.unlink()
    print(f"{len(args.files)} files and {count} random ones, {different} read differently from pyarrow")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
