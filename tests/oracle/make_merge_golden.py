"""Makes tests/golden/merge: what mergekit makes of small tensors, for tests/interchange/test_merge.c.

mergekit (PyPI, 0.1.5) computes linear, SLERP, task arithmetic and TIES by its own functions. Its `rescale` is another
one than that of DARE's paper (it keeps the L1 norm), and its random numbers are torch's; so DARE is written out here in
NumPy from the paper (arXiv:2311.03099, eq. 1: what is kept is divided by 1 - p), with Philox4x32-10 keyed by seed,
model and tensor as src/interchange/merge/merge_math.c says, and mergekit's election of signs after it.

Usage: python make_merge_golden.py [OUT]       (default: ../golden/merge; needs numpy, torch, xxhash, mergekit)
"""

import sys
from pathlib import Path

import numpy as np
import torch
import xxhash
from mergekit.merge_methods.generalized_task_arithmetic import ConsensusMethod, GeneralizedTaskArithmeticMerge, get_mask
from mergekit.merge_methods.base import TensorGroup
from mergekit.merge_methods.slerp import slerp
from mergekit.sparsify import SparsificationMethod

from two_models import write_safetensors

SHAPE, NAME, SEED = (37, 11), "model.layers.3.mlp.up_proj.weight", 7
WEIGHTS, DENSITIES = [0.5, 0.3, 0.4], [0.5, 0.25, 0.8]
MASK64 = (1 << 64) - 1


def mix64(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def philox(key, counter):
    """128 bits of Salmon et al. 2011 as four numbers."""
    c, k = [counter & 0xFFFFFFFF, counter >> 32, 0, 0], list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(model, n):
    stream = xxhash.xxh3_64_intdigest(f"merge.{model}.{NAME}".encode())
    x = mix64(mix64((SEED + 0x9E3779B97F4A7C15) & MASK64) ^ stream)
    key = (x & 0xFFFFFFFF, x >> 32)
    return np.array([(philox(key, i >> 2)[i & 3] >> 8) * 2.0**-24 for i in range(n)], np.float32)


def dare(base, models, elect):
    deltas = []
    for k, model in enumerate(models):
        keep = uniform(k, base.size).reshape(SHAPE) < np.float32(DENSITIES[k])
        delta = np.where(keep, (model - base) / np.float32(DENSITIES[k]), np.float32(0))
        deltas.append(delta * np.float32(WEIGHTS[k]))
    deltas = np.stack(deltas)
    if elect:
        deltas = deltas * get_mask(torch.from_numpy(deltas)).numpy()
    return base + deltas.sum(axis=0, dtype=np.float32)


def arithmetic(base, models, consensus, sparsify, normalize, densities, scale=1.0):
    method = GeneralizedTaskArithmeticMerge(consensus, sparsify, normalize, False, "", None, None)
    group = TensorGroup.from_tensors([torch.from_numpy(x) for x in [*models, base]], base_index=len(models))
    options = dict(weight=dict(enumerate(WEIGHTS)), density=dict(enumerate(densities)), normalize=normalize,
                   rescale=False, int8_mask=False)
    options["lambda"] = scale
    return method.merge_group(group, **options).numpy()


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "golden/merge"
    rng = np.random.default_rng(11)
    base = rng.normal(0, 0.2, SHAPE).astype(np.float32)
    models = [(base + rng.normal(0, 0.05, SHAPE)).astype(np.float32) for _ in range(3)]
    a, b = models[0], rng.normal(0, 0.2, SHAPE).astype(np.float32)
    one, three = [1.0] * 3, ConsensusMethod.sum
    t = lambda a, b, at: slerp(torch.tensor([at]), torch.from_numpy(a)[None], torch.from_numpy(b)[None])[0].numpy()
    result = dict(base=base, a=models[0], b=models[1], c=models[2], far=b)
    result["linear"] = np.float32(0.9) * models[0] + np.float32(0.1) * models[1]
    result["soup"] = np.mean(np.stack(models), axis=0)
    result["slerp"] = t(a, b, 0.3)
    result["slerp_straight"] = t(a, (a * np.float32(1.5)).astype(np.float32), 0.3)
    result["task_arithmetic"] = arithmetic(base, models, None, None, False, one, 0.7)
    result["ties"] = arithmetic(base, models, three, SparsificationMethod.magnitude, True, DENSITIES)
    result["ties_whole"] = arithmetic(base, models, three, None, True, one)
    result["dare_linear"] = dare(base, models, False)
    result["dare_ties"] = dare(base, models, True)
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(out / "merge.safetensors", {k: np.ascontiguousarray(v) for k, v in result.items()})


if __name__ == "__main__":
    main()
