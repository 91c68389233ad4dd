"""The life of the process: start, keys, a full queue, draining, the end."""

import contextlib
import http.client
import re
import resource
import signal
import socket
import subprocess
import threading
import time

import openai
import pytest

from raw_socket import get, post
from serving import (BINARY, ENDLESS, LONG_WAIT, MODEL, NAME, PATIENCE, SLOW, Server, free_port,
                     sse_events)

COMPLETIONS = "/v1/completions"
STREAM = ENDLESS | {"n": 1}  # a minute of work if there are several


def client_of(server, **more):
    return openai.OpenAI(base_url=server.base + "/v1", max_retries=0,
                         **({"api_key": "none"} | more))


# ---------------------------------------------------------------- start


def test_start_says_where_the_time_went():
    with Server() as server:
        text = server.stderr()
        assert str(server.port) in text
        assert re.search(r"^start [\d.]+ ms: .*map weights [\d.]+", text, re.M), text
    # Leaving the block checked that SIGTERM of an idle server ends with 0.


def test_wrong_usage_exits_2():
    for options in (["--port", "99999"], ["--no-such-option"], ["--drain-timeout", "soon"]):
        done = subprocess.run([BINARY, "serve", MODEL, *options], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 2, done
        assert options[0] in done.stderr


def test_what_cannot_start_says_why():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run([BINARY, "serve", MODEL, "--port", port], capture_output=True,
                              text=True, timeout=60)
    assert done.returncode not in (0, 2) and port in done.stderr, done
    done = subprocess.run([BINARY, "serve", MODEL + "/nowhere", "--port", str(free_port())],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "nowhere" in done.stderr, done
    # Clients must not be able to connect to a server that will never have a model.
    assert "listening" not in done.stderr, done


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_loads_ends_at_once(number):
    """Sent when the server has said that it listens, which it does before it loads. A server that
    was ready before the signal came says nothing: then the next one is tried."""
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    text = "ready:"
    while "ready:" in text:
        assert time.monotonic() < deadline, text
        with subprocess.Popen([BINARY, "serve", MODEL, "--port", "0"], stderr=subprocess.PIPE,
                              text=True) as process:
            line = process.stderr.readline()
            assert "loading" in line, line
            process.send_signal(number)
            assert process.wait(timeout=LONG_WAIT * PATIENCE) == 0
            text = process.stderr.read()


# ---------------------------------------------------------------- keys


def test_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# who may ask\nalice sk-alice-0123456789\nbob sk-bob-0123456789\n")
    with Server("--api-key-file", str(keys), api_key="sk-bob-0123456789") as server:
        for key in ("wrong", "sk-alice-012345678", "sk-alice-01234567890"):
            with client_of(server, api_key=key) as client:
                with pytest.raises(openai.AuthenticationError) as caught:
                    client.models.list()
                assert caught.value.code == "invalid_api_key"
                assert key not in caught.value.message
                with pytest.raises(openai.AuthenticationError):
                    client.completions.create(model=NAME, prompt="x", max_tokens=1)
        with client_of(server, api_key="sk-alice-0123456789") as client:
            answer = client.completions.with_raw_response.create(model=NAME, prompt="x",
                                                                 max_tokens=1)
            line = server.access_line(answer.headers["x-request-id"])
            assert line["client"] == "alice"
        # Endpoints without anyone's data need no key; all others do.
        for path, status in (("/", 200), ("/health", 200), ("/ready", 200), ("/version", 200),
                             ("/openapi.json", 200), ("/status", 401), ("/v1/models", 401)):
            assert server.get(path, headers={"Authorization": ""}).status == status, path
        refused = server.get("/status", headers={"Authorization": ""})
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert "sk-" not in server.stderr() and "sk-" not in str(server.access_lines())


def test_prefixes_are_not_shared_between_keys(tmp_path):
    """Whether another tenant has asked the same must not show, neither in time nor in usage."""
    keys = tmp_path / "keys"
    keys.write_text("alice sk-alice-0123456789\nbob sk-bob-0123456789\n")
    with Server("--api-key-file", str(keys), api_key="sk-bob-0123456789") as server:
        cached = []
        for key in ("alice", "alice", "bob"):
            with client_of(server, api_key=f"sk-{key}-0123456789") as client:
                usage = client.completions.create(model=NAME, prompt="A secret plan. " * 40,
                                                  max_tokens=1).usage
                details = usage.prompt_tokens_details
                cached.append(details.cached_tokens if details else 0)
        assert cached[0] == 0 and cached[1] > 0 and cached[2] == 0


# ---------------------------------------------------------------- a full queue


def test_a_full_queue_is_429_with_retry_after(connect):
    with Server("--max-queue", "4", *SLOW) as server, client_of(server) as client:
        streams = [connect(server) for _ in range(4)]
        for stream in streams:
            stream.send(post(COMPLETIONS, STREAM))
        server.await_status(lambda s: len(s["requests"]) == 4)
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model=NAME, prompt="x", max_tokens=1)
        error = caught.value
        assert 1 <= int(error.response.headers["retry-after"]) <= 60
        assert "4" in error.message
        # Refused is not ended: it is counted once, and by its reason.
        metrics = server.metrics()
        assert metrics["requests_refused_total{reason=queue_full}"] == 1
        assert metrics["request_success_total{finished_reason=error}"] == 0
        assert metrics["e2e_request_latency_seconds_count"] == 0
        for stream in streams:
            stream.close()
        server.await_idle()
        assert client.completions.create(model=NAME, prompt="x", max_tokens=1).choices


# A request whose body does not come; the answer to its head shows that the server has read it.
HELD = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
        b"Expect: 100-continue\r\n\r\n")


