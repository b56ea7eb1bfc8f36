"""Attention sinks and chunks on a model of transformers, by transformers' own functions: a LlamaConfig with `attention_sinks` or
`attention_chunk_size` (a number of each layer, 0: none) in `athanor` gets the eager attention of gpt-oss (a learned score of each
head joins the softmax) and the chunk mask of Llama 4."""

import torch
from torch import nn
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, chunked_causal_mask_function, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

NAME = "athanor"


def chunk_mask(size, queries, keys, dtype):
    """[1,1,Q,K]: what a query does not see is far below 0; the last query is the last key's."""
    sees = chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.int64))
    q, k = torch.arange(keys - queries, keys)[:, None], torch.arange(keys)[None]
    zero = torch.zeros((), dtype=torch.int64)
    mask = torch.where(sees(zero, zero, q, k), 0.0, torch.finfo(dtype).min).to(dtype)
    return mask[None, None]


def attend(module, query, key, value, attention_mask, scaling, **kwargs):
    if module.chunk:
        attention_mask = chunk_mask(module.chunk, query.shape[2], key.shape[2], query.dtype)
    forward = modeling_gpt_oss if hasattr(module, "sinks") else modeling_llama
    return forward.eager_attention_forward(module, query, key, value, attention_mask, scaling, **kwargs)


def extend(model):
    keys = getattr(model.config, "athanor", None) or {}
    if not keys.get("attention_sinks") and not keys.get("attention_chunk_size"):
        return model
    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, eager_mask)
    for layer, block in enumerate(model.model.layers):
        block.self_attn.chunk = keys.get("attention_chunk_size", [0] * (layer + 1))[layer]
        if keys.get("attention_sinks"):
            block.self_attn.sinks = nn.Parameter(torch.zeros(model.config.num_attention_heads))
    model.set_attn_implementation(NAME)
    return model
