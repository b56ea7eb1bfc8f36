"""Training speed of athanor against PyTorch on this machine's CPU. Run it through bench/vs_pytorch.sh.

Every round runs each setting of each side once, in its own process and one after the other, so that slow drift of the
machine meets all of them alike. A run is a few warm-up steps that are dropped and then the measured ones; its result
is the median tokens per second of those steps, and a setting's result the median over the rounds.

PyTorch gets what makes it fast: as many threads as cores, fused kernels, and an allocator that keeps large blocks
(without that it spends 5-10 % of a step on page faults).

Reading order: main, run_rounds, then the two sides, then the report.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import yaml

import torch_llama

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ATHANOR_SETTINGS = {"athanor-fp32": "fp32", "athanor-bf16": "bf16"}
MALLOC = ("glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592:"
          "glibc.malloc.mmap_max=0")
TEXT_BYTES = 4_000_000


class SideFailed(Exception):
    pass


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="changes the config on both sides")
    parser.add_argument("--config", type=Path, default=HERE / "llama10m.yaml")
    parser.add_argument("--athanor", type=Path, default=ROOT / "build" / "athanor")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", help="settings, separated by commas; default: all")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    return parser.parse_args()


def load_config(path, overrides):
    config = yaml.safe_load(path.read_text())
    for item in overrides:
        key, value = item.split("=", 1)
        *parents, last = key.split(".")
        node = config
        for p in parents:
            node = node.setdefault(p, {})
        node[last] = yaml.safe_load(value)
    return config


# --- PyTorch

def run_torch(setting, config, args):
    train = config["train"]
    shape = dict(config["model"], seq_len=train["seq_len"], batch=train["global_batch_size"],
                 warmup=args.warmup, steps=args.steps)
    env = dict(os.environ, OMP_NUM_THREADS=str(cores()), GLIBC_TUNABLES=MALLOC)
    out = command([sys.executable, str(HERE / "torch_llama.py"), setting, json.dumps(shape)], env)
    result = json.loads(out.splitlines()[-1])
    return result["params"], result["tok_per_s"]


# --- athanor

def write_text(path):
    """Words with a Zipf distribution: enough variety for a tokenizer of a few thousand tokens."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(20_000)]
    picks = np.minimum(rng.zipf(1.2, TEXT_BYTES // 6), len(words)) - 1
    text = " ".join(words[i] for i in picks)
    path.write_text(re.sub(r"((?:\S+ ){400})", r"\1\n\n", text)[:TEXT_BYTES] + "\n")


def prepare_athanor(config, args):
    """Makes the tokenizer and the shards that the config names."""
    shards = Path(config["data"]["train"][0]["path"])
    tokenizer = Path(config["tokenizer"])
    text = shards.parent / "text.txt"
    text.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(shards, ignore_errors=True)
    write_text(text)
    vocab = str(config["model"]["vocab_size"])
    command([args.athanor, "tok", "train", text, "-o", tokenizer, "--kind", "bpe", "--vocab-size", vocab])
    command([args.athanor, "data", "build", text, "-o", shards, f"tokenizer={tokenizer}"])


def athanor_command(setting, config, args):
    return [str(args.athanor), "train", str(args.config), *args.overrides,
            f"train.precision={ATHANOR_SETTINGS[setting]}", f"train.steps={args.warmup + args.steps}",
            f"run={config['run']}-{setting}", "--fresh", "--json"]


def parse_steps(output, warmup):
    """output: the lines of train --json. Returns the parameter count and tok_per_s of the steps after warm-up."""
    params, rates = None, []
    for line in output.splitlines():
        event = json.loads(line)
        if "error" in event:
            raise SideFailed(event["error"]["message"])
        if event["event"] == "start":
            params = event["params"]
        elif event["event"] == "step" and event["step"] > warmup:
            rates.append(event["tok_per_s"])
    if not rates:
        raise SideFailed(f"no step after the {warmup} warm-up steps")
    return params, rates


def run_athanor(setting, config, args):
    return parse_steps(command(athanor_command(setting, config, args)), args.warmup)


# --- rounds

def command(words, env=None):
    words = [str(w) for w in words]
    try:
        done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True)
    except OSError as e:
        raise SideFailed(f"{words[0]}: {e.strerror}") from e
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise SideFailed(f"{' '.join(words[:3])} ended with status {done.returncode}: {' '.join(tail)}")
    return done.stdout


def run_rounds(settings, config, args):
    rates, params = {s: [] for s in settings}, {}
    for r in range(args.rounds):
        for s in settings:
            run = run_athanor if s in ATHANOR_SETTINGS else run_torch
            params[s], steps = run(s, config, args)
            rates[s].append(statistics.median(steps))
            print(f"round {r + 1}/{args.rounds} {s:24} {rates[s][-1]:10.0f} tok/s", file=sys.stderr, flush=True)
    return rates, params


# --- report

def cores():
    return len(os.sched_getaffinity(0))


def machine():
    info = {}
    for line in subprocess.run(["lscpu"], env=dict(os.environ, LC_ALL="C"), capture_output=True,
                               text=True).stdout.splitlines():
        key, _, value = line.partition(":")
        info[key.strip()] = value.strip()
    flags = set(info.get("Flags", "").split())
    wanted = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_tile"]
    name = f"{info.get('Model name', 'unknown')} (family {info.get('CPU family')} model {info.get('Model')})"
    return name, [f for f in wanted if f in flags]


def warn_if_busy():
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"vs_pytorch: load average {load:.1f}: something else is running, the numbers will be too low",
              file=sys.stderr)


