"""A `sluice agent` process for a test, certificates, and REST as agents speak it."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from serving import BINARY, LONG_WAIT, PATIENCE

TOKEN = "agents-0123456789abcdef"


def write_token(folder, text=TOKEN):
    path = os.path.join(folder, "token")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w",
              encoding="ascii") as stream:
        stream.write(text + "\n")
    return path


def agents_url(gateway):
    return re.search(r"agents join at (\S+)", gateway.stderr())[1]


class Agent:
    """One process; stop() ends it by SIGTERM and checks its exit status."""

    def __init__(self, url, token_file, *options, name="one", memory="64MiB", prefix=()):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-agent-")
        self.stderr_path = os.path.join(self.folder.name, "stderr")
        line = [*prefix, BINARY, "agent", "--join", url, "--token-file", token_file, "--name", name,
                "--sandbox", "best-effort", "--threads", "2", *options]
        if memory:
            line += ["--kv-cache-memory", memory]
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=stderr,
                                            stderr=stderr)

    def stderr(self):
        with open(self.stderr_path, encoding="utf-8", errors="replace") as stream:
            return stream.read()

    def await_stderr(self, text, times=1):
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while self.stderr().count(text) < times:
            assert time.monotonic() < deadline, self.stderr()
            time.sleep(0.02)

    def await_joined(self, times=1):
        self.await_stderr("joined: ", times)
        return self

    def wait(self):
        try:
            return self.process.wait(2 * LONG_WAIT * PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running:\n{self.stderr()}") from None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.wait()
        assert status == 0, f"exit status {status}:\n{self.stderr()}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        self.folder.cleanup()


def call(gateway, path, body=None, token=TOKEN, query=""):
    """One REST call to the gateway's port for agents: status and JSON."""
    port = int(agents_url(gateway).rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_WAIT * PATIENCE)
    try:
        headers = {"Authorization": "Bearer " + token} if token else {}
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request("GET" if body is None else "POST", f"/v1/agents/{path}{query}", body,
                           headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def openssl(*words, folder):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_authority(folder, name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "1", "-subj", f"/CN={name}",
            folder=folder)


def make_certificate(folder, name, authority, days="1", address="127.0.0.1"):
    """`days` may be negative: it has expired."""
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", folder=folder)
    with open(os.path.join(folder, f"{name}.ext"), "w", encoding="ascii") as stream:
        stream.write(f"subjectAltName=IP:{address}\n")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey",
            f"{authority}.key", "-CAcreateserial", "-days", days, "-extfile", f"{name}.ext",
            "-out", f"{name}.pem", folder=folder)


def certificate_options(folder, name, authority, prefix="--ssl"):
    return (f"{prefix}-certfile", os.path.join(folder, f"{name}.pem"),
            f"{prefix}-keyfile", os.path.join(folder, f"{name}.key"),
            f"{prefix}-cafile", os.path.join(folder, f"{authority}.pem"))
