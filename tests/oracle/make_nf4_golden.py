"""Makes tests/golden/nf4: a matrix that bitsandbytes quantises to NF4 with double quantisation, on the CPU (matrix.safetensors),
and a Llama of one layer (model), with rows that bitsandbytes reads back (rows.safetensors). Its tensors
are quantised and packed by functions of bitsandbytes, under the names that transformers gives them, and its config.json is put together here:
transformers has not saved it.

  weight [R,C] bf16         blocks of very different sizes, and one of zeros
  bits [R*C/2] u8           two elements a byte, the first in the high half
  scale [R*C/64] u8, nested [..] f32, mean [1] f32, level [16] f32, map [256] f32
  back [16,C] f32           what it reads back of the first and the last 8 rows

Usage: python make_nf4_golden.py [OUT]        (pip install bitsandbytes torch transformers)
"""

import json
import sys
from pathlib import Path

import bitsandbytes.functional as F
import safetensors.torch
import torch
import transformers

ROWS, COLS = 60, 320  # 300 blocks: the last 44 of them are a nested block that is not full


def save(tensors, path):
    safetensors.torch.save_file({n: t.contiguous() for n, t in tensors.items()}, path, metadata={"format": "pt"})


def make_matrix(path):
    torch.manual_seed(4)
    sizes = torch.exp(torch.randn(ROWS * COLS // 64, 1))
    weight = (torch.randn(ROWS * COLS // 64, 64) * sizes * 0.02).reshape(ROWS, COLS)
    weight[3, 64:128] = 0
    weight = weight.bfloat16().float()  # bitsandbytes quantises in the format of what it is given
    bits, state = F.quantize_4bit(weight, blocksize=64, compress_statistics=True, quant_type="nf4")
    back = F.dequantize_4bit(bits, state)
    tensors = dict(weight=weight.bfloat16(), bits=bits.flatten(), scale=state.absmax, nested=state.state2.absmax,
                   mean=state.offset.reshape(1), level=state.code, map=state.state2.code,
                   back=torch.cat([back[:8], back[-8:]]))
    save(tensors, path)


def make_model(folder, rows):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                                      num_key_value_heads=1, vocab_size=32, max_position_embeddings=64,
                                      tie_word_embeddings=True, initializer_range=0.2)
    model = transformers.LlamaForCausalLM(config).bfloat16()
    tensors, back = {}, {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        if not name.endswith("_proj.weight"):
            tensors[name] = weight
            continue
        twice = "down" not in name  # bnb_4bit_use_double_quant=False is read, too
        bits, state = F.quantize_4bit(weight.float(), blocksize=64, compress_statistics=twice, quant_type="nf4")
        back[name] = F.dequantize_4bit(bits, state)[:2].clone()
        state.dtype = torch.bfloat16
        tensors[name] = bits
        tensors.update({f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()})
    folder.mkdir(exist_ok=True)
    save(tensors, folder / "model.safetensors")
    save(back, rows)
    how = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                          bnb_4bit_compute_dtype=torch.bfloat16)
    text = config.to_dict() | dict(quantization_config=how.to_dict(), architectures=["LlamaForCausalLM"])
    text["dtype"] = "bfloat16"
    (folder / "config.json").write_text(json.dumps(text, indent=1, sort_keys=True, default=str) + "\n")


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "../golden/nf4"
    out.mkdir(exist_ok=True)
    make_matrix(out / "matrix.safetensors")
    make_model(out / "model", out / "rows.safetensors")


if __name__ == "__main__":
    main()
