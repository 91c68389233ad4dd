"""`sluice bench` against `sluice serve`: what it counts, and what it says when things go wrong."""

import contextlib
import http.server
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from serving import BINARY, LONG_WAIT, NAME, PATIENCE, Server, free_port

NO_GOALS = ["--tbt-slo-ms", "600000", "--scheduling-delay-s", "600"]
SMALL = ["--random-input-len", "40", "--random-output-len", "12", "--ignore-eos"]


def command_of(base, *options, command="serve"):
    return [BINARY, "bench", command, "--base-url", base, *options]


def bench(base, *options, command="serve", timeout=120):
    return subprocess.run(command_of(base, *options, command=command), capture_output=True,
                          text=True, timeout=timeout * PATIENCE)


def result_of(done, status=0):
    """The JSON object on stdout, which holds nothing else."""
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


# ---------------------------------------------------------------- what is counted


def test_twenty_requests_and_all_the_keys_of_vllm(server):
    done = bench(server.base + "/v1", *SMALL, "--num-prompts", "20", "--request-rate", "50",
                 "--goodput", "ttft:60000", "tpot:60000", "--metric-percentiles", "90,99.9",
                 "--json")
    result = result_of(done)
    assert result["completed"] == result["num_prompts"] == 20
    assert result["failed"] == result["unfinished"] == result["not_sent"] == 0
    assert result["total_input_tokens"] == 20 * 40
    assert result["total_output_tokens"] == 20 * 12
    assert result["model_id"] == NAME and result["request_rate"] == 50
    assert result["ended_by"] == "all_ended" and result["error_counts"] == []
    assert result["request_goodput"] == pytest.approx(result["request_throughput"])
    assert result["total_token_throughput"] > result["output_throughput"] > 0
    assert result["max_output_tokens_per_s"] > 0 and result["max_concurrent_requests"] >= 1
    for name in ("ttft", "tpot", "itl", "e2el"):
        low, high = (result[f"{what}_{name}_ms"] for what in ("median", "p99"))
        assert 0 < low <= high
        assert high <= result[f"p99.9_{name}_ms"] and result[f"mean_{name}_ms"] > 0
        assert result[f"std_{name}_ms"] >= 0 and result[f"p90_{name}_ms"] > 0
    # The server counts what its clients count.
    server.await_idle()
    metrics = server.metrics()
    assert metrics["generation_tokens_total"] >= 240


def test_a_table_and_progress_for_people(server):
    done = bench(server.base, *SMALL, "--num-prompts", "4", "--max-concurrency", "2",
                 "--percentile-metrics", "ttft")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Successful requests: +4 *\n", done.stdout)
    assert "P99 TTFT (ms):" in done.stdout and "TPOT" not in done.stdout
    assert "4/4" in done.stderr
    quiet = bench(server.base, *SMALL, "--num-prompts", "2", "--no-progress")
    assert quiet.stderr == ""


def test_the_same_seed_asks_for_the_same(server):
    first, second = (result_of(bench(server.base, "--lengths", "uniform:5-60,3-9", "--num-prompts",
                                     "10", "--seed", "7", "--ignore-eos", "--json"))
                     for _ in range(2))
    for key in ("total_input_tokens", "total_output_tokens"):
        assert first[key] == second[key]


def test_chats(server):
    result = result_of(bench(server.base, "--endpoint", "/v1/chat/completions", *SMALL,
                             "--num-prompts", "5", "--json"))
    assert result["completed"] == 5
    assert result["total_output_tokens"] == 60
    assert result["total_input_tokens"] > 5 * 20  # words, and what the template adds


def test_a_trace_shares_prefixes(server, tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": 20 * i, "input_length": 1000 + i, "output_length": 2,
              "hash_ids": [1, 100 + i]} for i in range(4)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = server.metrics()["prefix_cache_hits_total"]
    # One at a time, so that each finds what the one before has computed.
    result = result_of(bench(server.base, "--trace", str(trace), "--num-warmups", "0",
                             "--max-concurrency", "1", "--ignore-eos", "--json"))
    assert result["completed"] == 4 and result["total_input_tokens"] == 4006
    server.await_idle()
    assert server.metrics()["prefix_cache_hits_total"] - before == 3 * 512


