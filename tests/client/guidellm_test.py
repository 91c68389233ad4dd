"""vLLM's guidellm against the server, as its users call it: synthetic chats at a fixed concurrency.
Its environment is build/venv-guidellm (`make venv-guidellm`)."""

import json
import os
import subprocess
import sys

from serving import MODEL, NAME

PROGRAM = os.path.join(os.path.dirname(sys.executable), "guidellm")


def test_all_requests_succeed(server, tmp_path):
    done = subprocess.run(
        [PROGRAM, "run", "--backend", f"kind=openai_http,target={server.base},model={NAME}",
         "--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=10",
         "--data", "kind=synthetic_text,prompt_tokens=20,output_tokens=16",
         "--tokenizer", f"kind=hf_auto,model={MODEL}", "--output", "kind=json,path=out.json",
         "--disable-console-interactive"],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    report, = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    assert report["metrics"]["request_totals"] == {"successful": 10, "errored": 0, "incomplete": 0,
                                                   "total": 10}
