"""A control group of a test, with a limit of memory."""

import os
import pathlib
import time

import pytest

from serving import LONG_WAIT, PATIENCE

ROOT = pathlib.Path("/sys/fs/cgroup")


class Group:
    """A control group of this test, with the kernel's memory controller of version 1 or 2."""

    def __init__(self):
        lines = pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        name = f"sluice-test-{os.getpid()}"
        self.folder = None
        for line in lines:
            _, controllers, own = line.split(":", 2)
            unified = not controllers
            if not unified and "memory" not in controllers.split(","):
                continue
            mount = ROOT if unified else ROOT / "memory"
            limit, usage = (("memory.max", "memory.current") if unified else
                            ("memory.limit_in_bytes", "memory.usage_in_bytes"))
            for parent in (mount / own.lstrip("/"), mount):
                try:
                    (parent / name).mkdir()
                except OSError:
                    continue
                if os.access(parent / name / limit, os.W_OK):
                    self.folder, self.limit, self.usage = parent / name, limit, usage
                    self.none = "max" if unified else "-1"
                    return
                (parent / name).rmdir()

    def used(self):
        """Bytes that stay: page cache that was not used lately goes first."""
        stat = dict(line.split() for line in
                    (self.folder / "memory.stat").read_text(encoding="utf-8").splitlines())
        inactive = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        return int((self.folder / self.usage).read_text(encoding="utf-8")) - inactive

    def remove(self):
        """Processes that were killed may still end."""
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while True:
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.05)

    def set_limit(self, value):
        (self.folder / self.limit).write_text(f"{value}\n", encoding="utf-8")


def make_group(folder, command=""):
    """The group, and a script in the folder that runs `command` and its own arguments there. Skips
    the test where there is no group. The caller removes the group."""
    made = Group()
    if made.folder is None:
        pytest.skip("no memory controller of control groups that this user may write: run as root "
                    "of the machine, or delegate one")
    script = folder / "in_group"
    script.write_text(f'#!/bin/sh\necho $$ > {made.folder}/cgroup.procs || exit 1\n'
                      f'exec {command} "$@"\n', encoding="utf-8")
    script.chmod(0o700)
    return made, str(script)
