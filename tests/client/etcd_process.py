"""An etcd process for a test, and a wire to it that can be cut."""

import signal
import socket
import subprocess
import threading
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
    def __init__(self, folder):
        self.folder = folder
        self.port, self.peer = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        peer = f"http://127.0.0.1:{self.peer}"
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", str(self.folder), "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
             "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_that(self.answers)

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    def stop(self, by=signal.SIGTERM):
        self.process.send_signal(by)
        self.process.send_signal(signal.SIGCONT)
        self.process.wait(timeout=WAIT)


class Wire(threading.Thread):
    """Passes bytes to etcd until it is cut; then connections are closed and new ones refused."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.target, self.is_cut, self.sockets = port, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self.sockets += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    @staticmethod
    def close(*ends):
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def copy(self, source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        self.close(source, target)

    def cut(self, is_cut):
        self.is_cut = is_cut
        self.close(*self.sockets)

    def end(self):
        self.cut(True)
        self.close(self.listener)
        self.join(timeout=WAIT)
        for end in (self.listener, *self.sockets):
            end.close()
