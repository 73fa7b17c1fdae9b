"""Chromium without a window, driven over the pipe of its DevTools protocol, and the server's program."""
import base64
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time

KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowRight": (39, ""), " ": (32, " ")}
MODIFIERS = {"Alt": 1, "Control": 2, "Shift": 8}


class Server:
    """`tessera serve` on a free port."""

    def __init__(self, program, *flags):
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--drain", "0", "--json", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the server ended at once")
        self.url = json.loads(line)["url"]

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.process.stdout.close()


class Browser:
    def __init__(self, patience=30):
        self.patience = patience
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()
        # The browser reads from 3 and writes to 4.
        shell = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["/bin/bash", "-c", shell, "chromium", "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--mute-audio",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
             "--hide-scrollbars", "--force-color-profile=srgb", "--user-data-dir=" + self.folder.name, "about:blank"],
            pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.rest = b""
        self.number = 0
        self.answers = {}
        self.events = []

    def close(self):
        # Of this browser's own group: what it started ends with it.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.folder.cleanup()

    def take(self, seconds):
        """Takes what came, waiting at most so long for something to come."""
        ready, _, _ = select.select([self.read_end], [], [], seconds)
        if not ready:
            return
        more = os.read(self.read_end, 1 << 20)
        if not more:
            raise RuntimeError("the browser ended")
        *messages, self.rest = (self.rest + more).split(b"\0")
        for message in messages:
            message = json.loads(message)
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.patience
        while self.number not in self.answers:
            if time.monotonic() > end:
                raise TimeoutError(method)
            self.take(0.2)
        answer = self.answers.pop(self.number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]


class Page:
    """One tab with a session of its own."""

    def __init__(self, browser, url, width=1280, height=800, scheme="light", scale=1, before=""):
        self.browser = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank",
                                   browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height, scale)
        self.media(scheme)
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def size(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def media(self, scheme, motion="no-preference"):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme},
                            {"name": "prefers-reduced-motion", "value": motion}])

    def run(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, script, seconds=None):
        end = time.monotonic() + (seconds or self.browser.patience)
        while True:
            if self.run(f"Boolean({script})"):
                return
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.03)

    def key(self, key, *modifiers):
        code, text = KEYS[key]
        mask = sum(MODIFIERS[name] for name in modifiers)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code="Space" if key == " " else key,
                      windowsVirtualKeyCode=code, modifiers=mask,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        x, y = self.run("(() => { const box = document.querySelector(%s).getBoundingClientRect();"
                        "return [box.x + box.width / 2, box.y + box.height / 2]; })()" % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def fill(self, identity, text):
        """Writes into a field as a person does: what was there is gone."""
        self.run(f"document.getElementById({json.dumps(identity)}).focus(); "
                 f"document.getElementById({json.dumps(identity)}).select()")
        if text:
            self.type(text)
        else:
            self.run(f"document.getElementById({json.dumps(identity)}).value = ''")

    def choose(self, identity, value):
        self.run("(() => { const list = document.getElementById(%s); list.value = %s;"
                 "if (list.value !== %s) throw new Error('no such choice');"
                 "list.dispatchEvent(new Event('input', {bubbles: true}));"
                 "list.dispatchEvent(new Event('change', {bubbles: true})); })()"
                 % (json.dumps(identity), json.dumps(value), json.dumps(value)))

    def drop(self, files, x, y):
        data = {"items": [], "files": files, "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def screenshot(self, path, whole=False):
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as out:
            out.write(base64.b64decode(answer["data"]))

    def mine(self, method):
        return [event["params"] for event in self.browser.events
                if event.get("sessionId") == self.session and event["method"] == method]

    def failures(self):
        """What the page itself got wrong: exceptions and refusals of its policy."""
        out = [event["exceptionDetails"].get("exception", {}).get("description", "an exception")
               for event in self.mine("Runtime.exceptionThrown")]
        out += [event["entry"]["text"] for event in self.mine("Log.entryAdded")
                if event["entry"]["level"] == "error" and event["entry"]["source"] != "network"]
        return out

    def addresses(self):
        return {match.group(0) if (match := re.match(r"[a-z]+://[^/]+|[a-z]+:", event["request"]["url"])) else "?"
                for event in self.mine("Network.requestWillBeSent")}
