"""The PyTorch side of bench/vs_pytorch.sh: one training setting of one model on the CPU, a step at a time.

Plain models (Llama, GPT-2) with what PyTorch offers for speed: fused attention (scaled_dot_product_attention), fused
AdamW, fused norms, and torch.compile where the setting says so; for experts the Mixtral of transformers. A step is everything a trainer does: forward, backward,
gradient clipping by global norm, update, zero_grad. Tokens are random.

Usage: python torch_model.py SETTING SHAPE_JSON --serve
  SETTING     fp32, bf16-autocast or bf16-weights (no fp32 copy of the weights), then -eager or -compile
  SHAPE_JSON  the keys of a model's config.json with model_type llama, gpt2 or mixtral, and seq_len and batch
Prints a line of JSON {"event": "ready", "params": N, ...}, then after every line of standard input runs one step and prints
{"event": "step", "step_ms", "tok_per_s", "loss"}; at its end {"event": "end", "peak_rss_bytes"}. The first steps of a
compiled setting contain the compilation.

Reading order: serve, Trainer, the models.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

# name: (type of the weights, bf16 autocast)
WEIGHTS = {
    "fp32": (torch.float32, False),
    "bf16-autocast": (torch.float32, True),
    "bf16-weights": (torch.bfloat16, False),
}


def init_normal(model, std):
    for p in model.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=std)


def next_token_loss(x, head, targets):
    """x [B,T,C], head [V,C], targets [B,T]; the mean, taken in fp32."""
    logits = F.linear(x, head)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


# --- Llama

def rope_table(length, dim, theta):
    angle = torch.outer(torch.arange(length).float(), theta ** (-torch.arange(0, dim, 2).float() / dim))
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x [B,H,T,D], halves layout."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        c, h, k = s["hidden_size"], s["num_attention_heads"], s["num_key_value_heads"]
        self.heads, self.kv_heads, self.head_dim, f = h, k, c // h, s["intermediate_size"]
        self.eps = s.get("rms_norm_eps", 1e-6)
        self.norm1, self.norm2 = nn.Parameter(torch.ones(c)), nn.Parameter(torch.ones(c))
        self.qkv = nn.Linear(c, (h + 2 * k) * self.head_dim, bias=False)
        self.out = nn.Linear(h * self.head_dim, c, bias=False)
        self.gate_up = nn.Linear(c, 2 * f, bias=False)
        self.down = nn.Linear(f, c, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        h, k, d = self.heads, self.kv_heads, self.head_dim
        qkv = self.qkv(F.rms_norm(x, (c,), self.norm1.to(x.dtype), self.eps)).view(b, t, h + 2 * k, d).transpose(1, 2)
        q, k_, v = qkv.split((h, k, k), dim=1)
        q, k_ = rotate(q, cos, sin), rotate(k_, cos, sin)
        y = F.scaled_dot_product_attention(q, k_, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, h * d))
        gate, up = self.gate_up(F.rms_norm(x, (c,), self.norm2.to(x.dtype), self.eps)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """Tied head, no biases."""

    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s["vocab_size"], s["hidden_size"])
        self.blocks = nn.ModuleList(LlamaBlock(s) for _ in range(s["num_hidden_layers"]))
        self.norm, self.eps = nn.Parameter(torch.ones(s["hidden_size"])), s.get("rms_norm_eps", 1e-6)
        head_dim = s["hidden_size"] // s["num_attention_heads"]
        cos, sin = rope_table(s["seq_len"], head_dim, s.get("rope_theta", 10000.0))
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        init_normal(self, s.get("initializer_range", 0.02))

    def forward(self, ids, targets):
        x = self.embed(ids)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = F.rms_norm(x, (x.shape[-1],), self.norm.to(x.dtype), self.eps)
        return next_token_loss(x, self.embed.weight, targets)


# --- GPT-2

class Gpt2Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        c, self.heads = s["hidden_size"], s["num_attention_heads"]
        f = s.get("intermediate_size", 4 * c)
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.up, self.down = nn.Linear(c, f), nn.Linear(f, c)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Tied head, biases, no dropout."""

    def __init__(self, s):
        super().__init__()
        c = s["hidden_size"]
        self.token, self.position = nn.Embedding(s["vocab_size"], c), nn.Embedding(s["max_position_embeddings"], c)
        self.blocks = nn.ModuleList(Gpt2Block(s) for _ in range(s["num_hidden_layers"]))
        self.norm = nn.LayerNorm(c)
        init_normal(self, s.get("initializer_range", 0.02))
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids, targets):
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return next_token_loss(self.norm(x), self.token.weight, targets)


# --- Mixtral

class Mixtral(nn.Module):
    """The model of transformers. Its sum over experts has several implementations: shape["experts"] names one."""

    def __init__(self, s):
        super().__init__()
        import transformers

        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
                 "vocab_size", "max_position_embeddings", "num_experts_per_tok", "router_aux_loss_coef")
        config = transformers.MixtralConfig(**{n: s[n] for n in names}, num_local_experts=s["num_experts"],
                                            tie_word_embeddings=s["tie_word_embeddings"], use_cache=False,
                                            output_router_logits=True, attn_implementation="sdpa")
        config._experts_implementation = s.get("experts", "grouped_mm")
        self.model = transformers.MixtralForCausalLM(config)

    def forward(self, ids, targets):
        out = self.model(input_ids=ids)
        loss = F.cross_entropy(out.logits.flatten(0, 1).float(), targets.flatten())
        return loss + self.model.router_aux_loss_coef * out.aux_loss


# --- training

class Trainer:
    def __init__(self, setting, shape):
        kind, mode = setting.rsplit("-", 1)
        dtype, autocast = WEIGHTS[kind]
        torch.manual_seed(1337)
        self.shape, self.compiled = shape, mode == "compile"
        self.model = {"llama": Llama, "gpt2": Gpt2, "mixtral": Mixtral}[shape["model_type"]](shape).to(dtype)
        self.forward = torch.compile(self.model) if self.compiled else self.model
        self.precision = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
        params = list(self.model.parameters())
        groups = [dict(params=[p for p in params if p.ndim >= 2], weight_decay=0.1),
                  dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)

    def step(self):
        batch, length = self.shape["batch"], self.shape["seq_len"]
        start = time.perf_counter()
        ids = torch.randint(0, self.shape["vocab_size"], (batch, length + 1))
        with self.precision:
            loss = self.forward(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        seconds = time.perf_counter() - start
        return dict(event="step", step_ms=1e3 * seconds, tok_per_s=batch * length / seconds, loss=value)


def peak_rss_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def serve(setting, shape):
    def tell(**event):
        print(json.dumps(event), flush=True)

    trainer = Trainer(setting, shape)
    tell(event="ready", setting=setting, params=sum(p.numel() for p in trainer.model.parameters()),
         torch=torch.__version__, isa=torch.backends.cpu.get_cpu_capability(), threads=torch.get_num_threads())
    for _ in sys.stdin:
        tell(**trainer.step())
    tell(event="end", peak_rss_bytes=peak_rss_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=[f"{w}-{m}" for w in WEIGHTS for m in ("eager", "compile")])
    parser.add_argument("shape", type=json.loads)
    parser.add_argument("--serve", action="store_true", required=True)
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    serve(args.setting, args.shape)


if __name__ == "__main__":
    main()
