"""Tests of tools/peer_picture.py: what it reads from the page, lengths of bars, and the picture."""

import os
import re
import tempfile
import unittest
import xml.etree.ElementTree

import peer_picture
import peer_table


def page_of(rows, head="| | Sluice | A | B | to the best peer | rounds |"):
    return "\n".join(["text", peer_table.BEGIN, "| | |", "|---|---|", "| machine | a <CPU> |", "",
                      head, "|---|---|---|---|---|---|", *rows, peer_table.END, "| not | read |"])


class PictureTest(unittest.TestCase):
    ROWS = ["| 1B: prefill, tokens/s | 1,314 | 657 | (1) | 2.00 | 3 |",
            "| 1B: gap, s | 0.25 | 1.00 | 0.50 | 2.00 | 1 |"]

    def test_reads_engines_rows_and_facts_of_the_table_alone(self):
        figures = peer_picture.Figures(page_of(self.ROWS))
        self.assertEqual(figures.engines, ["Sluice", "A", "B"])
        self.assertEqual(figures.rows, [("1B: prefill, tokens/s", [1314.0, 657.0, None]),
                                        ("1B: gap, s", [0.25, 1.0, 0.5])])
        self.assertEqual(figures.facts["machine"], "a <CPU>")
        self.assertNotIn("not", figures.facts)

    def test_the_best_has_the_longest_bar_whatever_is_better(self):
        self.assertEqual(peer_picture.shares("x, tokens/s", [50.0, 100.0, None]), [0.5, 1.0, None])
        self.assertEqual(peer_picture.shares("gap, s", [0.25, 1.0, 0.5]), [1.0, 0.25, 0.5])

    def test_draws_a_bar_and_a_figure_for_each_that_is_known(self):
        drawn = peer_picture.draw(peer_picture.Figures(page_of(self.ROWS)))
        xml.etree.ElementTree.fromstring(drawn)
        bars = re.findall(r'<rect x="410" y="\d+" width="(\d+)" height="12" fill="(#\w+)"/>', drawn)
        bars = [bar for bar in bars if bar[0] != "12"]
        self.assertEqual([int(width) for width, _ in bars], [400, 200, 400, 100, 200])
        self.assertEqual([color == peer_picture.OURS for _, color in bars],
                         [True, False, True, False, False])
        for words in ("1,314", "657", "0.25", "a &lt;CPU&gt;"):
            self.assertIn(words, drawn)

    def test_pages_without_a_table_are_refused(self):
        for page in ("", page_of([], head="")):
            with self.assertRaises(ValueError):
                peer_picture.Figures(page)

    def test_one_command_draws_the_page_of_the_repository(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = os.path.join(folder, "peers.svg")
            page = os.path.join(os.path.dirname(peer_picture.HERE), "docs", "performance.md")
            self.assertEqual(peer_picture.main([page, picture]), 0)
            self.assertGreater(len(xml.etree.ElementTree.parse(picture).getroot()), 5)


if __name__ == "__main__":
    unittest.main()
