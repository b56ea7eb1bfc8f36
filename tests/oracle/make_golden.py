"""Makes the golden model files in tests/golden/models from transformers, in double precision.

For every small random model a folder is written that holds
  config.json, model.safetensors   the model, as save_pretrained writes it (fp32)
  ids.npy                          int32 [B,T+1]: inputs ids[:, :-1], targets ids[:, 1:]
  golden.safetensors               ids, logits [B,T,V], loss [1], grad.NAME for every stored parameter
  curve.json                       ten AdamW steps: ids, loss and gradient norm of every step
  generate.json                    a prompt and its greedy continuation
  packed.safetensors               (some Llama models) several documents in one row that do not see each other
Names and layouts are those of the Hugging Face files. Everything is computed in double and stored as fp32, so the
files carry no fp32 noise of their own. The output depends only on this file and the versions in requirements.txt.

Usage: python make_golden.py [OUT]       (default: ../golden/models)
"""

import contextlib
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
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers import modeling_rope_utils
from transformers.models.llama import modeling_llama

GPT2_FIXED = dict(
    attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=True
)
LLAMA_FIXED = dict(attention_dropout=0.0, bos_token_id=0, eos_token_id=0, use_cache=True)
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    # Short enough that head_dim 16 has frequencies in each of the three branches: wavelengths 6, 20 and above 32.
    original_max_position_embeddings=32,
)

# name, config, batch, length, seed. Sizes are deliberately awkward: nothing is a multiple of a vector width, H != K.
MODELS = [
    ("gpt2-tanh-tied",
     GPT2Config(n_layer=2, n_embd=24, n_head=3, n_inner=100, vocab_size=97, n_positions=24,
                activation_function="gelu_new", tie_word_embeddings=True, **GPT2_FIXED), 3, 13, 11),
    ("gpt2-erf-untied",
     GPT2Config(n_layer=2, n_embd=20, n_head=5, vocab_size=101, n_positions=40, layer_norm_epsilon=1e-4,
                activation_function="gelu", tie_word_embeddings=False, **GPT2_FIXED), 2, 19, 12),
    ("llama-gqa-tied",
     LlamaConfig(num_hidden_layers=2, hidden_size=36, num_attention_heads=6, num_key_value_heads=2,
                 intermediate_size=52, vocab_size=97, max_position_embeddings=64, rms_norm_eps=1e-5,
                 tie_word_embeddings=True, **LLAMA_FIXED), 3, 23, 13),
    ("llama-bias-untied",
     LlamaConfig(num_hidden_layers=2, hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                 intermediate_size=44, vocab_size=89, max_position_embeddings=48, rms_norm_eps=1e-6,
                 attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                 rope_parameters=dict(rope_type="default", rope_theta=500000.0), **LLAMA_FIXED), 2, 17, 14),
    ("llama-rope3-mqa",
     LlamaConfig(num_hidden_layers=2, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
                 intermediate_size=40, vocab_size=97, max_position_embeddings=256, rms_norm_eps=1e-5,
                 tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE, **LLAMA_FIXED), 1, 61, 15),
]
PACKED = {"llama-gqa-tied": [7, 1, 12, 9], "llama-rope3-mqa": [41, 3, 17]}  # lengths of the documents of one row

ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
WEIGHT_DECAY = 0.1
NO_DECAY = ["*.bias", "*norm*", "*ln_*"]
CLIP_NORM = 1.0
CURVE_STEPS = 10
NEW_TOKENS = 16


class DoubleTorch:
    """Stands for the torch module inside transformers' code: where that code says fp32, it gets double.

    Llama's norm, softmax and rotary tables are written to run in fp32 whatever the model's type is.
    """

    float = torch.float64
    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def all_double():
    modules = [modeling_llama, modeling_rope_utils]
    to_float = torch.Tensor.float
    for m in modules:
        m.torch = DoubleTorch()
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = to_float
        for m in modules:
            m.torch = torch


def new_model(config, dtype=torch.float32):
    cls = GPT2LMHeadModel if config.model_type == "gpt2" else LlamaForCausalLM
    config._attn_implementation = "eager"
    return cls(config).to(dtype).eval()


def copy_of(model, dtype=torch.float32):
    copy = new_model(model.config, dtype)
    copy.load_state_dict(model.state_dict())
    return copy


