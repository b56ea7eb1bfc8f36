"""Models that transformers has no class for, as small PyTorch modules written from their published descriptions.

Every class takes a Config (what config.json says) and names its parameters as the published files name their tensors,
so that state_dict() is the file. They are called as transformers' models are: model(input_ids=ids).logits.

  NanoGPT   github.com/karpathy/nanoGPT with bias=False; in the files of GPT-2 ("bias": false)
  Llama2c   github.com/karpathy/llama2.c, baby-llama2: rotary pairs are neighbours; in the files of Llama
            ("rope_interleaved": true), query and key rows as the trainer had them
  MobileLlm arXiv 2402.14905: shared embedding; each stored block runs twice in a row
  MiniCpm   arXiv 2404.06395: scaled embedding, branches and logits
  Qwen      Qwen 1 (MINI_LLM): fused biased projection, w2 is the gate, intermediate_size is twice the width
  OpenElm   arXiv 2404.14619: heads and widths by layer, normalised queries and keys, fused projections
"""

import json
import math
from types import SimpleNamespace

import safetensors.torch
import torch
from torch import nn
from torch.nn import functional


class Config(SimpleNamespace):
    """The keys of a config.json."""

    def save(self, folder):
        text = json.dumps(vars(self), indent=2, sort_keys=True)
        (folder / "config.json").write_text(text + "\n")


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class LayerNorm(nn.Module):
    """With a weight only."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x):
        return functional.layer_norm(x, self.weight.shape, self.weight, None, self.eps)


class Conv1d(nn.Module):
    """A matrix stored as [in, out]."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))

    def forward(self, x):
        return x @ self.weight


def linear(n_in, n_out, bias=False):
    return nn.Linear(n_in, n_out, bias=bias)


def angles(x, theta):
    """[T, D/2]: position times frequency, for x [.., T, D]."""
    width = x.shape[-1]
    frequency = theta ** (-torch.arange(0, width, 2, dtype=x.dtype) / width)
    return torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), frequency)


def rotate_halves(x, theta):
    """Pairs are (i, i + D/2)."""
    a = angles(x, theta)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * a.cos() - second * a.sin(), second * a.cos() + first * a.sin()], dim=-1)


def rotate_pairs(x, theta):
    """Pairs are (2i, 2i + 1)."""
    a = angles(x, theta)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos()], dim=-1).flatten(-2)


