"""Programs that wait on standard input and run one training step for every line they get.

A program prints {"event": "ready", "params", ...} when it is set up, then for each line it reads {"event": "step",
"step_ms", "tok_per_s", "loss"}, and at the end of its input {"event": "end", "peak_rss_bytes"}: one line of JSON each.
Several are alive at once and take turns, so that slow drift of the machine meets all of them alike. That is only fair
while a waiting program leaves the processor alone; Clock measures whether it does.
"""

import json
import math
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTLE_S = 0.1  # after a step: OpenMP's threads spin for some milliseconds before they sleep


class PeerFailed(Exception):
    pass


class Peer:
    """One program. Use as a context manager: leaving it ends the program."""

    def __init__(self, name, words, env, folder):
        self.name, self.errors = name, tempfile.TemporaryFile(mode="w+")
        try:
            self.process = subprocess.Popen([str(w) for w in words], env=env, cwd=folder, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=self.errors, text=True)
        except OSError as e:
            raise PeerFailed(f"{name}: {words[0]}: {e.strerror}") from e
        self.ready = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # nothing where it has ended
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            stream.close()

    def wait_ready(self):
        self.ready = self._read("ready")

    def step(self):
        self._ask()
        event = self._read("step")
        if not math.isfinite(event["loss"]):
            raise PeerFailed(f"{self.name}: the loss is {event['loss']}")
        return event

    def finish(self):
        """Ends the input. Returns the last event."""
        self.process.stdin.close()
        event = self._read("end")
        self.process.wait()
        return event

    def ticks(self):
        """Processor time used so far, by all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def _ask(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def _read(self, kind):
        line = self.process.stdout.readline()
        if not line:
            self._fail()
        event = json.loads(line)
        if "error" in event:
            raise PeerFailed(f"{self.name}: {event['error']['message']}")
        if event["event"] != kind:
            raise PeerFailed(f"{self.name}: said {event['event']} where {kind} was expected")
        return event

    def _fail(self):
        status = self.process.wait()
        self.errors.seek(0)
        tail = " ".join(self.errors.read().strip().splitlines()[-3:])
        if status == -signal.SIGKILL:
            tail += " (killed: was there enough memory?)"
        raise PeerFailed(f"{self.name} ended with status {status}: {tail}")


def machine_ticks():
    """Processor time of the whole machine that was not idle, including what a hypervisor took."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return user + nice + system + irq + softirq + steal


class Clock:
    """Adds up the processor time that the programs whose turn it is not, and all others, used during steps."""

    def __init__(self):
        self.waiting = self.foreign = self.capacity = 0

    def step(self, peer, peers):
        time.sleep(SETTLE_S)
        start, busy = time.monotonic(), machine_ticks()
        before = {p: p.ticks() for p in peers}
        event = peer.step()
        used = {p: p.ticks() - before[p] for p in peers}
        self.waiting += sum(t for p, t in used.items() if p is not peer)
        self.foreign += max(0, machine_ticks() - busy - sum(used.values()))
        self.capacity += (time.monotonic() - start) * TICKS_PER_S * os.cpu_count()
        return event

    def shares(self):
        """Of all processor time during steps: taken by waiting programs, and by everything else."""
        return self.waiting / self.capacity, self.foreign / self.capacity
