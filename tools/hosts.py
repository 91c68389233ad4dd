"""Hosts on one machine: each has a network namespace and a mount namespace of its own. A bridge
joins them to this process. They take root and the program ip (iproute2)."""

import atexit
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time

from etcd_members import await_that
from kill_campaign import PROCESSES, is_running

CLONE_NEWNET = 0x40000000
RAY_FOLDER = os.path.join(tempfile.gettempdir(), "ray")  # where `ray start` has its files


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def enter_own_network(address):
    """Puts this process, and all that it starts, into a network of its own; `address` is its own
    among its hosts. Before threads."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        sys.exit(f"no network namespace: {os.strerror(ctypes.get_errno())}; this needs root")
    ip("link", "set", "lo", "up")
    ip("link", "add", "hosts", "type", "bridge")
    ip("addr", "add", address + "/24", "dev", "hosts")
    ip("link", "set", "hosts", "up")


def make_for_now(path):
    """A folder to mount on; it is gone after this process."""
    if not os.path.isdir(path):
        os.makedirs(path)
        atexit.register(os.rmdir, path)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Host:
    """A network with one address, and folders of its own."""

    def __init__(self, folder, address, own):
        """`own`: paths that are empty folders of this host alone, which lie in `folder`."""
        self.address = address
        self.folder = os.path.join(folder, address)
        os.mkdir(self.folder)
        self.log = os.path.join(self.folder, "log")
        self.holder = subprocess.Popen(  # pylint: disable=consider-using-with
            ["unshare", "--net", "--mount", "sleep", "infinity"])
        PROCESSES.started.append(self)
        self.network = f"/proc/{self.holder.pid}/ns/net"
        await_that(lambda: self.program() == "sleep", "a host's namespaces are there")
        link = "host" + address.rpartition(".")[2]
        ip("link", "add", link, "type", "veth", "peer", "name", "e0", "netns",
           str(self.holder.pid))
        ip("link", "set", link, "master", "hosts", "up")
        for words in (["addr", "add", address + "/24", "dev", "e0"], ["link", "set", "e0", "up"],
                      ["link", "set", "lo", "up"]):
            subprocess.run(self.line("ip", *words), check=True)
        for path in own:
            place = os.path.join(self.folder, path.strip("/").replace("/", "-"))
            os.mkdir(place)
            make_for_now(path)
            subprocess.run(self.line("mount", "--bind", place, path), check=True)

    def program(self):
        with open(f"/proc/{self.holder.pid}/comm", encoding="ascii") as stream:
            return stream.read().strip()

    def place(self):
        try:
            return os.stat(self.network).st_ino
        except OSError:
            return None

    def line(self, *words):
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--mount", "--wd", *words]

    def start(self, *words, **environment):
        with open(self.log, "a", encoding="utf-8") as log:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                self.line(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **environment})
        PROCESSES.started.append(process)
        return process

    def said(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8", errors="replace") as stream:
            return stream.read()

    def processes(self):
        """{pid: command line} of all processes in its network."""
        place, found = self.place(), {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if int(pid) != self.holder.pid and os.stat(f"/proc/{pid}/ns/net").st_ino == place:
                    with open(f"/proc/{pid}/cmdline", encoding="utf-8") as stream:
                        found[int(pid)] = stream.read().split("\0")
        return found

    # As PROCESSES ends it, with all that runs there.

    def poll(self):
        return self.holder.poll()

    def kill(self):
        self.kill_all()
        self.holder.kill()

    def wait(self):
        self.holder.wait()

    def kill_all(self):
        while pids := [pid for pid in self.processes() if is_running(pid)]:
            for pid in pids:
                kill(pid)
            time.sleep(0.02)
