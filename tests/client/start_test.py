"""Starting the server as people who come from vLLM do."""

import os
import subprocess

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
