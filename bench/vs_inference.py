"""Prefill and decode: athanor against llama.cpp on a GGUF file, against transformers on a folder, in turns.

    python bench/vs_inference.py build/athanor MODEL [--rounds 5] [--threads 2] [--prompt-tokens 1024] [--new 128]

Needs the package llama-cpp-python, or transformers and torch; these compute in the dtype of the folder. Both read the
same number of given tokens into an empty cache and then take further ones one at a time; nothing is sampled. Each round
is one run of `athanor bench generate`, then the other with the same number of measurements inside, so slow drift of the
machine meets both. Prints medians over rounds, and the ratio of each round.
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
    p.add_argument("model", help="a GGUF file, or a folder")
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


class Peer:
    """vocab, begin() for an empty cache, and feed(ids) are of the peer."""

    def __init__(self, a):
        self.a = a

    def _measure(self):
        n = self.a.prompt_tokens
        draw = random.Random(1)
        ids = [draw.randrange(self.vocab) for _ in range(n + self.a.new)]
        self.begin()
        start = time.perf_counter()
        self.feed(ids[:n])
        prefill = time.perf_counter() - start
        start = time.perf_counter()
        for token in ids[n:]:
            self.feed([token])
        return n / prefill, self.a.new / (time.perf_counter() - start)

    def run(self):
        self._measure()
        rates = [self._measure() for _ in range(self.a.repeat)]
        return tuple(statistics.median(r) for r in zip(*rates))


class LlamaCpp(Peer):
    name = "llama.cpp"

    def __init__(self, a):
        super().__init__(a)
        from llama_cpp import Llama
        self.model = Llama(a.model, n_ctx=a.prompt_tokens + a.new, n_threads=a.threads, n_threads_batch=a.threads,
                           n_batch=512, n_ubatch=512, logits_all=False, verbose=False)
        self.vocab = self.model.n_vocab()

    def begin(self):
        self.model.reset()

    def feed(self, ids):
        self.model.eval(ids)


class Transformers(Peer):
    name = "transformers"

    def __init__(self, a):
        super().__init__(a)
        import torch
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(a.threads)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(a.model, dtype="auto").eval()
        self.vocab = self.model.config.vocab_size

    def begin(self):
        self.past = None

    def feed(self, ids):
        with self.torch.inference_mode():
            out = self.model(self.torch.tensor([ids]), past_key_values=self.past, use_cache=True, logits_to_keep=1)
        self.past = out.past_key_values


def main():
    a = read_arguments()
    peer = Transformers(a) if os.path.isdir(a.model) else LlamaCpp(a)
    rounds = [(run_athanor(a), peer.run()) for _ in range(a.rounds)]
    result = {}
    for i, phase in enumerate(("prefill", "decode")):
        ours, theirs = [r[0][i] for r in rounds], [r[1][i] for r in rounds]
        ratios = [x / y for x, y in zip(ours, theirs)]
        result[phase] = {"athanor": statistics.median(ours), peer.name: statistics.median(theirs),
                         "ratio": statistics.median(ratios), "ratios": ratios}
    if a.json:
        print(json.dumps({"threads": a.threads, "prompt_tokens": a.prompt_tokens, "new_tokens": a.new, **result}))
        return
    print(f"{a.threads} threads, {a.prompt_tokens} tokens and {a.new} after them, {a.rounds} rounds; tok/s\n")
    for phase, r in result.items():
        each = " ".join(f"{x:.2f}" for x in r["ratios"])
        print(f"{phase:8} athanor {r['athanor']:8.1f}   {peer.name} {r[peer.name]:8.1f}   ratio {r['ratio']:.2f}  ({each})")


if __name__ == "__main__":
    main()
