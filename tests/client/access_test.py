"""API keys, Host and Origin: which calls are allowed, and which requests each key sees."""

import json
import signal
import subprocess

import openai
import pytest

from raw_socket import post
from serving import BINARY, ENDLESS, MODEL, NAME, SLOW, Server

ALICE, BOB, OPS = "sk-alice-0123456789", "sk-bob-0123456789", "sk-ops-0123456789"
CALL = {"model": NAME, "prompt": "Once", "max_tokens": 1}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"alice {ALICE}\nbob {BOB}\nops {OPS} role=admin\n")
    return str(path)


# ---------------------------------------------------------------- each key sees its own


def test_a_key_sees_its_own_requests_and_an_admin_sees_all(keys, connect):
    with Server("--api-key-file", keys, *SLOW, api_key=OPS) as server:
        streams = {}
        for name, key in (("alice", ALICE), ("bob", BOB)):
            streams[name] = connect(server)
            streams[name].send(post("/v1/completions", ENDLESS, f"Authorization: Bearer {key}",
                                    f"X-Request-Id: req-of-{name}"))
        for stream in streams.values():
            assert stream.response_head()[0] == 200

        def seen_by(key):
            answer = server.get("/status", headers=bearer(key))
            assert answer.status == 200
            return {request["id"] for request in answer.json()["requests"]}, answer.text

        server.await_status(lambda s: len(s["requests"]) == 2)
        assert seen_by(OPS)[0] == {"req-of-alice", "req-of-bob"}
        ids, text = seen_by(ALICE)
        assert ids == {"req-of-alice"} and "bob" not in text
        ids, text = seen_by(BOB)
        assert ids == {"req-of-bob"} and "alice" not in text
        for stream in streams.values():
            stream.close()


