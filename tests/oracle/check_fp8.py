"""A folder as DeepSeek-V3 is published (fp8 matrices, factors of blocks of 128 x 128 as NAME_scale_inv) made of one in fp32, imported and run
by athanor, and compared with transformers on the same numbers in fp32.

    python check_fp8.py ATHANOR FOLDER [--ids 1,2,3]

Exit status 1 if logits differ by more than 1e-4 of the largest.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from transformers import AutoModelForCausalLM

BLOCK, MOST = 128, 448.0
WHOLE = ("embed_tokens", "lm_head", "mlp.gate.weight", "shared_head", "norm", "eh_proj")  # not in fp8 there


def quantised(w):
    """fp8 [O,I], its factors [O/128,I/128], and the numbers that they mean."""
    rows, cols = w.shape
    factors = torch.empty(-(-rows // BLOCK), -(-cols // BLOCK))
    small, back = torch.empty(rows, cols, dtype=torch.float8_e4m3fn), torch.empty_like(w)
    for i in range(factors.shape[0]):
        for j in range(factors.shape[1]):
            at = slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK)
            factors[i, j] = w[at].abs().max() / MOST
            small[at] = (w[at] / factors[i, j]).to(torch.float8_e4m3fn)
            back[at] = small[at].float() * factors[i, j]
    return small, factors, back


def write(source, small, back):
    for folder in (small, back):
        shutil.copytree(source, folder)
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    stored, meant = {}, {}
    for name, w in tensors.items():
        stored[name] = meant[name] = w = w.float()
        if w.ndim == 2 and not any(word in name for word in WHOLE):
            stored[name], stored[f"{name}_scale_inv"], meant[name] = quantised(w)
    safetensors.torch.save_file(stored, small / "model.safetensors", metadata=dict(format="pt"))
    safetensors.torch.save_file(meant, back / "model.safetensors", metadata=dict(format="pt"))
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[BLOCK, BLOCK])
    (small / "config.json").write_text(json.dumps(config))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("athanor")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ids", default="1,5,9,33,7,2,60,11,40,8")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        small, back, wide, out = (Path(work) / name for name in ("small", "back", "wide", "logits.npy"))
        write(args.folder, small, back)
        subprocess.run([args.athanor, "import", small, "-o", wide, "--dtype", "F32"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([args.athanor, "generate", wide, "--ids", args.ids, "--logits", out, "--json"], check=True, stdout=subprocess.DEVNULL)
        model = AutoModelForCausalLM.from_pretrained(back, dtype=torch.float32, attn_implementation="eager",
                                                     experts_implementation="eager").eval()
        with torch.no_grad():
            want = model(input_ids=torch.tensor([[int(x) for x in args.ids.split(",")]])).logits[0].numpy()
        got = np.load(out)
    worst = np.abs(got - want).max() / np.abs(want).max()
    print(f"fp8: logits {got.shape}, relative to the largest {worst:.2e}")
    sys.exit(0 if worst <= 1e-4 else 1)


if __name__ == "__main__":
    main()