def test_results_and_report_are_files(server, tmp_path):
    report = tmp_path / "report"
    done = bench(server.base, *SMALL, "--num-prompts", "5", "--json", "--save-result",
                 "--result-dir", str(tmp_path / "results"), "--result-filename", "r.json",
                 "--report", str(report))
    saved = json.loads((tmp_path / "results" / "r.json").read_text())
    assert saved == result_of(done)
    page = (report / "index.html").read_text()
    assert NAME in page and "Successful requests" in page
    drawn = "gnuplot-nox" not in done.stderr
    assert (report / "latency_cdf.png").exists() == drawn
    assert ("<svg" in page) == drawn


def test_saved_details_are_vllms_lists_of_each_request(server, tmp_path):
    done = bench(server.base, *SMALL, "--num-prompts", "3", "--json", "--save-result",
                 "--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json")
    result = result_of(done)
    saved = json.loads((tmp_path / "r.json").read_text())
    assert "ttfts" not in result and {**saved, **result} == saved
    assert saved["input_lens"] == [40] * 3 and saved["output_lens"] == [12] * 3
    assert saved["errors"] == [""] * 3 and all(saved["generated_texts"])
    assert [len(gaps) for gaps in saved["itls"]] == [11] * 3
    assert all(ttft > 0 for ttft in saved["ttfts"])
    assert saved["start_times"] == sorted(saved["start_times"])


def test_a_server_that_comes_later_is_waited_for():
    port = free_port()
    early = subprocess.Popen(command_of(f"http://127.0.0.1:{port}", *SMALL, "--num-prompts", "2",
                                        "--json", "--ready-check-timeout-sec", "60"),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.3)
    assert early.poll() is None  # nobody listens yet
    with Server(port=port):
        out, err = early.communicate(timeout=2 * LONG_WAIT * PATIENCE)
    assert early.returncode == 0 and "waiting up to 60 s" in err, err
    assert json.loads(out)["completed"] == 2


def test_capacity_of_a_server_that_meets_its_goal(server):
    done = bench(server.base, "--random-input-len", "16", "--random-output-len", "4",
                 "--ignore-eos", "--num-prompts", "10", "--probe-seconds", "0.2", "--start-rate",
                 "20", "--max-probes", "3", *NO_GOALS, "--json", command="capacity")
    result = result_of(done)
    assert result["capacity_request_rate"] >= 20
    assert result["scheduling_delay_source"] == "server histogram"
    assert len(result["probes"]) == 3 and all(probe["met"] for probe in result["probes"])
    assert result["probes"][0]["p99_itl_ms"] > 0
    assert "request_queue_time_seconds" in done.stderr


def test_a_goal_that_nothing_meets_is_said_to_be_one(server):
    done = bench(server.base, "--random-input-len", "8", "--random-output-len", "3",
                 "--ignore-eos", "--num-prompts", "2", "--probe-seconds", "0.001", "--start-rate",
                 "100", "--max-probes", "2", "--tbt-slo-ms", "0.0001", command="capacity")
    assert done.returncode == 1, done
    assert "Capacity: none" in done.stdout and "the smallest P99 TBT seen" in done.stdout


# ---------------------------------------------------------------- what goes wrong


