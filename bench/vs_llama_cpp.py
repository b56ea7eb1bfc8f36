"""Prefill and decode of one GGUF file: athanor against llama.cpp, in turns.

    python bench/vs_llama_cpp.py build/athanor MODEL.gguf [--rounds 5] [--threads 2] [--prompt-tokens 1024] [--new 128]

Needs the package llama-cpp-python. Both read the same number of given tokens into an empty cache and then take further
ones one at a time; nothing is sampled. Each round is one run of `athanor bench generate`, then llama.cpp with the same
number of rounds inside, so slow drift of the machine meets both. Prints medians over rounds, and the ratio of each round.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("athanor", help="the program")
    p.add_argument("model", help="a GGUF file")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--repeat", type=int, default=3, help="measurements in a round, of which the median counts")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--prompt-tokens", type=int, default=1024)
    p.add_argument("--new", type=int, default=128)
    p.add_argument("--json", action="store_true", help="one object instead of a table")
    return p.parse_args()


def run_athanor(a):
    words = [a.athanor, "bench", "generate", a.model, "--json", "--repeat", a.repeat, "--threads", a.threads,
             "--prompt-tokens", a.prompt_tokens, "--new", a.new]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"athanor: {done.stdout}{done.stderr}")
    rows = {r["name"]: r["value"] for r in json.loads(done.stdout)["rows"]}
    return rows["prefill"], rows["decode"]


class LlamaCpp:
    def __init__(self, a):
        from llama_cpp import Llama
        self.a = a
        self.model = Llama(a.model, n_ctx=a.prompt_tokens + a.new, n_threads=a.threads, n_threads_batch=a.threads,
                           n_batch=512, n_ubatch=512, logits_all=False, verbose=False)
        draw = random.Random(1)
        self.ids = [draw.randrange(self.model.n_vocab()) for _ in range(a.prompt_tokens + a.new)]

    def _measure(self):
        n = self.a.prompt_tokens
        self.model.reset()
        start = time.perf_counter()
        self.model.eval(self.ids[:n])
        prefill = time.perf_counter() - start
        start = time.perf_counter()
        for token in self.ids[n:]:
            self.model.eval([token])
        return n / prefill, self.a.new / (time.perf_counter() - start)

    def run(self):
        self._measure()
        rates = [self._measure() for _ in range(self.a.repeat)]
        return tuple(statistics.median(r) for r in zip(*rates))


def main():
    a = read_arguments()
    llama = LlamaCpp(a)
    rounds = [(run_athanor(a), llama.run()) for _ in range(a.rounds)]
    result = {}
    for i, phase in enumerate(("prefill", "decode")):
        ours, theirs = [r[0][i] for r in rounds], [r[1][i] for r in rounds]
        ratios = [x / y for x, y in zip(ours, theirs)]
        result[phase] = {"athanor": statistics.median(ours), "llama.cpp": statistics.median(theirs),
                         "ratio": statistics.median(ratios), "ratios": ratios}
    if a.json:
        print(json.dumps({"threads": a.threads, "prompt_tokens": a.prompt_tokens, "new_tokens": a.new, **result}))
        return
    print(f"{a.threads} threads, {a.prompt_tokens} tokens and {a.new} after them, {a.rounds} rounds; tok/s\n")
    for phase, r in result.items():
        each = " ".join(f"{x:.2f}" for x in r["ratios"])
        print(f"{phase:8} athanor {r['athanor']:8.1f}   llama.cpp {r['llama.cpp']:8.1f}   ratio {r['ratio']:.2f}  ({each})")


if __name__ == "__main__":
    main()
