#!/usr/bin/env python3
"""`athanor serve` under a load: are all answers right, does memory stay, are descriptors given back, does SIGTERM lose
an answer?

    bench/serve_load.py build/athanor MODEL [--clients 64] [--requests 2000] [--minutes 60]

Rounds of `athanor bench serve --check`: a tenth of the requests given up within the answer, a tenth malformed, and each
answer compared with what the model gives that request alone. Resident memory and descriptors of the server are sampled
all the while. In the end the server gets a SIGTERM under load: it must exit with 0, and what had begun must be whole.
Only the standard library is needed. Exit status 1: something of this does not hold.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time


def read_arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("athanor")
    p.add_argument("model")
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--requests", type=int, default=2000, help="of a round")
    p.add_argument("--minutes", type=float, default=0, help="rounds go on so long; one at least")
    p.add_argument("--prompt-words", default="4:64")
    p.add_argument("--new", default="1:32")
    p.add_argument("--serve", default="", help="more options of athanor serve")
    return p.parse_args()


def resident_mib(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Sampler(threading.Thread):
    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.memory, self.fds = pid, [], []

    def run(self):
        try:
            while True:
                self.memory.append(resident_mib(self.pid))
                self.fds.append(descriptors(self.pid))
                time.sleep(0.5)
        except OSError:
            pass  # it has ended


def start(a):
    command = [a.athanor, "serve", a.model, "--port", "0", "--json"] + a.serve.split()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = server.stdout.readline()
    if not line.strip() or "url" not in json.loads(line):
        sys.exit(f"athanor serve did not begin: {line}")
    return server, json.loads(line)["url"]


def bench(a, url, requests, seed, *words):
    command = [a.athanor, "bench", "serve", url, "--clients", str(a.clients), "--requests", str(requests), "--seed", str(seed),
               "--prompt-words", a.prompt_words, "--new", a.new, "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rows_of(process):
    result = json.loads(process.communicate()[0])
    if "rows" not in result:
        sys.exit(f"bench serve: {result}")
    return {r["name"].split(": ")[-1]: r["value"] for r in result["rows"]}, result.get("failure", "")


def settled(count, least):
    """What is given back a moment after an answer."""
    until = time.monotonic() + 10
    while count() > least and time.monotonic() < until:
        time.sleep(0.05)
    return count()


def load(a, server, url):
    good, until, number = True, time.monotonic() + 60 * a.minutes, 0
    rows_of(bench(a, url, 2 * a.clients, 999999))  # buffers have the size that they need
    idle_fds, memory = descriptors(server.pid), resident_mib(server.pid)
    while number == 0 or time.monotonic() < until:
        began = time.monotonic()
        sampler = Sampler(server.pid)
        sampler.start()
        rows, why = rows_of(bench(a, url, a.requests, number, "--cancel", "0.1", "--malformed", "0.1", "--check"))
        fds = settled(lambda: descriptors(server.pid), idle_fds)
        number += 1
        good &= rows["differ"] == 0 and not why and fds <= idle_fds
        kinds = ", ".join(f"{rows[k]:.0f} {k}" for k in ("answered", "given_up", "turned_away", "unreachable", "cut", "wrong"))
        print(f"round {number}: {kinds}; {rows['differ']:.0f} differ from what they are alone; {rows['tok_per_s']:.0f} tok/s; "
              f"memory {memory:.1f} -> {resident_mib(server.pid):.1f} MiB (at most {max(sampler.memory):.1f}); "
              f"descriptors {idle_fds} -> {fds} (at most {max(sampler.fds)}); {time.monotonic() - began:.0f} s {why}", flush=True)
    return good


def end_under_load(a, server, url):
    client = bench(a, url, 50 * a.clients, 77)
    time.sleep(2)
    server.send_signal(signal.SIGTERM)
    status = server.wait(timeout=300)
    rows, _ = rows_of(client)
    good = status == 0 and rows["cut"] == 0 and rows["wrong"] == 0 and rows["answered"] > 0
    print(f"SIGTERM: status {status}; {rows['answered']:.0f} answered, {rows['cut']:.0f} cut, {rows['wrong']:.0f} wrong, "
          f"{rows['turned_away'] + rows['unreachable']:.0f} came too late")
    return good


def main():
    a = read_arguments()
    server, url = start(a)
    try:
        good = load(a, server, url)
        good &= end_under_load(a, server, url)
    finally:
        server.kill()
    print("all holds" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
