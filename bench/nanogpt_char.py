"""nanoGPT's character-level Shakespeare runs, in PyTorch: a validation curve to hold athanor's against.

A GPT-2 with exact GELU and tied head, in nanoGPT's CPU setting (4 layers, 4 heads, 128 wide, blocks of 64, batches of 12,
2,000 steps, no dropout) or its GPU setting (6 layers, 6 heads, 384 wide, blocks of 256, batches of 64, 5,000 steps, dropout
0.2); batches drawn at random offsets, AdamW (betas .9 .99, decay .1 on matrices), cosine from 1e-3 to 1e-4 after 100 steps
of warm-up, clipping at 1. The last tenth of the text is for validation; the loss is the mean over all of it, in whole
blocks, where nanoGPT's own report is a sample of 20 or 200 batches.

Usage: python nanogpt_char.py TEXT [--setting cpu|gpu] [--until STEP] [--bf16] [--seed 1337] [--threads 1] [--bias]
One JSON line per evaluation. --until stops early, on the same schedule.
"""

import argparse
import contextlib
import json
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WARMUP, LR, MIN_LR, EVERY = 100, 1e-3, 1e-4, 50


class Setting:
    def __init__(self, layers, heads, width, block, batch, steps, dropout):
        self.layers, self.heads, self.width, self.block, self.batch = layers, heads, width, block, batch
        self.steps, self.dropout = steps, dropout


SETTINGS = {"cpu": Setting(4, 4, 128, 64, 12, 2000, 0.0), "gpu": Setting(6, 6, 384, 256, 64, 5000, 0.2)}


class Layer(nn.Module):
    def __init__(self, s, bias):
        super().__init__()
        c, self.s = s.width, s
        self.ln1, self.ln2 = nn.LayerNorm(c, bias=bias), nn.LayerNorm(c, bias=bias)
        self.qkv, self.proj = nn.Linear(c, 3 * c, bias=bias), nn.Linear(c, c, bias=bias)
        self.up, self.down = nn.Linear(c, 4 * c, bias=bias), nn.Linear(4 * c, c, bias=bias)

    def drop(self, x):
        return F.dropout(x, self.s.dropout, self.training)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.s.heads, c // self.s.heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, dim=2))
        p = self.s.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))


class Gpt(nn.Module):
    def __init__(self, s, vocab, bias):
        super().__init__()
        self.dropout = s.dropout
        self.wte, self.wpe = nn.Embedding(vocab, s.width), nn.Embedding(s.block, s.width)
        self.layers = nn.ModuleList(Layer(s, bias) for _ in range(s.layers))
        self.ln = nn.LayerNorm(s.width, bias=bias)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                deep = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * s.layers) if deep else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = F.dropout(self.wte(ids) + self.wpe.weight[: ids.shape[1]], self.dropout, self.training)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def learning_rate(step, steps):
    if step < WARMUP:
        return LR * (step + 1) / (WARMUP + 1)
    part = (step - WARMUP) / (steps - WARMUP)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * part)) * (LR - MIN_LR)


@torch.no_grad()
def validation_loss(model, data, block):
    count = (len(data) - 1) // block
    inputs = data[: count * block].view(count, block)
    targets = data[1 : count * block + 1].view(count, block)
    model.eval()
    total = sum(model(x, y).item() * len(x) for x, y in zip(inputs.split(64), targets.split(64)))
    model.train()
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--setting", choices=SETTINGS, default="cpu")
    parser.add_argument("--until", type=int, help="the last step; default: all of the setting")
    parser.add_argument("--bf16", action="store_true", help="bf16 autocast and torch.compile")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bias", action="store_true", help="biases everywhere, as in GPT-2 itself")
    args = parser.parse_args()
    s = SETTINGS[args.setting]
    until = args.until or s.steps
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    text = open(args.text, encoding="utf-8").read()
    alphabet = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.from_numpy(np.array([alphabet[c] for c in text], dtype=np.int64))
    train, valid = data[: int(0.9 * len(data))], data[int(0.9 * len(data)) :]
    model = Gpt(s, len(alphabet), args.bias)
    forward = torch.compile(model) if args.bf16 else model
    context = torch.autocast("cpu", torch.bfloat16) if args.bf16 else contextlib.nullcontext()
    groups = [dict(params=[p for p in model.parameters() if p.ndim >= 2], weight_decay=0.1),
              dict(params=[p for p in model.parameters() if p.ndim < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.99))
    start = time.perf_counter()
    for step in range(until + 1):
        if step % EVERY == 0:
            with context:
                loss = validation_loss(model, valid, s.block)
            print(json.dumps(dict(step=step, val_loss=round(loss, 4),
                                  seconds=round(time.perf_counter() - start, 1))), flush=True)
        if step == until:
            break
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, s.steps)
        at = torch.randint(len(train) - s.block, (s.batch,))
        ids = torch.stack([train[i : i + s.block + 1] for i in at])
        with context:
            loss = forward(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
