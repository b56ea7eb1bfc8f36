"""Makes ../golden/loss_scale.json: what PyTorch's GradScaler does with the loss scale, step by step.

Each case has GradScaler's settings, a string with a letter per step (x: a gradient overflowed, -: none did), and after
each step the scale and the number of steps since it changed.

Usage: python loss_scale.py [OUT]
"""

import json
import random
import sys
from pathlib import Path

import torch

CASES = [
    # init_scale, growth_factor, backoff_factor, growth_interval, steps, share of overflows
    (65536.0, 2.0, 0.5, 5, 60, 0.15),
    (65536.0, 2.0, 0.5, 1, 12, 0.5),
    (1e6, 1.7, 0.3, 3, 40, 0.2),
    (1.5e38, 2.0, 0.5, 2, 9, 0.0),  # fp32 ends: the scale stays, the count begins anew
]


def run(init_scale, growth_factor, backoff_factor, growth_interval, steps, share):
    rng = random.Random(init_scale)
    settings = dict(init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
                    growth_interval=growth_interval)
    scaler = torch.amp.GradScaler("cpu", **settings)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    overflows, scales, since = "", [], []
    for _ in range(steps):
        overflow = rng.random() < share
        scaler.scale(weight.sum())  # GradScaler begins with the first use
        weight.grad = torch.tensor([float("inf") if overflow else 1.0])
        scaler.step(optimizer)
        scaler.update()
        overflows += "x" if overflow else "-"
        scales.append(scaler.get_scale())
        since.append(scaler._get_growth_tracker())
    return settings | dict(overflows=overflows, scale=scales, since=since)


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden" / "loss_scale.json"
    cases = ",\n".join(json.dumps(run(*case)) for case in CASES)
    out.write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
