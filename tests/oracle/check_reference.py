"""Checks reference.py against transformers: where the same function can be said with a class of theirs, logits agree.

Usage: python check_reference.py      exit status 1 if a relative difference is above 1e-12 (all in double precision)
"""

import sys

import numpy as np
import torch
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

from exact import all_double, draw_ids, fill, logits_of, new_model
from reference import Config, NanoGpt, openelm_width

SIZES = dict(num_hidden_layers=3, hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=34,
             vocab_size=61, max_position_embeddings=64)
ROPE = dict(rope_type="default", rope_theta=10000.0)


def llama_like(model_type, **keys):
    return Config(model_type=model_type, rms_norm_eps=1e-5, rope_theta=10000.0, **SIZES, **keys)


def llama(**changes):
    return LlamaConfig(**dict(SIZES, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=ROPE) | changes)


def to_halves(w, width):
    """Rows of each head from pairs (2i, 2i+1) to halves (i, i + width/2)."""
    return w.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)


def nanogpt():
    config = Config(model_type="gpt2", bias=False, n_layer=3, n_embd=20, n_head=5, n_positions=40, vocab_size=61,
                    layer_norm_epsilon=1e-5)
    theirs = GPT2Config(n_layer=3, n_embd=20, n_head=5, n_positions=40, vocab_size=61, activation_function="gelu")

    def without_bias(tensors):
        zero = {n: torch.zeros_like(p) for n, p in new_model(theirs).named_parameters() if n.endswith(".bias")}
        return zero | tensors
    assert isinstance(new_model(config), NanoGpt)
    return config, theirs, without_bias


def llama2c():
    def permute(tensors):
        return {n: to_halves(t, 6) if "q_proj" in n or "k_proj" in n else t for n, t in tensors.items()}
    return llama_like("llama", rope_interleaved=True), llama(), permute


def mobilellm():
    def twice(tensors):
        out = {}
        for name, t in tensors.items():
            part = name.split(".")
            copies = [2 * int(part[2]), 2 * int(part[2]) + 1] if part[1] == "layers" else [None]
            for i in copies:
                out[name if i is None else ".".join([*part[:2], str(i), *part[3:]])] = t
        return out
    return llama_like("mobilellm", layer_sharing=True, share_embedding=True), llama(num_hidden_layers=6), twice


def minicpm():
    """All constants folded into an untied Llama's weights."""
    config = llama_like("minicpm", scale_emb=12, scale_depth=1.4, dim_model_base=8)

    def fold(tensors):
        out = {n: t * (1.4 / 3 ** 0.5) if "o_proj" in n or "down_proj" in n else t for n, t in tensors.items()}
        out["lm_head.weight"] = out["model.embed_tokens.weight"] / (24 / 8)
        out["model.embed_tokens.weight"] = out["model.embed_tokens.weight"] * 12
        return out
    return config, llama(tie_word_embeddings=False), fold


def split_rows(t, name, sizes, names):
    """A fused tensor's rows under three or two names."""
    return {name.format(n): part for n, part in zip(names, t.split(sizes, dim=0))}


def qwen():
    config = Config(model_type="qwen", num_hidden_layers=3, hidden_size=24, num_attention_heads=4, kv_channels=6,
                    intermediate_size=68, vocab_size=61, layer_norm_epsilon=1e-6, rotary_emb_base=10000.0)
    theirs = Qwen2Config(**dict(SIZES, num_key_value_heads=4, rms_norm_eps=1e-6, rope_parameters=ROPE))
    names = {"wte": "embed_tokens", "ln_f": "norm", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm",
             "attn.c_proj": "self_attn.o_proj", "mlp.c_proj": "mlp.down_proj", "w1": "up_proj", "w2": "gate_proj"}

    def rename(tensors):
        out = {}
        for name, t in tensors.items():
            new = name.replace("transformer.", "model.").replace(".h.", ".layers.")
            for a, b in names.items():
                new = new.replace(f".{a}.", f".{b}.")
            if "c_attn" in new:
                kind = new.rsplit(".", 1)[1]
                out |= split_rows(t, new.split("attn.")[0] + "self_attn.{}_proj." + kind, [24] * 3, "qkv")
            else:
                out[new] = t
        return out
    return config, theirs, rename


def openelm():
    config = Config(model_type="openelm", model_dim=24, head_dim=10, num_query_heads=[4] * 3, num_kv_heads=[2] * 3,
                    ffn_multipliers=[1.4] * 3, ffn_dim_divisor=2, normalize_qk_projections=True, vocab_size=61,
                    share_input_output_layers=True, rope_freq_constant=10000)
    width = openelm_width(1.4, 24, 2)
    theirs = Qwen3Config(**dict(SIZES, head_dim=10, intermediate_size=width, rms_norm_eps=1e-6,
                                tie_word_embeddings=True, rope_parameters=ROPE))
    names = {"token_embeddings": "embed_tokens", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             "out_proj": "o_proj", "attn": "self_attn", "ffn": "mlp", "proj_2": "down_proj"}

    def rename(tensors):
        out = {}
        for name, t in tensors.items():
            new = name.replace("transformer.", "model.")
            for a, b in names.items():
                new = new.replace(f".{a}.", f".{b}.")
            if "qkv_proj" in new:
                out |= split_rows(t, new.replace("qkv_proj", "{}_proj"), [40, 20, 20], "qkv")
            elif "proj_1" in new:
                out |= split_rows(t, new.replace("proj_1", "{}_proj"), [width] * 2, ["gate", "up"])
            else:
                out[new] = t
        return out
    return config, theirs, rename


def difference(case):
    config, theirs, transform = case()
    ours, rng = new_model(config, torch.float64), np.random.default_rng(5)
    fill(ours, rng)
    other = new_model(theirs, torch.float64)
    missing, unexpected = other.load_state_dict(transform(dict(ours.state_dict())), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    ids = torch.from_numpy(draw_ids(rng, 2, 23, 61).astype(np.int64))
    with torch.no_grad():
        a, b = logits_of(ours, ids), logits_of(other, ids)
    return ((a - b).abs().max() / b.abs().max()).item()


def main():
    with all_double():
        rows = {f.__name__: difference(f) for f in (nanogpt, llama2c, mobilellm, minicpm, qwen, openelm)}
    for name, d in rows.items():
        print(f"{name:10} {d:.1e}")
    sys.exit(0 if max(rows.values()) < 1e-12 else 1)


if __name__ == "__main__":
    main()