def fill(model, rng):
    """Random weights, large enough that no gradient is tiny; norm weights around 1, biases not 0."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = rng.standard_normal(tuple(p.shape))
            if p.ndim >= 2:
                x *= 0.15
            elif name.endswith(".bias"):
                x *= 0.08
            else:
                x = 1.0 + 0.12 * x
            p.copy_(torch.from_numpy(x))


def draw_ids(rng, rows, length, vocab):
    """Rows of a noisy affine chain, so that ten steps have something to learn."""
    ids = np.empty((rows, length), dtype=np.int32)
    ids[:, 0] = rng.integers(0, vocab, rows)
    for t in range(1, length):
        noise = rng.integers(0, vocab, rows)
        ids[:, t] = np.where(rng.random(rows) < 0.7, (5 * ids[:, t - 1] + 3) % vocab, noise)
    return ids


def logits_of(model, inputs):
    return model(input_ids=inputs, use_cache=False).logits


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def split(ids):
    ids = torch.from_numpy(ids.astype(np.int64))
    return ids[:, :-1], ids[:, 1:]


def f32(tensor):
    return tensor.detach().to(torch.float32).contiguous().numpy()


def gradients(model):
    return {"grad." + n: f32(p.grad) for n, p in model.named_parameters()}


def golden(model, ids):
    inputs, targets = split(ids)
    model.zero_grad(set_to_none=True)
    logits = logits_of(model, inputs)
    assert logits.dtype == next(model.parameters()).dtype
    loss = loss_of(logits, targets)
    loss.backward()
    return dict(ids=ids, logits=f32(logits), loss=f32(loss.reshape(1)), **gradients(model))


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
    loss.backward()
    keep = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
    grads = {n: g for n, g in gradients(model).items() if n.endswith(keep)}
    return dict(ids=ids, ends=ends, start=np.repeat(starts, lengths), logits=f32(logits),
                loss=f32(loss.reshape(1)), **grads)


def decays(name, p):
    return p.ndim >= 2 and not any(fnmatch.fnmatchcase(name, pattern) for pattern in NO_DECAY)


def curve(model, batches, bf16_storage=False):
    """AdamW at a constant rate. bf16_storage: forward and backward on a bf16 copy of the fp32 weights."""
    params = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [dict(params=[p for n, p in params.items() if decays(n, p)], weight_decay=WEIGHT_DECAY),
         dict(params=[p for n, p in params.items() if not decays(n, p)], weight_decay=0.0)],
        foreach=False, **ADAMW)
    worker = new_model(model.config, torch.bfloat16) if bf16_storage else model
    losses, norms = [], []
    for ids in batches:
        if bf16_storage:
            worker.load_state_dict(model.state_dict())
        worker.zero_grad(set_to_none=True)
        inputs, targets = split(ids)
        logits = logits_of(worker, inputs)
        loss = loss_of(logits.float() if bf16_storage else logits, targets)
        loss.backward()
        if bf16_storage:
            for n, p in worker.named_parameters():
                params[n].grad = p.grad.float()
        norms.append(torch.nn.utils.clip_grad_norm_(list(params.values()), CLIP_NORM).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def greedy(model, prompt):
    ids, margins = list(map(int, prompt)), []
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            top = logits_of(model, torch.tensor([ids]))[0, -1].topk(2)
            margins.append((top.values[0] - top.values[1]).item())
            ids.append(top.indices[0].item())
    return ids[len(prompt):], min(margins)


def relative_difference(a, b):
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def write_json(path, value):
    path.write_text(json.dumps(value) + "\n")


def make(folder, config, batch, length, seed, doc_lengths):
    rng = np.random.default_rng(seed)
    vocab = config.vocab_size
    shutil.rmtree(folder, ignore_errors=True)
    single = new_model(config)
    fill(single, rng)
    single.save_pretrained(folder)

    ids = draw_ids(rng, batch, length + 1, vocab)
    batches = [draw_ids(rng, batch, length + 1, vocab) for _ in range(CURVE_STEPS)]
    prompt = draw_ids(rng, 1, 6, vocab)[0]
    with all_double():
        exact = golden(copy_of(single, torch.float64), ids)
        losses, norms = curve(copy_of(single, torch.float64), batches)
        new_ids, margin = greedy(copy_of(single, torch.float64), prompt)
        if doc_lengths:
            row = packed(copy_of(single, torch.float64), rng, doc_lengths, vocab)
            safetensors.numpy.save_file(row, folder / "packed.safetensors")
    np.save(folder / "ids.npy", ids)
    safetensors.numpy.save_file(exact, folder / "golden.safetensors")
    write_json(folder / "curve.json", dict(
        optimizer="adamw", **ADAMW, weight_decay=WEIGHT_DECAY, no_decay=NO_DECAY, decay_min_dims=2,
        clip_norm=CLIP_NORM, ids=[b.tolist() for b in batches], loss=losses, grad_norm=norms))
    write_json(folder / "generate.json", dict(prompt_ids=prompt.tolist(), ids=new_ids, min_logit_margin=margin))
    for path in folder.iterdir():
        path.chmod(0o644)
    return noise_floor(single, ids, exact, batches, losses, norms, margin)


def noise_floor(single, ids, exact, batches, losses, norms, margin):
    """How far PyTorch's own fp32 and bf16 are from the golden values: what a tolerance can ask for."""
    plain = golden(single, ids)
    grads = [n for n in exact if n.startswith("grad.")]
    assert all(np.abs(exact[n]).max() > 1e-6 for n in grads), "a gradient is tiny"
    fp32_curve, _ = curve(copy_of(single), batches)
    bf16_curve, _ = curve(copy_of(single), batches, bf16_storage=True)
    return dict(
        logits_fp32=relative_difference(plain["logits"], exact["logits"]),
        grads_fp32=max(relative_difference(plain[n], exact[n]) for n in grads),
        curve_fp32=float(np.max(np.abs(np.array(fp32_curve) / losses - 1))),
        curve_bf16=float(np.max(np.abs(np.array(bf16_curve) / losses - 1))),
        first_loss=losses[0], last_loss=losses[-1], first_grad_norm=norms[0], greedy_margin=margin)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden" / "models"
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.disable_progress_bar()
    rows = {}
    for name, config, batch, length, seed in MODELS:
        rows[name] = make(out / name, config, batch, length, seed, PACKED.get(name))
        size = sum(f.stat().st_size for f in (out / name).iterdir())
        print(name, f"{size} bytes", *(f"{k} {v:.3g}" for k, v in rows[name].items()))
    write_json(out / "made_by.json", dict(
        python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__,
        tokenizers=tokenizers.__version__, safetensors=safetensors.__version__, numpy=np.__version__,
        pytorch_against_golden=rows))


if __name__ == "__main__":
    main()
