"""Experts in transformers 5: fused tensors in memory, a tensor for each expert in files; and the loss of their balance."""

import contextlib
import importlib
import math
import re

import torch

NAMES = {"mixtral": ("w1", "w3", "w2")}
OTHERS = ("gate_proj", "up_proj", "down_proj")
FUSED = re.compile(r"(.*\.mlp\.experts)\.(gate_up_proj|down_proj)$")


def place(kind, prefix):
    return prefix.replace(".mlp.", ".block_sparse_moe.") if kind == "mixtral" else prefix


def to_files(kind, tensors):
    """Names and shapes of files, from those of transformers' modules."""
    gate, up, down = NAMES.get(kind, OTHERS)
    out = {}
    for name, t in tensors.items():
        fused = FUSED.match(name)
        if not fused:
            out[place(kind, name) if name.endswith("mlp.gate.weight") else name] = t
            continue
        for e, matrix in enumerate(t):
            at = f"{place(kind, fused[1])}.{e}."
            if fused[2] == "down_proj":
                out[f"{at}{down}.weight"] = matrix
            else:
                half = matrix.shape[0] // 2
                out[f"{at}{gate}.weight"], out[f"{at}{up}.weight"] = matrix[:half], matrix[half:]
    return out


def from_files(model, tensors):
    """The other way round."""
    kind = model.config.model_type
    out = dict(tensors)
    for name, p in model.state_dict().items():
        stored = to_files(kind, {name: p})
        if list(stored) == [name]:
            continue
        parts = [out.pop(n) for n in stored]
        if not FUSED.match(name):
            out[name] = parts[0]
        elif name.endswith("down_proj"):
            out[name] = torch.stack(parts)
        else:
            out[name] = torch.stack([torch.cat(parts[i:i + 2]) for i in range(0, len(parts), 2)])
    return out


def balance(model, inputs):
    """coef * load_balancing_loss of the model's own code; 0: it has no experts."""
    kind = model.config.model_type
    coef = getattr(model.config, "router_aux_loss_coef", 0)
    if not coef:
        return 0
    module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    out = model(input_ids=inputs, use_cache=False, output_router_logits=True)
    logits = tuple(l for l in out.router_logits if l is not None)
    return coef * module.load_balancing_loss_func(logits, model.num_experts, model.config.num_experts_per_tok)


def balance_by(model, inputs, balance, z_loss):
    """What train.router.balance and z_loss add to the loss of a batch that is a whole step: from the papers' formulas.

    sequence: DeepSeek-V3, eq. 17 to 20; global: Qiu et al. 2025, eq. 2, over all tokens; z: Zoph et al. 2022, eq. 5. Summed over layers.
    """
    k, experts, rows = model.config.num_experts_per_tok, model.num_experts, inputs.shape[0] if balance == "sequence" else 1
    out = model(input_ids=inputs, use_cache=False, output_router_logits=True)
    total = 0
    for logits in (l for l in out.router_logits if l is not None):
        total = total + z_loss * (torch.logsumexp(logits, -1) ** 2).mean()
        for part in logits.reshape(rows, -1, experts):
            p = torch.softmax(part, -1)
            chosen = torch.zeros_like(p).scatter_(1, p.topk(k).indices, 1)
            f = experts / k * chosen.mean(0)
            total = total + model.config.router_aux_loss_coef * (f * p.mean(0)).sum() / rows
    return total


def taken(picks, rows, experts, factor):
    """1 where an expert takes a pick, 0 where it is dropped; picks [N,k] of the tokens of `rows` sequences, in their order.

    An expert takes ceil(factor * T * k / E) picks of a sequence of T tokens: Fedus et al. 2021, eq. 3, with sequences as groups.
    """
    of_row = picks.shape[0] // rows
    limit = math.ceil(factor * of_row * picks.shape[1] / experts * (1 - 1e-12))
    out = torch.zeros_like(picks)
    for row in range(rows):
        room = [limit] * experts
        for n in range(row * of_row, (row + 1) * of_row):
            for j, expert in enumerate(picks[n].tolist()):
                out[n, j] = room[expert] > 0
                room[expert] -= 1
    return out


@contextlib.contextmanager
def limited(model, rows, factor):
    """The model drops picks; yields a list to which every layer adds the share that it drops."""
    shares = []

    def drop(module, args):
        x, picks, weights = args
        takes = taken(picks, rows, module.num_experts, factor)
        shares.append(1 - takes.double().mean().item())
        return x, picks, weights * takes

    hooks = [m.register_forward_pre_hook(drop) for m in model.modules() if type(m).__name__.endswith("Experts")]
    yield shares
    for hook in hooks:
        hook.remove()
