#!/usr/bin/env python3
"""Makes tests/golden/parquet: files of every encoding, packing, page version and nesting, and beside each the rows that
pyarrow reads in it, as JSON lines. Usage: python tests/oracle/make_parquet_golden.py"""
import datetime
import pathlib
import random

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_rows

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "parquet"
DELTA = {"int32": "DELTA_BINARY_PACKED", "int64": "DELTA_BINARY_PACKED", "string": "DELTA_BYTE_ARRAY",
         "bytes": "DELTA_LENGTH_BYTE_ARRAY", "fixed": "DELTA_BYTE_ARRAY", "bool": "RLE"}
SPLIT = dict.fromkeys(["half", "float", "double", "int32", "int64", "fixed"], "BYTE_STREAM_SPLIT")
WORDS = "the slow fire of a furnace that feeds itself keeps metal warm until morning".split()


def write(name, table, rows=True, **options):
    path = OUT / f"{name}.parquet"
    pq.write_table(table, path, **{"store_schema": False, "write_statistics": False, "use_dictionary": False, **options})
    if rows:
        write_rows(path)


def write_rows(path, table=None):
    rows = parquet_rows.rows(table or pq.ParquetFile(path).read())
    path.with_suffix(".jsonl").write_text("".join(parquet_rows.dump(row) + "\n" for row in rows))


def encoded(flat, encodings):
    return {"use_dictionary": False, "column_encoding": {n: e for n, e in encodings.items() if n in flat}}


def every_encoding(rng, flat, nested):
    all_types = parquet_rows.table(rng, flat, 20)
    write("plain", all_types, compression="none", write_page_checksum=True)
    write("dictionary", all_types, compression="snappy", use_dictionary=True, data_page_version="2.0", row_group_size=7)
    write("split", all_types.select(list(SPLIT)), compression="gzip", **encoded(flat, SPLIT))
    delta = parquet_rows.table(rng, {n: flat[n] for n in DELTA}, 150, ["int64", "fixed"])
    write("delta", delta, compression="zstd", data_page_version="2.0", **encoded(flat, DELTA))
    write("delta-v1", delta.slice(0, 40), compression="gzip", data_page_size=100, write_batch_size=10, **encoded(flat, DELTA))
    write("int96", all_types.select(["stamp", "zone", "string"]), use_deprecated_int96_timestamps=True)
    write("decimal-integers", all_types.select(["decimal", "decimal18"]), store_decimal_as_integer=True)


def times():
    """Before and after 1970, with fractions; years of few digits."""
    us = [0, -1, 1, -10**6, -10**6 - 1, 10**6 + 250000, -62135596800 * 10**6]
    ns = [0, -1, 1, -10**9 - 1, 10**18 + 5, -10**18 - 5, None]
    day = [datetime.date(*d) for d in [(1970, 1, 1), (1969, 12, 31), (1, 1, 1), (9999, 12, 31), (2000, 2, 29), (987, 6, 5), (1900, 3, 1)]]
    write("times", pa.table({
        "us": pa.array(us, pa.timestamp("us")), "utc": pa.array(us, pa.timestamp("us", "UTC")),
        "ms": pa.array([us and us // 1000 for us in us], pa.timestamp("ms")), "ns": pa.array(ns, pa.timestamp("ns")),
        "day": pa.array(day), "time": pa.array([0, 1, 86399999999, 3600 * 10**6, None, 5 * 10**5, 7], pa.time64("us")),
        "short": pa.array([0, 1, 86399999, 3600 * 10**3, None, 500, 7], pa.time32("ms"))}))


def every_nesting(rng, flat, nested):
    table = parquet_rows.table(rng, {**nested, "int32": flat["int32"]}, 25, ["choices"])
    write("nested", table, compression="snappy")
    write("nested-v2", table, compression="zstd", data_page_version="2.0", use_dictionary=True, row_group_size=10)
    write("nested-old", table.slice(0, 8), use_compliant_nested_type=False)
    write("pages-of-one-row", table, data_page_size=1, write_batch_size=1, row_group_size=15)
    write("no-rows", table.slice(0, 0))


def dictionaries(rng):
    keys = pa.array([f"key {i * 7919 % 1500}" for i in range(2000)])
    write("large-dictionary", pa.table({"key": keys, "n": pa.array(range(2000), pa.int32())}), use_dictionary=["key"])
    write("dictionary-given-up", pa.table({"key": keys.slice(0, 300)}), use_dictionary=True, dictionary_pagesize_limit=200,
          data_page_size=300, write_batch_size=20)


def other_writers(rng, flat, nested):
    names = ["bool", "int64", "uint64", "double", "string", "date", "decimal", "list", "messages"]
    table = parquet_rows.table(rng, {n: {**flat, **nested}[n] for n in names}, 30)
    path = OUT / "polars.parquet"
    polars.from_arrow(table).write_parquet(path, compression="snappy", statistics=False)
    write_rows(path)
    path = OUT / "duckdb.parquet"
    db = duckdb.connect()
    db.register("t", table)
    db.execute(f"copy t to '{path}' (format parquet, codec 'zstd', parquet_version 'V2')")
    write_rows(path, db.sql(f"from read_parquet('{path}')").to_arrow_table())


def documents(rng):
    """Some megabytes of text in few bytes: a dictionary of long texts."""
    texts = [" ".join(rng.choices(WORDS, k=1500)) for _ in range(5)] + [None, ""]
    rows = [{"text": rng.choice(texts), "id": i, "meta": {"lang": rng.choice(["de", "en"]), "score": i / 8}} for i in range(2500)]
    write("documents", pa.Table.from_pylist(rows), rows=False, use_dictionary=["text"], compression="zstd", row_group_size=900)


def columns_disagree():
    """The second column of a list of structs begins a new row where the first goes on with its list."""
    pair = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.int32(), False)])
    kind = pa.list_(pa.field("element", pair, False))
    rows = pa.array([[{"a": 1, "b": 2}, {"a": 3, "b": 4}]], kind)
    write("columns-disagree", pa.Table.from_arrays([rows], schema=pa.schema([pa.field("pairs", kind, False)])), rows=False, compression="none")
    path = OUT / "columns-disagree.parquet"
    data = path.read_bytes()
    levels = bytes([2, 0, 0, 0, 3, 2])  # their length; eight numbers of one bit: 0, 1
    assert data.count(levels) == 2
    at = data.rindex(levels)
    path.write_bytes(data[:at + 5] + b"\0" + data[at + 6:])


def refused():
    one = pa.table({"text": ["a"]})
    write("lz4", one, rows=False, compression="lz4")
    write("brotli", one, rows=False, compression="brotli")
    write("latin1", pa.table({"text": pa.array([b"good", b"caf\xe9"])}), rows=False)
    write("bomb-page", pa.table({"text": ["a" * 10**8]}), rows=False, compression="zstd")
    write("bomb-dictionary", pa.table({"text": ["a" * 2**16] * 2000}), rows=False, compression="zstd", use_dictionary=True)


def main():
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    rng = random.Random(7)
    flat, nested = parquet_rows.columns(rng)
    every_encoding(rng, flat, nested)
    every_nesting(rng, flat, nested)
    dictionaries(rng)
    other_writers(rng, flat, nested)
    documents(rng)
    times()
    columns_disagree()
    refused()


if __name__ == "__main__":
    main()
