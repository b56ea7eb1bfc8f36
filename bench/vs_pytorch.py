"""Training speed of athanor against PyTorch on this machine's CPU. Run it through bench/vs_pytorch.sh.

Every setting of each side is a program of its own that is set up and warmed up once and then waits. A round asks each of
them in turn for one optimizer step. A setting's result is the median over the rounds; ratios are taken inside each round,
then their median. Settings that do not fit in memory together are split into passes, each with athanor in it.

PyTorch gets what makes it fast: as many threads as cores, fused kernels, and an allocator that keeps large blocks and takes
huge pages for them (without the first it spends up to 20 % of a step on page faults; the second brings some 5 %).

Workloads are the .yaml files beside this one. `key.path=value` changes a workload on both sides.

Reading order: main, run_passes, then the two sides, then the report.
"""

import argparse
import contextlib
import datetime
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import yaml

from vs_peers import Clock, Peer, PeerFailed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORKLOADS = ("gpt2", "smollm2", "llama10m", "experts")
ATHANOR_SETTINGS = {
    "athanor-fp32": ["train.precision=fp32"],
    "athanor-bf16": ["train.precision=bf16"],
    "athanor-fp32-selective": ["train.precision=fp32", "train.recompute=selective"],
    "athanor-bf16-selective": ["train.precision=bf16", "train.recompute=selective"],
}
# For the workload `experts`: a model without experts that does the same arithmetic for a token.
AS_DENSE = ["model.model_type=llama", "model.intermediate_size=1024", "model.num_experts=0"]
DENSE_SETTINGS = {f"{s}-dense": [*ATHANOR_SETTINGS[s], *AS_DENSE] for s in ("athanor-fp32", "athanor-bf16")}
ATHANOR_SETTINGS |= DENSE_SETTINGS
TORCH_SETTINGS = [f"{weights}-{mode}" for mode in ("compile", "eager")
                  for weights in ("fp32", "bf16-autocast", "bf16-weights")]
MALLOC = ("glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592:"
          "glibc.malloc.mmap_max=0")
