"""Golden steps of Adafactor (transformers') and rates of OneCycleLR and the inverse square root
(PyTorch's, transformers'), for tests/optim: python optimizers.py > ../golden/optim/optimizers.json

Parameters and gradients follow from a formula that the tests have, too: what is stored are results.
"""
import json
import math

import torch
from transformers.optimization import Adafactor, get_inverse_sqrt_schedule

SHAPES = [(9, 7), (70, 3), (3, 270), (1, 11), (11,)]
STEPS = [7]

ADAFACTOR = [
    dict(lr=None, relative_step=True, scale_parameter=True, warmup_init=False),
    dict(lr=None, relative_step=True, scale_parameter=True, warmup_init=True),
    dict(lr=1e-2, relative_step=False, scale_parameter=False, weight_decay=0.1),
    dict(lr=3e-2, relative_step=False, scale_parameter=True, weight_decay=0.1, clip_threshold=0.5,
         decay_rate=-0.6, eps=(1e-20, 0.7)),
]

ONE_CYCLE = [
    dict(max_lr=5e-3, total_steps=20),
    dict(max_lr=1.0, total_steps=23, pct_start=0.2, div_factor=50, final_div_factor=10,
         anneal_strategy="linear", base_momentum=0.8, max_momentum=0.9),
    dict(max_lr=1.0, total_steps=31, pct_start=0.4, three_phase=True),
]


def numbers(shape, tensor, step):
    """Row by row; the first number of every tensor is small, to be far from the others."""
    n = math.prod(shape)
    i = torch.arange(n, dtype=torch.int64) + 1000 * tensor
    x = ((i * 7919 + step * 104729) % 1000 - 500).float() / 250
    x[0] *= 1e-3
    return x.reshape(shape)


def adafactor(options):
    ps = [torch.nn.Parameter(numbers(s, k, 0)) for k, s in enumerate(SHAPES)]
    opt = Adafactor(ps, **options)
    after = {}
    for step in range(1, max(STEPS) + 1):
        for k, p in enumerate(ps):
            p.grad = numbers(SHAPES[k], k, step)
        opt.step()
        if step in STEPS:
            after[step] = [[float(f"{v:.8g}") for v in p.detach().flatten().tolist()] for p in ps]
    return after


def one_cycle(options):
    opt = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, **options)
    lr, beta1 = [], []
    for step in range(options["total_steps"]):
        lr.append(opt.param_groups[0]["lr"])
        beta1.append(opt.param_groups[0]["betas"][0])
        opt.step()
        if step + 1 < options["total_steps"]:
            schedule.step()
    return dict(options=options, lr=lr, beta1=beta1)


def inverse_sqrt(warmup, steps):
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = get_inverse_sqrt_schedule(opt, warmup)
    lr = []
    for _ in range(steps):
        schedule.step()
        lr.append(opt.param_groups[0]["lr"])
    return dict(warmup=warmup, lr=lr)


print(json.dumps({
    "adafactor": [dict(options=o, after=adafactor(o)) for o in ADAFACTOR],
    "one_cycle": [one_cycle(o) for o in ONE_CYCLE],
    "inverse_sqrt": inverse_sqrt(4, 12),
}))
