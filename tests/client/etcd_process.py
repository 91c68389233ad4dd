"""An etcd process for a test."""

import random
import signal
import socket
import ssl
import subprocess
import time
import urllib.request

from serving import PATIENCE

WAIT = 60 * PATIENCE  # for a state that comes; how soon is measured elsewhere


def await_that(test):
    deadline = time.monotonic() + WAIT
    while not test():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def steady_port():
    """A free port that the kernel gives to no other process, also while etcd is down."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as stream:
        first = int(stream.read().split()[0])
    while True:
        port = random.randrange(first // 2, first)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Etcd:
    def __init__(self, folder, certificates=None, asks=False):
        """`certificates`: a folder with etcd.pem, etcd.key and their authority, ours.pem: clients
        come by https. `asks`: it asks them for certificates of this authority."""
        self.folder, self.trust, self.options = folder, None, []
        self.port, self.peer = steady_port(), steady_port()
        self.url = f"http://127.0.0.1:{self.port}"
        if certificates is not None:
            self.url = f"https://127.0.0.1:{self.port}"
            self.trust = ssl.create_default_context(cafile=certificates / "ours.pem")
            self.options = ["--cert-file", str(certificates / "etcd.pem"),
                            "--key-file", str(certificates / "etcd.key")]
        if asks:
            self.trust.load_cert_chain(certificates / "etcd.pem", certificates / "etcd.key")
            self.options += ["--client-cert-auth",
                             "--trusted-ca-file", str(certificates / "ours.pem")]
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
