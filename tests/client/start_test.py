"""Starting the server as people who come from vLLM do."""

import json
import os
import re
import socket
import stat
import subprocess
import time

import httpx2
import openai
import pytest

from serving import BINARY, MODEL, NAME, Server

REPOSITORY = "sluice-tests/tiny"


@pytest.fixture(name="cache")
def fixture_cache(tmp_path, monkeypatch):
    """A Hugging Face cache with one model, as hf download leaves it."""
    folder = tmp_path / "hub" / "models--sluice-tests--tiny"
    snapshot = folder / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0123abcd")
    blobs = folder / "blobs"
    blobs.mkdir()
    for name in os.listdir(MODEL):
        os.symlink(os.path.join(MODEL, name), blobs / name)
        os.symlink(os.path.join("..", "..", "blobs", name), snapshot / name)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    return tmp_path


def run(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60,
                          check=False)


def test_a_repository_in_the_cache_is_served_by_its_name(cache):
    with Server(model=REPOSITORY) as server:
        with openai.OpenAI(base_url=server.base + "/v1", api_key="none") as client:
            assert [card.id for card in client.models.list().data] == [REPOSITORY]
            answer = client.completions.create(model=REPOSITORY, prompt="Once", max_tokens=2)
            assert answer.model == REPOSITORY
    done = run("generate", REPOSITORY, "--prompt", "Once", "--max-tokens", "2")
    assert done.returncode == 0, done


def test_a_missing_model_names_its_download(cache):
    done = run("serve", "Qwen/Qwen2.5-0.5B-Instruct", "--revision", "v1")
    assert done.returncode == 1
    assert "hf download Qwen/Qwen2.5-0.5B-Instruct --revision v1" in done.stderr, done
    assert str(cache / "hub") in done.stderr


def test_one_key_for_all(monkeypatch):
    key = "sk-12345678"
    with Server("--api-key", key, api_key=key) as server:
        assert server.get("/v1/models").status == 200
        assert server.get("/v1/models", headers={"Authorization": "Bearer wrong-key"}).status == 401
    monkeypatch.setenv("SLUICE_API_KEY", key)
    with Server(api_key=key) as server:
        assert server.get("/v1/models").status == 200
        assert server.get("/v1/models", headers={"Authorization": "Bearer wrong-key"}).status == 401


def test_vllms_options_mean_the_same():
    with Server("--dtype", "bfloat16", "--max-num-batched-tokens", "64",
                "--no-enable-prefix-caching", "--tool-call-parser", "hermes") as server:
        for _ in range(2):
            answer = server.post("/v1/completions", {
                "model": NAME, "prompt": "Once upon a time there was a fox. " * 4,
                "max_tokens": 1})
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_mistyped_options_get_a_suggestion():
    done = run("serve", MODEL, "--max-num-seq", "4")
    assert done.returncode == 2 and "did you mean '--max-num-seqs'?" in done.stderr, done
    done = run("serve", MODEL, "--tool-call-parser", "herms")
    assert done.returncode == 2 and "hermes" in done.stderr, done


def test_a_unix_socket_serves_this_user_alone(tmp_path):
    path = tmp_path / "sluice.sock"
    with open(tmp_path / "stderr", "wb") as stderr, subprocess.Popen(
            [BINARY, "serve", MODEL, "--uds", str(path), "--threads", "2", "--access-log", "off"],
            stderr=stderr) as process:
        try:
            deadline = time.monotonic() + 60
            while "ready: unix:" not in (tmp_path / "stderr").read_text():
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
            transport = httpx2.HTTPTransport(uds=str(path))
            with openai.OpenAI(base_url="http://any-name/v1", api_key="none",
                               http_client=httpx2.Client(transport=transport)) as client:
                answer = client.completions.create(model=NAME, prompt="Once", max_tokens=4)
                assert answer.usage.completion_tokens == 4
        finally:
            process.terminate()
        assert process.wait(30) == 0
        assert not path.exists()


