"""What strangers cost `athanor serve`, and whether others are answered meanwhile.

    athanor serve MODEL --port 8080 --quiet &
    python3 strangers.py http://127.0.0.1:8080 $!

Needs Python alone, and a limit of 10,300 open files (ulimit -n). Prints a figure for each kind of stranger and ends with
status 1 where one was not bounded."""
import http.client, json, os, resource, socket, sys, time

URL, PID = sys.argv[1], int(sys.argv[2])
HOST, PORT = URL.split("//")[1].rsplit(":", 1)
BODY = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
failures = 0


def rss_mb():
    with open(f"/proc/{PID}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1]) / 1024


def files():
    return len(os.listdir(f"/proc/{PID}/fd"))


def ask(method, path, body=None):
    """Status, and the milliseconds it took."""
    began = time.monotonic()
    c = http.client.HTTPConnection(HOST, int(PORT), timeout=60)
    c.request(method, path, json.dumps(body) if body else None)
    r = c.getresponse()
    r.read()
    c.close()
    return r.status, (time.monotonic() - began) * 1e3


def health():
    return ask("GET", "/health")[1]


def connect():
    return socket.create_connection((HOST, int(PORT)), timeout=60)


def check(what, ok):
    global failures
    print(("" if ok else "FAILED: ") + what)
    failures += not ok


def await_files(most, seconds):
    began = time.monotonic()
    while files() > most and time.monotonic() - began < seconds:
        time.sleep(0.1)
    return time.monotonic() - began


def idle_crowd(n=10000):
    before, mb, worst, began = files(), rss_mb(), 0, time.monotonic()
    crowd = []
    for i in range(n):
        crowd.append(connect())
        crowd[-1].send((b"", b"GET /v1/mod", BODY + b"Content-Le")[i % 3])
        if i % 500 == 0:
            worst = max(worst, health())
    status, ms = ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 4})
    more = rss_mb() - mb
    check(f"{n} idle connections in {time.monotonic() - began:.1f} s: {more:.0f} MB, {files()} files; /health in at most "
          f"{worst:.0f} ms, a completion {status} in {ms:.0f} ms", status == 200 and more < 100)
    took = await_files(before + 8, 30)
    check(f"their places are free after {took:.1f} s", files() <= before + 8)
    for s in crowd:
        s.close()


def large_body(kind, n=1 << 30):
    mb, began, sent, s = rss_mb(), time.monotonic(), 0, connect()
    part = b"x" * 65536
    s.send(BODY + (b"Transfer-Encoding: chunked\r\n\r\n" if kind == "chunks" else b"Content-Length: %d\r\n\r\n" % n))
    try:
        while kind != "its length" and sent < n:
            s.sendall(b"10000\r\n" + part + b"\r\n" if kind == "chunks" else part)
            sent += len(part)
    except OSError:
        pass  # closed: the answer may still be there
    try:
        answer = s.recv(4096).split(b"\r\n")[0].decode()
    except OSError as e:
        answer = str(e)
    s.close()
    more = rss_mb() - mb
    check(f"a body of 1 GB, {kind} sent: {answer} after {(time.monotonic() - began) * 1e3:.0f} ms, {more:.0f} MB",
          "413" in answer and more < 64)


def trickle(n=200):
    began, worst = time.monotonic(), 0
    clients = [connect() for _ in range(n)]
    for s in clients:
        s.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
    while clients and time.monotonic() - began < 60:
        worst = max(worst, health())
        for s in list(clients):
            try:
                s.send(b"X: y\r\n")
            except OSError:
                clients.remove(s)
        time.sleep(0.5)
    check(f"{n} clients whose headers trickle: cut off after {time.monotonic() - began:.1f} s; /health in at most {worst:.0f} ms",
          not clients)


def cut_bodies(n=200):
    before = files()
    for _ in range(n):
        s = connect()
        s.send(BODY + b"Content-Length: 90\r\n\r\n{\"prompt\":")
        s.close()
    took = await_files(before, 30)
    check(f"{n} bodies cut short: their places are free after {took:.1f} s", files() <= before and took < 10)


resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 4})  # pages of the weights are read
idle_crowd()
for kind in ("its length", "the body", "chunks"):
    large_body(kind)
trickle()
cut_bodies()
sys.exit(failures > 0)
