"""Makes the golden model files in tests/golden/models, in double precision.

For every small random model of golden_models.py a folder is written that holds
  config.json, model.safetensors   the model, as save_pretrained writes it (fp32)
  ids.npy                          int32 [B,T+1]: inputs ids[:, :-1], targets ids[:, 1:]
  golden.safetensors               ids, logits [B,T,V], loss [1], grad.NAME for every stored parameter
  generate.json                    a prompt and its greedy continuation
  packed.safetensors               (most models) several documents in one row that do not see each other
  curve.json                       (some models) ten AdamW steps: ids, loss and gradient norm of every step
Models are transformers' own; those that it has no class for are in reference.py. Names and layouts are those of the
Hugging Face files. Everything is computed in double and stored as fp32, so the files carry no fp32 noise of their own.
The output depends only on these scripts and the versions in requirements.txt.

Usage: python make_golden.py [OUT] [NAME...]       (default: ../golden/models, all)
"""

import fnmatch
import json
import platform
import shutil
import sys
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
import tokenizers
import torch
import transformers

import ahead
from exact import (all_double, copy_of, draw_ids, f32, fill, golden, gradients, greedy, logits_of, loss_of, new_model,
                   relative_difference, split)
from golden_models import CURVES, GREEDY_END, MODELS, PACKED, PROMPT_LENGTHS, SCALES

ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1
NO_DECAY = ["*.bias", "*norm*", "*ln_*"]
CLIP_NORM = 1.0
CURVE_STEPS = 10
LOSS_SCALE = 1024.0  # of curves in fp16: nothing overflows, neither here nor in gradients of fp32
PROMPT_TOKENS = 6
NEW_TOKENS = 64
LEAST_MARGIN = 3e-3  # between first and second logit
VARIED = 10  # different ids
PROMPTS = 30
PACKED_GRADS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "c_attn.weight", "query_key_value.weight",
                "qkv_proj.weight", "kv_b_proj.weight", "kv_a_proj_with_mqa.weight", "eh_proj.weight")


def packed(model, rng, lengths, vocab):
    """Each document is run alone; targets are the next tokens of the row, also across a document's end."""
    total = sum(lengths)
    ids = draw_ids(rng, 1, total + 1, vocab)
    inputs, targets = split(ids)
    ends = np.cumsum(lengths).astype(np.int32)
    starts = ends - np.array(lengths, dtype=np.int32)
    model.zero_grad(set_to_none=True)
    logits = torch.cat([logits_of(model, inputs[:, a:b]) for a, b in zip(starts, ends)], dim=1)
    loss = loss_of(logits, targets)
    further = sum(ahead.loss_ahead(model, inputs[:, a:b], targets[:, a:b], total) for a, b in zip(starts, ends))
    (loss + further).backward()
    grads = {n: g for n, g in gradients(model).items() if n.endswith(PACKED_GRADS)}
    return dict(ids=ids, ends=ends, start=np.repeat(starts, lengths), logits=f32(logits),
                loss=f32(loss.reshape(1)), **grads)


def decays(name, p):
    return p.ndim >= 2 and not any(fnmatch.fnmatchcase(name, pattern) for pattern in NO_DECAY)