def test_a_chat_template_of_its_own(tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text("{{ messages[0].content }} and the moon")
    with Server("--chat-template", str(path)) as server:
        chat = server.post("/tokenize", {"messages": [{"role": "user", "content": "The fox"}]})
        text = server.post("/tokenize", {"prompt": "The fox and the moon",
                                         "add_special_tokens": False})
        assert chat.json()["tokens"] == text.json()["tokens"]


@pytest.mark.parametrize("text, message", [("a\n{{ 1 +* 2 }}", "line 2"), (None, "chat.jinja")])
def test_a_broken_chat_template_ends_the_start(tmp_path, text, message):
    path = tmp_path / "chat.jinja"
    if text is not None:
        path.write_text(text)
    done = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--chat-template", str(path)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    assert "--chat-template" in done.stderr and message in done.stderr, done


def test_a_socket_and_a_port_exclude_each_other(tmp_path):
    done = subprocess.run([BINARY, "serve", MODEL, "--uds", str(tmp_path / "s"), "--port", "0"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--uds" in done.stderr, done


def test_options_from_a_file(tmp_path):
    path = tmp_path / "sluice.yaml"
    path.write_text(f"model: {MODEL}\nserved_model_name: from-the-file\nport: 1\n"
                    "enable-prefix-caching: false\nallowed-host: [chat.example]\n")
    with Server("--config", str(path), model=None) as server:
        assert server.get("/v1/models").json()["data"][0]["id"] == "from-the-file"
        assert server.get("/v1/models", headers={"Host": "chat.example"}).status == 200
        assert 'enable_prefix_caching="False"' in server.get("/metrics").text


@pytest.mark.parametrize("text, message", [
    ("max-num-seq: 4", "sluice.yaml:1: there is no option 'max-num-seq'; did you mean "
                       "'max-num-seqs'?"),
    ("verify: maybe", "sluice.yaml:1: verify must be true or false"),
    ("port: [1, 2]", "sluice.yaml:1: "),
    ("config: x", "sluice.yaml:1: there is no option 'config'"),
    ("port: 8000", "MODEL is required"),
    ("host: 127.0.0.1\nuds: s.sock", "sluice.yaml:2: --uds and --host exclude each other"),
])
def test_a_wrong_file_of_options_is_named(tmp_path, text, message):
    path = tmp_path / "sluice.yaml"
    path.write_text(text + "\n")
    done = subprocess.run([BINARY, "serve", "--config", str(path)], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 2 and message in done.stderr, done


def test_a_service_manager_learns_when_the_server_is_ready(tmp_path, monkeypatch):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        with Server() as server:
            assert manager.recv(4096).decode() == "STATUS=loading " + MODEL
            ready = manager.recv(4096).decode().splitlines()
            assert ready[0] == "READY=1" and ready[1].startswith("STATUS=" + server.base)
        assert manager.recv(4096).decode().splitlines()[0] == "STOPPING=1"


def test_a_service_manager_that_is_gone_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    with Server() as server:
        assert server.get("/health").status == 200


def test_dashboard_and_alerts_name_metrics_that_exist():
    """Those with labels appear when they are first counted; metrics.md has all."""
    root = os.path.join(os.path.dirname(__file__), "..", "..")
    with open(os.path.join(root, "packaging", "grafana-dashboard.json"), encoding="utf-8") as file:
        dashboard = json.load(file)
    with open(os.path.join(root, "packaging", "prometheus-alerts.yaml"), encoding="utf-8") as file:
        text = file.read() + json.dumps(dashboard)
    with Server() as server:
        server.post("/v1/completions", {"model": NAME, "prompt": "Once", "max_tokens": 2})
        types = dict(re.findall(r"# TYPE (\S+) (\S+)", server.get("/metrics").text))
    names = set(re.findall(r"sluice:\w+", text))
    assert len(names) > 15
    for name in names:
        known = types.get(name.removesuffix("_bucket")) == "histogram" or name in types
        assert known, name
