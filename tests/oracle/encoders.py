"""Models with an encoder and a decoder, as exact.py runs others: what their logits, loss and answers are.

`ids` [B,T+1] of a model without an encoder are read here as pairs: the first third of each row is the source, the rest the labels.
"""

import contextlib

import numpy as np
import torch
import transformers
from transformers.models.mt5.modeling_mt5 import MT5Attention
from transformers.models.t5.modeling_t5 import T5Attention


def is_encoder_decoder(config):
    return getattr(config, "is_encoder_decoder", False)


@contextlib.contextmanager
def borders_in_fp32(to_float):
    """Distances fall into buckets by logarithms in fp32, whatever the rest is computed in: a border may be a rounding error away."""
    kept = {cls: cls._relative_position_bucket for cls in (T5Attention, MT5Attention)}

    def rounded(compute):
        def bucket(*args, **kwargs):
            now, torch.Tensor.float = torch.Tensor.float, to_float
            try:
                return compute(*args, **kwargs)
            finally:
                torch.Tensor.float = now

        return staticmethod(bucket)

    for cls, compute in kept.items():
        cls._relative_position_bucket = rounded(compute)
    try:
        yield
    finally:
        for cls, compute in kept.items():
            cls._relative_position_bucket = staticmethod(compute)


def new_model(config):
    """With a head of its own where the config says so; transformers 5 makes only tied ones."""
    config._attn_implementation = "eager"
    own_head = not config.tie_word_embeddings
    config.tie_word_embeddings = True
    model = transformers.AutoModelForSeq2SeqLM._model_mapping[type(config)](config)
    if own_head:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.shared.weight))
    config.tie_word_embeddings = not own_head
    return model


def query_scale(config, name):
    """Scores are not scaled, so T5 begins with smaller queries; without this PyTorch's own fp32 is 2e-5 off."""
    return config.d_kv**-0.5 if is_encoder_decoder(config) and name.endswith(".q.weight") else 1.0


def logits_of(model, source, target):
    """[B,T,V]: the encoder reads `source`, the decoder `target` shifted right."""
    return model(input_ids=source, decoder_input_ids=model._shift_right(target), use_cache=False).logits


def pairs(ids):
    """Sources and labels; a few labels do not count."""
    border = ids.shape[1] // 3
    labels = np.array(ids[:, border:])
    labels[-1, -3:] = -100
    return ids[:, :border], labels


def loss_of(model, ids):
    source, labels = (torch.from_numpy(x.astype(np.int64)) for x in pairs(ids))
    return model(input_ids=source, labels=labels, use_cache=False).loss


def beams(model, prompt, options):
    """Texts and scores of transformers' beam search."""
    model.generation_config.use_cache = False  # its caches have as many layers as the encoder
    out = model.generate(torch.tensor([prompt]), do_sample=False, return_dict_in_generate=True, output_scores=True,
                         num_return_sequences=options["num_beams"], **options)
    return out.sequences[:, 1:].tolist(), out.sequences_scores.tolist()
