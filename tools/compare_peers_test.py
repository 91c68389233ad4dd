"""Tests of tools/compare_peers.py and its parts: what engines print, rates, medians and ratios, the
table and the page; and a whole run with engines that answer by rule."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import compare_peers
import peer_engines
import peer_http
import peer_table
import peer_worker

PREFILL = {"kind": "prefill", "tokens": 512}
DECODE = {"kind": "decode", "streams": 16, "prompt": 32, "tokens": 64}


class RatesTest(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.prompts = []
        # A prompt token takes a millisecond, a step of the answers after the first 20.
        self.rates = peer_worker.Rates(self.generate, clock=lambda: self.now)

    def generate(self, prompts, new):
        self.prompts += prompts
        self.now += sum(map(len, prompts)) * 0.001 + (new - 1) * 0.020

    def test_prefill_counts_the_tokens_of_the_prompt(self):
        self.assertAlmostEqual(self.rates.measure(PREFILL), 1000.0)

    def test_decode_leaves_the_prefill_out(self):
        self.assertAlmostEqual(self.rates.measure(DECODE), 16 / 0.020)

    def test_no_prompt_is_repeated(self):
        self.rates.measure(DECODE)
        self.rates.measure(DECODE)
        self.assertEqual(len({tuple(ids) for ids in self.prompts}), len(self.prompts))


class OutputTest(unittest.TestCase):
    def test_sluice_gives_the_rate_of_the_steps_of_the_job(self):
        result = {"failed": 0, "prefill": {"steps": 1, "tokens_per_second": 770.0},
                  "decode": {"steps": 64, "tokens_per_second": 134.0}}
        self.assertEqual(peer_engines.offline_rate(PREFILL, result), 770.0)
        self.assertEqual(peer_engines.offline_rate(DECODE, result), 134.0)

    def test_sluice_without_such_steps_or_with_failures_is_an_error(self):
        none = {"failed": 0, "decode": {"steps": 0, "tokens_per_second": 0.0}}
        failed = {"failed": 1, "decode": {"steps": 3, "tokens_per_second": 9.0}}
        for result in (none, failed):
            with self.assertRaises(peer_engines.Unavailable):
                peer_engines.offline_rate(DECODE, result)

    def test_a_program_older_than_the_checkout_is_not_of_its_commit(self):
        self.assertEqual(peer_engines.checkout_version("abc", 100, 100.5), "abc")
        self.assertEqual(peer_engines.checkout_version("abc", 100, 99.0), "built before abc")

    def test_llama_gives_the_rate_of_the_phase_of_the_job(self):
        text = 'main: n_kv_max = 8192\n{"pp": 512, "speed_pp": 92.5, "speed_tg": 11.0}\n'
        self.assertEqual(peer_engines.batched_rate(PREFILL, text), 92.5)
        self.assertEqual(peer_engines.batched_rate(DECODE, text), 11.0)
        with self.assertRaises(peer_engines.Unavailable):
            peer_engines.batched_rate(DECODE, "no line of JSON\n")

    def test_a_program_that_fails_is_named_with_its_last_words(self):
        with self.assertRaisesRegex(peer_engines.Unavailable, "exit status 3: out of luck"):
            peer_engines.run([sys.executable, "-c",
                              "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"])
        with self.assertRaisesRegex(peer_engines.Unavailable, "more than 0.1 s"):
            peer_engines.run([sys.executable, "-c", "import time; time.sleep(9)"], limit=0.1)
        with self.assertRaisesRegex(peer_engines.Unavailable, "not installed"):
            peer_engines.run(["/nowhere/llama-bench"])

    def test_quantized_files_are_written_by_llama_quantize_once(self):
        commands = []

        def write(command, _):
            commands.append([os.path.basename(word) for word in command])
            part = next(word for word in command if word.endswith(".part"))
            with open(part, "w", encoding="utf-8") as out:
                out.write("w")
        with tempfile.TemporaryDirectory() as peers, mock.patch.object(peer_engines, "run", write):
            os.mkdir(os.path.join(peers, "models"))
            paths = {peer_engines.gguf_file(peers, "at/model", "Q4_0") for _ in range(2)}
            paths.add(peer_engines.Sluice(peers, 2, sys.executable).prepare("at/model", "q4_0"))
            self.assertEqual(paths, {os.path.join(peers, "models", "model-Q4_0.gguf")})
        self.assertEqual(commands, [
            ["python", "make_gguf.py", "model", "model-BF16.gguf.part", "--type", "BF16"],
            ["llama-quantize", "model-BF16.gguf", "model-Q4_0.gguf.part", "Q4_0"]])

    def test_all_files_of_a_model_are_read_before_a_start(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "one", "weights")
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as out:
                out.write("w")
            opened = []
            plain = open
            with mock.patch("builtins.open",
                            lambda name, mode: opened.append(name) or plain(name, mode)):
                peer_http.read_once(folder)
                peer_http.read_once(path)
        self.assertEqual(opened, [path, path])

    def test_gaps_that_touch_the_wait_count(self):
        times = [0.0, 5.0, 5.1, 6.0, 6.1, 9.0]
        self.assertAlmostEqual(peer_http.longest_gap(times, 5.05, 6.05), 0.9)
        self.assertAlmostEqual(peer_http.longest_gap(times, 4.0, 6.05), 5.0)


class WorkerTest(unittest.TestCase):
    def open(self, body):
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(self.folder.cleanup)
        path = os.path.join(self.folder.name, "worker.py")
        tools = os.path.dirname(os.path.abspath(__file__))
        with open(path, "w", encoding="utf-8") as out:
            out.write(f"import sys\nsys.path.insert(0, {tools!r})\nimport peer_worker\n{body}")
        return peer_engines.Worker([sys.executable, path], os.path.join(self.folder.name, "log"))

    def test_measures_and_names_errors(self):
        worker = self.open("def load(_):\n"
                           "    print('chatter')\n"
                           "    def generate(prompts, new):\n"
                           "        if len(prompts) == 16: raise MemoryError('no room')\n"
                           "    return generate\n"
                           "peer_worker.run(load)\n")
        try:
            self.assertGreater(worker.measure(PREFILL), 0)
            with self.assertRaisesRegex(peer_engines.Unavailable, "MemoryError: no room"):
                worker.measure(DECODE)
            self.assertGreater(worker.measure(PREFILL), 0)
        finally:
            worker.stop()
        self.assertIsNotNone(worker.process.returncode)

    def test_one_that_does_not_load_is_named(self):
        with self.assertRaisesRegex(peer_engines.Unavailable, "its worker ended; see log"):
            self.open("peer_worker.run(lambda _: 1 / 0)\n")


class TableTest(unittest.TestCase):
    def samples(self, key, *rounds):
        samples = peer_table.Samples()
        for figures in rounds:
            samples.begin_round(key)
            for engine, value in figures.items():
                samples.add(key, engine, value)
        return samples

    def test_ratio_is_the_median_of_rounds_to_the_best_of_each(self):
        key = "1b/bf16/prefill-512"
        samples = self.samples(key, {"Sluice": 100, "A": 50, "B": 80}, {"Sluice": 90, "A": 30},
                               {"Sluice": 100, "A": 200, "B": 10})
        row = peer_table.Row(key)
        self.assertAlmostEqual(samples.ratio(row, "Sluice", ["A", "B"]), 1.25)
        self.assertEqual(samples.median(key, "Sluice"), 100)
        self.assertEqual(samples.median(key, "B"), 45)

    def test_a_round_without_the_best_peer_does_not_count(self):
        key = "0.6b/http/chats"
        samples = self.samples(key, {"Sluice": 100, "A": 80}, {"Sluice": 90, "B": 10},
                               {"Sluice": 90, "B": 10})
        self.assertAlmostEqual(samples.ratio(peer_table.Row(key), "Sluice", ["A", "B"]), 1.25)

    def test_ratio_of_times_is_above_one_when_ahead(self):
        key = "0.6b/http/gap"
        samples = self.samples(key, {"Sluice": 0.25, "A": 1.0, "B": 0.5})
        self.assertAlmostEqual(samples.ratio(peer_table.Row(key), "Sluice", ["A", "B"]), 2.0)

    def test_table_has_figures_notes_and_only_measured_rows(self):
        key = "0.6b/bf16/decode-16"
        samples = self.samples(key, {"Sluice": 140.04, "A": 9.0})
        samples.fail(key, "B", "not installed")
        samples.fail("1b/bf16/decode-1", "B", "never shown")
        lines, notes = peer_table.table(samples, ["Sluice", "A", "B"])
        self.assertEqual(lines[2:], ["| 0.6B, BF16: decode, 16 streams, tokens/s | 140 | 9.00 "
                                     "| (1) | 15.56 | 1 |"])
        self.assertEqual(notes, ["B: not installed"])

    def test_a_figure_takes_back_a_failure(self):
        key = "0.6b/bf16/decode-16"
        samples = peer_table.Samples()
        samples.fail(key, "A", "broken")
        samples.begin_round(key)
        samples.add(key, "A", 2.0)
        self.assertEqual(samples.missing[key], {})

    def test_page_keeps_what_is_outside_the_markers(self):
        page = f"before\n{peer_table.BEGIN}\nold\n{peer_table.END}\nafter\n"
        self.assertEqual(peer_table.replace_part(page, "new"), page.replace("old", "new"))
        for broken in ("", peer_table.BEGIN, peer_table.END + peer_table.BEGIN):
            with self.assertRaises(ValueError):
                peer_table.replace_part(broken, "new")

    def test_every_row_has_a_label_of_its_own(self):
        labels = [peer_table.Row(key).label for key in peer_table.all_keys()]
        self.assertEqual(len(set(labels)), len(labels))
        self.assertIn("1B, 8 bits: prefill of 2,048 tokens, tokens/s", labels)

    def test_limits_are_those_of_all_measurements(self):
        self.assertEqual(
            peer_table.limits_line([{"read_gb_s": 29.84, "amx_bf16_gop_s": 5490.2, "threads": 2},
                                    {"read_gb_s": 12.1, "amx_bf16_gop_s": 5400.0, "threads": 2}]),
            "read GB/s 12.1 to 29.8, Gop/s: AMX BF16 5,490")
        self.assertEqual(peer_table.limits_line([]), "not measured")


class FakeEngine(peer_engines.Engine):
    """Its rate, or Unavailable with its text."""

    forms = {"bf16": "bf16"}

    def __init__(self, name, rate):
        super().__init__("", 2)
        self.name, self.rate, self.jobs = name, rate, []

    def version(self):
        return "1"

    def prepare(self, checkpoint, form):
        if isinstance(self.rate, str):
            raise peer_engines.Unavailable(self.rate)
        return checkpoint

    def open(self, model, form):
        def measure(job):
            self.jobs.append(job)
            return self.rate * len(self.jobs)
        return peer_engines.Commands(measure)


class FakeServer:
    url, model = "http://127.0.0.1:1", "model"

    def __init__(self, name, events):
        self.name, self.events = name, events
        events.append(name)

    def pause(self):
        self.events.append(f"{self.name} waits")

    def resume(self):
        self.events.append(f"{self.name} goes on")

    def stop(self):
        self.events.append("end")


class PauseTest(unittest.TestCase):
    def test_a_paused_program_stands_still_and_ends_when_it_is_told_to(self):
        worker = peer_engines.Commands(None)
        worker.pause()
        worker.resume()
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                                   start_new_session=True)
        peer_engines.signal_group(process, signal.SIGSTOP)
        self.assertTrue(os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]))
        peer_engines.stop_group(process)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        peer_engines.signal_group(process, signal.SIGSTOP)  # of a program that has ended: nothing


class RunTest(unittest.TestCase):
    def run_with(self, folder, engines, *more):
        page = os.path.join(folder, "page.md")
        if not os.path.exists(page):
            with open(page, "w", encoding="utf-8") as out:
                out.write(f"{peer_table.BEGIN}\n{peer_table.END}\n")
        said = io.StringIO()
        with mock.patch.object(peer_engines, "all_engines", lambda *_: engines), \
                mock.patch.object(compare_peers.Comparison, "checkpoint", lambda *_: "model"), \
                contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = compare_peers.main(
                ["sluice", "--peers", folder, "--page", page, "--ops-bench", "/nowhere/ops_bench",
                 "--results", os.path.join(folder, "results.json"), "--rounds", "3", *more])
        self.assertEqual(code, 0)
        with open(page, encoding="utf-8") as file:
            return file.read()

    def test_a_run_writes_the_table_and_goes_on_without_a_peer(self):
        engines = [FakeEngine("Sluice", 10.0), FakeEngine("A", 5.0), FakeEngine("B", "not there")]
        with tempfile.TemporaryDirectory() as folder:
            page = self.run_with(folder, engines, "--only", "0.6b/bf16/decode-1$")
            self.assertIn("| 0.6B, BF16: decode, 1 stream, tokens/s | 20.0 | 10.0 | (1) | 2.00 "
                          "| 3 |", page)
            self.assertIn("1. B: not there", page)
            self.assertTrue(os.path.exists(os.path.join(folder, "images", "peers.svg")))
            self.assertIn("| limits, before and after each part | not measured |", page)
            self.assertIn("| command | `tools/compare_peers.py --only '0.6b/bf16/decode-1$' "
                          "--rounds 3` |", page)
            self.assertEqual(engines[0].jobs[0]["streams"], 1)
            # Another run adds rounds and rows, and keeps what is there.
            page = self.run_with(folder, engines, "--only", "0.6b/bf16/decode")
            self.assertIn("decode, 16 streams", page)
            self.assertIn("| 2.00 | 6 |", page)
            page = self.run_with(folder, engines, "--only", "0.6b/bf16/prefill-512", "--fresh")
            self.assertNotIn("decode", page.replace("--only 0.6b/bf16/decode", ""))

    def test_the_first_to_run_changes_from_round_to_round(self):
        order = []
        engines = [FakeEngine("Sluice", 1.0), FakeEngine("A", 1.0)]
        for engine in engines:
            engine.open = lambda model, form, name=engine.name: peer_engines.Commands(
                lambda job: order.append(name) or 1.0)
        with tempfile.TemporaryDirectory() as folder:
            self.run_with(folder, engines, "--only", "0.6b/bf16/decode-1$")
        self.assertEqual(order, ["Sluice", "A", "A", "Sluice", "Sluice", "A"])

    def test_starts_end_before_the_next_begins(self):
        events = []
        engines = [FakeEngine("Sluice", 1.0), FakeEngine("A", 1.0)]
        for engine in engines:
            engine.serve = lambda _, *__, name=engine.name: FakeServer(name, events)
        times = iter(range(0, 60, 3))  # one reading before a server starts, one at each token
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(peer_http.time, "monotonic", lambda: next(times)), \
                mock.patch.object(peer_http, "stream", lambda url, body, token: (
                    events.append(len(body["prompt"])), token(), token())):
            page = self.run_with(folder, engines, "--only", "0.6b/http/start")
        self.assertEqual(events[:6], ["Sluice", 16, "end", "A", 16, "end"])
        self.assertEqual(len(events), 18)
        self.assertIn("first token of a prompt of 16, s | 3.00 | 3.00 | 1.00 | 3 |", page)

    def test_servers_wait_while_another_is_measured(self):
        events = []
        engines = [FakeEngine("Sluice", 1.0), FakeEngine("A", 1.0)]
        for engine in engines:
            engine.serve = lambda _, *__, name=engine.name: FakeServer(name, events)
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(peer_http, "warm", lambda server, _: events.append("warm")), \
                mock.patch.object(peer_http, "chats", lambda _, server, *__: (
                    events.append(f"chats of {server.name}"), (2.0, 0.5))[1]):
            page = self.run_with(folder, engines, "--only", "0.6b/http/chats", "--rounds", "1")
        self.assertEqual(events, ["Sluice", "warm", "Sluice waits", "A", "warm", "A waits",
                                  "Sluice goes on", "chats of Sluice", "Sluice waits",
                                  "A goes on", "chats of A", "A waits", "end", "end"])
        self.assertIn("| 2.00 | 2.00 | 1.00 | 1 |", page)

    def test_a_server_that_fails_while_it_warms_up_is_ended(self):
        events = []
        engines = [FakeEngine("Sluice", 1.0)]
        engines[0].serve = lambda _, *__: FakeServer("Sluice", events)
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(peer_http, "stream", side_effect=OSError("refused")):
            self.run_with(folder, engines, "--only", "0.6b/http/gap", "--rounds", "1")
        self.assertEqual(events, ["Sluice", "end"])

    def test_results_are_saved_after_each_figure(self):
        class Interrupted(FakeEngine):
            def open(self, model, form):
                def measure(job):
                    raise KeyboardInterrupt
                return peer_engines.Commands(measure)
        engines = [FakeEngine("Sluice", 10.0), Interrupted("A", 5.0)]
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(KeyboardInterrupt):
                self.run_with(folder, engines, "--only", "0.6b/bf16/decode-1$")
            with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
                rounds = json.load(file)["rounds"]
        self.assertEqual(rounds["0.6b/bf16/decode-1"], [{"Sluice": 10.0}])

    def test_wrong_rows_and_engines_are_refused(self):
        for more in (["--only", "2b"], ["--engines", "gpt"]):
            with tempfile.TemporaryDirectory() as folder, self.assertRaises(SystemExit) as caught:
                self.run_with(folder, [FakeEngine("Sluice", 1.0)], *more)
            self.assertIn(more[0], str(caught.exception))


if __name__ == "__main__":
    unittest.main()
