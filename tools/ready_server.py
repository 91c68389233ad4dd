"""Commands of sluice that listen on a port of their own, as the tools that measure start them."""

import contextlib
import glob
import socket
import subprocess
import sys
import threading


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def children_of(pid):
    """The process ids of the children of all its threads, sorted."""
    pids = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(path, encoding="ascii") as stream:
            pids += [int(child) for child in stream.read().split()]
    return sorted(pids)


class ReadyServer:
    """A running command, ready when made; `with` ends it and prints its warnings and errors.
    `process`: options of Popen."""

    def __init__(self, command, **process):
        self.port = free_port()
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [*command, "--port", str(self.port), "--access-log", "off"], stderr=subprocess.PIPE,
            text=True, **process)
        if not any(line.startswith("ready:") for line in self.process.stderr):
            raise SystemExit(f"the server ended with {self.process.wait()}")
        # Its messages are read all the time: a full pipe would stop it.
        self.said = []
        self.reader = threading.Thread(target=self.said.extend, args=[self.process.stderr])
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()
        sys.stderr.writelines(line for line in self.said
                              if " warning " in line or " error " in line)

    def children(self):
        return children_of(self.process.pid)
