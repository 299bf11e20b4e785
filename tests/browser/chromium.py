"""A browser driven over a pipe, with the DevTools protocol and nothing but the standard library."""
import json
import os
import shutil
import subprocess
import tempfile
import time


def find():
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    """Pages run in a profile of their own, without a sandbox since tests often run as root."""

    def __init__(self, path, width=1280, height=720):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-browser-")
        to_read, self.writer = os.pipe()
        self.reader, to_write = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--disable-dev-shm-usage", "--remote-debugging-pipe",
                 f"--window-size={width},{height}", f"--user-data-dir={self.folder.name}"]
        # The browser reads commands from 3 and writes answers to 4; the shell puts the pipes there.
        command = ["sh", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", path, *flags, "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=(to_read, to_write),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.number, self.session, self.errors = b"", 0, None, []
        target = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"][0]
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def read(self):
        while b"\0" not in self.buffer:
            part = os.read(self.reader, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.writer, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path):
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        limit = time.monotonic() + 60
        while self.value("document.readyState === 'complete' && typeof page === 'object'") is not True:
            if time.monotonic() > limit or self.errors:
                raise RuntimeError(f"{path} did not load: {self.errors}")
            time.sleep(0.02)

    def value(self, expression):
        """What an expression (or a promise) gives in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def drag(self, x0, y0, x1, y1, shift=False):
        keys = {"modifiers": 8 if shift else 0, "button": "left"}
        self.mouse("mousePressed", x0, y0, clickCount=1, **keys)
        self.mouse("mouseMoved", (x0 + x1) / 2, (y0 + y1) / 2, buttons=1, **keys)
        self.mouse("mouseMoved", x1, y1, buttons=1, **keys)
        self.mouse("mouseReleased", x1, y1, clickCount=1, **keys)

    def key(self, key):
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path):
        import base64
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            self.process.kill()
        self.process.wait()
        os.close(self.reader)
        os.close(self.writer)
        for _ in range(50):  # its last processes may still be writing into the folder
            try:
                self.folder.cleanup()
                return
            except OSError:
                time.sleep(0.1)
