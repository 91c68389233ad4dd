"""Blocks that leave KV memory stay in RAM, packed, and come back: --kv-ram."""

import re
import subprocess

from kv_disk_test import burst
from serving import BINARY, LONG_WAIT, MODEL, PATIENCE, Server

SMALL = ["--kv-cache-memory", "1MiB", "--max-model-len", "512"]
BLOCK = 16 << 10  # of the demo model


def test_turns_in_a_burst_beyond_memory_change_no_text():
    with Server() as plain:
        wanted = burst(plain)
    with Server("--scheduler", "fair", "--kv-ram", "8MiB", *SMALL) as server:
        assert burst(server) == wanted
        assert burst(server) == wanted
        metrics = server.metrics()
        log = server.stderr()
    for name in ["kv_tier_blocks_loaded_total", "num_preemptions_total"]:
        assert metrics[name] > 0, name
    assert metrics["kv_tier_saves_paused"] == 0
    gain = metrics["kv_tier_pages_used"] * BLOCK / metrics["kv_tier_memory_bytes"]
    assert 1.3 < gain < 1.6, metrics
    assert re.search(r"KV in RAM: 32 blocks were packed to 1/1\.[34]", log), log


def refused(*options):
    run = subprocess.run(
        [BINARY, "generate", MODEL, "--prompt", "x", "--max-tokens", "1", *options],
        capture_output=True, text=True, timeout=LONG_WAIT * PATIENCE, check=False)
    assert run.returncode != 0
    return run.stderr


def test_what_cannot_work_is_refused_with_the_reason():
    assert "KV in f32 does not become 1.2 times smaller" in refused(
        "--kv-ram", "16MiB", "--dtype", "f32")
    assert "MiB of memory are free" in refused("--kv-ram", "4000000GiB")
    assert "have no room for a block" in refused("--kv-ram", "1000")
