"""A headless Chromium, driven over the W3C WebDriver protocol through Debian's chromedriver. The
protocol is JSON over HTTP, so nothing but the standard library is needed.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from serving import LONG_WAIT, PATIENCE

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's key of an element's id


def missing():
    """The programs that are not installed; empty when a browser can be started."""
    return [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


class Browser:
    """One window. Everything raises AssertionError with the protocol's own words when it fails."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="sluice-chromium-")
        self.log = tempfile.TemporaryFile()
        self.driver = subprocess.Popen(["chromedriver", "--port=0", "--log-level=SEVERE"],
                                       stdout=self.log, stderr=subprocess.DEVNULL)
        self.session = None
        try:
            self.base = f"http://127.0.0.1:{self._await_driver()}"
            self.session = self._start()
            self.open("about:blank")  # away from the browser's own first page, which loads things
            self.requested_urls()
            self.console()
        except BaseException:
            self.close()
            raise

    def _await_driver(self):
        """The port, which chromedriver has chosen: no other process can take it first."""
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while True:
            text = os.pread(self.log.fileno(), 1 << 16, 0).decode()  # leaves its writer's place
            found = re.search(r"started successfully on port (\d+)", text)
            if found:
                return int(found[1])
            assert time.monotonic() < deadline, f"chromedriver does not start: {text}"
            time.sleep(0.05)

    def _start(self):
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--no-first-run", "--disable-extensions", "--disable-background-networking",
                     "--hide-scrollbars", "--force-device-scale-factor=1",
                     f"--user-data-dir={self.profile.name}"]
        options = {"args": arguments, "binary": shutil.which("chromium"),
                   "perfLoggingPrefs": {"enableNetwork": True, "enablePage": False}}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        value = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        return "/session/" + value["sessionId"]

    def _send(self, method, path, body, timeout=3 * LONG_WAIT):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()[:600]}") from None

    def close(self):
        if self.session:
            self._send("DELETE", self.session, None)
            self.session = None
        self.driver.terminate()
        self.driver.wait(LONG_WAIT)
        self.log.close()
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def open(self, url):
        self._send("POST", self.session + "/url", {"url": url})

    def run(self, script, *arguments):
        """Runs the body of a function in the page; its value. `arguments[i]` are its arguments."""
        return self._send("POST", self.session + "/execute/sync",
                          {"script": script, "args": list(arguments)})

    def wait(self, script, *arguments, seconds=LONG_WAIT):
        """Until the function returns something true, which is returned."""
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            value = self.run(script, *arguments)
            if value:
                return value
            assert time.monotonic() < deadline, f"not true within {seconds} s: {script}"
            time.sleep(0.05)

    def _element(self, selector):
        value = self._send("POST", self.session + "/element",
                           {"using": "css selector", "value": selector})
        return f"{self.session}/element/{value[ELEMENT]}"

    def click(self, selector):
        """As a person would: fails if another element covers it or it cannot be seen. While an
        answer streams in, the element may move between the aim and the click, so aim again."""
        for attempt in range(5):
            try:
                self._send("POST", self._element(selector) + "/click", {})
                return
            except AssertionError as error:
                moving = "click intercepted" in str(error) or "not interactable" in str(error)
                if attempt == 4 or not moving:
                    raise
                time.sleep(0.1)

    def type(self, selector, text):
        self._send("POST", self._element(selector) + "/value", {"text": text})

    def text(self, selector):
        return self._send("GET", self._element(selector) + "/text", None)

    def console(self):
        """The console's messages since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in
                self._send("POST", self.session + "/se/log", {"type": "browser"})]

    def requested_urls(self):
        """Every URL the page has asked for since the last call."""
        urls = []
        for entry in self._send("POST", self.session + "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return [url for url in urls if not url.startswith(("chrome:", "data:"))]

    def _devtools(self, command, **parameters):
        return self._send("POST", self.session + "/goog/cdp/execute",
                          {"cmd": command, "params": parameters})

    def appear(self, scheme, width, height):
        """As on a screen of that size, set to "light" or "dark"."""
        self._devtools("Emulation.setEmulatedMedia",
                       features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                       deviceScaleFactor=1, mobile=False)

    def screenshot(self, path):
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(self._send("GET", self.session + "/screenshot", None)))