def test_connections_over_the_limit_are_refused(connect):
    with Server("--max-connections", "10") as server:
        clients = [connect(server) for _ in range(10)]
        for client in clients:
            client.send(get("/health"))
            assert client.response()[0] == 200
            client.send(HELD)
            assert client.response_head()[0] == 100
        late = connect(server)
        assert late.response()[0] == 503
        assert late.is_closed()
        for client in clients:
            client.close()
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while health_of(server) != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_idle_connections_make_room_for_new_ones(connect):
    with Server("--max-connections", "10") as server:
        silent = [connect(server) for _ in range(40)]
        late = connect(server)
        late.send(get("/health"))
        assert late.response()[0] == 200
        for client in silent[:31]:
            assert client.is_closed()


def health_of(server):
    """None if the server closed the connection before it had all of the question."""
    try:
        return server.get("/health").status
    except (OSError, http.client.HTTPException):
        return None


def test_every_connection_over_the_limit_gets_its_503():
    """More at once than are answered at the same time: the others wait their turn."""
    with Server("--max-connections", "4") as server:
        kept = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        for one in kept:
            one.sendall(HELD)
            assert b" 100 " in one.recv(4096)
        late = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(600)]
        for one in late:
            one.settimeout(LONG_WAIT * PATIENCE)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # closed already
                one.sendall(get("/health"))
        for one in late:
            assert b" 503 " in one.recv(4096)
            one.close()
        for one in kept:
            one.close()


