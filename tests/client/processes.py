"""The function processes of a server, as /proc shows them."""

import os
import time

from serving import LONG_WAIT, PATIENCE


def functions_of(pid):
    """The processes that a server has started, oldest first."""
    children = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as stream:
                children += [int(child) for child in stream.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass  # a thread that has ended
    return sorted(children)


def await_gone(pids, seconds=LONG_WAIT):
    deadline = time.monotonic() + seconds * PATIENCE
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, [describe(pid) for pid in pids if is_running(pid)]
        time.sleep(0.02)


def describe(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as stream:
        return {line.split(":")[0]: line.split(":")[1].strip() for line in stream
                if line.startswith(("Name", "State", "Pid", "PPid", "Threads", "SigPnd"))}


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
