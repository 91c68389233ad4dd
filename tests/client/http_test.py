"""Endpoints beside the OpenAI API: tokens, health, version, metrics, access log, status."""

import random
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raw_socket import RawClient, post
from serving import ENDLESS, NAME, NAMESPACE, SLOW, Server, sse_events

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "What is 3 plus 4?"}]


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize("text", [
    "Once upon a time", "", " ", "  two  spaces\n\n\ttabs", "Grüße, мир, 你好, 🦊🏮", "a\u0301b\u200d",
    "<|user|> is no special token here? <|end|>", "x" * 3000])
def test_tokens_round_trip(server, text):
    answer = server.post("/tokenize", {"model": NAME, "prompt": text,
                                       "add_special_tokens": False}).json()
    assert answer["count"] == len(answer["tokens"]) and answer["max_model_len"] == 2048
    back = server.post("/detokenize", {"model": NAME, "tokens": answer["tokens"]}).json()
    assert back["prompt"] == text


def test_tokens_as_text(server):
    answer = server.post("/tokenize", {"prompt": "Once upon a time", "return_token_strs": True,
                                       "add_special_tokens": False}).json()
    assert len(answer["token_strs"]) == answer["count"]
    assert server.post("/tokenize", {"prompt": "Once upon a time",
                                     "add_special_tokens": True}).json()["tokens"][0] == 1


def test_chat_tokens_are_those_of_the_chat(server):
    count = server.post("/tokenize", {"model": NAME, "messages": MESSAGES}).json()["count"]
    answer = server.post(CHAT, {"model": NAME, "messages": MESSAGES, "max_tokens": 1}).json()
    assert answer["usage"]["prompt_tokens"] == count


