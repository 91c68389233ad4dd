"""An etcd process for a test."""

import signal
import ssl
import subprocess
import time
import urllib.request

from serving import PATIENCE, free_port

WAIT = 60 * PATIENCE  # for a state that comes; how soon is measured elsewhere


def await_that(test):
    deadline = time.monotonic() + WAIT
    while not test():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Etcd:
    def __init__(self, folder, certificates=None):
        """`certificates`: a folder with etcd.pem, etcd.key and their authority, ours.pem: clients
        come by https."""
        self.folder, self.trust, self.options = folder, None, []
        self.port, self.peer = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        if certificates is not None:
            self.url = f"https://127.0.0.1:{self.port}"
            self.trust = ssl.create_default_context(cafile=certificates / "ours.pem")
            self.options = ["--cert-file", str(certificates / "etcd.pem"),
                            "--key-file", str(certificates / "etcd.key")]
        self.start()

    def start(self):
        peer = f"http://127.0.0.1:{self.peer}"
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", str(self.folder), "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
             *self.options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_that(self.answers)

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1,
                                        context=self.trust) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    def stop(self, by=signal.SIGTERM):
        self.process.send_signal(by)
        self.process.send_signal(signal.SIGCONT)
        self.process.wait(timeout=WAIT)
