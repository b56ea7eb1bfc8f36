"""A stand-in for `athanor serve` where the page is developed and tested: the two routes that the page asks, with
answers that a test can know beforehand. Standard library only.

    python3 tests/serve/mock_openai.py build/page/chat.html [--port N] [--key KEY]

The last message says what is answered: the text behind "say ", or behind "blob " as a single token, the page of Markdown for "sample", a refusal for a key
of REFUSALS, and for "cut" an answer that breaks off.
Each token has made-up log-probabilities that depend on its text alone."""

import argparse
import hashlib
import http.server
import json
import math
import os
import re
import threading
import time

MODELS = [
    {
        "id": "small",
        "object": "model",
        "max_model_len": 2048,
        "meta": {
            "chat": True,
            "sampling": {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0, "repetition_penalty": 1.1},
        },
    },
    {"id": "large", "object": "model", "max_model_len": 8192, "meta": {"chat": True, "sampling": {"temperature": 1}}},
    {"id": "base", "object": "model", "max_model_len": 512, "meta": {"chat": False, "sampling": {}}},
]
REFUSALS = {
    "busy": (429, "32 texts wait already", None),
    "too long": (400, "the prompt has 2,113 tokens, and the context 2,048", "context_length_exceeded"),
    "broken": (500, "the engine stopped", None),
}


def digest(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


def tokens_of(text):
    """Words with the space before them; a character of more than three bytes is cut in two tokens."""
    for word in re.findall(r"\s?[^\s]+|\s", text):
        raw = word.encode()
        cut = next((i for i, b in enumerate(raw) if b >= 0xF0), None)
        if cut is None:
            yield raw
        else:
            yield raw[: cut + 2]
            yield raw[cut + 2 :]


def logprobs_of(raw):
    p = 0.35 + 0.64 * digest(raw.hex())
    entry = lambda b, q: {"token": b.decode(errors="replace"), "logprob": q, "bytes": list(b)}
    others = [(raw, math.log(p))] + [
        (w.encode(), math.log((1 - p) * f)) for w, f in ((" the", 0.5), (" a", 0.25), ("\n", 0.12), (" one", 0.06))
    ]
    others.sort(key=lambda o: -o[1])
    return {"content": [dict(entry(raw, math.log(p)), top_logprobs=[entry(*o) for o in others])]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, kind="application/json", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, code=None):
        self.answer(
            status,
            {"error": {"message": message, "type": "error", "code": code}},
            headers=[("Retry-After", "3")] if status == 429 else (),
        )

    def allowed(self):
        key = self.server.key
        if key and self.headers.get("Authorization") != "Bearer " + key:
            self.refuse(401, "no or a wrong API key")
            return False
        return True

    def handle_one_request(self):
        super().handle_one_request()
        if self.server.stopped:
            self.close_connection = True

    def parse_request(self):
        return not self.server.stopped and super().parse_request()

    def do_GET(self):
        self.server.seen.append(("GET", self.path, None))
        if self.path == "/":
            with open(self.server.page, "rb") as f:
                self.answer(200, f.read(), "text/html; charset=utf-8", self.server.page_headers)
        elif self.path == "/v1/models":
            if self.allowed():
                self.answer(200, {"object": "list", "data": MODELS})
        else:
            self.refuse(404, "no such page")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(("POST", self.path, body))
        if not self.allowed():
            return
        chat = self.path == "/v1/chat/completions"
        text = body["messages"][-1]["content"] if chat else body["prompt"]
        if text in REFUSALS:
            return self.refuse(*REFUSALS[text])
        if text == "sample":
            with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "sample.md")) as f:
                text = "say " + f.read()
        self.whole = text.startswith("blob ")
        said = (
            text[5:]
            if self.whole
            else text[4:] if text.startswith("say ") else f"You said: {text} ({body['model']}, seed {body['seed']})"
        )
        self.stream(chat, said, body, text)

    def piece(self, value):
        data = b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def stream(self, chat, said, body, text):
        server = self.server
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        rest, n = b"", 0
        try:
            for raw in [said.encode()] if self.whole else tokens_of(said):
                server.go(n)
                if text == "cut" and n == 3:
                    self.close_connection = True
                    return
                rest += raw
                try:
                    whole, rest = rest.decode(), b""
                except UnicodeDecodeError:
                    whole = ""
                choice = {"index": 0, "finish_reason": None}
                if chat:
                    choice.update(delta={"content": whole}, logprobs=logprobs_of(raw))
                else:
                    top = logprobs_of(raw)["content"][0]
                    choice.update(
                        text=whole,
                        logprobs={
                            "tokens": [top["token"]],
                            "token_logprobs": [top["logprob"]],
                            "top_logprobs": [{t["token"]: t["logprob"] for t in top["top_logprobs"]}],
                        },
                    )
                if n == 0:
                    server.first_sent = time.time()
                self.piece({"choices": [choice]})
                n += 1
            server.ending.wait(20)
            limit = body.get("max_tokens")
            self.piece(
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "length" if limit and n >= limit else "stop"}]}
            )
            self.piece({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": 10 + n}})
            self.piece(b"[DONE]")
            self.wfile.write(b"0\r\n\r\n")
            server.ended.append(n)
        except (BrokenPipeError, ConnectionResetError):
            server.ended.append(-1)
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    """seen: requests; ended: tokens of each answer, -1 where the client went. While `held` is clear,
    answers wait behind their third token; while `ending` is, behind their last."""

    daemon_threads = True

    def __init__(self, page, port=0, key=None, pause=0.0, page_headers=()):
        super().__init__(("127.0.0.1", port), Handler)
        self.page, self.key, self.pause, self.page_headers = page, key, pause, page_headers
        self.seen, self.ended, self.first_sent = [], [], None
        self.stopped = False
        self.held = threading.Event()
        self.held.set()
        self.ending = threading.Event()
        self.ending.set()
        self.url = "http://127.0.0.1:%d/" % self.server_address[1]

    def stop(self):
        """Connections that are kept open, too, get no more answers."""
        self.stopped = True
        self.shutdown()
        self.server_close()

    def go(self, n):
        if n >= 3:
            self.held.wait(20)
        time.sleep(self.pause)


def csp_of(page):
    """The policy that the program sends with the page, from the header that is made beside it."""
    with open(os.path.join(os.path.dirname(page), "chat_page.h")) as f:
        return "".join(re.findall(r'"(.*?)"', f.read().split("CHAT_PAGE_CSP")[1]))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("page")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--key")
    a = p.parse_args()
    server = Server(a.page, a.port, a.key, 0.03, [("Content-Security-Policy", csp_of(a.page))])
    print(server.url, flush=True)
    server.serve_forever()
