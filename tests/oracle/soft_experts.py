"""Soft experts (Puigcerver et al. 2024) in the encoder of a small T5 beside PyTorch's: python soft_experts.py ATHANOR [MODELS].

transformers has no such layer: the feed-forward part of its T5 encoder is replaced here by the formulas of the paper, section
2.1. Random sizes, numbers of experts and slots; loss and every gradient, in double precision; rows of different lengths.
"""

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

import encoders
from exact import all_double

LIMIT = 1e-5


class SoftExperts(torch.nn.Module):
    def __init__(self, prefix, weights, experts, gated):
        super().__init__()
        self.prefix, self.experts, self.gated = prefix, experts, gated
        self.w = {n: torch.nn.Parameter(torch.from_numpy(weights[n]).double()) for n in weights if n.startswith(prefix)}

    def expert(self, e, x):
        name = f"{self.prefix}experts.{e}."
        up = x @ self.w[name + "up_proj.weight"].T
        if self.gated:
            up = functional.gelu(x @ self.w[name + "gate_proj.weight"].T, approximate="tanh") * up
        else:
            up = functional.relu(up)
        return up @ self.w[name + "down_proj.weight"].T

    def forward(self, x):
        logits = x @ self.w[self.prefix + "gate.weight"].T  # [B,n,P]
        slots = logits.softmax(1).transpose(1, 2) @ x
        parts = slots.chunk(self.experts, dim=1)
        made = torch.cat([self.expert(e, part) for e, part in enumerate(parts)], dim=1)
        return logits.softmax(2) @ made


def dump(program, work, model):
    (work / "c.yaml").write_text(f"model: {json.dumps(model)}\n")
    done = subprocess.run([program, "train", work / "c.yaml", "--dump-grads", work / "g.safetensors", "--ids-file", work / "pairs.npz",
                           "--json", "train.precision=fp32"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr + done.stdout)
    return safetensors.numpy.load_file(work / "g.safetensors") | {"loss": json.loads(done.stdout)["loss"]}


def torch_model(own, weights, soft):
    config = transformers.T5Config(
        vocab_size=own["vocab_size"], d_model=own["hidden_size"], d_kv=own["head_dim"], d_ff=own["intermediate_size"],
        num_layers=len(soft), num_decoder_layers=len(soft), num_heads=own["num_attention_heads"], dropout_rate=0.0,
        feed_forward_proj="gated-gelu" if own["mlp_type"] == "gated" else "relu", decoder_start_token_id=0, pad_token_id=0)
    model = encoders.new_model(config).double()
    for l in range(len(soft)):
        if soft[l]:
            model.encoder.block[l].layer[1].DenseReluDense = SoftExperts(
                f"model.layers.{l}.mlp.", weights, own["num_experts"], own["mlp_type"] == "gated")
    mine = dict(model.named_parameters())
    for name, w in weights.items():
        if name in mine:
            mine[name].data.copy_(torch.from_numpy(w))
    return model


def check(program, seed, work):
    rng = np.random.default_rng(seed)
    heads, width = int(rng.integers(1, 4)), 2 * int(rng.integers(2, 6))
    experts, slots, gated = int(rng.integers(1, 6)), int(rng.integers(1, 4)), bool(rng.integers(0, 2))
    layers, vocab, F = int(rng.integers(1, 4)), int(rng.integers(30, 60)), int(rng.integers(5, 20))
    soft = [int(x) for x in rng.integers(0, 2, layers)]
    soft[int(rng.integers(0, layers))] = 1
    C = int(rng.integers(6, 24))
    own = dict(model_type="t5", vocab_size=vocab, hidden_size=C, num_hidden_layers=2 * layers, num_encoder_layers=layers,
               num_attention_heads=heads, head_dim=width, intermediate_size=F, mlp_type="gated" if gated else "plain",
               hidden_act="gelu_new" if gated else "relu", num_experts=experts, slots_per_expert=slots, router="soft",
               expert_layers=soft + [0] * layers, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0, tie_word_embeddings=True,
               initializer_range=1.0)
    ids = rng.integers(1, vocab, (int(rng.integers(1, 4)), int(rng.integers(8, 40)))).astype(np.int32)
    source, labels = encoders.pairs(ids)
    np.savez(work / "pairs.npz", input_ids=source.astype(np.int32), labels=labels.astype(np.int32))
    first = dump(program, work, own)
    weights = {n.removeprefix("grad."): (0.3 * rng.standard_normal(g.shape)).astype(np.float32) for n, g in first.items() if n != "loss"}
    model = torch_model(own, weights, soft)
    model.config.save_pretrained(work / "model")  # which says nothing of experts
    safetensors.numpy.save_file(weights, work / "model/model.safetensors")
    extra = {k: own[k] for k in ("num_experts", "slots_per_expert", "router", "expert_layers")}
    got = dump(program, work, {"from": str(work / "model"), **extra})
    with all_double():
        loss = encoders.loss_of(model, ids)
        loss.backward()
    worst = abs(got.pop("loss") / loss.item() - 1)
    want = dict(model.named_parameters()) | {n: p for block in model.encoder.block
                                             for n, p in getattr(block.layer[1].DenseReluDense, "w", {}).items()}
    largest = max(p.grad.abs().max().item() for p in want.values())
    for name, g in got.items():
        g_want = want[name.removeprefix("grad.")].grad.numpy()
        if np.abs(g_want).max() > 1e-7 * largest:
            worst = max(worst, np.abs(g - g_want).max() / np.abs(g_want).max())
    print(f"{seed}: layers {soft}, {experts} experts of {slots} slots, gated {gated}, source {source.shape}: {worst:.1e}")
    return worst


def main():
    torch.use_deterministic_algorithms(True)
    worst = 0.0
    for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 20):
        with tempfile.TemporaryDirectory() as work:
            worst = max(worst, check(sys.argv[1], seed, Path(work)))
    print("worst", worst)
    sys.exit(int(worst > LIMIT))


if __name__ == "__main__":
    main()