@pytest.mark.parametrize("line, message", [
    (f"{ALICE}", "NAME KEY"),
    (f"alice {ALICE} role=king", "role=admin"),
    (f"alice {ALICE} wieght=2", "unknown setting"),
    (f"alice {ALICE} extra", "NAME KEY"),
])
def test_a_bad_line_of_the_key_file_is_named(tmp_path, line, message):
    path = tmp_path / "keys"
    path.write_text(f"# tenants\nbob {BOB}\n{line}\n")
    done = subprocess.run([BINARY, "serve", MODEL, "--port", "0", "--api-key-file", str(path)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"{path}:3: " in done.stderr and message in done.stderr, done
    assert ALICE not in done.stderr


# ---------------------------------------------------------------- limits of a key


def ask(server, key, **fields):
    with openai.OpenAI(base_url=server.base + "/v1", api_key=key, max_retries=0) as client:
        return client.completions.with_raw_response.create(**(CALL | fields))


def test_limits_of_a_key_hold_and_change_on_sighup(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"alice {ALICE} rpm=2 priority=0\nbob {BOB} tpm=50\nops {OPS}\n")
    with Server("--api-key-file", str(path), api_key=OPS) as server:
        with pytest.raises(openai.BadRequestError, match="priority"):
            ask(server, ALICE, extra_body={"priority": -1})
        answer = ask(server, ALICE)
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(openai.RateLimitError) as refused:
            ask(server, ALICE)
        assert refused.value.code == "rate_limit_exceeded"
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 30

        ask(server, BOB, max_tokens=100, extra_body={"ignore_eos": True})
        with pytest.raises(openai.RateLimitError, match="tokens a minute"):
            ask(server, BOB)
        assert "x-ratelimit-limit-tokens" not in ask(server, OPS).headers

        path.write_text("alice is not a line\n")
        server.process.send_signal(signal.SIGHUP)
        server.await_stderr("those from before stay")
        with pytest.raises(openai.RateLimitError):
            ask(server, ALICE)
        path.write_text(f"alice {ALICE}\nops {OPS}\n")
        server.process.send_signal(signal.SIGHUP)
        server.await_stderr("2 API keys")
        ask(server, ALICE)
        with pytest.raises(openai.AuthenticationError):
            ask(server, BOB)
        metrics = server.get("/metrics").text
        assert 'sluice:key_refused_total{key="alice"} 3' in metrics, metrics


def test_a_timeout_ends_a_call(server):
    # Too long for any machine in that time.
    fields = {"max_tokens": 1900, "n": 128, "timeout": 0.2, "ignore_eos": True}
    answer = server.post("/v1/completions", CALL | fields)
    assert answer.status == 504 and "timeout" in answer.error()["message"], answer
    stream = server.post("/v1/completions", CALL | fields | {"stream": True})
    assert stream.status == 200 and "timeout" in stream.text and "[DONE]" not in stream.text
    assert server.post("/v1/completions", CALL | {"timeout": 0}).error()["param"] == "timeout"


# ---------------------------------------------------------------- names and pages


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/v1/models", "/nowhere"])
def test_a_foreign_host_is_refused_everywhere(server, path):
    """DNS rebinding: a page's own name, pointed at 127.0.0.1."""
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example"):
        answer = server.get(path, headers={"Host": host})
        assert answer.status == 403, (path, host, answer)
        assert answer.error()["code"] == "host_not_allowed"
        assert "--allowed-host" in answer.error()["message"]


def test_loopback_names_are_served(server):
    for host in ("localhost", f"localhost:{server.port}", "127.0.0.1", "[::1]:80"):
        assert server.get("/v1/models", headers={"Host": host}).status == 200, host


def test_a_page_of_another_origin_cannot_post(server):
    """CSRF: a form needs no preflight when its type is text/plain."""
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        answer = server.post("/v1/completions", json.dumps(CALL),
                             headers={"Origin": origin, "Content-Type": "text/plain"})
        assert answer.status == 403 and answer.error()["code"] == "origin_not_allowed", answer
        assert "access-control-allow-origin" not in answer.headers
    own = server.post("/v1/completions", CALL, headers={"Origin": server.base})
    assert own.status == 200


def test_any_content_type_is_read_as_json_without_an_origin(server):
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json", "odd"):
        answer = server.post("/v1/completions", json.dumps(CALL), headers={"Content-Type": kind})
        assert answer.status == 200, (kind, answer)


def test_curl_as_in_the_docs(server):
    done = subprocess.run(["curl", "-sS", f"{server.base}/v1/completions", "-d", json.dumps(CALL)],
                          capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["choices"], done


def test_allowed_hosts_and_origins():
    origin = "http://localhost:3000"
    with Server("--allowed-host", "chat.example", "--cors-origin", origin) as server:
        assert server.get("/v1/models", headers={"Host": "chat.example:80"}).status == 200
        assert server.get("/v1/models", headers={"Host": "other.example"}).status == 403
        asked = server.request("OPTIONS", "/v1/chat/completions", headers={
            "Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"})
        assert asked.status == 204
        assert asked.headers["access-control-allow-origin"] == origin
        assert asked.headers["access-control-allow-headers"] == "authorization,content-type"
        for fields in ({}, {"stream": True}, {"n": 0}):
            answer = server.post("/v1/completions", CALL | fields, headers={"Origin": origin})
            assert answer.status == (400 if "n" in fields else 200)
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["vary"] == "Origin"
        foreign = server.request("OPTIONS", "/v1/completions", headers={
            "Origin": "http://evil.example", "Access-Control-Request-Method": "POST"})
        assert foreign.status == 403


def test_options_that_can_match_nothing_are_wrong_usage():
    for options in (["--allowed-host", "http://a.example"], ["--cors-origin", "a.example"],
                    ["--served-model-name", ""]):
        done = subprocess.run([BINARY, "serve", MODEL, *options], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 2 and options[0] in done.stderr, done


def test_an_empty_model_name_is_unknown(server):
    with openai.OpenAI(base_url=server.base + "/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="", prompt="x", max_tokens=1)
    assert server.post("/tokenize", {"model": "", "prompt": "x"}).status == 404
    assert server.post("/tokenize", {"prompt": "x"}).status == 200


def test_a_mistyped_number_names_its_range(server):
    answer = server.post("/v1/completions", CALL | {"n": "1"})
    assert answer.status == 400 and answer.error()["param"] == "n"
    assert answer.error()["message"] == 'n: got "1"; expected a whole number from 1 to 128'