def heads(x, width):
    """[B,T,H*width] as [B,H,T,width]."""
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def attend(q, k, v):
    """Causal attention of [B,H,T,D] on [B,K,T,D]: query head h reads key head h*K/H; [B,T,H*D]."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return (scores.masked_fill(later, -math.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


def container(**members):
    """A module that only holds others (or, under a name with a dot, nothing)."""
    module = nn.Module()
    for name, member in members.items():
        module.add_module(name, member)
    return module


class Reference(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def save_pretrained(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.config.save(folder)
        tensors = {n: t.detach().contiguous() for n, t in self.state_dict().items()}
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def forward(self, input_ids, use_cache=False):
        return SimpleNamespace(logits=self.logits(input_ids))


class NanoGpt(Reference):
    def __init__(self, config):
        super().__init__(config)
        c, eps = config.n_embd, config.layer_norm_epsilon
        self.transformer = container(
            wte=nn.Embedding(config.vocab_size, c), wpe=nn.Embedding(config.n_positions, c),
            h=nn.ModuleList(container(
                ln_1=LayerNorm(c, eps), attn=container(c_attn=Conv1d(c, 3 * c), c_proj=Conv1d(c, c)),
                ln_2=LayerNorm(c, eps), mlp=container(c_fc=Conv1d(c, 4 * c), c_proj=Conv1d(4 * c, c)))
                for _ in range(config.n_layer)),
            ln_f=LayerNorm(c, eps))

    def logits(self, ids):
        m, width = self.transformer, self.config.n_embd // self.config.n_head
        x = m.wte(ids) + m.wpe.weight[:ids.shape[1]]
        for b in m.h:
            q, k, v = (heads(part, width) for part in b.attn.c_attn(b.ln_1(x)).chunk(3, dim=-1))
            x = x + b.attn.c_proj(attend(q, k, v))
            x = x + b.mlp.c_proj(functional.gelu(b.mlp.c_fc(b.ln_2(x))))
        return m.ln_f(x) @ m.wte.weight.T


class LlamaNames(Reference):
    """What Llama2c, MobileLlm and MiniCpm share: the tensors, and one block."""

    rotate = staticmethod(rotate_halves)

    def __init__(self, config):
        super().__init__(config)
        c, f, eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
        self.width = c // config.num_attention_heads
        kv = self.width * config.num_key_value_heads
        self.model = container(
            embed_tokens=nn.Embedding(config.vocab_size, c),
            layers=nn.ModuleList(container(
                input_layernorm=RmsNorm(c, eps),
                self_attn=container(q_proj=linear(c, c), k_proj=linear(c, kv), v_proj=linear(c, kv),
                                    o_proj=linear(c, c)),
                post_attention_layernorm=RmsNorm(c, eps),
                mlp=container(gate_proj=linear(c, f), up_proj=linear(c, f), down_proj=linear(f, c)))
                for _ in range(config.num_hidden_layers)),
            norm=RmsNorm(c, eps))

    def block(self, b, x, scale=1.0):
        a, m, theta = b.self_attn, b.mlp, self.config.rope_theta
        y = b.input_layernorm(x)
        q = self.rotate(heads(a.q_proj(y), self.width), theta)
        k = self.rotate(heads(a.k_proj(y), self.width), theta)
        x = x + scale * a.o_proj(attend(q, k, heads(a.v_proj(y), self.width)))
        y = b.post_attention_layernorm(x)
        return x + scale * m.down_proj(functional.silu(m.gate_proj(y)) * m.up_proj(y))


class Llama2c(LlamaNames):
    rotate = staticmethod(rotate_pairs)

    def logits(self, ids):
        x = self.model.embed_tokens(ids)
        for b in self.model.layers:
            x = self.block(b, x)
        return self.model.norm(x) @ self.model.embed_tokens.weight.T


class MobileLlm(LlamaNames):
    def __init__(self, config):
        super().__init__(config)
        if not config.share_embedding:
            self.lm_head = linear(config.hidden_size, config.vocab_size)

    def logits(self, ids):
        x = self.model.embed_tokens(ids)
        for b in self.model.layers:
            for _ in range(2 if self.config.layer_sharing else 1):
                x = self.block(b, x)
        head = self.model.embed_tokens if self.config.share_embedding else self.lm_head
        return self.model.norm(x) @ head.weight.T


class MiniCpm(LlamaNames):
    def __init__(self, config):
        super().__init__(config)
        if not getattr(config, "tie_word_embeddings", True):
            self.lm_head = linear(config.hidden_size, config.vocab_size)

    def logits(self, ids):
        c = self.config
        x = self.model.embed_tokens(ids) * c.scale_emb
        for b in self.model.layers:
            x = self.block(b, x, c.scale_depth / math.sqrt(c.num_hidden_layers))
        head = self.lm_head if hasattr(self, "lm_head") else self.model.embed_tokens
        return self.model.norm(x) / (c.hidden_size / c.dim_model_base) @ head.weight.T


class Qwen(Reference):
    def __init__(self, config):
        super().__init__(config)
        c, f, eps = config.hidden_size, config.intermediate_size // 2, config.layer_norm_epsilon
        p = config.kv_channels * config.num_attention_heads
        self.transformer = container(
            wte=nn.Embedding(config.vocab_size, c),
            h=nn.ModuleList(container(
                ln_1=RmsNorm(c, eps), attn=container(c_attn=linear(c, 3 * p, bias=True), c_proj=linear(p, c)),
                ln_2=RmsNorm(c, eps), mlp=container(w1=linear(c, f), w2=linear(c, f), c_proj=linear(f, c)))
                for _ in range(config.num_hidden_layers)),
            ln_f=RmsNorm(c, eps))
        self.lm_head = linear(c, config.vocab_size)

    def base(self, ids):
        """The rotary base: it grows with a text beyond the trained length, in steps."""
        c, length = self.config, ids.shape[1]
        alpha = max(2 ** math.ceil(math.log2(length / c.seq_length) + 1) - 1, 1) if c.use_dynamic_ntk else 1
        return c.rotary_emb_base * alpha ** (c.kv_channels / (c.kv_channels - 2))

    def sharpen(self, q):
        """[T,1]: what queries are multiplied by, 1 up to the trained length."""
        c = self.config
        factors = [math.log(i, c.seq_length) if c.use_logn_attn and i > c.seq_length else 1.0 for i in range(1, q.shape[-2] + 1)]
        return torch.tensor(factors, dtype=q.dtype)[:, None]

    def logits(self, ids):
        c = self.config
        x = self.transformer.wte(ids)
        for b in self.transformer.h:
            q, k, v = (heads(part, c.kv_channels) for part in b.attn.c_attn(b.ln_1(x)).chunk(3, dim=-1))
            q, k = rotate_halves(q, self.base(ids)) * self.sharpen(q), rotate_halves(k, self.base(ids))
            x = x + b.attn.c_proj(attend(q, k, v))
            y = b.ln_2(x)
            x = x + b.mlp.c_proj(functional.silu(b.mlp.w2(y)) * b.mlp.w1(y))
        return self.lm_head(self.transformer.ln_f(x))


def openelm_width(multiplier, width, divisor):
    """multiplier * width to the nearest multiple of the divisor, but never more than a tenth below."""
    value = multiplier * width
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


class OpenElm(Reference):
    EPS = 1e-6

    def __init__(self, config):
        super().__init__(config)
        layers = zip(config.num_query_heads, config.num_kv_heads, config.ffn_multipliers)
        self.transformer = container(
            token_embeddings=nn.Embedding(config.vocab_size, config.model_dim),
            layers=nn.ModuleList(self.layer(*of_layer) for of_layer in layers),
            norm=RmsNorm(config.model_dim, self.EPS))
        if not config.share_input_output_layers:
            self.lm_head = linear(config.model_dim, config.vocab_size)

    def layer(self, n_q, n_kv, ffn_multiplier):
        c, width = self.config.model_dim, self.config.head_dim
        f = openelm_width(ffn_multiplier, c, self.config.ffn_dim_divisor)
        attn = container(qkv_proj=linear(c, (n_q + 2 * n_kv) * width), out_proj=linear(n_q * width, c))
        if self.config.normalize_qk_projections:
            attn.q_norm, attn.k_norm = RmsNorm(width, self.EPS), RmsNorm(width, self.EPS)
        return container(attn_norm=RmsNorm(c, self.EPS), attn=attn, ffn_norm=RmsNorm(c, self.EPS),
                         ffn=container(proj_1=linear(c, 2 * f), proj_2=linear(f, c)))

    def attention(self, a, x, n_q, n_kv):
        q, k, v = heads(a.qkv_proj(x), self.config.head_dim).split([n_q, n_kv, n_kv], dim=1)
        if self.config.normalize_qk_projections:
            q, k = a.q_norm(q), a.k_norm(k)
        theta = self.config.rope_freq_constant
        return a.out_proj(attend(rotate_halves(q, theta), rotate_halves(k, theta), v))

    def logits(self, ids):
        c, m = self.config, self.transformer
        x = m.token_embeddings(ids)
        for layer, n_q, n_kv in zip(m.layers, c.num_query_heads, c.num_kv_heads):
            x = x + self.attention(layer.attn, layer.attn_norm(x), n_q, n_kv)
            gate, up = layer.ffn.proj_1(layer.ffn_norm(x)).chunk(2, dim=-1)
            x = x + layer.ffn.proj_2(functional.silu(gate) * up)
        head = m.token_embeddings if c.share_input_output_layers else self.lm_head
        return m.norm(x) @ head.weight.T


def class_of(config):
    """The class for a config.json's keys, or None where transformers has one."""
    if config.model_type == "gpt2":
        return None if getattr(config, "bias", True) else NanoGpt
    if config.model_type == "llama":
        return Llama2c if getattr(config, "rope_interleaved", False) else None
    return dict(mobilellm=MobileLlm, minicpm=MiniCpm, qwen=Qwen, openelm=OpenElm).get(config.model_type)
