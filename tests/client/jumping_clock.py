"""A wall clock that jumps, for processes of a test: libfaketime shows them another time. Their
monotonic clock stays the real one."""

import glob
import os

import pytest

LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)
needs_faketime = pytest.mark.skipif(
    LIBRARY is None, reason="SKIPPED: no libfaketime; run: tools/install.sh campaigns")


class JumpingClock:
    """Processes that `prefix` runs have this clock."""

    def __init__(self, folder):
        self.offset = folder / "clock"
        self.jump("+0")
        self.prefix = ("env", f"LD_PRELOAD={LIBRARY}", f"FAKETIME_TIMESTAMP_FILE={self.offset}",
                       "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
                       "NO_FAKE_STAT=1")  # the times of files stay, as they do when a clock jumps

    def jump(self, offset):
        """To real time and `offset`, such as "+1d". Processes see it within a second."""
        new = self.offset.with_suffix(".new")
        new.write_text(offset + "\n")
        os.replace(new, self.offset)

    @staticmethod
    def is_used_by(process):
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as stream:
            return "libfaketime" in stream.read()
