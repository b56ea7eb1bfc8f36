"""Modules of multi-token prediction, written from section 2.2 of the DeepSeek-V3 Technical Report, around a model of
transformers: a config with num_nextn_predict_layers D, its own key or one of `athanor`, gets D more blocks of its own kind, whose tensors are called as in
DeepSeek-V3's files (model.layers.{L}.enorm, hnorm, eh_proj, shared_head.norm). transformers' own forward never runs them.

    e = enorm(embedding(token of i + k))      h_0: the model's last hidden state
    h_k = norm_k(block_k(M_k [e ; hnorm(h_{k-1})]))      logits_k = lm_head(h_k), of the token of i + k + 1
    objective = loss + weight / D sum_k loss_k           loss_k: divided by all targets
"""

import torch
from torch import nn


def depth_of(config):
    keys = getattr(config, "athanor", None) or {}
    own = config.num_nextn_predict_layers if "mtp_loss_weight" in keys and hasattr(config, "num_nextn_predict_layers") else 0
    return keys.get("num_nextn_predict_layers", own)


def add_modules(model):
    """The class's own block and norm, D times; classes that never have any may call these otherwise."""
    if depth_of(model.config) == 0:
        return model
    inner, width = model.model, model.config.hidden_size
    block_class, norm_class, eps = type(inner.layers[-1]), type(inner.norm), model.config.rms_norm_eps
    for _ in range(depth_of(model.config)):
        block = block_class(model.config, model.config.num_hidden_layers - 1)
        block.enorm, block.hnorm = norm_class(width, eps), norm_class(width, eps)
        block.eh_proj = nn.Linear(2 * width, width, bias=False)
        block.shared_head = nn.Module()
        block.shared_head.norm = norm_class(width, eps)
        inner.layers.append(block)
    return model


def logits_ahead(model, inputs):
    """[logits_1, ..., logits_D] of whole documents inputs [B,T]; of module k for the first T - k positions."""
    inner = model.model
    h = inner(input_ids=inputs, use_cache=False).last_hidden_state
    out = []
    for k, block in enumerate(inner.layers[model.config.num_hidden_layers:], 1):
        n = inputs.shape[1] - k
        if n <= 0:
            break
        e = block.enorm(inner.embed_tokens(inputs[:, k:]))
        x = block.eh_proj(torch.cat([e, block.hnorm(h[:, :n])], dim=-1))
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)[None, None]
        y = block(x, attention_mask=mask, position_ids=positions, position_embeddings=inner.rotary_emb(x, positions))
        h = block.shared_head.norm(y[0] if isinstance(y, tuple) else y)
        out.append(model.lm_head(h))
    return out


def loss_ahead(model, inputs, targets, count):
    """weight / D times the sum over modules of -log p / count; inputs, targets [B,T] of whole documents."""
    keys = getattr(model.config, "athanor", None) or {}
    total = 0
    for k, logits in enumerate(logits_ahead(model, inputs) if depth_of(model.config) else [], 1):
        nll = nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, k:].flatten(), reduction="sum")
        total = total + keys["mtp_loss_weight"] / depth_of(model.config) * nll / count
    return total