def await_answers(server, count):
    deadline = time.monotonic() + LONG_WAIT * PATIENCE
    while server.metrics()["e2e_request_latency_seconds_count"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_that_is_killed_leaves_partial_results():
    with Server(expected_status=-signal.SIGKILL) as server:
        running = subprocess.Popen(
            command_of(server.base, *SMALL, "--num-prompts", "100000", "--max-concurrency", "4",
                       "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        await_answers(server, 20)
        os.kill(server.process.pid, signal.SIGKILL)
        out, err = running.communicate(timeout=2 * LONG_WAIT * PATIENCE)
    result = json.loads(out)
    assert running.returncode == 1
    assert result["ended_by"] == "server_gone" and "the server is gone" in err
    assert result["completed"] > 0 and result["failed"] >= 20 and result["not_sent"] > 0
    errors = result["error_counts"]
    assert any("refused" in error["message"] for error in errors), errors


def test_an_interrupt_ends_with_what_there_is(server):
    running = subprocess.Popen(
        command_of(server.base, *SMALL, "--num-prompts", "100000", "--max-concurrency", "2",
                   "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    await_answers(server, server.metrics()["e2e_request_latency_seconds_count"] + 20)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=2 * LONG_WAIT * PATIENCE)
    assert running.returncode == 130
    assert json.loads(out)["ended_by"] == "interrupted"
    server.await_idle()


def test_a_full_queue_fails_requests_and_the_run():
    with Server("--max-queue", "1") as server:
        result = result_of(bench(server.base, "--random-input-len", "40", "--random-output-len",
                                 "1000", "--ignore-eos", "--num-prompts", "30", "--json"), status=1)
        assert result["failed"] > 0 and result["completed"] > 0
        assert result["failed"] + result["completed"] == 30
        assert any(error["message"].startswith("HTTP 429") for error in result["error_counts"])


class Plain(http.server.BaseHTTPRequestHandler):
    """Another OpenAI server: HTTP/1.0, streams without usage, no /tokenize, no /metrics."""

    def do_GET(self):
        body = b'{"data":[{"id":"plain"}]}' if self.path == "/v1/models" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/completions":
            self.send_error(404)
            return
        self.answer(json.loads(request))

    def answer(self, request):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for i in range(request["max_tokens"]):
            end = "length" if i + 1 == request["max_tokens"] else None
            chunk = {"choices": [{"text": "x", "finish_reason": end}]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def log_message(self, *_):
        pass


class Silent(Plain):
    """Never answers what it is asked."""

    def answer(self, request):
        self.server.never.wait()


@contextlib.contextmanager
def serving(handler):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as one:
        one.never = threading.Event()
        one.daemon_threads = True
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{one.server_port}"
        one.never.set()
        one.shutdown()


def test_another_server_needs_to_say_its_vocabulary_and_its_delay_is_estimated():
    options = ["--input-len", "5", "--output-len", "3", "--num-prompts", "5"]
    with serving(Plain) as base:
        refused = bench(base, *options)
        result = result_of(bench(base, *options, "--vocab-size", "1000", "--json"))
        done = bench(base, *options, "--vocab-size", "1000", "--probe-seconds", "0.01",
                     "--start-rate", "100", "--max-probes", "2", *NO_GOALS, "--json",
                     command="capacity")
    assert refused.returncode == 1
    assert "/tokenize" in refused.stderr and "--vocab-size" in refused.stderr
    # Without usage an event counts as a token, and the prompt as it was asked for.
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (25, 15)
    assert "ESTIMATED" in done.stderr
    capacity = result_of(done)
    assert capacity["scheduling_delay_source"] == "TTFT above the unloaded one"
    assert capacity["capacity_request_rate"] >= 100


def test_requests_that_are_never_answered_stay_in_the_figures():
    with serving(Silent) as base:
        result = result_of(bench(base, *SMALL, "--num-prompts", "5", "--num-warmups", "0",
                                 "--vocab-size", "1000", "--duration", "2", "--json"))
        failed = bench(base, *SMALL, "--num-prompts", "5", "--vocab-size", "1000",
                       "--request-timeout", "0.3")
    assert result["unfinished"] == 5 and result["completed"] == 0
    assert result["ended_by"] == "time_limit" and result["median_ttft_ms"] >= 900
    # A bound that short may also end a question about the server before the first warm-up.
    assert failed.returncode == 1 and ("warm-up" in failed.stderr or
                                       "--request-timeout" in failed.stderr), failed


def test_a_server_that_is_not_there():
    port = free_port()
    done = bench(f"http://127.0.0.1:{port}", *SMALL)
    assert done.returncode == 1 and done.stdout == ""
    assert f"127.0.0.1 port {port}" in done.stderr and "refused" in done.stderr


def test_unknown_models_and_missing_keys(server):
    done = bench(server.base, "--model", "other")
    assert done.returncode == 1 and f"the server has {NAME}" in done.stderr
