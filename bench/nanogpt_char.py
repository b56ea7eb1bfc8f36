"""nanoGPT's character-level Shakespeare run on the CPU, in PyTorch: a validation curve to hold athanor's against.

A GPT-2 of 4 layers, 4 heads, 128 wide, no biases, exact GELU, tied head, no dropout; blocks of 64, batches of 12 drawn at
random offsets, 2,000 steps of AdamW (betas .9 .99, decay .1 on matrices), cosine from 1e-3 to 1e-4 after 100 steps of
warm-up, clipping at 1. The last tenth of the text is for validation; the loss is the mean over all of it, in blocks of 64,
where nanoGPT's own report is a sample of 20 batches.

Usage: python nanogpt_char.py TEXT [--seed 1337] [--threads 1] [--bias]     one JSON line per evaluation
"""

import argparse
import json
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, BLOCK, BATCH = 4, 4, 128, 64, 12
STEPS, WARMUP, LR, MIN_LR, EVERY = 2000, 100, 1e-3, 1e-4, 50


class Layer(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, bias=bias), nn.LayerNorm(WIDTH, bias=bias)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH, bias=bias), nn.Linear(WIDTH, WIDTH, bias=bias)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=bias), nn.Linear(4 * WIDTH, WIDTH, bias=bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, HEADS, c // HEADS).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, vocab, bias):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.layers = nn.ModuleList(Layer(bias) for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH, bias=bias)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                deep = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if deep else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def learning_rate(step):
    if step < WARMUP:
        return LR * (step + 1) / (WARMUP + 1)
    part = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * part)) * (LR - MIN_LR)


@torch.no_grad()
def validation_loss(model, data):
    count = (len(data) - 1) // BLOCK
    inputs = data[: count * BLOCK].view(count, BLOCK)
    targets = data[1 : count * BLOCK + 1].view(count, BLOCK)
    total = sum(model(x, y).item() * len(x) for x, y in zip(inputs.split(256), targets.split(256)))
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bias", action="store_true", help="biases everywhere, as in GPT-2 itself")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    text = open(args.text, encoding="utf-8").read()
    alphabet = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.from_numpy(np.array([alphabet[c] for c in text], dtype=np.int64))
    train, valid = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]
    model = Gpt(len(alphabet), args.bias)
    groups = [dict(params=[p for p in model.parameters() if p.ndim >= 2], weight_decay=0.1),
              dict(params=[p for p in model.parameters() if p.ndim < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99))
    start = time.perf_counter()
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            print(json.dumps(dict(step=step, val_loss=round(validation_loss(model, valid), 4),
                                  seconds=round(time.perf_counter() - start, 1))), flush=True)
        if step == STEPS:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        at = torch.randint(len(train) - BLOCK, (BATCH,))
        ids = torch.stack([train[i : i + BLOCK + 1] for i in at])
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
