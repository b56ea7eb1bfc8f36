"""Rows of Parquet as pyarrow reads them, in the JSON that athanor gives; and tables with something of everything."""
import datetime
import decimal
import json
import math
import uuid

import numpy as np
import pyarrow as pa

EPOCH = datetime.datetime(1970, 1, 1)
UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def real(value, single):
    if not math.isfinite(value):
        return None
    return float(str(np.float32(value))) if single else value


def text(data):
    return data.decode(errors="surrogateescape") if isinstance(data, bytes) else data


def stamp(value, unit, date=True, zone=""):
    seconds, fraction = divmod(value, 10 ** UNITS[unit])
    digits = f".{fraction:0{UNITS[unit]}d}" if fraction else ""
    whole = EPOCH + datetime.timedelta(seconds=seconds)
    return (whole if date else whole.time()).isoformat() + digits + zone


def value(x):
    """A scalar of pyarrow as JSON; decimals stay Decimal."""
    t = x.type
    if not x.is_valid:
        return None
    if isinstance(t, pa.BaseExtensionType):
        return str(uuid.UUID(bytes=x.value.as_py())) if "uuid" in str(t) else value(x.value)
    if pa.types.is_dictionary(t):
        return value(x.value) if isinstance(x.value, pa.Scalar) else x.as_py()
    if pa.types.is_map(t):
        return [{"key": value(k), "value": value(v)} for k, v in zip(x.values.field(0), x.values.field(1))]
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return [value(v) for v in x.values]
    if pa.types.is_struct(t):
        return {t.field(i).name: value(x[i]) for i in range(t.num_fields)}
    if pa.types.is_floating(t):
        return real(x.as_py(), t != pa.float64())
    if pa.types.is_date(t):
        return x.as_py().isoformat()
    if pa.types.is_time(t):
        return stamp(x.value, t.unit, False)
    if pa.types.is_timestamp(t):
        return stamp(x.value, t.unit, True, "Z" if t.tz else "")
    if pa.types.is_duration(t):
        return x.value
    return text(x.as_py())


def rows(table):
    columns = [(name, table.column(i)) for i, name in enumerate(table.column_names)]
    return [{name: value(column[i]) for name, column in columns} for i in range(table.num_rows)]


def dump(x):
    """As json.dumps does it, but for decimals, which keep their digits."""
    if isinstance(x, decimal.Decimal):
        return f"{x:f}"
    if isinstance(x, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in x.items()) + "}"
    if isinstance(x, list):
        return "[" + ",".join(map(dump, x)) + "]"
    return json.dumps(x, ensure_ascii=False)


def is_same(want, got):
    """`got` was loaded with Decimal for reals."""
    if isinstance(want, bool) or isinstance(got, bool) or want is None or isinstance(want, str):
        return want is got or (type(want) is type(got) and want == got)
    if isinstance(want, dict):
        return isinstance(got, dict) and want.keys() == got.keys() and all(is_same(v, got[k]) for k, v in want.items())
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(is_same, want, got))
    if not isinstance(got, (int, decimal.Decimal)):
        return False
    return float(got) == want if isinstance(want, float) else got == want


# ---- tables: `rng` is a random.Random ----

WORDS = ["", "a", "plain words", 'a "quote"', "line\nend", "tab\t\\", "é中😀", "\x01\x7f", "x" * 40]


def maybe(rng, make, share=0.2):
    return lambda: None if rng.random() < share else make()


def many(rng, make, most=4):
    return lambda: [make() for _ in range(rng.randrange(most))]


def integer(rng, bits, signed=True):
    least = -(1 << bits - 1) if signed else 0
    most = (1 << bits - signed) - 1

    def make():
        return rng.choice([least, most, 0, 1, max(least, min(most, rng.randrange(-50, 50))), rng.randint(least, most)])
    return make


