"""Matrix products: athanor beside `torch.mm` and oneDNN, in turns, product by product.

    build/venv/bin/python bench/vs_mm.py build/athanor [MxNxK|CONFIG...] [--dtype f32|bf16] [--threads 1,2] [--rounds 5]

Needs torch; `bench/vs_pytorch.sh` makes such an environment. Each round of a product is one run of `athanor bench gemm` (own
products and oneDNN 2.6 in turns), then `torch.mm` (MKL in fp32, oneDNN 3 in bf16); the best time of a round counts. Prints GFLOP/s,
medians over rounds, and the median ratio to torch. In bf16 torch's weight gradients are bf16; athanor's are f32 and added to what is
there. With --isa no-amx both sides do without tiles.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from vs_pytorch import HERE, ISAS

CONFIGS = [str(HERE / f"{name}.yaml") for name in ("gpt2", "smollm2", "llama10m")]
LAYOUTS = ["forward", "backward input", "backward weight"]
SECONDS = 0.3  # of the peer in a round


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("athanor")
    p.add_argument("inputs", nargs="*", default=["2048x2048x2048", *CONFIGS])
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--isa", choices=[*ISAS], default="native")
    p.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return p.parse_intermixed_args()


def serve(a):
    """The peer: reads a layout, m, n and k; prints the seconds of C [m,n] = A B with matrices that lie as athanor's."""
    import torch

    torch.set_num_threads(int(a.threads))
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[a.dtype]
    print("ready", flush=True)
    for line in sys.stdin:
        layout, m, n, k = map(int, line.split())
        A = torch.randn((k, m)).to(dtype).t() if LAYOUTS[layout] == "backward weight" else torch.randn((m, k)).to(dtype)
        B = torch.randn((n, k)).to(dtype).t() if LAYOUTS[layout] == "forward" else torch.randn((k, n)).to(dtype)
        C = torch.empty((m, n), dtype=dtype)
        print(best_time(lambda: torch.mm(A, B, out=C)), flush=True)


def best_time(call):
    call()
    best, end, runs = float("inf"), time.perf_counter() + SECONDS, 0
    while time.perf_counter() < end or runs < 3:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


def run_athanor(a, threads, words):
    """GFLOP/s by (m, n, k), layout and implementation."""
    done = subprocess.run([a.athanor, "bench", "gemm", *words, "--json", "--dtype", a.dtype, "--threads", str(threads)],
                          capture_output=True, text=True, env=os.environ | ISAS[a.isa][0])
    if done.returncode != 0:
        sys.exit(f"athanor: {done.stdout}{done.stderr}")
    return {((r["m"], r["n"], r["k"]), r["layout"], r["impl"]): r["value"] for r in json.loads(done.stdout)["rows"]}


def measure(a, threads, peer, case):
    """(own, oneDNN, torch) of each round."""
    (m, n, k), layout = case
    rounds = []
    for _ in range(a.rounds):
        rates = run_athanor(a, threads, [f"{m}x{n}x{k}"])
        peer.stdin.write(f"{LAYOUTS.index(layout)} {m} {n} {k}\n")
        peer.stdin.flush()
        torch = 2e-9 * m * n * k / float(peer.stdout.readline())
        rounds.append((rates[(m, n, k), layout, "own"], rates.get(((m, n, k), layout, "onednn"), 0), torch))
    return rounds


def print_case(case, rounds):
    own, onednn, torch = (statistics.median(column) for column in zip(*rounds))
    ratio = statistics.median(r[0] / r[2] for r in rounds)
    print(f"{'x'.join(map(str, case[0])):18} {case[1]:15} {own:7.0f} {onednn:7.0f} {torch:7.0f} {ratio:6.2f}", flush=True)


def main():
    a = read_arguments()
    if a.serve:
        return serve(a)
    cases = dict.fromkeys((shape, layout) for (shape, layout, _) in run_athanor(a, 1, a.inputs))
    for threads in map(int, a.threads.split(",")):
        words = [sys.executable, __file__, a.athanor, "--serve", "--dtype", a.dtype, "--threads", str(threads)]
        env = os.environ | ISAS[a.isa][1] | {"OMP_NUM_THREADS": str(threads)}
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as peer:
            peer.stdout.readline()
            print(f"\n{a.dtype}, {threads} threads, GFLOP/s\n{'m x n x k':18} {'':15}     own  oneDNN   torch  ratio")
            for case in cases:
                print_case(case, measure(a, threads, peer, case))
            peer.stdin.close()


if __name__ == "__main__":
    main()
