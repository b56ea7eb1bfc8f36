"""Golden encoder-decoder models (T5) of transformers, in tests/golden/encoder.

A folder holds config.json and model.safetensors as save_pretrained writes them (fp32), pairs.npz (input_ids [B,S], labels [B,T], -100: not
counted), and golden.safetensors, computed in double precision: ids [N], logits [N,V] where the encoder reads ids and the decoder the same
shifted right, greedy [64], loss [1] and grad.NAME of the pairs.

Usage: python encoder_models.py [OUT]
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from transformers import T5Config, T5ForConditionalGeneration

COMMON = dict(vocab_size=150, dropout_rate=0.0, relative_attention_num_buckets=8, relative_attention_max_distance=20,
              decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
MODELS = {
    "t5-relu-tied": dict(d_model=40, d_kv=12, d_ff=58, num_layers=2, num_decoder_layers=3, num_heads=3),
    "t5-gated-untied": dict(d_model=36, d_kv=8, d_ff=46, num_layers=3, num_decoder_layers=2, num_heads=5,
                            feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}


def fill(model, rng):
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = rng.normal(0, 0.5 if "relative" in name else 0.15, tuple(p.shape))
            p.copy_(torch.tensor(1 + x if "layer_norm" in name else x))


def greedy(model, ids, n):
    out = [0]
    for _ in range(n):
        logits = model(input_ids=ids, decoder_input_ids=torch.tensor([out])).logits[0, -1]
        out.append(int(logits.argmax()))
    return out[1:]


def make(folder, options, seed):
    rng = np.random.default_rng(seed)
    shutil.rmtree(folder, ignore_errors=True)
    untied = options.get("tie_word_embeddings") is False
    config = T5Config(**COMMON, **options)
    config._attn_implementation = "eager"
    model = T5ForConditionalGeneration(config).float().eval()
    if untied:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(config.vocab_size, config.d_model))
        model.config.tie_word_embeddings = False
    fill(model, rng)
    model.save_pretrained(folder)
    model = model.double()
    ids = torch.tensor(rng.integers(2, 150, (1, 41)))
    source, labels = (torch.tensor(rng.integers(2, 150, shape)) for shape in ((3, 23), (3, 14)))
    labels[1, -5:] = -100
    np.savez(folder / "pairs.npz", input_ids=source.numpy().astype("int32"), labels=labels.numpy().astype("int32"))
    shifted = torch.cat([torch.zeros(1, 1, dtype=torch.long), ids[:, :-1]], dim=1)
    with torch.no_grad():
        golden = dict(logits=model(input_ids=ids, decoder_input_ids=shifted).logits[0].float(),
                      greedy=torch.tensor(greedy(model, ids, 64), dtype=torch.int32), ids=ids[0].int())
    loss = model(input_ids=source, labels=labels).loss
    loss.backward()
    golden |= {"loss": loss.detach().reshape(1).float()}
    golden |= {"grad." + n: p.grad.float().contiguous() for n, p in model.named_parameters()}
    safetensors.torch.save_file(golden, folder / "golden.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden" / "encoder")
    for number, (name, options) in enumerate(MODELS.items()):
        make(out / name, options, 60 + number)
