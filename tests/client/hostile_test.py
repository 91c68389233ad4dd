"""Clients that are slow, broken or malicious. After each of them the server still gives the right
answer to a normal request, and nothing of theirs holds a block.
"""

import contextlib
import gzip
import json
import random
import resource
import socket
import statistics
import threading
import time

import pytest

from raw_socket import RawClient, get, post
from serving import ENDLESS, LONG_WAIT, NAME, PATIENCE, SLOW, Server, sse_events

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
SMALL = {"model": NAME, "prompt": "Once", "max_tokens": 2, "temperature": 0}
# Two thousand tokens: hundreds of kilobytes of chunks.
LONG = {"model": NAME, "prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True}
TIMEOUT = 1
# Longer than a test waits for the server to close a connection, or than its own process may pause.
NO_TIMEOUTS = [text for name in ("header", "body", "idle", "write")
               for text in (f"--{name}-timeout", str(int(10 * LONG_WAIT * PATIENCE)))]


@pytest.fixture(scope="module")
def server():
    with Server(*NO_TIMEOUTS) as started:
        yield started


@pytest.fixture(scope="module")
def impatient_server():
    with Server("--header-timeout", str(TIMEOUT), "--body-timeout", str(TIMEOUT),
                "--write-timeout", "2") as started:
        yield started


@pytest.fixture(scope="module")
def slow_server():
    # Small steps: one that has begun is computed to its end.
    with Server(*NO_TIMEOUTS, *SLOW, "--token-budget", "64") as started:
        yield started


@pytest.fixture(scope="module")
def right_answer(server):
    return server.complete(max_tokens=16)["text"]


@pytest.fixture(autouse=True)
def still_answers(server, right_answer):
    yield
    assert server.complete(max_tokens=16)["text"] == right_answer
    server.await_idle()


def refused(answer, status):
    """A refusal in the API's shape; the error object."""
    got, headers, body = answer
    assert got == status, (got, body[:500])
    assert headers["content-type"].startswith("application/json")
    return json.loads(body)["error"]


# ---------------------------------------------------------------- slow


def test_slow_headers_are_cut(impatient_server, connect):
    """Twenty connections that send a byte now and then, while others are served."""
    server = impatient_server
    start = time.monotonic()
    clients = [connect(server) for _ in range(20)]
    for byte in b"GET /health HT":
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(bytes([byte]))
        time.sleep(0.05)
    assert server.get("/health").status == 200
    for client in clients:
        assert client.is_closed()
        assert client.buffer == b"" or b" 408 " in client.buffer.split(b"\r\n")[0]
    assert TIMEOUT * 0.8 < time.monotonic() - start < LONG_WAIT * PATIENCE


def test_slow_body_is_cut(impatient_server):
    request = post(COMPLETIONS, SMALL, length=5000)
    with RawClient(impatient_server) as client:
        client.send(request[:-20])
        assert not client.send_slowly(b" " * 1000, 0.05)
        assert refused(client.response(), 408)["message"]
        assert client.is_closed()


def test_whole_but_slow_request_is_served(server):
    """Slow is no crime as long as it ends within the limit."""
    with RawClient(server) as client:
        request = get("/health")
        assert client.send_slowly(request[:-1], 0.005)
        client.send(request[-1:])
        assert client.response()[0] == 200


def stream_choices(client, choices):
    client.send(post(COMPLETIONS, LONG | {"n": choices}))
    assert client.response_head()[0] == 200


def test_slow_reader_costs_bounded_memory_and_no_step(impatient_server):
    """Sixteen choices of two thousand tokens, none of them read, while others are answered."""
    server = impatient_server
    server.complete(max_tokens=16)
    resident = server.resident_bytes()
    with RawClient(server, receive_buffer=4096) as client:
        stream_choices(client, 16)
        server.complete(max_tokens=16)
        # Cut off by the bound on what is kept, or by the time-out of writing.
        server.await_idle()
        rest = client.rest()
        assert b"[DONE]" not in rest
        assert len(rest) < 4 << 20
        if PATIENCE == 1:  # a sanitizer keeps what was freed
            assert server.resident_bytes() - resident < 32 << 20


def test_reader_that_pauses_gets_everything(server):
    fields = {"prompt": "Once", "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    whole = server.complete(**fields)
    with RawClient(server, receive_buffer=4096) as client:
        client.send(post(COMPLETIONS, LONG | fields))
        time.sleep(0.5)
        status, _, body = client.response()
    assert status == 200
    choices = [choice for event in sse_events(body.decode()) for choice in event["choices"]]
    # How many events carry it depends on how far the reader fell behind.
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == "length"


# ---------------------------------------------------------------- gone


def test_half_closed_client_is_not_waited_for(slow_server):
    """One that ends its own direction counts as gone: nothing is generated for it."""
    with RawClient(slow_server) as client:
        client.send(post(COMPLETIONS, ENDLESS))
        assert client.response_head()[0] == 200
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
        assert b"[DONE]" not in client.buffer
    slow_server.await_idle()


def test_half_closed_without_a_request(server):
    with RawClient(server) as client:
        client.send(b"GET /hea")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()


def busy_metrics(server):
    metrics = server.metrics()
    return {name: metrics[name] for name in
            ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")}


def await_metrics(server, true_of):
    """Until what the metrics say of running and waiting requests and of blocks in use is so."""
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while not true_of(busy := busy_metrics(server)):
        assert time.monotonic() < deadline, busy
        time.sleep(0.02)


def await_metrics_idle(server):
    await_metrics(server, lambda busy: not any(busy.values()))


def test_disconnect_in_mid_stream_frees_the_blocks(slow_server, connect):
    before = slow_server.metrics()["generation_tokens_total"]
    clients = [connect(slow_server) for _ in range(8)]
    for client in clients:
        client.send(post(COMPLETIONS, ENDLESS | {"n": 1}))
    for client in clients:
        assert client.response_head()[0] == 200
    await_metrics(slow_server, lambda busy: busy["num_requests_running"] == 8)
    for client in clients:
        client.close()
    await_metrics_idle(slow_server)
    assert slow_server.metrics()["generation_tokens_total"] - before < 8 * 1500, (
        "all ran to the end")


def test_disconnect_in_mid_prefill_frees_the_blocks(slow_server, connect):
    """Sixteen prompts of 1,900 tokens; their clients leave while the first are being computed."""
    pick = random.Random(1)
    before = slow_server.metrics()["time_to_first_token_seconds_count"]
    clients = [connect(slow_server) for _ in range(16)]
    for client in clients:
        prompt = [pick.randrange(300, 2000) for _ in range(1900)]
        client.send(post(COMPLETIONS, LONG | {"prompt": prompt, "max_tokens": 50}))
    slow_server.await_status(lambda s: len(s["requests"]) == 16)
    for client in clients:
        client.close()
    await_metrics_idle(slow_server)
    first_tokens = slow_server.metrics()["time_to_first_token_seconds_count"] - before
    assert first_tokens < 16, "all prompts were computed for nobody"


def test_reset_instead_of_close(slow_server, connect):
    """SO_LINGER 0: the client's kernel sends RST."""
    client = connect(slow_server)
    client.send(post(COMPLETIONS, ENDLESS))
    assert client.response_head()[0] == 200
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    await_metrics_idle(slow_server)


# ---------------------------------------------------------------- HTTP that is odd but right


def test_pipelined_requests_are_answered_in_order(server):
    with RawClient(server) as client:
        client.send(get("/version") + post(COMPLETIONS, SMALL) + get("/nowhere") +
                    post(COMPLETIONS, SMALL | {"stream": True}) + get("/health"))
        assert "version" in json.loads(client.response()[2])
        assert json.loads(client.response()[2])["object"] == "text_completion"
        assert refused(client.response(), 404)
        assert len(sse_events(client.response()[2].decode())) >= 2
        assert client.response()[0] == 200


def test_a_thousand_pipelined_requests(server):
    with RawClient(server) as client:
        client.send(get("/health") * 1000)
        assert [client.response()[0] for _ in range(1000)] == [200] * 1000


def chunked(path, chunks, *headers):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", *headers]
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_chunked_body(server):
    body = json.dumps(SMALL).encode()
    single = [body[i:i + 1] for i in range(len(body))]
    with RawClient(server) as client:
        for chunks in ([body], single):
            client.send(chunked(COMPLETIONS, chunks) + b"0\r\n\r\n")
            assert json.loads(client.response()[2])["usage"]["completion_tokens"] == 2
        # Extensions and trailers are allowed; the server ignores them.
        client.send(chunked(COMPLETIONS, []) + b"%x;name=value\r\n%s\r\n" % (len(body), body) +
                    b"0\r\nTrailer: x\r\n\r\n")
        assert client.response()[0] == 200


def test_expect_100_continue(server):
    request = post(COMPLETIONS, SMALL, "Expect: 100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    with RawClient(server) as client:
        client.send(head + b"\r\n\r\n")
        assert client.response_head()[0] == 100
        client.send(body)
        assert client.response()[0] == 200
    # A request that its head alone gets refused receives the refusal instead of 100.
    with RawClient(server) as client:
        client.send(head.replace(b"/v1/completions", b"/v1/nothing") + b"\r\n\r\n")
        assert client.response_head()[0] == 404


def test_http_1_0(server):
    with RawClient(server) as client:
        body = json.dumps(SMALL | {"stream": True}).encode()
        client.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" %
                    (len(body), body))
        status, headers, body = client.response()
        assert status == 200 and "transfer-encoding" not in headers
        assert len(sse_events(body.decode())) >= 2


def test_head_and_other_methods_are_answered(server):
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "BREW"):
        answer = server.request(method, COMPLETIONS)
        assert 400 <= answer.status < 500, (method, answer)
    assert server.get(COMPLETIONS).status == 405
    assert server.get(COMPLETIONS).headers["allow"] == "POST"
    assert server.post("/health", {}).headers["allow"] == "GET, HEAD"


# ---------------------------------------------------------------- HTTP that is wrong


@pytest.mark.parametrize("request_bytes, statuses", [
    (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", (414, 431)),
    (b"a" * 1_000_000, (400, 414, 431)),
    (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Big: " + b"a" * 1_000_000 + b"\r\n\r\n", (431,)),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 100_000 + b"\r\n", (431,)),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)), (400,)),
    (b"\x00" * 300, (400,)),
    (b"GET /health\r\n\r\n", (400, 505)),
    (b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", (400, 505)),
    (b"GET /health HTTP/1.1\r\nHost x\r\n\r\n", (400,)),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA : b\r\n\r\n", (400,)),
    (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: b\x00c\r\n\r\n", (400,)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", (400,)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5, 6\r\n\r\n12345", (400,)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
     (400,)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
     (400, 413)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n", (413,)),
    # Both lengths: what a proxy and a server would read differently.
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
     b"\r\n0\r\n\r\n", (400,)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     (400,)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
     b"ffffffffffffffffff\r\n", (400, 413)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
     (400,)),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", (400, 501)),
], ids=range(21))
def test_wrong_http_is_refused_and_the_connection_closed(server, request_bytes, statuses):
    with RawClient(server) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.send(request_bytes)
        try:
            got = client.response()
        except (EOFError, ConnectionResetError):
            # Closed while we were still sending: our bytes on the way may destroy the answer.
            assert len(request_bytes) > 100_000
            return
        assert got[0] in statuses, got
        assert refused(got, got[0])["message"]
        assert client.is_closed()


def test_blank_lines_are_skipped(server):
    with RawClient(server) as client:
        client.send(b"\r\n" * 100_000 + get("/health"))
        assert client.response()[0] == 200


def test_missing_host_is_refused(server):
    with RawClient(server) as client:
        client.send(b"GET /health HTTP/1.1\r\n\r\n")
        assert client.response()[0] == 400


def test_a_body_that_grows_beyond_the_limit_is_cut(server):
    """Chunks without an end: 413 as soon as the limit is passed."""
    with RawClient(server) as client:
        client.send(chunked(COMPLETIONS, []))
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(20):
                client.send(piece)
        with contextlib.suppress(ConnectionResetError, EOFError):
            assert client.response()[0] == 413
        assert client.is_closed()


def test_compressed_bodies_are_refused_unopened(server):
    bomb = gzip.compress(b"[" * 50_000_000)
    with RawClient(server) as client:
        client.send(post(COMPLETIONS, bomb, "Content-Encoding: gzip"))
        assert "compressed" in refused(client.response(), 415)["message"]
    # Unannounced it is no JSON.
    with RawClient(server) as client:
        client.send(post(COMPLETIONS, bomb))
        assert refused(client.response(), 400)


# ---------------------------------------------------------------- bodies


def test_many_large_prompts_do_not_stop_small_calls(connect):
    """40 bodies of 7 MB that fit no context. docs/serving.md has measured times."""
    large = post(COMPLETIONS, {"model": NAME, "prompt": "word " * 1_400_000, "max_tokens": 1})
    with Server() as server:
        server.complete(max_tokens=2)
        before = server.resident_bytes()
        clients = [connect(server) for _ in range(40)]

        def send(client):
            with contextlib.suppress(OSError):  # refused before the body was read
                client.send(large)

        threads = [threading.Thread(target=send, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        calls = 0
        while calls < 5 or any(thread.is_alive() for thread in threads):
            server.complete(max_tokens=1)
            calls += 1
        for thread in threads:
            thread.join()
        statuses = []
        for client in clients:
            with contextlib.suppress(OSError, EOFError):
                status, _, body = client.response()
                statuses.append(status)
                if status == 400:
                    assert json.loads(body)["error"]["code"] == "context_length_exceeded"
        assert set(statuses) <= {400, 503} and statuses.count(400) >= 10, statuses
        # By the server's own clock, and the median: a process that got no core for a while, be it
        # the client's or the server's, makes some calls longer. Calls that had waited for the
        # large ones would be as long as these.
        times = {"small": [], "large": []}
        for line in server.access_lines():
            if line["path"] == COMPLETIONS:
                times["small" if line["status"] == 200 else "large"].append(line["total_ms"])
        assert statistics.median(times["small"]) < max(times["large"]) / 4, times
        if PATIENCE == 1:  # a sanitizer keeps what was freed
            deadline = time.monotonic() + LONG_WAIT
            while server.resident_bytes() > before + (64 << 20):
                assert time.monotonic() < deadline, server.resident_bytes() - before
                time.sleep(0.05)


def test_a_client_that_leaves_takes_its_work_along(connect):
    """Each body is long to tokenize. Its end and that of its client come at the same time."""
    body = post("/tokenize", {"model": NAME, "prompt": "word " * 1_400_000})
    with Server("--workers", "1", *NO_TIMEOUTS) as server:
        clients = [connect(server) for _ in range(12)]
        for client in clients:
            client.send(body[:-1])
        for client in clients:
            client.await_delivered()
        with server.stopped():
            for client in clients:
                client.send(body[-1:])
                client.close()
        assert server.complete(max_tokens=1)
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while True:
            gone = [line for line in server.access_lines() if line["path"] == "/tokenize"]
            if len(gone) == len(clients):
                break
            assert time.monotonic() < deadline, gone
            time.sleep(0.05)
        assert all(line["status"] == 499 for line in gone), gone


def test_deep_json(server):
    for body in ("[" * 100_000, '{"a":' * 100_000, '{"messages":' + "[" * 5000 + "]" * 5000 + "}"):
        for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize"):
            answer = server.post(path, body)
            assert answer.status == 400 and "deep" in answer.error()["message"], answer


@pytest.mark.parametrize("body", [
    "", " ", "null", "true", "5", '"text"', "[]", "{", "}", '{"model"}', '{"model":}', '{,}',
    '{"model":"demo"', '{"model":"demo"} x', "{'model':'demo'}", '{"model":NaN}', "\ufeff{}",
    "undefined", '{"a":1,}', '{"a":01}', '{"a":+1}', '{"a":"\t"}', '{"a":"\\x"}', '{"a":"\\ud800"}',
])
def test_bodies_that_are_no_object_are_refused(server, body):
    for path in (CHAT, COMPLETIONS, "/tokenize", "/detokenize"):
        answer = server.post(path, body.encode("utf-8", "surrogatepass"))
        assert answer.status == 400, (path, answer)
        assert answer.error()["type"] == "invalid_request_error"


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80",
                                  b"\xf5\x80\x80\x80", b"\xe2\x82"])
def test_invalid_utf8_is_refused(server, text):
    body = b'{"model":"demo","prompt":"a' + text + b'b","max_tokens":1}'
    answer = server.post(COMPLETIONS, body)
    assert answer.status == 400 and "UTF-8" in answer.error()["message"], answer


def test_missing_fields_are_named(server):
    messages = [{"role": "user", "content": "x"}]
    for path, body, param in [
            (CHAT, {"model": NAME}, "messages"), (CHAT, {"messages": messages}, "model"),
            (COMPLETIONS, {"model": NAME}, "prompt"), (COMPLETIONS, {"prompt": "x"}, "model"),
            ("/tokenize", {}, "prompt"), ("/detokenize", {}, "tokens"),
            (CHAT, {"model": NAME, "messages": [{}]}, "messages[0].role")]:
        answer = server.post(path, body)
        assert answer.status == 400 and answer.error()["param"] == param, (path, answer)


def test_unknown_models_and_paths(server):
    for path, body in [(CHAT, {"messages": [{"role": "user", "content": "x"}]}),
                       (COMPLETIONS, {"prompt": "x"}), ("/tokenize", {"prompt": "x"}),
                       ("/detokenize", {"tokens": [5]})]:
        answer = server.post(path, body | {"model": "no-such-model"})
        assert answer.status == 404 and answer.error()["code"] == "model_not_found"
    for path in ("/nowhere", "/v1", "/v1/", "//", "/v1/models/", "/../etc/passwd", "/%2e%2e/x",
                 "/v1%2Fmodels", "/%2Fv1/models", "/v1/%256dodels",
                 "/index.html", "/favicon.ico?x=" + "y" * 5000):
        assert server.get(path).status == 404, path
    assert server.get("/v1/%6dodels").body == server.get("/v1/models").body


VALUES = ["null", "true", "0", "-1", "1.5", "1e400", "-1e400", "9223372036854775808",
          "1" + "0" * 400, '""', '"x"', '"\\u0000"', "[]", "[null]", "[[]]", '["x"]', "{}",
          '{"x":null}', '{"type":"x"}', "[-1]", "[99999999999]"]
COMMON = ["model", "temperature", "top_p", "n", "stop", "seed", "presence_penalty",
          "frequency_penalty", "logit_bias", "user", "stream", "stream_options", "top_k", "min_p",
          "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids", "priority",
          "cache_salt", "return_token_ids", "skip_special_tokens", "add_special_tokens",
          "include_stop_str_in_output", "logprobs", "response_format", "max_tokens"]
FIELDS = {
    CHAT: ("messages", '[{"role":"user","content":"x"}]', [
        *COMMON, "messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice",
        "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "metadata",
        "reasoning_effort", "modalities"]),
    COMPLETIONS: ("prompt", '"x"', [*COMMON, "prompt", "echo", "suffix", "best_of"]),
    "/tokenize": ("prompt", '"x"', ["model", "prompt", "messages", "add_special_tokens",
                                    "return_token_strs", "tools"]),
    "/detokenize": ("tokens", "[5]", ["model", "tokens"]),
}


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_with_wrong_types(server, path):
    """Each is served or refused with a reason; nothing is a 500, nothing ends the connection."""
    needed, value, fields = FIELDS[path]
    with RawClient(server) as client:
        for field in fields:
            for wrong in VALUES:
                members = {"model": f'"{NAME}"', needed: value}
                if path in (CHAT, COMPLETIONS):
                    members["max_tokens"] = "1"
                members[field] = wrong
                body = "{" + ",".join(f'"{k}":{v}' for k, v in members.items()) + "}"
                client.send(post(path, body))
                status, _, answer = client.response()
                assert status in (200, 400, 404), (body, status, answer)
                if status != 200:
                    error = json.loads(answer)["error"]
                    assert error["message"] and error["type"] == "invalid_request_error", error


def test_strings_of_every_kind_come_back(server):
    """NUL, controls, all planes, combining marks: tokenized, and back to the same text."""
    pick = random.Random(7)
    for _ in range(50):
        points = [pick.choice([pick.randrange(0x80), pick.randrange(0xD800),
                               pick.randrange(0xE000, 0x110000)]) for _ in range(40)]
        text = "".join(map(chr, points))
        body = {"prompt": text, "add_special_tokens": False}
        tokens = server.post("/tokenize", body).json()["tokens"]
        assert server.post("/detokenize", {"tokens": tokens}).json()["prompt"] == text


def test_random_bytes(server):
    """Seeded noise: mostly refused, sometimes cut, never fatal."""
    pick = random.Random(3)
    good = post(COMPLETIONS, SMALL)
    for _ in range(60):
        data = bytearray(good)
        for _ in range(pick.randrange(1, 6)):
            data[pick.randrange(len(data))] = pick.randrange(256)
        with RawClient(server) as client:
            client.send(bytes(data))
            client.socket.shutdown(socket.SHUT_WR)
            assert client.is_closed(), data


# ---------------------------------------------------------------- many


@pytest.fixture
def many_files():
    """A thousand sockets are more open files than most shells allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_idle_connections_cost_ten_megabytes_at_most(server, connect, many_files):
    """Each has asked something before."""
    def ask(client):
        client.send(get("/health"))
        assert client.response()[0] == 200

    for client in [connect(server) for _ in range(10)]:
        ask(client)
    resident = server.resident_bytes()
    for client in [connect(server) for _ in range(1000)]:
        ask(client)
    grown = server.resident_bytes() - resident
    assert server.get("/health").status == 200
    if PATIENCE == 1:
        assert grown <= 10 << 20, f"{grown} bytes"


def test_a_thousand_connections_while_a_stream_flows(server, connect, many_files):
    clients = [connect(server) for _ in range(1000)]
    stream = connect(server)
    stream.send(post(COMPLETIONS, LONG | {"max_tokens": 400}))
    assert stream.response_head()[0] == 200
    pieces = [stream.chunk() for _ in range(3)]
    # All of them ask something while the stream flows.
    for client in clients:
        client.send(get("/health"))
    assert [client.response()[0] for client in clients] == [200] * 1000
    pieces += list(iter(stream.chunk, b""))
    events = sse_events(b"".join(pieces).decode())
    assert events[-1]["choices"][0]["finish_reason"] == "length"