def test_a_low_limit_on_open_files_is_raised(connect):
    """1,024 files are what many systems give a process that does not ask for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        server = Server()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server:
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] == hard
        clients = [connect(server) for _ in range(150)]
        for client in clients:
            client.send(get("/health"))
        assert [client.response()[0] for client in clients] == [200] * 150
        for client in clients:
            client.close()


# ---------------------------------------------------------------- the end


def test_sigterm_lets_a_stream_finish(connect):
    with Server("--drain-timeout", "600") as server:
        stream, idle = connect(server), connect(server)
        idle.send(get("/health"))
        assert idle.response()[0] == 200
        stream.send(post(COMPLETIONS, STREAM | {"max_tokens": 600}))
        assert stream.response_head()[0] == 200
        first = stream.chunk()
        server.terminate()
        assert idle.is_closed(), "idle connections are closed at once"
        body = first + b"".join(iter(stream.chunk, b""))
        events = sse_events(body.decode())
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        assert stream.is_closed()
        assert server.wait() == 0
        with pytest.raises(openai.APIConnectionError), client_of(server) as client:
            client.models.list()


def test_no_new_work_while_draining(connect):
    with Server("--drain-timeout", "600", *SLOW) as server:
        stream = connect(server)
        stream.send(post(COMPLETIONS, ENDLESS))
        assert stream.response_head()[0] == 200
        server.terminate()
        deadline = time.monotonic() + LONG_WAIT / 3 * PATIENCE
        with pytest.raises(ConnectionRefusedError):
            while time.monotonic() < deadline:
                connect(server).close()
                time.sleep(0.02)
        assert server.process.poll() is None, "the stream still runs"
        stream.close()
        assert server.wait() == 0


def test_drain_timeout_cuts_streams(connect):
    """A stream that is not finished in time ends with an error event or a cut, not with [DONE]."""
    with Server("--drain-timeout", "1", *SLOW) as server:
        streams = [connect(server) for _ in range(24)]
        for stream in streams:
            stream.send(post(COMPLETIONS, STREAM))
        for stream in streams:
            assert stream.response_head()[0] == 200
        start = time.monotonic()
        server.terminate()
        assert server.wait() == 0
        assert 0.9 < time.monotonic() - start
        for stream in streams:
            assert b"[DONE]" not in stream.rest()
            stream.close()


def test_a_second_signal_ends_at_once(connect):
    with Server("--drain-timeout", "600", *SLOW, expected_status=128 + signal.SIGINT) as server:
        streams = [connect(server) for _ in range(24)]
        for stream in streams:
            stream.send(post(COMPLETIONS, STREAM))
        for stream in streams:
            assert stream.response_head()[0] == 200
        server.process.send_signal(signal.SIGINT)
        server.await_stderr("draining: ")
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        server.wait()


@pytest.mark.parametrize("moment", ["loading", "idle", "loaded", "after the drain"])
def test_a_second_signal_is_never_lost(moment, connect):
    """A blocked loop cannot be made from outside; event_loop_test has that case."""
    for number in (signal.SIGTERM, signal.SIGINT):
        process = subprocess.Popen([BINARY, "serve", MODEL, "--port", str(free_port()),
                                    "--access-log", "off", *SLOW, "--drain-timeout",
                                    "600" if moment == "loaded" else "1"],
                                   stderr=subprocess.PIPE, text=True)
        with process:
            line = process.stderr.readline()
            port = int(re.search(r":(\d+);", line)[1])
            streams = []
            if moment != "loading":
                while "ready:" not in line:
                    line = process.stderr.readline()
            if moment in ("loaded", "after the drain"):
                for _ in range(24):
                    stream = socket.create_connection(("127.0.0.1", port))
                    stream.sendall(post(COMPLETIONS, STREAM))
                    streams.append(stream)
                for stream in streams:
                    assert stream.recv(1)
            process.send_signal(signal.SIGTERM)
            # The drain is over after a second: then the loop has stopped, and the engine is ending.
            time.sleep(2 if moment == "after the drain" else 0.05)
            process.send_signal(number)
            status = process.wait(timeout=LONG_WAIT * PATIENCE)
            # The first signal alone may have ended it before the second came.
            # -number: the second came after the server had put the handlers back, on its way out.
            assert status in (0, 128 + number, -number), status
            if moment == "loaded":
                assert status == 128 + number
            for stream in streams:
                stream.close()


def test_the_client_sees_a_connection_error_when_the_server_dies():
    with (Server(*SLOW, expected_status=-signal.SIGKILL) as server,
          client_of(server) as client):
        stream = client.completions.create(model=NAME, prompt="Once", max_tokens=1900, stream=True,
                                           n=8, extra_body={"ignore_eos": True})
        pieces = iter(stream)
        next(pieces)
        server.process.kill()
        # An error, not the quiet end of a stream that only looks whole.
        with pytest.raises(openai.APIConnectionError):
            list(pieces)
        with pytest.raises(openai.APIConnectionError):
            client.models.list()


def test_signals_under_load_never_hang():
    """SIGTERM at a random moment of busy serving: exit 0 every time."""
    for i in range(3):
        server = Server("--drain-timeout", "1")
        stop = threading.Event()

        def hammer():
            # Ends with the server: refused, cut off, or told 503.
            while not stop.is_set():
                try:
                    server.complete(max_tokens=20)
                except (OSError, http.client.HTTPException, AssertionError):
                    return

        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.1 + 0.13 * i)
        server.stop()
        stop.set()
        for thread in threads:
            thread.join(LONG_WAIT * PATIENCE)
            assert not thread.is_alive()
