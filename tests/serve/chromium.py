"""A headless Chromium, driven over a pipe by the DevTools protocol. Standard library only.

    with Chromium() as browser:
        page = browser.page(1440, 900, dark=True)
        page.open(url)
        page.wait("document.title === 'x'")

Nothing but 127.0.0.1 has an address for it. Waiting is for frames of the page, never for a time; WAIT_S ends a test
that would wait for ever."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

WAIT_S = 60
NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Home": (36, ""),
    "End": (35, ""),
    " ": (32, " "),
}
SHIFT = 8


def find_chromium():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.answers, self.events, self.n, self.rest = {}, [], 0, b""
        ends = []
        for fd in (*os.pipe(), *os.pipe()):  # away from 3 and 4, which are the browser's ends
            ends.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10))
            os.close(fd)
        theirs_in, self.ours_out, self.ours_in, theirs_out = ends

        def in_child():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        self.process = subprocess.Popen(
            [
                find_chromium(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--force-device-scale-factor=1",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                "--user-data-dir=" + self.folder,
            ],
            preexec_fn=in_child,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method, session=None, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + WAIT_S
        while self.n not in self.answers:
            self.read(until, method)
        answer = self.answers.pop(self.n)
        if "error" in answer:
            raise RuntimeError("%s: %s" % (method, answer["error"]["message"]))
        return answer["result"]

    def read(self, until, what):
        if not select.select([self.ours_in], [], [], max(0, until - time.monotonic()))[0]:
            raise TimeoutError("the browser does not answer " + what)
        data = os.read(self.ours_in, 1 << 20)
        if not data:
            raise RuntimeError("the browser ended")
        *messages, self.rest = (self.rest + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def page(self, width, height, dark=False, touch=False):
        return Page(self, width, height, dark, touch)


class Page:
    """A tab with storage of its own."""

    def __init__(self, browser, width, height, dark, touch):
        self.browser = browser
        self.context = browser.send("Target.createBrowserContext")["browserContextId"]
        target = browser.send("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(domain + ".enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.send(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def close(self):
        self.browser.send("Target.disposeBrowserContext", browserContextId=self.context)

    def before_scripts(self, script):
        self.send("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("location.href === %s && document.readyState === 'complete'" % json.dumps(url))

    def run(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(
                "%s: %s" % (expression, details.get("exception", details).get("description", details["text"]))
            )
        return result["result"].get("value")

    def wait(self, condition):
        until = time.monotonic() + WAIT_S
        while not self.run("new Promise((done) => requestAnimationFrame(() => done(Boolean(%s))))" % condition):
            if time.monotonic() > until:
                raise TimeoutError(
                    "never true: %s; the page says: %s" % (condition, self.run("document.body.innerText")[:2000])
                )

    def type(self, text):
        self.send("Input.insertText", text=text)

    def press(self, key, modifiers=0):
        code, text = KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key if len(key) == 1 else ""))
        down = {
            "type": "keyDown" if text else "rawKeyDown",
            "key": key,
            "windowsVirtualKeyCode": code,
            "modifiers": modifiers,
        }
        self.send("Input.dispatchKeyEvent", **down, **({"text": text, "unmodifiedText": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def hover(self, selector):
        x, y = self.run(
            "(() => { const r = document.querySelector(%s).getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()" % json.dumps(selector)
        )
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, scale=1.0):
        size = self.run("[innerWidth, innerHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": scale}
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", clip=clip)["data"])

    def seen(self, method):
        """Parameters of the events of that name so far."""
        return [
            e["params"] for e in self.browser.events if e["method"] == method and e.get("sessionId") == self.session
        ]

    def urls(self):
        return [e["request"]["url"] for e in self.seen("Network.requestWillBeSent")]

    def complaints(self):
        """What the console holds: exceptions, refusals by the policy, failed requests."""
        return [
            e["exceptionDetails"].get("exception", {}).get("description", "exception")
            for e in self.seen("Runtime.exceptionThrown")
        ] + [e["entry"]["text"] for e in self.seen("Log.entryAdded") if e["entry"]["level"] == "error"]
