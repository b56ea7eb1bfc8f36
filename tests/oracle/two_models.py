"""Makes tests/golden/train/two_models: a few steps of training with two models, a policy and a frozen reference.

The objective is DPO (Rafailov et al. 2023, eq. 7). With logp = sum over the counted targets of a sequence's
log-probabilities, the loss of a pair is -log sigmoid(margin), where
  margin = beta * ((logp_pol(chosen) - logp_ref(chosen)) - (logp_pol(rejected) - logp_ref(rejected)))
and that of a step is the mean over all of its pairs. NumPy only: forward, backward and AdamW are written out by hand
and compute in double precision. Nothing is written unless the script agrees with PyTorch's golden values of every model
in CHECKED (logits, loss, gradients, ten AdamW steps) and with finite differences of the DPO loss.
README.md says what the files hold.

Usage: python two_models.py [OUT] [MODEL]       (default: ../golden/train/two_models, llama-gqa-tied)
"""

import fnmatch
import json
import shutil
import sys
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CHECKED = ("llama-gqa-tied", "llama-bias-untied")
TOLERANCE = 1e-6  # the golden values are rounded to fp32

STEPS, MICRO_BATCHES, PAIRS, T = 5, 2, 2, 24  # PAIRS: of one micro-batch
BETA = 0.2
ADAMW = dict(lr=4e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1, no_decay=["*norm*", "*.bias"], clip_norm=4.0)
REFERENCE_CHANGE = 0.05
IGNORED = -1


# Files

