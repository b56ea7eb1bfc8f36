#!/usr/bin/env python3
"""Makes tests/golden/eval: invented rows in the columns and file layouts that public sets have on the Hugging Face hub, in
Parquet. Usage: python tests/oracle/make_eval_parquet.py"""
import pathlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "eval"
CHOICES = pa.struct([("text", pa.list_(pa.string())), ("label", pa.list_(pa.string()))])


def write(name, rows, schema=None):
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path, store_schema=False, write_statistics=False)


def asked(question, answer):
    return {"question": question, "subject": "astronomy", "choices": ["a", "b", "c", "d"], "answer": answer}


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for i, rows in enumerate([[asked("First?", 0), asked("Second?", 3)], [asked("Third?", 1)]]):
        write(f"astronomy/test-0000{i}-of-00002.parquet", rows)
    write("astronomy/dev-00000-of-00001.parquet", [asked("Dev?", 2)])
    write("ARC-Easy/test-00000-of-00001.parquet",
          [{"id": "x", "question": "Q?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"}],
          pa.schema([("id", pa.string()), ("question", pa.string()), ("choices", CHOICES), ("answerKey", pa.string())]))
    write("boolq/data/validation-00000-of-00001.parquet", [{"question": "is it", "answer": True, "passage": "P."}])
    write("piqa/plain_text/validation/0000.parquet", [{"goal": "G", "sol1": "a", "sol2": "it's b", "label": 0}],
          pa.schema([("goal", pa.string()), ("sol1", pa.string()), ("sol2", pa.string()), ("label", pa.int64())]))
    write("latin1/test-00000-of-00001.parquet", [{"question": b"good"}, {"question": b"caf\xe9"}])
    write("shards/test-00001-of-00002.parquet", [{"question": "Q"}])


if __name__ == "__main__":
    main()