RESERVE_BYTES = 1 << 30  # for the system, beside the programs
# What holds athanor and PyTorch, with its oneDNN and MKL, to an instruction set. no-amx: AVX-512 with its dot products of bf16.
ISAS = {
    "native": ({}, {}),
    "no-amx": ({"ATHANOR_ISA": "avx512_bf16"},
               {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E3"}),
    "avx2": ({"ATHANOR_ISA": "avx2"},
             {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
              "TORCHINDUCTOR_CPP_MARCH": "x86-64-v3"}),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key.path=value")
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    parser.add_argument("--settings", help="separated by commas; default: athanor in fp32 and bf16 and all of PyTorch's, "
                        "its bf16 only where the processor has bf16; "
                        "with the workload experts also its -dense ones. There are "
                        f"{', '.join([*ATHANOR_SETTINGS, *TORCH_SETTINGS])}")
    parser.add_argument("--isa", choices=[*ISAS], default="native",
                        help="avx2: both sides use nothing newer; no-amx: as on a processor without tiles")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2, help="steps after set-up that do not count, at least 2")
    parser.add_argument("--athanor", type=Path, default=ROOT / "build" / "athanor")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    args = parser.parse_intermixed_args()
    if args.rounds < 1 or args.warmup < 2:  # the second step is the first with all of the memory in use
        parser.error("--rounds must be at least 1 and --warmup at least 2")
    return args


def choose_settings(args, workload):
    """Returns athanor's and PyTorch's, those of a side in the order in which they are set up."""
    bf16 = args.isa != "avx2" and {"avx512_bf16", "amx_bf16"} & set(cpu_flags())
    dense = DENSE_SETTINGS if workload == "experts" else ()
    default = ["athanor-fp32", "athanor-bf16", *dense, *(s for s in TORCH_SETTINGS if bf16 or s.startswith("fp32"))]
    chosen = args.settings.split(",") if args.settings else default
    for s in chosen:
        if s not in ATHANOR_SETTINGS and s not in TORCH_SETTINGS:
            sys.exit(f"vs_pytorch: no setting {s}; there are {', '.join([*ATHANOR_SETTINGS, *TORCH_SETTINGS])}")
    return [s for s in ATHANOR_SETTINGS if s in chosen], [s for s in TORCH_SETTINGS if s in chosen]


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


def say(text, end="\n"):
    print(text, end=end, file=sys.stderr, flush=True)


# --- the two sides

class Workload:
    def __init__(self, name, args):
        self.name, self.args, self.path = name, args, HERE / f"{name}.yaml"
        config = load_config(self.path, args.overrides)
        train = config["train"]
        self.shape = dict(config["model"], seq_len=train["seq_len"], batch=train["global_batch_size"])

    def athanor_words(self, setting):
        return [self.args.athanor.resolve(), "bench", "train", self.path.relative_to(ROOT), *self.args.overrides,
                *ATHANOR_SETTINGS[setting], "--on-demand"]

    def torch_env(self):
        """Compiled code goes to a folder for each instruction set: PyTorch's cache would hand the code made for one to a
        program that runs with the other, which then computes NaN or crashes."""
        cache = ROOT / "build" / "bench" / f"inductor-{self.args.isa}"
        env = dict(OMP_NUM_THREADS=str(cores()), GLIBC_TUNABLES=MALLOC, THP_MEM_ALLOC_ENABLE="1",
                   TORCHINDUCTOR_COMPILE_THREADS="1", TORCHINDUCTOR_CACHE_DIR=str(cache))
        return env | ISAS[self.args.isa][1]

    def start(self, setting):
        if setting in ATHANOR_SETTINGS:
            return Peer(setting, self.athanor_words(setting), os.environ | ISAS[self.args.isa][0], ROOT)
        words = [sys.executable, HERE / "torch_model.py", setting, json.dumps(self.shape), "--serve"]
        return Peer(setting, words, os.environ | self.torch_env(), ROOT)

    def estimate_torch_bytes(self, setting, params):
        """Peak memory of a PyTorch setting, rather too much: weights, gradients and two moments; three copies of the logits
        and the values that eager fp32 saves, which compiling makes fewer; what the allocator keeps and cannot use."""
        s = self.shape
        tokens, c = s["batch"] * s["seq_len"], s["hidden_size"]
        f = s.get("intermediate_size", 4 * c)
        per_layer = 18 * c + (4 if s["model_type"] == "llama" else 1) * f
        saved = 4 * tokens * (3 * s["vocab_size"] + s["num_hidden_layers"] * per_layer)
        return 16 * params + int(1.3 * saved * (0.6 if setting.endswith("compile") else 1.0)) + (400 << 20)


# --- passes and rounds

def available_bytes():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


class Pass:
    """Programs that are alive together."""

    def __init__(self, workload):
        self.workload, self.peers = workload, {}
        self.rates, self.losses, self.ends = {}, {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.peers.values():
            p.__exit__()

    def add(self, setting):
        """Sets a program up and warms it up. Returns false, without it, where memory could be short."""
        say(f"{self.workload.name}: {setting}: setting up", end="")
        peer = self.workload.start(setting)
        with contextlib.ExitStack() as undo:
            undo.enter_context(peer)
            peer.wait_ready()
            ready = peer.ready
            need = ready.get("planned_peak_bytes") or self.workload.estimate_torch_bytes(setting, ready["params"])
            if need + RESERVE_BYTES > available_bytes():
                say(f": needs about {need / 1e9:.1f} GB, has to wait")
                return False
            for i in range(self.workload.args.warmup):
                say(f", warm-up {i + 1}", end="")
                peer.step()
            say("")
            undo.pop_all()
        self.peers[setting] = peer
        return True

    def drop(self, setting):
        self.peers.pop(setting).__exit__()

    def run(self, number, clock):
        args, peers = self.workload.args, list(self.peers.values())
        self.rates = {s: [] for s in self.peers}
        for r in range(args.rounds):
            turn = r % len(peers)
            for p in peers[turn:] + peers[:turn]:  # nobody always follows the same one
                say(f"{self.workload.name}, pass {number}, round {r + 1}/{args.rounds}: {p.name:24}", end="")
                event = clock.step(p, peers)
                self.rates[p.name].append(event["tok_per_s"])
                self.losses[p.name] = event["loss"]
                say(f" {event['tok_per_s']:9.0f} tok/s")
        self.ends = {p.name: p.finish() for p in peers}


def only_athanor(group):
    return all(s in ATHANOR_SETTINGS for s in group.peers)


def fill(group, athanor, torch):
    """Sets up as many of athanor's settings and then of PyTorch's as memory allows; athanor's last ones make room for
    PyTorch's first. Returns those of PyTorch that do not even fit beside one of athanor's."""
    too_large = []
    for s in athanor:
        group.add(s)
    for s in torch:
        fits = group.add(s)
        while not fits and only_athanor(group) and len(group.peers) > 1:
            group.drop(list(group.peers)[-1])
            fits = group.add(s)
        if not fits and only_athanor(group):
            too_large.append(s)
    if not group.peers:
        raise PeerFailed(f"{(athanor or torch)[0]} does not fit in memory")
    return too_large


def run_passes(workload, athanor, torch):
    """Returns the passes and the clock. A setting too large for memory is in none of them."""
    passes, clock, missing = [], Clock(), [*athanor, *torch]
    while missing:
        with Pass(workload) as group:
            first = sorted(athanor, key=lambda s: s not in missing)  # so that none that is missing makes room
            too_large = fill(group, first, [s for s in torch if s in missing] or torch)
            check_same_model(group)
            group.run(len(passes) + 1, clock)
            passes.append(group)
        missing = [s for s in missing if s not in group.rates and s not in too_large]
        torch = [s for s in torch if s not in too_large]
    return passes, clock


def check_same_model(group):
    params = {s: p.ready["params"] for s, p in group.peers.items() if s not in DENSE_SETTINGS}
    if len(set(params.values())) > 1:
        raise PeerFailed(f"the sides do not train the same model: parameters {params}")


# --- results

class Result:
    """What the passes say about one setting."""

    def __init__(self, setting, passes):
        mine = [p for p in passes if setting in p.rates]
        rates = [r for p in mine for r in p.rates[setting]]
        self.setting, self.rate, self.low, self.high = setting, statistics.median(rates), min(rates), max(rates)
        self.passes = [i + 1 for i, p in enumerate(passes) if p in mine]
        self.loss = mine[-1].losses[setting]
        self.rss = max(p.ends[setting]["peak_rss_bytes"] for p in mine)


def ratios(passes, setting, other):
    """One for each round in which both ran."""
    return [a / b for p in passes if setting in p.rates and other in p.rates
            for a, b in zip(p.rates[setting], p.rates[other])]


def show_ratio(passes, setting, other):
    r = ratios(passes, setting, other)
    return f"{statistics.median(r):.2f} ({min(r):.2f} - {max(r):.2f})" if r else "-"


def results_table(passes, rows, fastest):
    lines = ["| setting | tok/s, median | slowest - fastest | of the fastest PyTorch | peak RSS, GB | loss | pass |",
             "|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r.setting} | {r.rate:.0f} | {r.low:.0f} - {r.high:.0f} | {show_ratio(passes, r.setting, fastest)} "
                     f"| {r.rss / 1e9:.2f} | {r.loss:.3f} | {', '.join(map(str, r.passes))} |")
    return "\n".join(lines)


def ratio_table(passes, athanor, others):
    lines = [f"| | {' | '.join(athanor)} |", "|---" * (1 + len(athanor)) + "|"]
    for t in others:
        lines.append(f"| of {t} | {' | '.join(show_ratio(passes, a, t) for a in athanor)} |")
    return "\n".join(lines)


def show_results(passes, athanor, torch):
    ran = [s for s in [*torch, *athanor] if any(s in p.rates for p in passes)]
    left_out = [s for s in [*torch, *athanor] if s not in ran]
    rows = {s: Result(s, passes) for s in ran}
    fastest = max((s for s in ran if s in torch), key=lambda s: rows[s].rate, default=None)
    parts = [results_table(passes, rows.values(), fastest)]
    others = [s for s in [*torch, *DENSE_SETTINGS] if s in ran]
    if athanor and others:
        parts.append(ratio_table(passes, [s for s in athanor if s in ran and s not in DENSE_SETTINGS], others))
    if left_out:
        parts.append(f"Left out for lack of memory: {', '.join(left_out)}.")
    return "\n\n".join(parts)


# --- report

def cores():
    return len(os.sched_getaffinity(0))


def lscpu():
    out = subprocess.run(["lscpu"], env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True, check=True).stdout
    pairs = (line.partition(":") for line in out.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def cpu_flags():
    flags = set(lscpu().get("Flags", "").split())
    return [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16") if f in flags]


def cpu_name():
    info = lscpu()
    return f"{info.get('Model name', 'unknown')} (family {info.get('CPU family')} model {info.get('Model')})"


def describe_sides(workload, group):
    """One paragraph from what the programs said about themselves and how they were started."""
    parts = []
    for side, known in (("athanor", True), ("PyTorch", False)):
        peers = [p for s, p in group.peers.items() if (s in ATHANOR_SETTINGS) == known]
        if not peers:
            continue
        ready = peers[0].ready  # a side's settings agree on what is shown
        version = f" {ready['torch']}" if "torch" in ready else ""
        parts.append(f"{side}{version}: {ready['threads']} threads, instruction set {ready['isa']}.")
        if known:
            shown = workload.athanor_words(peers[0].name)
            parts.append(f"Run as `{shlex.join(['build/athanor', *map(str, shown[1:])])}`.")
        else:
            env = {k: v for k, v in workload.torch_env().items() if k != "TORCHINDUCTOR_CACHE_DIR"}
            parts.append(f"Run with `{' '.join(f'{k}={v}' for k, v in env.items())}`; its `bf16-weights` settings keep no "
                         "fp32 copy of the weights, which no trainer would do, and stand here as its upper bound.")
    return " ".join(parts)


def report(workload, passes, clock, tables):
    args, s = workload.args, workload.shape
    waiting, foreign = clock.shares()
    params = next(iter(passes[0].peers.values())).ready["params"]
    return f"""# Training speed against PyTorch: {workload.name}, {args.isa} instructions, {datetime.date.today().isoformat()}

{cpu_name()}, {cores()} cores, {' '.join(cpu_flags())}.
{s['model_type']} with {params:,} parameters, {s['batch']} sequences of {s['seq_len']:,} random tokens a step.

{tables}

{args.rounds} rounds; in each, every setting that is alive runs one step in turn, after {args.warmup} steps of warm-up at
the start. A ratio is the median (lowest - highest) of those inside the rounds; settings that did not fit in memory
together ran in different passes and have none. PyTorch's allocator is set to keep memory for speed, which adds to its
peak. While one ran, the waiting ones used {100 * waiting:.1f} % of the processor time, everything else
{100 * foreign:.1f} %.

{describe_sides(workload, passes[0])}

Command: `{shlex.join(['bench/vs_pytorch.sh', *sys.argv[1:]])}`
"""


def write_report(workload, text):
    args = workload.args
    machine = re.sub(r"[^a-z0-9]+", "-", f"{cpu_name().split('(')[0]} {cores()}c".lower()).strip("-")
    name = f"vs_pytorch-{datetime.date.today().isoformat()}-{machine}-{workload.name}-{args.isa}.md"
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / name).write_text(text)
    say(f"written to {args.results / name}")


def main():
    args = arguments()
    try:
        for name in WORKLOADS if args.workload == "all" else [args.workload]:
            athanor, torch = choose_settings(args, name)
            workload = Workload(name, args)
            passes, clock = run_passes(workload, athanor, torch)
            tables = show_results(passes, athanor, torch)
            print(f"{name}, {args.isa}\n\n{tables}\n")
            write_report(workload, report(workload, passes, clock, tables))
            if max(clock.shares()) > 0.02:
                say(f"vs_pytorch: {name}: other work took {100 * max(clock.shares()):.0f} % of the processor: measure again")
    except PeerFailed as e:
        say("")
        sys.exit(f"vs_pytorch: {e}")


if __name__ == "__main__":
    main()