def test_tools_are_described_where_the_template_leaves_them_out(server):
    tool = {"type": "function", "function": {"name": "weather"}}
    messages = [{"role": "user", "content": "x"},
                {"role": "assistant", "tool_calls": [
                    {"id": "1", "type": "function",
                     "function": {"name": "weather", "arguments": "{\"a\": 1}"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "rain"}]
    answer = server.post("/tokenize", {"model": NAME, "messages": messages, "tools": [tool]})
    assert answer.status == 200, answer
    text = server.post("/detokenize", {"tokens": answer.json()["tokens"]}).json()["prompt"]
    assert '<tools>\n{"type":"function","function":{"name":"weather"}}\n</tools>' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {"a": 1}}\n</tool_call>' in text
    assert "<tool_response>\nrain\n</tool_response>" in text


def test_detokenize_refuses_unknown_ids(server):
    for tokens in ([3072], [-1], [1 << 40], "x", [1.5], [None]):
        answer = server.post("/detokenize", {"tokens": tokens})
        assert answer.status == 400 and answer.error()["param"].startswith("tokens"), answer


# ---------------------------------------------------------------- small answers


def test_health_ready_version(server):
    assert server.get("/health").status == 200
    assert server.get("/ready").status == 200
    assert re.match(r"\d+\.\d+", server.get("/version").json()["version"])


def test_what_may_be_got_has_a_head(server):
    """Watchers ask for no more than that."""
    for path in ("/", "/health", "/ready", "/version", "/metrics", "/v1/models", "/status"):
        answer = server.request("HEAD", path)
        assert answer.status == 200 and answer.body == b"", (path, answer)
        assert int(answer.headers["content-length"]) > 0


def test_status(server):
    server.complete()
    server.await_idle()
    status = server.status()
    assert status["model"] == NAME and status["state"] == "ready" and status["uptime_s"] > 0
    assert status["kv"]["blocks"] > 100 and status["requests"] == []
    assert status["ttft_ms"]["p99"] >= status["ttft_ms"]["p50"] > 0
    assert len(status["startup"]) >= 2 and all(s["ms"] >= 0 for s in status["startup"])


def test_status_shows_a_running_request():
    with Server(*SLOW) as server:
        with RawClient(server) as client:
            client.send(post("/v1/completions", ENDLESS | {"user": "someone"}))
            assert client.response_head()[0] == 200
            status = server.await_status(lambda s: s["requests"] and
                                         s["requests"][0]["output_tokens"] > 3 * ENDLESS["n"])
        request = status["requests"][0]
        assert request["kind"] == "completion" and request["state"] == "decode"
        assert request["client"] == "someone" and request["ttft_ms"] > 0 and request["age_s"] > 0
        assert status["running"] == ENDLESS["n"] and status["kv"]["used"] > 0
        server.await_idle()


def test_page_is_served_with_a_policy(server):
    answer = server.get("/")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/html")
    assert "<title>Sluice</title>" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


# ---------------------------------------------------------------- metrics


def test_metrics_parse_and_name_units(server):
    server.complete()
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    assert len(families) > 15
    for family in families:
        assert family.name.startswith(NAMESPACE), family.name
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            assert sample.labels.get("model_name", NAME) == NAME


def test_metrics_count_a_request(server):
    server.await_idle()
    before = server.metrics()
    answer = server.post("/v1/completions", {
        "model": NAME, "prompt": "The boat and the sea", "max_tokens": 12, "temperature": 0,
        "ignore_eos": True}).json()
    server.await_idle()
    after = server.metrics()

    def grown(name):
        return after[name] - before.get(name, 0)

    usage = answer["usage"]
    assert grown("generation_tokens_total") == 12
    assert grown("prompt_tokens_total") == usage["prompt_tokens"]
    assert grown("request_success_total{finished_reason=length}") == 1
    assert grown("time_to_first_token_seconds_count") == 1
    assert grown("e2e_request_latency_seconds_count") == 1
    assert grown("inter_token_latency_seconds_count") == 11
    assert grown("request_time_per_output_token_seconds_count") == 1
    assert 0 < grown("time_to_first_token_seconds_sum") <= grown("e2e_request_latency_seconds_sum")
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0
    assert after["kv_cache_usage_perc"] == 0


def test_metrics_count_prefix_hits(server):
    prompt = "A prompt that is long enough to fill several blocks of the cache. " * 8
    server.complete(prompt, max_tokens=1)
    before = server.metrics()
    server.complete(prompt, max_tokens=1)
    after = server.metrics()
    assert after["prefix_cache_hits_total"] - before["prefix_cache_hits_total"] >= 16
    assert after["prefix_cache_queries_total"] > before["prefix_cache_queries_total"]


def test_histograms_are_consistent(server):
    server.complete()
    text = server.get("/metrics").text
    histograms = 0
    for family in text_string_to_metric_families(text):
        if family.type != "histogram":
            continue
        histograms += 1
        buckets = [s for s in family.samples if s.name.endswith("_bucket")]
        values = [s.value for s in buckets]
        count = next(s.value for s in family.samples if s.name.endswith("_count"))
        assert values == sorted(values) and values[-1] == count, family.name
        assert buckets[-1].labels["le"] == "+Inf"
        if "latency" in family.name or "time_to_first" in family.name:
            assert float(buckets[0].labels["le"]) <= 0.001, "too coarse for a small model"
    assert histograms >= 4


# ---------------------------------------------------------------- access log


def test_access_log_has_a_line_per_request(server):
    answer = server.post(CHAT, {"model": NAME, "messages": MESSAGES, "max_tokens": 5,
                                "temperature": 0, "user": "someone"})
    line = server.access_line(answer.headers["x-request-id"])
    usage = answer.json()["usage"]
    assert line["method"] == "POST" and line["path"] == CHAT and line["status"] == 200
    assert line["model"] == NAME and line["client"] == "someone"
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["completion_tokens"] == usage["completion_tokens"]
    assert 0 < line["ttft_ms"] <= line["total_ms"]
    assert "plus" not in str(line), "the log never holds what was asked"


def test_access_log_of_streams_and_refusals(server):
    stream = server.post(CHAT, {"model": NAME, "messages": MESSAGES, "stream": True})
    events = sse_events(stream.text)
    line = server.access_line(stream.headers["x-request-id"])
    assert line["finish_reason"] == events[-1]["choices"][0]["finish_reason"] == "stop"
    assert line["bytes"] == len(stream.body)
    for answer in (server.post(CHAT, "{"), server.get("/nowhere"), server.get(CHAT)):
        assert server.access_line(answer.headers["x-request-id"])["status"] == answer.status


def test_access_log_says_who_sent_what_is_no_request(server):
    with RawClient(server) as client:
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Length: 99999999999\r\n\r\n")
        status, headers, _ = client.response()
    assert status == 413
    line = server.access_line(headers["x-request-id"])
    assert line["peer"].startswith("127.0.0.1:") and line["status"] == 413
    assert line["method"] == "POST" and line["path"] == "/v1/completions"
    assert server.metrics()["http_requests_total{path=/v1/completions}{status=413}"] == 1


def test_hostile_paths_stay_one_line(server):
    """Paths and names come from clients; every line of the log is still JSON by itself."""
    pick = random.Random(5)
    ids = []
    for _ in range(20):
        path = bytes(pick.choice([34, 92, *range(33, 63), *range(64, 127), *range(160, 256)])
                     for _ in range(20))
        with RawClient(server) as client:
            client.send(b"GET /" + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            ids.append(client.response()[1]["x-request-id"])
    assert len(set(ids)) == 20
    for request_id in ids:
        assert server.access_line(request_id)["status"] in (400, 404)
