"""Two ranks of one thread against one rank of two threads: training steps by turns on one machine.

    python bench/ranks.py build/athanor MODEL [--rounds 3] [--keys "train.seq_len=512 ..."] [LAYOUT ...]

A LAYOUT is keys of the two ranks, such as "parallel.zero=3" or "parallel.tp=2 parallel.sp=true"; without any: dp, ZeRO-3
and tp. All run beside each other through `athanor bench train --on-demand`, of which one at a time makes a step; the others
wait without computing. Prints every step, medians, and tokens/s against one rank.
"""

import argparse
import json
import os
import statistics
import subprocess

LAYOUTS = ["parallel.dp=2", "parallel.zero=3", "parallel.tp=2"]


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("athanor", help="the program")
    p.add_argument("model", help="a preset or config")
    p.add_argument("layouts", nargs="*", default=LAYOUTS)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--keys", default="train.seq_len=512 train.global_batch_size=8 train.micro_batch_size=4",
                   help="keys of all of them")
    return p.parse_intermixed_args()


def start(a, ranks, keys):
    launch = ["launch", "--ranks", str(ranks), "--"] if ranks > 1 else []
    words = [a.athanor, *launch, "bench", "train", a.model, "--on-demand", *a.keys.split(), *keys.split()]
    env = {**os.environ, "OMP_NUM_THREADS": str(2 // ranks)}
    p = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
    ready = json.loads(p.stdout.readline())
    print(f"{keys or 'one rank':32} {ready['planned_peak_bytes'] / 1e6:8.0f} MB a rank", flush=True)
    return p


def step_ms(p):
    p.stdin.write("\n")
    p.stdin.flush()
    return json.loads(p.stdout.readline())["step_ms"]


def main():
    a = read_arguments()
    runs = {"": start(a, 1, "")} | {keys: start(a, 2, keys) for keys in a.layouts}
    times = {keys: [] for keys in runs}
    for p in runs.values():
        step_ms(p)  # not measured
    for _ in range(a.rounds):
        for keys, p in runs.items():
            times[keys].append(step_ms(p))
    base = statistics.median(times[""])
    for keys, ms in times.items():
        each = ", ".join(f"{x:.0f}" for x in ms)
        print(f"{keys or 'one rank':32} {statistics.median(ms):8.0f} ms  {base / statistics.median(ms):.3f}  ({each})")
    for p in runs.values():
        p.stdin.close()
        p.wait()


if __name__ == "__main__":
    main()
