"""Golden encoder-decoder models (T5) of transformers, in tests/golden/encoder.

A folder holds config.json and model.safetensors as save_pretrained writes them (fp32), pairs.npz (input_ids [B,S], labels [B,T], -100: not
counted), and golden.safetensors, computed in double precision: ids [N], logits [N,V] where the encoder reads ids and the decoder the same
shifted right, greedy [64], loss [1] and grad.NAME of the pairs. narrow.json says how far PyTorch's own gradients in bf16 and fp16 are from
these: the root of the mean, over tensors, of (norm of what differs / norm)^2. curve.json has ten steps of AdamW as those of make_golden.py:
sources [10,B,S], labels [10,B,T], the losses, and how far PyTorch's own bf16 and fp16 are from them.

Usage: python encoder_models.py [OUT]
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from transformers import T5Config, T5ForConditionalGeneration

from exact import all_double, load_model, new_model
from make_golden import ADAMW, CLIP_NORM, CURVE_STEPS, LOSS_SCALE, NO_DECAY, WEIGHT_DECAY, decays, write_json

CURVE_ADAMW = ADAMW | dict(lr=1e-3)  # scores are not scaled: at 1e-2 PyTorch's own fp16 is 6e-2 off
COMMON = dict(vocab_size=150, dropout_rate=0.0, relative_attention_num_buckets=8, relative_attention_max_distance=20,
              decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
MODELS = {
    "t5-relu-tied": dict(d_model=40, d_kv=12, d_ff=58, num_layers=2, num_decoder_layers=3, num_heads=3),
    "t5-gated-untied": dict(d_model=36, d_kv=8, d_ff=46, num_layers=3, num_decoder_layers=2, num_heads=5,
                            feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}


def fill(model, rng):
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = rng.normal(0, 0.5 if "relative" in name else 0.15, tuple(p.shape))
            p.copy_(torch.tensor(1 + x if "layer_norm" in name else x))


def greedy(model, ids, n):
    out = [0]
    for _ in range(n):
        logits = model(input_ids=ids, decoder_input_ids=torch.tensor([out])).logits[0, -1]
        out.append(int(logits.argmax()))
    return out[1:]


def curve(folder, batches, storage=torch.float64):
    """Losses of AdamW on pairs. bf16 and fp16: forward and backward on a copy of fp32 weights."""
    narrow = storage in (torch.bfloat16, torch.float16)
    model = load_model(folder, torch.float32 if narrow else storage)
    worker = new_model(model.config, storage) if narrow else model
    scale = LOSS_SCALE if storage == torch.float16 else 1.0
    params = dict(model.named_parameters())
    groups = [dict(params=[p for n, p in params.items() if decays(n, p) == decay], weight_decay=WEIGHT_DECAY * decay)
              for decay in (True, False)]
    optimizer = torch.optim.AdamW(groups, foreach=False, **CURVE_ADAMW)
    losses = []
    for source, label in batches:
        if narrow:
            worker.load_state_dict(model.state_dict())
        worker.zero_grad(set_to_none=True)
        logits = worker(input_ids=source, labels=label, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy((logits.float() if narrow else logits).flatten(0, 1), label.flatten())
        (loss * scale).backward()
        if narrow:
            for n, p in worker.named_parameters():
                params[n].grad = p.grad.float() / scale
        torch.nn.utils.clip_grad_norm_(list(params.values()), CLIP_NORM)
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def make_narrow(folder, source, labels, exact):
    away = {}
    for storage, scale in ((torch.bfloat16, 1.0), (torch.float16, LOSS_SCALE)):
        model = new_model(load_model(folder, torch.float32).config, storage)
        model.load_state_dict(load_model(folder, torch.float32).state_dict())
        logits = model(input_ids=source, labels=labels, use_cache=False).logits
        (torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten()) * scale).backward()
        errors = [((p.grad.double() / scale - exact[n]).norm() / exact[n].norm()).item() for n, p in model.named_parameters()]
        away[str(storage)[6:]] = float(np.sqrt(np.mean(np.square(errors))))
    write_json(folder / "narrow.json", away)


def make_curve(folder, seed):
    rng = np.random.default_rng(seed)
    sources, labels = rng.integers(2, 150, (2, 3, 11)), rng.integers(2, 150, (2, 3, 9))
    labels[:, 1, -4:] = -100
    sources, labels = (np.tile(x, (CURVE_STEPS // 2, 1, 1)) for x in (sources, labels))  # so that there is something to learn
    batches = list(zip(torch.tensor(sources), torch.tensor(labels)))
    with all_double():
        losses = curve(folder, batches)
    away = {f"pytorch_{str(t)[6:]}": float(np.abs(curve(folder, batches, t) / losses - 1).max()) for t in (torch.bfloat16, torch.float16)}
    write_json(folder / "curve.json", dict(optimizer="adamw", **CURVE_ADAMW, weight_decay=WEIGHT_DECAY, no_decay=NO_DECAY,
                                           clip_norm=CLIP_NORM, sources=sources.tolist(), labels=labels.tolist(),
                                           loss=losses.tolist(), **away))


def make(folder, options, seed):
    rng = np.random.default_rng(seed)
    shutil.rmtree(folder, ignore_errors=True)
    untied = options.get("tie_word_embeddings") is False
    config = T5Config(**COMMON, **options)
    config._attn_implementation = "eager"
    model = T5ForConditionalGeneration(config).float().eval()
    if untied:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(config.vocab_size, config.d_model))
        model.config.tie_word_embeddings = False
    fill(model, rng)
    model.save_pretrained(folder)
    model = model.double()
    ids = torch.tensor(rng.integers(2, 150, (1, 41)))
    source, labels = (torch.tensor(rng.integers(2, 150, shape)) for shape in ((3, 23), (3, 14)))
    labels[1, -5:] = -100
    np.savez(folder / "pairs.npz", input_ids=source.numpy().astype("int32"), labels=labels.numpy().astype("int32"))
    shifted = torch.cat([torch.zeros(1, 1, dtype=torch.long), ids[:, :-1]], dim=1)
    with torch.no_grad():
        golden = dict(logits=model(input_ids=ids, decoder_input_ids=shifted).logits[0].float(),
                      greedy=torch.tensor(greedy(model, ids, 64), dtype=torch.int32), ids=ids[0].int())
    loss = model(input_ids=source, labels=labels).loss
    loss.backward()
    golden |= {"loss": loss.detach().reshape(1).float()}
    golden |= {"grad." + n: p.grad.float().contiguous() for n, p in model.named_parameters()}
    safetensors.torch.save_file(golden, folder / "golden.safetensors")
    make_narrow(folder, source, labels, {n: p.grad for n, p in model.named_parameters()})
    make_curve(folder, seed + 100)
    for path in folder.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden" / "encoder")
    for number, (name, options) in enumerate(MODELS.items()):
        make(out / name, options, 60 + number)
