"""The PyTorch side of bench/vs_pytorch.sh: one training setting of a Llama on the CPU, timed step by step.

A plain implementation with what PyTorch offers for speed: fused attention (scaled_dot_product_attention), fused AdamW,
rms_norm, and torch.compile where the setting says so. A step is everything a trainer does: forward, backward, gradient
clipping by global norm, update, zero_grad. Tokens are random.

Usage: python torch_llama.py SETTING SHAPE_JSON     prints {"params": N, "tok_per_s": [...]}
"""

import contextlib
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

# name: (type of the weights, bf16 autocast, torch.compile)
SETTINGS = {
    "fp32-eager": (torch.float32, False, False),
    "fp32-compile": (torch.float32, False, True),
    "bf16-autocast-eager": (torch.float32, True, False),
    "bf16-autocast-compile": (torch.float32, True, True),
    "bf16-weights-eager": (torch.bfloat16, False, False),
    "bf16-weights-compile": (torch.bfloat16, False, True),
}


def rope_table(length, dim, theta):
    angle = torch.outer(torch.arange(length).float(), theta ** (-torch.arange(0, dim, 2).float() / dim))
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x [B,H,T,D], halves layout."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        c, h, k = s["hidden_size"], s["num_attention_heads"], s["num_key_value_heads"]
        self.heads, self.kv_heads, self.head_dim, f = h, k, c // h, s["intermediate_size"]
        self.norm1, self.norm2 = nn.Parameter(torch.ones(c)), nn.Parameter(torch.ones(c))
        self.qkv = nn.Linear(c, (h + 2 * k) * self.head_dim, bias=False)
        self.out = nn.Linear(h * self.head_dim, c, bias=False)
        self.gate_up = nn.Linear(c, 2 * f, bias=False)
        self.down = nn.Linear(f, c, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        h, k, d = self.heads, self.kv_heads, self.head_dim
        qkv = self.qkv(F.rms_norm(x, (c,), self.norm1.to(x.dtype), 1e-5)).view(b, t, h + 2 * k, d).transpose(1, 2)
        q, k_, v = qkv.split((h, k, k), dim=1)
        q, k_ = rotate(q, cos, sin), rotate(k_, cos, sin)
        y = F.scaled_dot_product_attention(q, k_, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, h * d))
        gate, up = self.gate_up(F.rms_norm(x, (c,), self.norm2.to(x.dtype), 1e-5)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s["vocab_size"], s["hidden_size"])
        self.blocks = nn.ModuleList(Block(s) for _ in range(s["num_hidden_layers"]))
        self.norm = nn.Parameter(torch.ones(s["hidden_size"]))
        cos, sin = rope_table(s["seq_len"], s["hidden_size"] // s["num_attention_heads"], 10000.0)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = F.rms_norm(x, (x.shape[-1],), self.norm.to(x.dtype), 1e-5)
        logits = F.linear(x, self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def new_optimizer(model):
    params = list(model.parameters())
    groups = [dict(params=[p for p in params if p.ndim >= 2], weight_decay=0.1),
              dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def measure(setting, s):
    weights, autocast, compiled = SETTINGS[setting]
    torch.manual_seed(1337)
    model = Llama(s).to(weights)
    optimizer = new_optimizer(model)
    forward = torch.compile(model) if compiled else model
    context = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
    shape = (s["batch"], s["seq_len"] + 1)
    rates = []
    for _ in range(s["warmup"] + s["steps"]):
        ids = torch.randint(0, s["vocab_size"], shape)
        start = time.perf_counter()
        with context:
            loss = forward(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
        assert math.isfinite(loss.item())
        rates.append(s["batch"] * s["seq_len"] / seconds)
    return dict(params=sum(p.numel() for p in model.parameters()), tok_per_s=rates[s["warmup"]:])


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    print(json.dumps(measure(sys.argv[1], json.loads(sys.argv[2]))))
