"""Folders in fp8 in the forms that publishers use: python fp8.py ATHANOR. Weights of a random Llama as E4M3 with one factor for each
matrix, row or block; logits and gradients beside those of PyTorch with the same numbers."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers import LlamaConfig

FORMS = {
    "blocks of 128": (128, 128, "_scale_inv", dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128])),
    "blocks of 64 x 32": (64, 32, "_scale_inv", dict(quant_method="fp8", weight_block_size=[64, 32])),
    "rows": (1, None, "_scale", dict(quant_method="compressed-tensors", format="float-quantized", config_groups=dict(
        group_0=dict(targets=["Linear"], weights=dict(num_bits=8, type="float", strategy="channel"))))),
    "rows of fbgemm": (1, None, "_scale", dict(quant_method="fbgemm_fp8")),
    "a matrix": (None, None, "_scale", dict(quant_method="modelopt", quant_algo="FP8")),
}


def quantised(w, rows, cols):
    """E4M3, factors, and the numbers that both stand for."""
    rows, cols = rows or w.shape[0], cols or w.shape[1]
    bits, back = torch.empty_like(w, dtype=torch.float8_e4m3fn), torch.empty_like(w)
    factors = torch.empty(-(-w.shape[0] // rows), -(-w.shape[1] // cols))
    for i in range(factors.shape[0]):
        for j in range(factors.shape[1]):
            at = (slice(i * rows, (i + 1) * rows), slice(j * cols, (j + 1) * cols))
            factors[i, j] = w[at].abs().max() / 448
            bits[at] = (w[at] / factors[i, j]).to(torch.float8_e4m3fn)
            back[at] = bits[at].float() * factors[i, j]
    return bits, factors, back


def main():
    program, worst = sys.argv[1], 0.0
    for name, (rows, cols, end, config) in FORMS.items():
        torch.manual_seed(len(name))
        model = transformers.AutoModelForCausalLM.from_config(LlamaConfig(
            num_hidden_layers=2, hidden_size=160, num_attention_heads=4, num_key_value_heads=2, intermediate_size=200, vocab_size=99,
            max_position_embeddings=32, tie_word_embeddings=False))
        tensors = {}
        for key, p in model.named_parameters():
            if p.dim() == 2 and ".layers." in key:
                bits, factors, back = quantised(p.data, rows, cols)
                tensors[key] = bits
                tensors[key + end] = factors.reshape([1]) if factors.numel() == 1 and end == "_scale" else factors
                tensors[key[:-6] + "input_scale"] = torch.ones(1)
                p.data.copy_(back)
            else:
                tensors[key] = p.data
        with tempfile.TemporaryDirectory() as work:
            folder = Path(work)
            (folder / "config.json").write_text(json.dumps(model.config.to_dict() | dict(quantization_config=config)))
            safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata=dict(format="pt"))
            ids = np.arange(5, 29, dtype=np.int32)
            subprocess.run([program, "generate", folder, "--ids", ",".join(map(str, ids)), "--logits", folder / "l.npy", "--json"],
                           check=True, capture_output=True)
            with torch.no_grad():
                want = model.double()(torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()
            apart = np.abs(np.load(folder / "l.npy") - want).max() / np.abs(want).max()
        print(f"{name}: {apart:.1e}")
        worst = max(worst, apart)
    sys.exit(int(worst > 1e-5))


if __name__ == "__main__":
    main()
