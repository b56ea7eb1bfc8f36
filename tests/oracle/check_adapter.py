"""Loads an adapter with PEFT on its base model, and compares logits with `athanor generate --logits`.

Usage: python check_adapter.py ATHANOR ADAPTER [TOKENS]     (a folder of PEFT, such as a checkpoint of a run with lora.rank)
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM


def main():
    athanor, adapter = sys.argv[1], sys.argv[2]
    config = PeftConfig.from_pretrained(adapter)
    base = AutoModelForCausalLM.from_pretrained(config.base_model_name_or_path, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, adapter).eval()
    rng = np.random.default_rng(0)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 24
    ids = rng.integers(0, base.config.vocab_size, count)
    with tempfile.TemporaryDirectory() as temp, torch.no_grad():
        out = Path(temp) / "logits.npy"
        subprocess.run([athanor, "generate", adapter, "--ids", ",".join(map(str, ids)), "--logits", out],
                       check=True, stdout=subprocess.DEVNULL)
        ours = np.load(out)
        theirs = model(torch.as_tensor(ids)[None]).logits[0].numpy()
        with model.disable_adapter():
            without = model(torch.as_tensor(ids)[None]).logits[0].numpy()
    size = np.abs(theirs).max()
    print(f"largest difference {np.abs(ours - theirs).max():.3g} of logits up to {size:.3g}; "
          f"the adapter changes them by up to {np.abs(without - theirs).max():.3g}")
    return 0 if np.abs(ours - theirs).max() <= 1e-5 * max(size, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