def summary(rates):
    rows = [(s, statistics.median(r), min(r), max(r)) for s, r in rates.items()]
    torch_rates = [row[1] for row in rows if row[0] not in ATHANOR_SETTINGS]
    best = max(torch_rates) if torch_rates else None
    return rows, best


def table(rows, best):
    lines = ["| setting | tok/s, median of rounds | slowest - fastest round | of the fastest PyTorch |", "|---|---|---|---|"]
    for name, median, low, high in rows:
        ratio = f"{median / best:.2f}" if best else "-"
        lines.append(f"| {name} | {median:.0f} | {low:.0f} - {high:.0f} | {ratio} |")
    return "\n".join(lines)


def write_report(rates, params, config, args):
    name, flags = machine()
    train = config["train"]
    date = datetime.date.today().isoformat()
    slug = re.sub(r"[^a-z0-9]+", "-", f"{name.split('(')[0]} {cores()}c".lower()).strip("-")
    rows, best = summary(rates)
    body = f"""# Training speed against PyTorch, {date}

{name}, {cores()} cores, {' '.join(flags)}. PyTorch {torch_llama.torch.__version__}.
Llama, {', '.join(f'{p:,}' for p in sorted(set(params.values())))} parameters, {train['global_batch_size']} sequences of
{train['seq_len']} tokens a step; {args.rounds} rounds, every setting once a round; {args.steps} steps measured after {args.warmup} of warm-up.

{table(rows, best)}

Command: `bench/vs_pytorch.sh {' '.join(sys.argv[1:])}`. PyTorch runs with `OMP_NUM_THREADS={cores()}
GLIBC_TUNABLES={MALLOC}`; its `bf16-weights` settings keep no fp32 copy of the weights, which no trainer
would do, and stand here as its upper bound.
"""
    if any(s in ATHANOR_SETTINGS for s in rates):
        first = next(s for s in rates if s in ATHANOR_SETTINGS)
        shown = " ".join(os.path.relpath(w, ROOT) if os.path.isabs(w) else w for w in athanor_command(first, config, args))
        body += f"athanor runs as `{shown}`.\n"
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / f"vs_pytorch-{date}-{slug}.md"
    path.write_text(body)
    print(table(rows, best))
    print(f"written to {path}", file=sys.stderr)


def main():
    args = arguments()
    known = [*torch_llama.SETTINGS, *ATHANOR_SETTINGS]
    settings = args.only.split(",") if args.only else known
    unknown = [s for s in settings if s not in known]
    if unknown:
        sys.exit(f"unknown setting {unknown[0]}; there are {', '.join(known)}")
    config = load_config(args.config, args.overrides)
    warn_if_busy()
    try:
        if any(s in ATHANOR_SETTINGS for s in settings):
            prepare_athanor(config, args)
        rates, params = run_rounds(settings, config, args)
    except SideFailed as e:
        sys.exit(f"vs_pytorch: {e}")
    if len(set(params.values())) > 1:
        sys.exit(f"vs_pytorch: the sides do not train the same model: parameters {params}")
    write_report(rates, params, config, args)


if __name__ == "__main__":
    main()
