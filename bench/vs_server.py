#!/usr/bin/env python3
"""`athanor serve` beside llama.cpp's server on one GGUF file, by the same client, in turns.

    bench/vs_server.py build/athanor build/llama_server/build/bin/llama-server MODEL.gguf [--rounds 5] [--streams 16]

Three things: total tokens a second and latencies of 1 and of N clients (`athanor bench serve --peer`); the first token
after 1,024 tokens, where their beginning is in the cache and where nothing is; one stream beside `athanor bench generate`.
bench/llama_server.sh builds the peer. Only the standard library is needed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("athanor")
    p.add_argument("llama_server", help="the program, or - for none")
    p.add_argument("model")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--streams", type=int, default=16)
    p.add_argument("--ctx", type=int, default=2048, help="tokens of a text at most")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--prompt-words", default="128")
    p.add_argument("--new", default="128")
    p.add_argument("--port", type=int, default=9390, help="of the peer")
    p.add_argument("--serve", default="--draft none", help="more options of athanor serve; the peer tries no tokens in advance")
    p.add_argument("--only", default="load,prefix,alone")
    return p.parse_args()


def start_ours(a):
    command = [a.athanor, "serve", a.model, "--port", "0", "--json", "--ctx", a.ctx, "--streams", a.streams,
               "--threads", a.threads] + a.serve.split()
    server = subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = server.stdout.readline()
    if not line.strip() or "url" not in json.loads(line):
        sys.exit(f"athanor serve did not begin: {line}")
    return server, json.loads(line)["url"]


def start_peer(a):
    """One slot a stream, each with the whole context, as athanor has it."""
    command = [a.llama_server, "-m", a.model, "-np", a.streams, "-c", a.streams * a.ctx, "-t", a.threads,
               "-tb", a.threads, "--port", a.port, "--no-webui"]
    server = subprocess.Popen([str(w) for w in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{a.port}"
    while server.poll() is None:
        try:
            urllib.request.urlopen(url + "/health").close()
            return server, url
        except OSError:
            time.sleep(0.1)
    sys.exit("llama-server ended")


def run(a, *words):
    done = subprocess.run([a.athanor, "bench"] + [str(w) for w in words] + ["--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return {r["name"]: r["value"] for r in json.loads(done.stdout)["rows"]}


def measure_load(a, urls):
    words = ["serve", urls[0], "--clients", f"1,{a.streams}", "--rounds", a.rounds, "--prompt-words", a.prompt_words,
             "--new", a.new]
    if len(urls) > 1:
        words += ["--peer", urls[1]]
    rows = run(a, *words)
    print(json.dumps(rows, indent=1))
    one, many = rows["1 client: tok_per_s"], rows[f"{a.streams} clients: tok_per_s"]
    print(f"{a.streams} streams: {many / one:.2f} times the tokens of one", flush=True)


def measure_prefix(a, urls):
    """The seed differs from round to round, so what is cold stays cold."""
    for name, url in zip(("athanor", "llama.cpp"), urls):
        ratios = []
        for i in range(a.rounds):
            words = ["serve", url, "--clients", 1, "--requests", 6, "--prompt-words", 1024, "--new", 1]
            cold = run(a, *words, "--seed", 100 + i)["1 client: first_p50"]
            cached = run(a, *words, "--seed", 200 + i, "--shared-words", 1000)["1 client: first_p50"]
            ratios.append(cached / cold)
            print(f"  {name}: 1,024 tokens cold {cold:.1f} ms, 1,000 of them cached {cached:.1f} ms")
        print(f"{name}: first token with a cached prefix, of cold: {statistics.median(ratios):.3f}", flush=True)


def measure_alone(a, urls):
    ratios = []
    for i in range(a.rounds):
        alone = run(a, "generate", a.model, "--prompt-tokens", 128, "--new", 128, "--threads", a.threads)["decode"]
        words = ["serve", urls[0], "--clients", 1, "--requests", 4, "--prompt-words", 128, "--new", 128]
        served = 1000 / run(a, *words, "--seed", 300 + i)["1 client: token_p50"]
        ratios.append(served / alone)
        print(f"  one stream {served:.1f} tok/s, bench generate {alone:.1f} tok/s")
    print(f"one stream through the server, of bench generate: {statistics.median(ratios):.3f}", flush=True)


def main():
    a = read_arguments()
    servers = [start_ours(a)] + ([start_peer(a)] if a.llama_server != "-" else [])
    urls = [url for _, url in servers]
    try:
        for name in a.only.split(","):
            {"load": measure_load, "prefix": measure_prefix, "alone": measure_alone}[name](a, urls)
    finally:
        for server, _ in servers:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