def columns(rng):
    """name -> (type, maker of a value)."""
    word = lambda: rng.choice(WORDS) if rng.random() < 0.7 else "".join(rng.choices("abcé中 ", k=rng.randrange(30)))
    number = integer(rng, 32)
    flat = {
        "bool": (pa.bool_(), lambda: rng.random() < 0.5),
        "int8": (pa.int8(), integer(rng, 8)), "int32": (pa.int32(), number), "int64": (pa.int64(), integer(rng, 64)),
        "uint8": (pa.uint8(), integer(rng, 8, False)), "uint32": (pa.uint32(), integer(rng, 32, False)),
        "uint64": (pa.uint64(), integer(rng, 64, False)),
        "half": (pa.float16(), lambda: np.float16(rng.choice([0.1, -0.0, 65504, rng.gauss(0, 1)]))),
        "float": (pa.float32(), lambda: rng.choice([0.1, -0.0, 1e-40, math.nan, math.inf, rng.gauss(0, 1e9)])),
        "double": (pa.float64(), lambda: rng.choice([0.1, -0.0, 5e-324, math.nan, -math.inf, 1e22, rng.gauss(0, 1)])),
        "string": (pa.string(), word), "large": (pa.large_string(), word),
        "bytes": (pa.binary(), lambda: word().encode()), "fixed": (pa.binary(5), lambda: bytes(rng.choices(b"abcd", k=5))),
        "decimal": (pa.decimal128(9, 2), lambda: decimal.Decimal(rng.randint(-10**9 + 1, 10**9 - 1)).scaleb(-2)),
        "decimal18": (pa.decimal128(18, 18), lambda: decimal.Decimal(rng.randint(-999, 999)).scaleb(-18)),
        "decimal38": (pa.decimal128(38, 10), lambda: decimal.Decimal((rng.random() < 0.5, [9] * rng.randint(1, 38), -10))),
        "decimal76": (pa.decimal256(76, 0), lambda: decimal.Decimal(rng.randint(-10**75, 10**75))),
        "date": (pa.date32(), lambda: datetime.date(1, 1, 1) + datetime.timedelta(rng.randrange(3652058))),
        "time": (pa.time64("us"), lambda: datetime.time(rng.randrange(24), 59, rng.randrange(60), rng.choice([0, 7]))),
        "stamp": (pa.timestamp("us"), lambda: EPOCH + datetime.timedelta(seconds=rng.randint(-6 * 10**9, 6 * 10**9), microseconds=rng.choice([0, 10]))),
        "zone": (pa.timestamp("ms", "UTC"), lambda: EPOCH + datetime.timedelta(milliseconds=rng.randint(-6 * 10**12, 6 * 10**12))),
        "uuid": (pa.uuid(), lambda: bytes(rng.choices(range(256), k=16))),
    }
    message = pa.struct([("role", pa.string()), ("content", pa.string()), ("tags", pa.list_(pa.int32()))])
    talk = lambda: {"role": rng.choice(["user", "assistant"]), "content": maybe(rng, word)(), "tags": maybe(rng, many(rng, maybe(rng, number)))()}
    nested = {
        "list": (pa.list_(pa.string()), many(rng, maybe(rng, word))),
        "lists": (pa.list_(pa.list_(pa.int32())), many(rng, maybe(rng, many(rng, maybe(rng, number))))),
        "messages": (pa.list_(message), many(rng, maybe(rng, talk))),
        "choices": (pa.struct([("text", pa.list_(pa.string())), ("label", pa.list_(pa.string()))]),
                    lambda: {"text": many(rng, word)(), "label": maybe(rng, many(rng, word))()}),
        "deep": (pa.struct([("a", pa.struct([("b", pa.struct([("c", pa.int64())]))]))]),
                 lambda: {"a": maybe(rng, lambda: {"b": maybe(rng, lambda: {"c": maybe(rng, number)()})()})()}),
        "map": (pa.map_(pa.string(), pa.int32()), lambda: [(word(), maybe(rng, number)()) for _ in range(rng.randrange(3))]),
    }
    return flat, nested


def table(rng, chosen, n_rows, required=()):
    arrays, fields = [], []
    for name, (kind, make) in chosen.items():
        get = make if name in required else maybe(rng, make, rng.choice([0, 0.1, 0.9]))
        arrays.append(pa.array([get() for _ in range(n_rows)], kind))
        fields.append(pa.field(name, kind, nullable=name not in required))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
