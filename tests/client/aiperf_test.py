"""NVIDIA's aiperf against the server, as its users call it: synthetic chats, streamed, several at
once. Its environment is build/venv-aiperf (`make venv-aiperf`)."""

import json
import os
import subprocess
import sys

import pytest

from serving import MODEL, NAME

PROGRAM = os.path.join(os.path.dirname(sys.executable), "aiperf")


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_all_requests_succeed(server, tmp_path, endpoint):
    done = subprocess.run(
        [PROGRAM, "profile", "-m", NAME, "--url", server.base, "--endpoint-type", endpoint,
         "--streaming", "--tokenizer", MODEL, "--synthetic-input-tokens-mean", "20",
         "--output-tokens-mean", "16", "--extra-inputs", "ignore_eos:true", "--extra-inputs",
         "min_tokens:16", "--request-count", "12", "--concurrency", "3", "--output-artifact-dir",
         str(tmp_path / "out"), "--ui", "none"],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    report = json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())
    assert report["request_count"]["avg"] == 12 and not report["error_summary"], report
    assert report["time_to_first_token"]["avg"] > 0
    # The server's own count, from the usage of each stream.
    assert report["usage_completion_tokens"]["avg"] == 16
    assert report["usage_prompt_tokens"]["avg"] >= 20
