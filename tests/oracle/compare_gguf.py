#!/usr/bin/env python3
"""Compares GGUF files as athanor reads and writes them with gguf-py (pip install gguf numpy).

    compare_gguf.py BUILD [FILE.gguf ...]

BUILD is athanor's build folder: a small program is compiled against its libraries. Keys of all types
and random blocks of every format, extreme ones too, are written by gguf-py and read here; files
written here must be those of gguf-py, byte for byte; formats that are written must have its blocks.
Each FILE is read whole and copied. Exits with 1 and names the first difference."""
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFReader, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGUFValueType as Value

HERE = pathlib.Path(__file__).resolve().parent
READ = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1,
        Type.Q4_K, Type.Q5_K, Type.Q6_K]
WRITTEN = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1]
TYPE_NAMES = {Value.UINT8: "u8", Value.INT8: "i8", Value.UINT16: "u16", Value.INT16: "i16",
              Value.UINT32: "u32", Value.INT32: "i32", Value.FLOAT32: "f32", Value.BOOL: "bool",
              Value.STRING: "string", Value.ARRAY: "array", Value.UINT64: "u64",
              Value.INT64: "i64", Value.FLOAT64: "f64"}


def compile_program(build, out):
    subprocess.run(["cc", "-std=c17", "-D_GNU_SOURCE", "-I", HERE.parent.parent / "src",
                    HERE / "use_gguf.c", f"{build}/libath_io.a", f"{build}/libath_base.a",
                    "-ljansson", "-lxxhash", "-lm", "-lpthread", "-o", out], check=True)


def fail(what):
    print(what)
    sys.exit(1)


