"""Makes tests/golden/data: one small corpus in the token formats of other programs.

    make_token_files.py tests/golden/data [--megatron CHECKOUT] [--datatrove CHECKOUT]

Document d of 40 has 1 + 7 d mod 23 ids; id i of it is 1 + (31 d + 17 i) mod 119; end-of-text is 0.
The committed files were made with the writers of NVIDIA/Megatron-LM and huggingface/datatrove.
"""

import argparse
import pathlib

import numpy as np

import token_files as tf

DOCS, VOCAB, EOS = 40, 120, 0


def documents():
    return [[1 + (d * 31 + i * 17) % (VOCAB - 1) for i in range(1 + d * 7 % 23)]
            for d in range(DOCS)]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--megatron")
    p.add_argument("--datatrove")
    args = p.parse_args()
    out = args.out
    docs = documents()
    ended, begun = tf.ends_with_eos(docs, EOS), tf.begins_with_eos(docs, EOS)
    for folder in ["nanogpt", "llmc", "megatron", "nanotron", "olmo"]:
        (out / folder).mkdir(parents=True, exist_ok=True)
    tf.write_flat(out / "nanogpt/u16.bin", ended, np.uint16)
    tf.write_flat(out / "nanogpt/u32.bin", ended, np.uint32)
    tf.write_flat(out / "olmo/part-0.npy", ended[:25], np.uint16)
    tf.write_flat(out / "olmo/part-1.npy", ended[25:], np.uint16)
    tf.write_numpy(out / "numpy_u16.npy", ended, np.uint16)
    tf.write_numpy(out / "numpy_i32_v2.npy", ended, np.int32, version=(2, 0))
    half = len(tf.flat(begun)) // 2  # llm.c cuts files anywhere
    whole = tf.flat(begun)
    tf.write_llmc(out / "llmc/part_000000.bin", [whole[:half]], np.uint16)
    tf.write_llmc(out / "llmc/part_000001.bin", [whole[half:]], np.uint16)
    tf.write_llmc(out / "llmc_u32.bin", begun, np.uint32)
    tf.write_llmc_eval(out / "llmc_eval.bin")
    for dtype in tf.MEGATRON_CODES:
        tf.write_megatron(out / "megatron" / dtype, ended, dtype, checkout=args.megatron)
    tf.write_megatron(out / "megatron_pieces", ended, np.uint16, pieces=3, modes=True,
                      checkout=args.megatron)
    tf.write_nanotron(out / "nanotron/00000_part.ds", ended[:18], 2, checkout=args.datatrove)
    tf.write_nanotron(out / "nanotron/00001_part.ds", ended[18:], 2, checkout=args.datatrove)
    tf.write_nanotron(out / "wide.ds", ended, 4, tokenizer="a|b", checkout=args.datatrove)


if __name__ == "__main__":
    main()
