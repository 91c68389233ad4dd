"""Tests of tools/medusa_figures.py: its lengths, its starts, and what it does to a page."""

import os
import statistics
import sys
import tempfile
import unittest
from unittest import mock

import medusa_figures


class FakeStudy:
    """Answers by the time of a start alone."""

    def __init__(self, *_):
        self.runs = []

    def run(self, model, qps, start):
        self.runs.append((model, qps))
        return [qps * 0.8, start + 0.1, 4]


class FiguresTest(unittest.TestCase):
    def test_lengths_have_the_quantiles_that_they_are_drawn_from(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lengths.csv")
            medusa_figures.write_lengths(path)
            with open(path, encoding="utf-8") as file:
                rows = [line.split(",") for line in file.read().split()[1:]]
        prompts, outputs = ([int(row[i]) for row in rows] for i in (0, 1))
        self.assertEqual(len(rows), 2000)
        totals = [sum(pair) for pair in zip(prompts, outputs)]
        self.assertLess(max(totals), medusa_figures.MAX_LENGTH)
        self.assertAlmostEqual(statistics.median(prompts), 32, delta=6)
        self.assertAlmostEqual(statistics.median(outputs), 285, delta=30)
        self.assertEqual(medusa_figures.draw((1, 32, 543, 1627), 1), 1627)

    def test_starts_are_without_the_runtime(self):
        starts = medusa_figures.start_seconds("qwen1.5-4b")
        self.assertAlmostEqual(starts["vLLM"], 2.85)
        self.assertLess(starts["Medusa"], starts["w/o CUDA graph"])

    def test_tables_are_written_between_the_markers(self):
        begin, end = medusa_figures.BEGIN, medusa_figures.END
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w", encoding="utf-8") as file:
                file.write(f"before\n{begin}\nold\n{end}\nafter\n")
            with mock.patch.object(medusa_figures, "Study", FakeStudy), \
                    mock.patch.object(sys, "argv", ["medusa_figures.py", "sluice", "--page", page]):
                medusa_figures.main()
            with open(page, encoding="utf-8") as file:
                text = file.read()
        self.assertTrue(text.startswith("before\n" + begin) and text.endswith(end + "\nafter\n"))
        self.assertNotIn("old", text)
        self.assertIn("| llama-7b, 2 requests/s | 3.55 (3.16) |", text)


if __name__ == "__main__":
    unittest.main()