def same_floats(a, b):
    """Bit for bit; NaN is NaN."""
    a, b = a.ravel(), b.ravel()
    return a.size == b.size and bool(
        ((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


def show(value, kind):
    if kind == Value.STRING:
        return "x" + bytes(value).hex()
    if kind in (Value.FLOAT32, Value.FLOAT64):
        return "%.17g" % value
    if kind == Value.UINT64 and int(value) > 2**63 - 1:
        return "beyond"
    return str(bool(value)) if kind == Value.BOOL else str(int(value))


def expected_keys(reader):
    lines = []
    for f in reader.fields.values():
        if f.name.startswith("GGUF."):
            continue
        array = f.types[0] == Value.ARRAY
        # gguf-py forgets the type of the items of an empty array
        item = f.types[-1] if not array or len(f.data) else Value(int(f.parts[3][0]))
        values = [show(f.parts[i] if item == Value.STRING else f.parts[i][0], item) for i in f.data]
        lines.append(" ".join([f.name, TYPE_NAMES[f.types[0]], TYPE_NAMES[item],
                               str(len(f.data)), *values]))
    return lines


def expected_floats(tensor):
    with np.errstate(all="ignore"):
        return gguf.dequantize(np.ascontiguousarray(tensor.data), tensor.tensor_type)


def check_file(program, path, folder):
    reader = GGUFReader(path)
    done = subprocess.run([program, "keys", path], capture_output=True, check=True)
    for got, want in zip(done.stdout.decode().splitlines() + ["(end)"],
                         expected_keys(reader) + ["(end)"]):
        if got != want:
            fail(f"{path}: key\n  {got[:200]}\nis not\n  {want[:200]}")
    done = subprocess.Popen([program, "numbers", path], stdout=subprocess.PIPE)
    for t in reader.tensors:
        got = np.frombuffer(done.stdout.read(4 * int(t.n_elements)), dtype=np.float32)
        if not same_floats(got, expected_floats(t)):
            fail(f"{path}: tensor {t.name} ({t.tensor_type.name}) differs")
    if done.stdout.read(1) or done.wait():
        fail(f"{path}: numbers too many, or an error")
    copy = folder / "copy.gguf"
    subprocess.run([program, "copy", path, copy], check=True)
    if copy.read_bytes() != pathlib.Path(path).read_bytes():
        fail(f"{path}: the copy differs")
    copy.unlink()
    print(f"{path}: {len(reader.tensors)} tensors are the same")


def add_keys(w, rng):
    w.add_name("größte Ähnlichkeit 🧪")
    for kind, add in [("i8", w.add_int8), ("u8", w.add_uint8), ("i16", w.add_int16),
                      ("u16", w.add_uint16), ("i32", w.add_int32), ("u32", w.add_uint32),
                      ("i64", w.add_int64), ("u64", w.add_uint64)]:
        info = np.iinfo({"i": "int", "u": "uint"}[kind[0]] + kind[1:])
        add(f"test.{kind}.least", int(info.min))
        add(f"test.{kind}.most", int(info.max))
    w.add_float32("test.f32", float(np.float32(0.1)))
    w.add_float64("test.f64", 0.1)
    w.add_bool("test.yes", True)
    w.add_bool("test.no", False)
    w.add_array("test.strings", ["", "a", "é" * 50, "\n\0x"])
    w.add_array("test.ints", [int(x) for x in rng.integers(-2**31, 2**31, 300)])
    w.add_array("test.floats", [float(x) for x in rng.standard_normal(300).astype(np.float32)])
    w.add_array("test.bools", [True, False, True])
    w.add_array("test.bytes", bytes(range(256)))


def random_blocks(rng, kind, rows, blocks):
    """Bytes of a tensor: random ones, and some that are all alike (NaN and infinite scales among
    them)."""
    size = GGML_QUANT_SIZES[kind][1]
    raw = rng.integers(0, 256, (rows * blocks, size), dtype=np.uint8)
    for i, byte in enumerate([0, 255, 0x7f, 0x80, 0x7c, 0xfc, 1]):
        raw[i % len(raw)] = byte
    return raw.reshape(rows, blocks * size)


def write_random(path, rng, alignment):
    w = GGUFWriter(path, "llama")
    if alignment:
        w.add_custom_alignment(alignment)
    add_keys(w, rng)
    for i, kind in enumerate(READ * 3):
        rows, blocks = int(rng.integers(1, 9)), int(rng.integers(1, 9))
        raw = random_blocks(rng, kind, rows, blocks)
        if kind == Type.F32:
            w.add_tensor(f"t{i}.F32", raw.view(np.float32).reshape(rows, 1, blocks))
        elif kind == Type.F16:
            w.add_tensor(f"t{i}.F16", raw.view(np.float16).ravel())
        else:
            w.add_tensor(f"t{i}.{kind.name}", raw, raw_dtype=kind)
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def numbers_to_write(rng):
    """Ordinary weights, few distinct values (ties), many zeros, and numbers near halves of steps."""
    x = rng.standard_normal((64, 256)).astype(np.float32)
    yield "small", x * np.float32(1e-4)
    yield "weights", x * np.float32(0.02)
    yield "large", x * np.float32(1000)
    yield "ties", np.round(x * 4) / np.float32(2)
    yield "zeros", np.where(rng.random(x.shape) < 0.95, np.float32(0), x)
    yield "halves", x.astype(np.float16).astype(np.float32)
    yield "bytes", np.round(x * 40) + np.float32(0.5)


def check_converted(program, folder, rng):
    source = folder / "f32.gguf"
    w = GGUFWriter(source, "llama")
    for name, x in numbers_to_write(rng):
        w.add_tensor(name, x)
    finish(w)
    for kind in WRITTEN:
        out = folder / "out.gguf"
        subprocess.run([program, "convert", source, out, kind.name.lower()], check=True)
        written = {t.name: t for t in GGUFReader(out).tensors}
        for t in GGUFReader(source).tensors:
            want = gguf.quantize(np.ascontiguousarray(t.data), kind)
            got = written.pop(t.name)
            if got.tensor_type != kind or got.data.tobytes() != want.tobytes():
                fail(f"{t.name}: blocks of {kind.name} differ")
    print(f"blocks of {', '.join(k.name for k in WRITTEN)} are the same")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = folder / "use_gguf"
        compile_program(sys.argv[1], program)
        for alignment in [0, 8, 64, 4096]:
            path = folder / f"aligned{alignment}.gguf"
            write_random(path, rng, alignment)
            check_file(program, path, folder)
        check_converted(program, folder, rng)
        for path in sys.argv[2:]:
            check_file(program, path, folder)


if __name__ == "__main__":
    main()
