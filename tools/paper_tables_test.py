"""Tests of tools/paper_tables.py: its runs against a simulator that answers by rule, its ratios,
and what it does to a page."""

import contextlib
import io
import os
import tempfile
import unittest

import paper_tables

RATES = {"hybrid": 0.5, "prefill-first": 1.0, "stall-free": 2.0}


class FakeSimulator:
    """Capacity by scheduler alone; a prefill takes a second and 10 ms for each step."""

    runs = 0

    def __init__(self, binary=None):
        self.commands = []

    def run(self, *arguments):
        self.commands.append([str(a) for a in arguments])
        given = dict(zip(self.commands[-1], self.commands[-1][1:]))
        if "--capacity" in given:
            slo = given.get("--tbt-slo-ms")
            slo = float(slo) if slo else 40.0 * float(given["--tbt-slo-factor"])
            return {"capacity_request_rate": RATES[given["--scheduler"]], "tbt_slo_ms": slo,
                    "reference_decode_ms": 40.0, "probes": [{}, {}]}
        if given["--lengths"].startswith("fixed:"):
            length = int(given["--lengths"][6:].split(",")[0])
            return {"mean_ttft_ms": 1000.0 + 10 * (length / int(given["--token-budget"]))}
        return {"median_ttft_ms": 500.0, "p99_itl_ms": 100.0,
                "stage_times": {"busy_s": 3.0, "prefill_lengths_s": 0.5, "prefill_decode_s": 0.5,
                                "context_s": 0.0, "link_s": 0.0, "unfilled_s": 0.0}}


def fake_results():
    real = paper_tables.Simulator
    paper_tables.Simulator = FakeSimulator
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return paper_tables.run_all("none")
    finally:
        paper_tables.Simulator = real


class PaperTables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = fake_results()

    def test_every_case_of_the_paper_is_run(self):
        for name in ("multiples", "seconds"):
            self.assertEqual(len(self.results[name]["capacities"]), 4 * 2 * 2 * 3)
        self.assertEqual(len(self.results["multiples"]["figure12"]), 2 * 5 * 5)
        self.assertEqual(len(self.results["seconds"]["figure12"]), 2 * 2 * 5)
        self.assertEqual(set(self.results["table4"]), {f"{p} {b}" for p in paper_tables.TABLE4
                                                       for b in paper_tables.TABLE4_BUDGETS})

    def test_ratios(self):
        for name in ("multiples", "seconds"):
            for text, _, claim in paper_tables.CLAIMS:
                expected = 4.0 if "Orca" in text else 2.0
                self.assertEqual(paper_tables.measured(self.results[name], claim), expected, text)

    def test_up_to_is_the_largest(self):
        rows = [dict(r) for r in self.results["multiples"]["capacities"]]
        for row in rows:
            if (row["model"], row["lengths"], row["slo"]) == ("mistral-7b", "arxiv", "strict"):
                if row["system"] == "vllm":
                    row["capacity"] = 0.2
        self.assertEqual(paper_tables.best_ratio(rows, "mistral-7b", None, None, "vllm"), 10.0)
        self.assertEqual(paper_tables.best_ratio(rows, "mistral-7b", "sharegpt", None, "vllm"), 2.0)

    def test_nothing_that_meets_the_goal_is_no_number(self):
        self.assertEqual(paper_tables.number(paper_tables.ratio(1.0, 0.0)), "none met it")

    def test_systems_are_set_as_the_paper_has_them(self):
        def options(*arguments):
            flat = [str(a) for a in paper_tables.scheduling(*arguments)]
            return dict(zip(flat[::2], flat[1::2]))

        orca = options("orca", "llama-2-70b", "sharegpt", "strict")
        self.assertEqual(orca["--max-num-seqs"], "8")
        self.assertEqual(orca["--token-budget"], str(8 * 8192))
        self.assertEqual(options("vllm", "yi-34b", "arxiv", "strict")["--token-budget"], "16384")
        budgets = [options("sarathi", m, "sharegpt", s)["--token-budget"]
                   for m, s in (("yi-34b", "strict"), ("yi-34b", "relaxed"),
                                ("llama-2-70b", "relaxed"))]
        self.assertEqual(budgets, ["512", "2048", "1536"])

    def test_tables_replace_what_is_between_the_markers(self):
        page = "".join(f"## {n}\n<!-- table {n} -->\nold\n<!-- end -->\nkept\n"
                       for n in paper_tables.TABLES)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            for _ in range(2):  # again gives the same
                with open(path, "w", encoding="utf-8") as file:
                    file.write(page)
                paper_tables.write_page(path, self.results)
                with open(path, encoding="utf-8") as file:
                    page = file.read()
        self.assertNotIn("old", page)
        self.assertEqual(page.count("kept"), len(paper_tables.TABLES))
        self.assertIn("| Yi-34B, strict, sharegpt: over Orca | 4.0 | 4.00 | +0 % |", page)
        self.assertIn("| 2,048 | 1.15 | 1.03 |", page)

    def test_a_page_without_a_marker_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write("# nothing\n")
            with self.assertRaises(SystemExit):
                paper_tables.write_page(path, self.results)

    def test_the_page_of_the_project_has_all_markers(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        with open(os.path.join(root, "docs", "sarathi.md"), encoding="utf-8") as file:
            page = file.read()
        for name in paper_tables.TABLES:
            self.assertIn(f"<!-- table {name} -->\n|", page)


if __name__ == "__main__":
    unittest.main()
