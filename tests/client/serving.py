"""A `sluice serve` or `sluice gateway` process for a test, and the plainest ways to talk to it."""

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

from prometheus_client.parser import text_string_to_metric_families

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("SLUICE_BINARY", os.path.join(ROOT, "build", "dev", "apps", "sluice"))
MODEL = os.path.join(ROOT, "models", "demo")
NAME = "demo"  # the model's name to clients: that of its folder
NAMESPACE = "sluice:"
# Whether demo_server() is a gateway with the model as a function. ctest runs files both ways.
OVER_GATEWAY = os.environ.get("SLUICE_COMMAND") == "gateway"
# All bounds of time are multiplied by it: sanitizers are slow.
PATIENCE = float(os.environ.get("SLUICE_PATIENCE", "1"))
# Seconds until a state that is waited for must have come, on a machine that does other things too.
LONG_WAIT = 60
# With SLOW options ENDLESS takes a minute on two cores of today: whatever a test does beside it, on
# any machine and however late, happens while it runs.
SLOW = ("--isa", "reference")
ENDLESS = {"model": NAME, "prompt": "Once", "max_tokens": 2000, "n": 8, "ignore_eos": True,
           "stream": True}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One process, ready when made; stop() ends it by SIGTERM and checks its exit status."""

    def __init__(self, *options, api_key=None, expected_status=0, port=None, model=MODEL,
                 command="serve", prefix=()):
        self.expected_status = expected_status
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-client-")
        self.access_log = os.path.join(self.folder.name, "access.jsonl")
        self.stderr_path = os.path.join(self.folder.name, "stderr")
        self.api_key = api_key
        line = [*prefix, BINARY, command, *([model] if model else []), "--host", "127.0.0.1",
                "--port", str(port or 0), "--threads", "2", "--access-log", self.access_log,
                *options]
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL,
                                            stdout=stderr, stderr=stderr)
        self._await_ready()

    @property
    def key(self):
        """The key that a client gives. Clients need some key also where the server needs none."""
        return self.api_key or "none"

    def _await_ready(self):
        """Sets the port, which the server has chosen: no other process can take it first."""
        self.port = self.base = None
        deadline = time.monotonic() + 2 * LONG_WAIT * PATIENCE
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"exit {self.process.returncode}:\n{self.stderr()}")
            found = re.search(r"listening on (http://127\.0\.0\.1:(\d+));", self.stderr())
            if found:
                self.base, self.port = found[1], int(found[2])
                if self.get("/ready").status == 200:
                    return
            if time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"not ready in time:\n{self.stderr()}")
            time.sleep(0.02)

    def stderr(self):
        with open(self.stderr_path, encoding="utf-8", errors="replace") as stream:
            return stream.read()

    def await_stderr(self, text, seconds=LONG_WAIT):
        deadline = time.monotonic() + seconds * PATIENCE
        while text not in self.stderr():
            assert time.monotonic() < deadline, self.stderr()
            time.sleep(0.02)

    @contextlib.contextmanager
    def stopped(self):
        """The process does nothing until the block ends: what was sent by then comes at once."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=2 * LONG_WAIT):
        """The exit status; kills what does not end in time."""
        try:
            return self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running after {seconds} s:\n{self.stderr()}") from None

    def stop(self):
        if self.process.poll() is None:
            self.terminate()
        status = self.wait()
        stderr = self.stderr()
        self.folder.cleanup()
        assert status == self.expected_status, f"exit status {status}:\n{stderr}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # ------------------------------------------------------------ plain HTTP

    def request(self, method, path, body=None, headers=None, timeout=120):
        """One request on a connection of its own: an Answer."""
        connection = self.connection(timeout)
        headers = dict(headers or {})
        if self.api_key and "Authorization" not in headers:
            headers["Authorization"] = "Bearer " + self.api_key
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def connection(self, timeout):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def complete(self, prompt="Once upon a time", **fields):
        """A completion's first choice, as JSON."""
        body = {"model": NAME, "prompt": prompt, "max_tokens": 8, "temperature": 0, **fields}
        answer = self.post("/v1/completions", body)
        assert answer.status == 200, answer
        return answer.json()["choices"][0]

    # ------------------------------------------------------------ what the server says of itself

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def highest_resident_bytes(self):
        """The most since the process began."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as stream:
            return next(int(line.split()[1]) << 10 for line in stream if line.startswith("VmHWM"))

    def metrics(self):
        """{sample name with its labels but the model's: value}, without the namespace."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer
        values = {}
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                labels = {k: v for k, v in sample.labels.items()
                          if k not in ("model_name", "engine")}
                tail = "".join(f"{{{k}={v}}}" for k, v in sorted(labels.items()))
                values[sample.name.removeprefix(NAMESPACE) + tail] = sample.value
        return values

    def status(self):
        answer = self.get("/status")
        assert answer.status == 200, answer
        return answer.json()

    def await_idle(self, seconds=LONG_WAIT):
        """Until nothing runs or waits and every block is free or only kept for reuse."""
        self.await_status(lambda s: s["running"] == 0 and s["waiting"] == 0 and
                          s["kv"]["used"] == 0 and not s["requests"], seconds)

    def await_status(self, true_of, seconds=LONG_WAIT):
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            status = self.status()
            if true_of(status):
                return status
            assert time.monotonic() < deadline, f"not so within {seconds} s: {status}"
            time.sleep(0.02)

    def access_lines(self):
        with open(self.access_log, encoding="utf-8") as stream:
            return [json.loads(line) for line in stream]

    def access_line(self, request_id, seconds=LONG_WAIT):
        """The log's line of a request; it is written a little after the answer."""
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            found = [line for line in self.access_lines() if line["request_id"] == request_id]
            if found:
                assert len(found) == 1, found
                return found[0]
            assert time.monotonic() < deadline, f"no line of {request_id}"
            time.sleep(0.02)


# One tenant with one function, the model itself. However long a test takes, no call misses its
# goal and no process ends meanwhile.
ONE_FUNCTION = """\
[defaults]
ttft_slo_ms = 600000
idle_s = 3000

[[tenant]]
name = "tester"
key_sha256 = "{digest}"

[[backbone]]
name = "{name}"
directory = "{model}"
tenants = ["tester"]
"""


def demo_server(*options, api_key=None):
    """The demo model by itself, or as a function of a gateway."""
    if OVER_GATEWAY:
        return DemoGateway(api_key or "sk-tester-0123456789", *options)
    return Server(*(["--api-key", api_key] if api_key else []), *options, api_key=api_key)


class DemoGateway(Server):
    def __init__(self, key, *options):
        self.config = tempfile.TemporaryDirectory(prefix="sluice-client-")
        config = os.path.join(self.config.name, "functions.toml")
        with open(config, "w", encoding="ascii") as stream:
            stream.write(ONE_FUNCTION.format(digest=hashlib.sha256(key.encode()).hexdigest(),
                                             name=NAME, model=MODEL))
        super().__init__("--config", config, "--usage", os.path.join(self.config.name, "usage.db"),
                         "--sandbox", "best-effort", *options, model=None, command="gateway",
                         api_key=key)

    def stop(self):
        super().stop()
        self.config.cleanup()


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error object; checks its shape."""
        error = self.json()["error"]
        assert set(error) >= {"message", "type", "param", "code"}, error
        assert error["message"]
        return error

    def __repr__(self):
        return f"{self.status} {self.headers}\n{self.body[:2000]!r}"


def sse_events(text):
    """The data of each event of a whole stream; checks the framing and that [DONE] is last."""
    assert text.endswith("\n\n"), text[-200:]
    events = text[:-2].split("\n\n")
    assert all(event.startswith("data: ") for event in events), events
    assert events[-1] == "data: [DONE]", events[-1]
    return [json.loads(event[6:]) for event in events[:-1]]
