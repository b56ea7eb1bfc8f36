"""A student's loss and gradients beside PyTorch's: python distill.py ATHANOR [PAIRS]. Random students and teachers of several
families with one vocabulary, random weights, temperatures and numbers of tokens that count; in double precision. What a
teacher says is stored in half of them: its log-probabilities are rounded to fp16 there, and here, too."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import transformers
from torch.nn import functional
from transformers import Gemma2Config, GPT2Config, LlamaConfig

from exact import all_double

LIMIT = 1e-5
STORED = 1e-4  # a number in the middle of two of fp16 may be rounded to either


def draw_config(rng, vocab):
    heads, width = int(rng.integers(1, 4)), 2 * int(rng.integers(3, 7))
    layers = int(rng.integers(1, 4))
    ends = dict(bos_token_id=None, eos_token_id=None)
    kind = rng.integers(0, 3)
    if kind == 0:
        return GPT2Config(n_layer=layers, n_embd=heads * width, n_head=heads, n_positions=48, vocab_size=vocab,
                          tie_word_embeddings=bool(rng.integers(0, 2)), attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **ends)
    keys = dict(num_hidden_layers=layers, hidden_size=heads * width, num_attention_heads=heads, num_key_value_heads=heads,
                head_dim=width, intermediate_size=int(rng.integers(10, 50)), vocab_size=vocab, max_position_embeddings=48)
    if kind == 1:
        return LlamaConfig(**keys, tie_word_embeddings=bool(rng.integers(0, 2)), **ends)
    return Gemma2Config(**keys, query_pre_attn_scalar=width, sliding_window=16, final_logit_softcapping=2.0, **ends)


def draw_model(rng, vocab, folder):
    model = transformers.AutoModelForCausalLM.from_config(draw_config(rng, vocab))
    generator = torch.Generator().manual_seed(int(rng.integers(0, 1 << 30)))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_(0.15 * torch.randn(p.shape, generator=generator) if p.dim() > 1 else 0.1 * torch.randn(p.shape, generator=generator))
    model.save_pretrained(folder)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").double().eval()


def loss_of(student, teacher, ids, w, t, k, stored):
    """Hinton et al. 2015: the teacher's part times T^2, so that its gradients do not shrink with T."""
    x, y = ids[:, :-1], ids[:, 1:].reshape(-1)
    mine = student(x).logits.flatten(0, 1)
    with torch.no_grad():
        theirs = teacher(x).logits.flatten(0, 1)
        said = theirs.log_softmax(1).half().double() if stored else theirs
        if 0 < k < theirs.shape[1]:
            best = theirs.topk(k, dim=1)
            said = torch.full_like(theirs, -torch.inf).scatter(1, best.indices, said.gather(1, best.indices))
    p, q = (said / t).softmax(1), (mine / t).log_softmax(1)
    kl = torch.where(p > 0, p * (p.clamp(min=1e-300).log() - q), 0.0).sum(1).mean()
    return (1 - w) * functional.cross_entropy(mine, y) + w * t * t * kl


def check(program, seed, work):
    rng = np.random.default_rng(seed)
    vocab = 2 * int(rng.integers(30, 70)) + 1
    student, teacher = (draw_model(rng, vocab, work / name) for name in ("student", "teacher"))
    w, t = float(rng.choice([0.3, 0.5, 1.0])), float(rng.choice([1.0, 2.0, 0.7]))
    k = int(rng.choice([0, 1, 5, 40]))
    stored = k > 0 and bool(rng.integers(0, 2))
    ids = rng.integers(0, vocab, (int(rng.integers(1, 4)), int(rng.integers(5, 40)))).astype(np.int32)
    np.save(work / "ids.npy", ids)
    (work / "c.yaml").write_text(f"model: {{from: {work}/student}}\n"
                                 f"distill: {{teacher: {work}/teacher, weight: {w}, temperature: {t}, top_k: {k}"
                                 f"{', store: ' + str(work / 'kept') if stored else ''}}}\n")
    done = subprocess.run([program, "train", work / "c.yaml", "--dump-grads", work / "g.safetensors", "--ids-file", work / "ids.npy",
                           "--json", "train.precision=fp32"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    with all_double():
        loss = loss_of(student, teacher, torch.tensor(ids, dtype=torch.long), w, t, k, stored)
        loss.backward()
    got = safetensors.numpy.load_file(work / "g.safetensors")
    worst = abs(json.loads(done.stdout)["loss"] / loss.item() - 1)
    largest = max(p.grad.abs().max().item() for p in student.parameters())
    for name, p in student.named_parameters():
        want = p.grad.numpy()
        if np.abs(want).max() > 1e-7 * largest:
            mine = got[name] if name in got else got["grad." + name]
            worst = max(worst, np.abs(mine - want).max() / np.abs(want).max())
    print(f"{seed}: {student.config.model_type} of {teacher.config.model_type}, w {w}, T {t}, top_k {k}{' stored' if stored else ''}: {worst:.1e}")
    return worst / STORED if stored else worst / LIMIT


def main():
    torch.use_deterministic_algorithms(True)
    worst = 0.0
    for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 20):
        with tempfile.TemporaryDirectory() as work:
            worst = max(worst, check(sys.argv[1], seed, Path(work)))
    print("worst, of what is allowed:", worst)
    sys.exit(int(worst > 1))


if __name__ == "__main__":
    main()
