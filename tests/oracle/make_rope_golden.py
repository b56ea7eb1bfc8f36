#!/usr/bin/env python3
"""Writes ../golden/rope.json: inverse frequencies and amplitudes that transformers computes
(pip install torch transformers), in double precision, for random settings of every kind of rotary
scaling at lengths around those where it begins."""
import json
import pathlib
import random
import types

import torch
from transformers import LlamaConfig
from transformers import modeling_rope_utils as rope

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden/rope.json"


class Double(types.ModuleType):
    """torch, but its floats are doubles."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def arange(*args, **kwargs):
        kwargs["dtype"] = torch.float64
        numbers = torch.arange(*args, **kwargs)
        numbers.float = lambda: numbers
        return numbers


def settings(kind, r):
    given = {}
    factor = r.choice([1.5, 2.0, 4.0, 8.0, 32.0])
    original = r.choice([64, 256, 4096])
    if kind in ("linear", "dynamic"):
        given = {"factor": factor}
    if kind == "llama3":
        low = r.choice([1.0, 0.5, 2.0])
        given = {"factor": factor, "low_freq_factor": low,
                   "high_freq_factor": low * r.choice([2.0, 4.0]),
                   "original_max_position_embeddings": original}
    if kind == "yarn":
        given = {"factor": r.choice([factor, factor, None]),
                   "original_max_position_embeddings": original}
        optional = {"beta_fast": r.choice([16.0, 32.0, 1.0]), "beta_slow": r.choice([1.0, 2.0]),
                    "truncate": r.choice([True, False]), "mscale": r.choice([1.0, 0.707]),
                    "mscale_all_dim": r.choice([0, 1.0, 0.707]), "attention_factor": 1.25}
        if r.random() < 0.5:
            del optional["attention_factor"]
        given |= {k: v for k, v in optional.items() if r.random() < 0.6}
    if kind == "longrope":
        given = {"original_max_position_embeddings": original}
        if r.random() < 0.4:
            given["factor"] = factor
        if r.random() < 0.3:
            given["attention_factor"] = 1.19
    return given


def row(kind, r):
    dim = r.choice([4, 6, 16, 32, 64])
    given = {"rope_type": kind, "rope_theta": r.choice([100.0, 1e4, 5e5, 1e6])} | settings(kind, r)
    if kind == "longrope":
        for name in ("short_factor", "long_factor"):
            given[name] = [round(1 + 9 * r.random(), 3) for _ in range(dim // 2)]
    original = given.get("original_max_position_embeddings", 64)
    most = original * r.choice([2, 4])
    length = r.choice([original - 1, original, original + 1, most, most + 1, 3 * most])
    config = LlamaConfig(hidden_size=dim, num_attention_heads=1, max_position_embeddings=most,
                         rope_parameters=dict(given))
    if kind == "default":
        numbers, amplitude = 1.0 / given["rope_theta"] ** (Double.arange(0, dim, 2) / dim), 1.0
    else:
        numbers, amplitude = rope.ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    return {"dim": dim, "max": most, "length": length, "given": given,
            "amplitude": float(amplitude), "freq": [float(x) for x in numbers]}


def main():
    r = random.Random(11)
    rope.torch = Double("torch")
    kinds = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
    repeat = {"default": 2, "linear": 3, "dynamic": 8, "llama3": 8, "yarn": 16, "longrope": 8}
    rows = [row(kind, r) for kind in kinds for _ in range(repeat[kind])]
    OUT.write_text("[\n" + ",\n".join(json.dumps(x) for x in rows) + "\n]\n")


if __name__ == "__main__":
    main()