def read_safetensors(path):
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    types = dict(F32="<f4", I32="<i4")
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], types[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, x in tensors.items():
        assert x.dtype == np.float32
        header[name] = dict(dtype="F32", shape=list(x.shape), data_offsets=[end, end + x.nbytes])
        end += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(x.astype("<f4").tobytes() for x in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


# The parts of a Llama. Each backward takes the gradient of the output first.

def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def linear_back(dy, p, name, x, grads):
    rows = dy.reshape(-1, dy.shape[-1])
    grads[name + ".weight"] += rows.T @ x.reshape(-1, x.shape[-1])
    if name + ".bias" in p:
        grads[name + ".bias"] += rows.sum(0)
    return dy @ p[name + ".weight"]


def rms_norm(x, w, eps):
    scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return x * scale * w, scale


def rms_norm_back(dy, x, w, scale):
    dw = (dy * x * scale).reshape(-1, x.shape[-1]).sum(0)
    g = dy * w
    return scale * g - x * scale**3 * np.mean(g * x, axis=-1, keepdims=True), dw


def rotate(x, cos, sin):
    """Pairs are (i, i + D/2). Its own backward with -sin."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Llama:
    def __init__(self, config, params, dtype=np.float64):
        self.params = {name: x.astype(dtype) for name, x in params.items()}
        self.layers, self.eps = config["num_hidden_layers"], config["rms_norm_eps"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.width = config["head_dim"]
        self.theta = config["rope_parameters"]["rope_theta"]
        self.head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
        assert config["rope_parameters"]["rope_type"] == "default" and config["hidden_act"] == "silu"
        self.dtype = dtype

    def angles(self, length):
        inverse = self.theta ** (-np.arange(0, self.width, 2) / self.width)
        angle = np.outer(np.arange(length), inverse)
        return np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)

    def split_heads(self, x, heads):
        """[N,T,heads*D] -> [N,K,heads/K,T,D]: queries lie beside the key/value head that they use."""
        n, t, _ = x.shape
        return x.reshape(n, t, self.kv_heads, heads // self.kv_heads, self.width).transpose(0, 2, 3, 1, 4)

    def join_heads(self, x):
        n, _, _, t, _ = x.shape
        return x.transpose(0, 3, 1, 2, 4).reshape(n, t, -1)

    def attention(self, at, x):
        p, turn = self.params, self.angles(x.shape[1])
        q = rotate(self.split_heads(linear(p, at + "q_proj", x), self.heads), *turn)
        k = rotate(self.split_heads(linear(p, at + "k_proj", x), self.kv_heads), *turn)
        v = self.split_heads(linear(p, at + "v_proj", x), self.kv_heads)
        scores = q @ k.swapaxes(-1, -2) / self.width**0.5
        hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        weights = np.exp(log_softmax(np.where(hidden, -np.inf, scores)))
        mixed = self.join_heads(weights @ v)
        return linear(p, at + "o_proj", mixed), (x, q, k, v, weights, mixed)

    def attention_back(self, dy, at, saved, grads):
        p, (x, q, k, v, weights, mixed) = self.params, saved
        cos, sin = self.angles(x.shape[1])
        d_mixed = self.split_heads(linear_back(dy, p, at + "o_proj", mixed, grads), self.heads)
        d_weights = d_mixed @ v.swapaxes(-1, -2)
        d_scores = weights * (d_weights - np.sum(d_weights * weights, axis=-1, keepdims=True)) / self.width**0.5
        dq = rotate(d_scores @ k, cos, -sin)
        dk = rotate(np.sum(d_scores.swapaxes(-1, -2) @ q, axis=2, keepdims=True), cos, -sin)
        dv = np.sum(weights.swapaxes(-1, -2) @ d_mixed, axis=2, keepdims=True)
        return sum(linear_back(self.join_heads(d), p, at + name, x, grads)
                   for name, d in (("q_proj", dq), ("k_proj", dk), ("v_proj", dv)))

    def mlp(self, at, x):
        gate, up = linear(self.params, at + "gate_proj", x), linear(self.params, at + "up_proj", x)
        inner = gate * sigmoid(gate) * up
        return linear(self.params, at + "down_proj", inner), (x, gate, up, inner)

    def mlp_back(self, dy, at, saved, grads):
        p, (x, gate, up, inner) = self.params, saved
        d_inner, s = linear_back(dy, p, at + "down_proj", inner, grads), sigmoid(gate)
        d_gate = d_inner * up * s * (1 + gate * (1 - s))
        return linear_back(d_gate, p, at + "gate_proj", x, grads) + \
            linear_back(d_inner * gate * s, p, at + "up_proj", x, grads)

    def branches(self):
        for i in range(self.layers):
            at = f"model.layers.{i}."
            yield at + "input_layernorm.weight", at + "self_attn.", self.attention, self.attention_back
            yield at + "post_attention_layernorm.weight", at + "mlp.", self.mlp, self.mlp_back

    def forward(self, ids):
        """Logits [N,T,V] and what the backward needs."""
        p, saved = self.params, []
        x = p["model.embed_tokens.weight"][ids]
        for norm, at, branch, _ in self.branches():
            y, scale = rms_norm(x, p[norm], self.eps)
            y, inside = branch(at, y)
            saved.append((x, scale, inside))
            x = x + y
        y, scale = rms_norm(x, p["model.norm.weight"], self.eps)
        return y @ p[self.head + ".weight"].T, (ids, saved, x, scale, y)

    def backward(self, d_logits, cache, grads):
        """Adds the gradients of all parameters to grads."""
        p, (ids, saved, x, scale, y) = self.params, cache
        dx = linear_back(d_logits, p, self.head, y, grads)
        dx, dw = rms_norm_back(dx, x, p["model.norm.weight"], scale)
        grads["model.norm.weight"] += dw
        for (norm, at, _, branch_back), (x, scale, inside) in zip(reversed([*self.branches()]), reversed(saved)):
            dy = branch_back(dx, at, inside, grads)
            dy, dw = rms_norm_back(dy, x, p[norm], scale)
            grads[norm] += dw
            dx = dx + dy
        np.add.at(grads["model.embed_tokens.weight"], ids, dx)

    def zeros(self):
        return {name: np.zeros_like(x) for name, x in self.params.items()}


# Objectives

def sequence_logp(logits, targets):
    """[N]: sum of the log-probabilities of counted targets."""
    picked = np.take_along_axis(log_softmax(logits), np.maximum(targets, 0)[..., None], axis=-1)[..., 0]
    return np.sum(np.where(targets == IGNORED, 0, picked), axis=1)


def sequence_logp_back(d_logp, logits, targets):
    d = -np.exp(log_softmax(logits))
    rows, columns = np.nonzero(targets != IGNORED)
    d[rows, columns, targets[rows, columns]] += 1
    return d * np.where(targets == IGNORED, 0, d_logp[:, None])[..., None].astype(d.dtype)


def lm_loss(model, ids, grads):
    """Mean over the targets ids[:, 1:]."""
    inputs, targets = ids[:, :-1], ids[:, 1:]
    logits, cache = model.forward(inputs)
    d_logp = np.full(len(ids), -1 / targets.size)
    model.backward(sequence_logp_back(d_logp, logits, targets), cache, grads)
    return -sequence_logp(logits, targets).sum() / targets.size, logits


def dpo_margins(policy_logp, reference_logp):
    ratio = policy_logp - reference_logp
    return BETA * (ratio[0::2] - ratio[1::2])


def dpo_loss(policy, reference, ids, targets, grads):
    """Of one step [sequences,T]; also its margins. Gradients are added up over the micro-batches."""
    losses, margins = [], []
    for part in np.split(np.arange(len(ids)), MICRO_BATCHES):
        x, y = ids[part], targets[part]
        logits, cache = policy.forward(x)
        margin = dpo_margins(sequence_logp(logits, y), sequence_logp(reference.forward(x)[0], y))
        losses.extend(np.logaddexp(0, -margin))
        margins.extend(margin)
        d_chosen = -BETA * sigmoid(-margin) / (len(ids) // 2)
        d_logp = np.stack([d_chosen, -d_chosen], axis=1).reshape(-1)
        policy.backward(sequence_logp_back(d_logp, logits, y), cache, grads)
    return np.mean(losses), np.array(margins)


# Optimizer

class AdamW:
    """src/op/vecops.h; clipping as clip_factor of src/op/clip.h."""

    def __init__(self, model, lr, betas, eps, weight_decay, no_decay, clip_norm):
        self.model, self.lr, self.betas, self.eps, self.clip_norm = model, lr, betas, eps, clip_norm
        self.decay = {name: 0.0 if any(fnmatch.fnmatchcase(name, glob) for glob in no_decay) else weight_decay
                      for name in model.params}
        self.m, self.v, self.steps = model.zeros(), model.zeros(), 0

    def step(self, grads):
        """Returns the norm of all gradients before clipping."""
        norm = float(np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values())))
        factor = min(1.0, self.clip_norm / (norm + 1e-6))
        self.steps += 1
        (beta1, beta2), lr = self.betas, self.lr
        correction1, correction2 = 1 - beta1**self.steps, 1 - beta2**self.steps
        for name, p in self.model.params.items():
            g = grads[name] * factor
            self.m[name] = m = beta1 * self.m[name] + (1 - beta1) * g
            self.v[name] = v = beta2 * self.v[name] + (1 - beta2) * g * g
            change = m / correction1 / (np.sqrt(v / correction2) + self.eps)
            self.model.params[name] = p - lr * self.decay[name] * p - lr * change
        return norm


# Data

def sequence(start, prompt, multiplier, addend, vocab):
    """T + 1 ids: x -> (5 x + 7) mod V in the prompt, then x -> (multiplier * x + addend) mod V."""
    ids = [start]
    while len(ids) < T + 1:
        a, b = (5, 7) if len(ids) < prompt else (multiplier, addend)
        ids.append((a * ids[-1] + b) % vocab)
    return ids


def make_data(vocab):
    """ids and targets [steps,sequences,T]. Row 2 i is pair i's chosen sequence, row 2 i + 1 its rejected one; both
    share the prompt. Targets in the prompt and from a sequence's end on are ignored; ids go on behind the end."""
    rows, ends, prompts = [], [], []
    for n in range(STEPS * MICRO_BATCHES * PAIRS):
        prompt, start = 4 + n % 5, (17 * n * n + 29 * n + 11) % vocab
        lengths = [T - n % 4, T - 5 - n % 3]
        rows += [sequence(start, prompt, 3, 1, vocab), sequence(start, prompt, 11, 4, vocab)]
        ends += lengths if n % 2 == 0 else lengths[::-1]
        prompts += [prompt, prompt]
    rows, at = np.array(rows, dtype=np.int32), np.arange(T)
    counted = (at >= np.array(prompts)[:, None] - 1) & (at < np.array(ends)[:, None])
    targets = np.where(counted, rows[:, 1:], IGNORED).astype(np.int32)
    shape = (STEPS, 2 * PAIRS * MICRO_BATCHES, T)
    return rows[:, :-1].reshape(shape), targets.reshape(shape)


def changed(params):
    """The reference's weights: element k of every tensor times 1 + 0.05 sin(k), rounded to fp32."""
    def change(x):
        k = np.arange(x.size, dtype=np.float64).reshape(x.shape)
        return (x.astype(np.float64) * (1 + REFERENCE_CHANGE * np.sin(k))).astype(np.float32)
    return {name: change(x) for name, x in params.items()}


# Checks

def must_agree(what, a, b, tolerance):
    """The largest difference, relative to the largest entry."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    distance = np.abs(a - b).max() / np.abs(b).max()
    if not distance <= tolerance:
        sys.exit(f"{what}: relative difference of {distance:.3g} exceeds {tolerance:.3g}; nothing written")
    return distance


def open_model(name):
    folder = GOLDEN / "models" / name
    return folder, json.loads((folder / "config.json").read_text()), read_safetensors(folder / "model.safetensors")


def check_golden(name):
    folder, config, params = open_model(name)
    golden = read_safetensors(folder / "golden.safetensors")
    model = Llama(config, params)
    grads = model.zeros()
    loss, logits = lm_loss(model, golden["ids"], grads)
    worst = [must_agree(f"{name}: logits", logits, golden["logits"], TOLERANCE),
             must_agree(f"{name}: loss", loss, golden["loss"][0], TOLERANCE)]
    assert {f"grad.{n}" for n in grads} == {n for n in golden if n.startswith("grad.")}
    worst += [must_agree(f"{name}: gradient of {n}", g, golden["grad." + n], TOLERANCE) for n, g in grads.items()]
    return max(worst)


def check_curve(name):
    folder, config, params = open_model(name)
    curve = json.loads((folder / "curve.json").read_text())
    model = Llama(config, params)
    optimizer = AdamW(model, **{key: curve[key] for key in ADAMW})
    losses, norms = [], []
    for ids in np.array(curve["ids"]):
        grads = model.zeros()
        losses.append(lm_loss(model, ids, grads)[0])
        norms.append(optimizer.step(grads))
    return max(must_agree(f"{name}: losses of the curve", losses, curve["loss"], TOLERANCE),
               must_agree(f"{name}: norms of the curve", norms, curve["grad_norm"], TOLERANCE))


def check_differences(name, step=1e-5):
    """Central differences of the DPO loss: of each tensor the entry with the largest gradient, and the middle one."""
    _, config, params = open_model(name)
    policy, reference = Llama(config, params), Llama(config, changed(params))
    ids, targets = (x[0] for x in make_data(config["vocab_size"]))
    grads, ours, theirs = policy.zeros(), [], []
    dpo_loss(policy, reference, ids, targets, grads)
    for tensor, g in grads.items():
        flat = policy.params[tensor].reshape(-1)
        for k in (int(np.abs(g).argmax()), g.size // 2):
            before, sides = flat[k], []
            for side in (before + step, before - step):
                flat[k] = side
                sides.append(dpo_loss(policy, reference, ids, targets, policy.zeros())[0])
            flat[k] = before
            ours.append(g.reshape(-1)[k])
            theirs.append((sides[0] - sides[1]) / (2 * step))
    return must_agree(f"{name}: finite differences", ours, theirs, TOLERANCE)


# The golden files

def train(config, params, reference, ids, targets, dtype=np.float64):
    policy, reference = Llama(config, params, dtype), Llama(config, reference, dtype)
    optimizer = AdamW(policy, **ADAMW)
    course = dict(loss=[], grad_norm=[], margin=[])
    for x, y in zip(ids, targets):
        grads = policy.zeros()
        loss, margins = dpo_loss(policy, reference, x, y, grads)
        course["loss"].append(float(loss))
        course["grad_norm"].append(optimizer.step(grads))
        course["margin"].append([float(m) for m in margins[:PAIRS]])
    return course, policy.params


def summary(params):
    return {name: dict(sum=float(x.sum()), sum_squares=float((x * x).sum()), first=x.reshape(-1)[:8].tolist())
            for name, x in params.items()}


def noise_floor(plain, exact):
    """How far the same steps in fp32 are from the golden values: what a tolerance can ask for."""
    distances = {key: must_agree(key, plain[0][key], exact[0][key], 1e-2) for key in exact[0]}
    return distances | dict(params=max(must_agree(n, plain[1][n], x, 1e-2) for n, x in exact[1].items()))


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN / "train" / "two_models"
    name = sys.argv[2] if len(sys.argv) > 2 else "llama-gqa-tied"
    for each in CHECKED:
        print(each, f"golden {check_golden(each):.1e} curve {check_curve(each):.1e} "
              f"differences {check_differences(each):.1e}")
    folder, config, params = open_model(name)
    ids, targets = make_data(config["vocab_size"])
    given = (config, params, changed(params), ids, targets)
    exact = train(*given)
    floor = noise_floor(train(*given, dtype=np.float32), exact)

    (out / "reference").mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "config.json", out / "reference")
    write_safetensors(out / "reference" / "model.safetensors", given[2])
    np.save(out / "ids.npy", ids)
    np.save(out / "targets.npy", targets)
    (out / "expected.json").write_text(json.dumps(dict(
        policy=name, steps=STEPS, micro_batches=MICRO_BATCHES, pairs=PAIRS, T=T, beta=BETA, **ADAMW,
        **exact[0], params=summary(exact[1]), fp32=floor), indent=1) + "\n")
    for key, values in exact[0].items():
        print(key, np.round(values, 4).tolist())
    print("fp32", *(f"{key} {x:.1e}" for key, x in floor.items()))


if __name__ == "__main__":
    main()