def curve(model, batches, storage=None):
    """AdamW at a constant rate. storage: forward and backward on a copy of the fp32 weights in this format."""
    params = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [dict(params=[p for n, p in params.items() if decays(n, p)], weight_decay=WEIGHT_DECAY),
         dict(params=[p for n, p in params.items() if not decays(n, p)], weight_decay=0.0)],
        foreach=False, **ADAMW)
    worker = new_model(model.config, storage) if storage else model
    scale = LOSS_SCALE if storage == torch.float16 else 1.0
    losses, norms = [], []
    for ids in batches:
        if storage:
            worker.load_state_dict(model.state_dict())
        worker.zero_grad(set_to_none=True)
        inputs, targets = split(ids)
        logits = logits_of(worker, inputs)
        loss = loss_of(logits.float() if storage else logits, targets)
        (loss * scale).backward()
        if storage:
            for n, p in worker.named_parameters():
                params[n].grad = p.grad.float() / scale
        norms.append(torch.nn.utils.clip_grad_norm_(list(params.values()), CLIP_NORM).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def write_json(path, value):
    path.write_text(json.dumps(value) + "\n")


def continuation(model, prompt, vocab, end, seed):
    """Greedy ids whose first choice is always clear and never ends the text; the most varied of some prompts'."""
    rng = np.random.default_rng(seed + 1000)
    best = None
    with all_double():
        for _ in range(PROMPTS):
            ids, margin = greedy(copy_of(model, torch.float64), prompt, min(NEW_TOKENS, end - len(prompt)))
            clear = margin > LEAST_MARGIN and getattr(model.config, "eos_token_id", None) not in ids
            if clear and (best is None or len(set(ids)) > len(set(best["ids"]))):
                best = dict(prompt_ids=prompt.tolist(), ids=ids, min_logit_margin=margin)
            if best and len(set(best["ids"])) >= VARIED:
                break
            prompt = draw_ids(rng, 1, len(prompt), vocab)[0]
    return best


def make(folder, name, config, batch, length, seed):
    rng = np.random.default_rng(seed)
    vocab = config.vocab_size
    shutil.rmtree(folder, ignore_errors=True)
    single = new_model(config)
    fill(single, rng, **SCALES.get(name, {}))
    single.save_pretrained(folder)

    ids = draw_ids(rng, batch, length + 1, vocab)
    if (pad := getattr(config, "pad_token_id", None)) is not None:
        ids[0, length // 2] = pad
    batches = [draw_ids(rng, batch, length + 1, vocab) for _ in range(CURVE_STEPS)]
    prompt = draw_ids(rng, 1, PROMPT_LENGTHS.get(name, PROMPT_TOKENS), vocab)[0]
    with all_double():
        exact = golden(copy_of(single, torch.float64), ids)
        if name in PACKED:
            row = packed(copy_of(single, torch.float64), rng, PACKED[name], vocab)
            safetensors.numpy.save_file(row, folder / "packed.safetensors")
    np.save(folder / "ids.npy", ids)
    safetensors.numpy.save_file(exact, folder / "golden.safetensors")
    text = continuation(single, prompt, vocab, GREEDY_END.get(name, 1000), seed)
    write_json(folder / "generate.json", text)
    floor = noise_floor(single, ids, exact) | dict(greedy_margin=text["min_logit_margin"])
    if name in CURVES:
        floor |= make_curve(folder, single, batches)
    for path in folder.iterdir():
        path.chmod(0o644)
    return floor


def make_curve(folder, single, batches):
    with all_double():
        losses, norms = curve(copy_of(single, torch.float64), batches)
    write_json(folder / "curve.json", dict(
        optimizer="adamw", **ADAMW, weight_decay=WEIGHT_DECAY, no_decay=NO_DECAY, decay_min_dims=2,
        clip_norm=CLIP_NORM, ids=[b.tolist() for b in batches], loss=losses, grad_norm=norms))
    fp32_curve, _ = curve(copy_of(single), batches)
    bf16_curve, _ = curve(copy_of(single), batches, torch.bfloat16)
    fp16_curve, _ = curve(copy_of(single), batches, torch.float16)
    return dict(
        curve_fp32=float(np.max(np.abs(np.array(fp32_curve) / losses - 1))),
        curve_bf16=float(np.max(np.abs(np.array(bf16_curve) / losses - 1))),
        curve_fp16=float(np.max(np.abs(np.array(fp16_curve) / losses - 1))),
        first_loss=losses[0], last_loss=losses[-1], first_grad_norm=norms[0])


def noise_floor(single, ids, exact):
    """How far PyTorch's own fp32 is from the golden values: what a tolerance can ask for."""
    plain = golden(copy_of(single), ids)
    grads = [n for n in exact if n.startswith("grad.") and not n.endswith("e_score_correction_bias")]
    tiny = [n for n in grads if not np.abs(exact[n]).max() > 1e-6]
    assert not tiny, f"gradients are tiny: {tiny}"
    return dict(
        logits_fp32=relative_difference(plain["logits"], exact["logits"]),
        grads_fp32=max(relative_difference(plain[n], exact[n]) for n in grads))


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden" / "models"
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.disable_progress_bar()
    made_by = out / "made_by.json"
    rows = json.loads(made_by.read_text())["pytorch_against_golden"] if made_by.exists() else {}
    for name, config, batch, length, seed in MODELS:
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        rows[name] = make(out / name, name, config, batch, length, seed)
        size = sum(f.stat().st_size for f in (out / name).iterdir())
        print(name, f"{size} bytes", *(f"{k} {v:.3g}" for k, v in rows[name].items()))
    write_json(made_by, dict(
        python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__,
        tokenizers=tokenizers.__version__, safetensors=safetensors.__version__, numpy=np.__version__,
        pytorch_against_golden={model[0]: rows[model[0]] for model in MODELS if model[0] in rows}))


if __name__ == "__main__":
    main()
