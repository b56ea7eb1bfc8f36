"""Small models in double precision: made, filled with random weights, run. make_golden.py and compare_family.py share it.

transformers pins parts of its models (norms, softmax, rotary tables) to fp32; all_double() lifts that.
"""

import contextlib
import importlib
import json
import re

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, modeling_rope_utils

import ahead
import encoders
import experts
import reference
import sinks


FAMILIES = ["gpt2", "gpt_neox", "phi", "olmo", "olmo2", "llama", "mistral", "ministral", "smollm3", "qwen2", "qwen3", "gemma2",
            "gemma3", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "qwen3_next", "deepseek_v2", "deepseek_v3", "minicpm3", "t5", "mt5"]
STORED_NAMES = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}  # where files and transformers' modules differ
EMBEDDING = re.compile(r"\b(embed_tokens|token_embeddings|embed_in|wte|wpe|shared)\.")


class DoubleTorch:
    """Stands for the torch module inside transformers' code: where that code says fp32, it gets double."""

    float = torch.float64
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def all_double():
    modules = [importlib.import_module(f"transformers.models.{f}.modeling_{f}") for f in FAMILIES] + [modeling_rope_utils]
    to_float = torch.Tensor.float
    for m in modules:
        m.torch = DoubleTorch()
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        with encoders.borders_in_fp32(to_float):
            yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float = to_float
        for m in modules:
            m.torch = torch


def new_model(config, dtype=torch.float32):
    if encoders.is_encoder_decoder(config):
        return encoders.new_model(config).to(dtype).eval()
    cls = reference.class_of(config)
    if cls is None:
        config._attn_implementation = config._experts_implementation = "eager"
        cls = transformers.AutoModelForCausalLM._model_mapping[type(config)]
    return ahead.add_modules(sinks.extend(cls(config))).to(dtype).eval()


def copy_of(model, dtype=torch.float32):
    copy = new_model(model.config, dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def load_model(folder, dtype=torch.float32):
    """A folder's model with the class that its config.json asks for; every tensor must be used and present."""
    keys = json.loads((folder / "config.json").read_text())
    if keys.get("athanor", {}).get("norm_weights") == "weight" and keys["model_type"] == "gpt2":
        keys["bias"] = False  # how the program's own config.json says it
    config = reference.Config(**keys)
    if reference.class_of(config) is None:
        config = AutoConfig.from_pretrained(folder)
    tensors = {}
    for path in sorted(folder.glob("model*.safetensors")):
        tensors.update(safetensors.torch.load_file(path))
    if encoders.is_encoder_decoder(config):
        config.tie_word_embeddings = "lm_head.weight" not in tensors
    model = new_model(config, dtype)
    for inside, stored in STORED_NAMES.get(config.model_type, {}).items():
        if stored in tensors:
            tensors[inside] = tensors.pop(stored)
    tensors = experts.from_files(model, tensors)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    if set(missing) - tied or unexpected:
        raise ValueError(f"tensors: missing {sorted(set(missing) - tied)}, not known {sorted(unexpected)}")
    return model


def is_offset_norm(model, name):
    kind = model.config.model_type
    return "norm" in name and (kind.startswith("gemma") or kind == "qwen3_next" and ".linear_attn." not in name)


def fill(model, rng, embedding=0.15, matrix=0.15):
    """Random weights, large enough that no gradient is tiny; norm weights around 1, biases not 0."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = rng.standard_normal(tuple(p.shape))
            if p.ndim >= 2:
                x *= embedding if EMBEDDING.search(name) else matrix * encoders.query_scale(model.config, name)
            elif name.endswith(".bias"):
                x *= 0.08
            elif name.endswith((".A_log", ".dt_bias")):  # states that last for some ten tokens
                x = 0.5 * x - (2.0 if name.endswith("log") else 0.0)
            elif is_offset_norm(model, name):
                x *= 0.12
            else:
                x = 1.0 + 0.12 * x
            p.copy_(torch.from_numpy(x))
        for _, b in choosing_biases(model):
            b.copy_(torch.from_numpy(0.2 * rng.standard_normal(tuple(b.shape))))


def choosing_biases(model):
    """Of DeepSeek-V3's routers: stored, and without gradient."""
    return [(n, b) for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]


def draw_ids(rng, rows, length, vocab):
    """Rows of a noisy affine chain, so that ten steps have something to learn."""
    ids = np.empty((rows, length), dtype=np.int32)
    ids[:, 0] = rng.integers(0, vocab, rows)
    for t in range(1, length):
        noise = rng.integers(0, vocab, rows)
        ids[:, t] = np.where(rng.random(rows) < 0.7, (5 * ids[:, t - 1] + 3) % vocab, noise)
    return ids


def logits_of(model, inputs):
    if encoders.is_encoder_decoder(model.config):
        return encoders.logits_of(model, inputs, inputs)
    return model(input_ids=inputs, use_cache=False).logits


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def split(ids):
    ids = torch.from_numpy(ids.astype(np.int64))
    return ids[:, :-1], ids[:, 1:]


def f32(tensor):
    return tensor.detach().to(torch.float32).contiguous().numpy()


def gradients(model):
    stored = STORED_NAMES.get(model.config.model_type, {})
    grads = {stored.get(n, n): p.grad for n, p in model.named_parameters()}
    grads |= {n: torch.zeros_like(b) for n, b in choosing_biases(model)}
    return {"grad." + n: f32(g) for n, g in experts.to_files(model.config.model_type, grads).items()}


def golden(model, ids, balance=experts.balance):
    """Logits (those of modules, too), loss and every gradient of ids[B,T+1]; gradients are of all that is minimised."""
    inputs, targets = split(ids)
    model.zero_grad(set_to_none=True)
    logits = logits_of(model, inputs)
    assert logits.dtype == next(model.parameters()).dtype
    encoder = encoders.is_encoder_decoder(model.config)
    loss = encoders.loss_of(model, ids) if encoder else loss_of(logits, targets)
    (loss + balance(model, inputs) + ahead.loss_ahead(model, inputs, targets, targets.numel())).backward()
    further = {f"logits.{k}": f32(x) for k, x in enumerate(ahead.logits_ahead(model, inputs), 1)} if ahead.depth_of(model.config) else {}
    return dict(ids=ids, logits=f32(logits), loss=f32(loss.reshape(1)), **further, **gradients(model))


def greedy(model, prompt, n):
    """n greedy ids after the prompt, and the smallest gap between first and second logit on the way."""
    ids, margins = list(map(int, prompt)), []
    with torch.no_grad():
        for _ in range(n):
            top = logits_of(model, torch.tensor([ids]))[0, -1].topk(2)
            margins.append((top.values[0] - top.values[1]).item())
            ids.append(top.indices[0].item())
    return ids[len(prompt):], min(margins)


def relative_difference(a, b):
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30))
