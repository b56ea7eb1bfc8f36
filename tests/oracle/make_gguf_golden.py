#!/usr/bin/env python3
"""Writes ../golden/io/formats.gguf with gguf-py (pip install gguf numpy).

For every format that athanor reads, a tensor FORMAT.blocks of random bytes and FORMAT.numbers, what
gguf-py reads in them; for every one that it writes, FORMAT.made, which gguf-py makes of the tensor
`source`; and keys of all types."""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFWriter

from compare_gguf import READ, WRITTEN, add_keys, finish, numbers_to_write, random_blocks

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden/io/formats.gguf"


def main():
    rng = np.random.default_rng(5)
    w = GGUFWriter(OUT, "llama")
    add_keys(w, rng)
    for kind in READ:
        blocks = {1: 16, 32: 9, 256: 4}[gguf.GGML_QUANT_SIZES[kind][0]]
        raw = random_blocks(rng, kind, 2, blocks // 2 if blocks % 2 == 0 else blocks)
        if kind == Type.F32:
            raw = raw.view(np.float32)
        if kind == Type.F16:
            raw = raw.view(np.float16)
        plain = kind in (Type.F32, Type.F16)
        w.add_tensor(f"{kind.name}.blocks", raw, raw_dtype=None if plain else kind)
        with np.errstate(all="ignore"):
            w.add_tensor(f"{kind.name}.numbers", gguf.dequantize(raw, kind))
    source = np.concatenate([x[:1, :96] for _, x in numbers_to_write(rng)])
    w.add_tensor("source", source)
    for kind in WRITTEN[1:]:
        made = gguf.quantize(source, kind)
        w.add_tensor(f"{kind.name}.made", made, raw_dtype=None if kind == Type.F16 else kind)
    finish(w)


main()
