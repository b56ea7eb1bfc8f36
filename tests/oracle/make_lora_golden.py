"""Makes tests/golden/lora: adapters that PEFT makes and trains beside golden models, in double precision.

A folder NAME holds what PEFT's save_pretrained writes (adapter_config.json, adapter_model.safetensors; A and B are both
random, so that every gradient counts) and golden.safetensors:
  ids [STEPS,B,T+1]       a batch for each step
  logits [B,T,V]          of the first batch, before any step
  loss [STEPS]            before each update
  after.TENSOR            every tensor of the adapter after STEPS steps of AdamW
The base models are those of ../golden/models, which the adapters name relative to their own folder.

Usage: python make_lora_golden.py [OUT]        (default: ../golden/lora)
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import peft
import safetensors.numpy
import safetensors.torch
import torch

from exact import all_double, draw_ids, f32, load_model, logits_of, loss_of, split

STEPS, BATCH, LENGTH = 3, 2, 10
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
ADAPTERS = {
    "llama": ("llama-gqa-tied", dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "llama-some": ("llama-bias-untied", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], use_rslora=True,
                                             layers_to_transform=[1])),
    "llama-head": ("llama-bias-untied", dict(r=2, lora_alpha=4, target_modules=["down_proj"],
                                             modules_to_save=["embed_tokens", "lm_head"])),
    "gpt2": ("gpt2-tanh-tied", dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
    "neox": ("neox-parallel", dict(r=3, lora_alpha=6, target_modules="all-linear")),
    "neox-head": ("neox-parallel", dict(r=2, lora_alpha=4, target_modules=["query_key_value"],
                                        modules_to_save=["embed_in", "lm_head"])),
    "llama-head-alone": ("llama-bias-untied", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["lm_head"])),
}


def make(out, models, name, base, options, seed):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    single = load_model(models / base)
    config = peft.LoraConfig(init_lora_weights=False, task_type="CAUSAL_LM", **options)
    adapted = peft.get_peft_model(single, config)
    adapted.peft_config["default"].base_model_name_or_path = f"../models/{base}"
    adapted.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    text = json.loads((folder / "adapter_config.json").read_text())
    if isinstance(text["target_modules"], list):
        text["target_modules"].sort()  # PEFT keeps a set, whose order changes
    text["init_lora_weights"] = True
    (folder / "adapter_config.json").write_text(json.dumps(text, indent=1, sort_keys=True) + "\n")
    ids = np.stack([draw_ids(rng, BATCH, LENGTH + 1, single.config.vocab_size) for _ in range(STEPS)])
    with all_double():
        double = load_model(models / base, torch.float64)
        model = peft.PeftModel.from_pretrained(double, folder, is_trainable=True).double()
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], foreach=False, **ADAMW)
        losses, first = [], None
        for batch in ids:
            inputs, targets = split(batch)
            logits = model(input_ids=torch.as_tensor(inputs, dtype=torch.long)).logits
            first = logits.detach() if first is None else first
            loss = loss_of(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    after = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    tensors = dict(ids=ids.astype(np.int32), logits=f32(first), loss=np.array(losses, dtype=np.float32))
    tensors.update({f"after.{n}": f32(t) for n, t in after.items()})
    safetensors.numpy.save_file(tensors, folder / "golden.safetensors")
    print(f"{name}: losses {', '.join(f'{x:.4f}' for x in losses)}")


def main():
    here = Path(__file__).resolve().parent
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else here / "../golden/lora"
    out.mkdir(parents=True, exist_ok=True)
    for seed, (name, (base, options)) in enumerate(ADAPTERS.items()):
        make(out, here / "../golden/models", name, base, options, seed)


if __name__ == "__main__":
    main()
