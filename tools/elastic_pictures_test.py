"""Tests of tools/elastic_pictures.py: what it reads from the page, lengths of bars and lines."""

import os
import re
import tempfile
import unittest
import xml.etree.ElementTree

import elastic_pictures

BURST = """
**Figure {}: a burst on a machine**, words

| system | mean TTFT, s | peak TTFT, s |
|---|---|---|
| first come | 20.5 | 40.0 |
| `fair` over PCIe | 1.5 | 10.0 |

after
"""
RECLAIM = """
**Memory reclaimed**, words

| lent | reclaims | back after, s, the longest | P99 TBT, to that before |
|---|---|---|---|
| 56 MiB | 3 | 0.25 | 1.5 |
| 1 GiB | 10 | 2 | 0.75 |
"""


def bar_widths(drawn):
    return [int(width) for width in re.findall(r'<rect x="330" y="\d+" width="(\d+)"', drawn)]


class PicturesTest(unittest.TestCase):
    def test_a_burst_has_a_bar_for_each_system_of_both_figures(self):
        drawn = elastic_pictures.burst_picture(BURST.format(1) + BURST.format(8))
        xml.etree.ElementTree.fromstring(drawn)
        self.assertEqual(bar_widths(drawn), [470, 118, 470, 118])
        self.assertIn("fair over PCIe", drawn)

    def test_a_reclaim_has_its_goals(self):
        drawn = elastic_pictures.reclaim_picture(RECLAIM)
        xml.etree.ElementTree.fromstring(drawn)
        self.assertEqual(bar_widths(drawn), [59, 470, 470, 235])
        self.assertEqual(re.findall(r'<line x1="(\d+)"', drawn), ["565", "800"])
        self.assertIn("56 MiB, 3 reclaims", drawn)

    def test_limits_are_steps(self):
        drawn = elastic_pictures.limits_picture([(0, 8, 8), (5, 56, 8), (10, 8, 56)],
                                                [(1, 6, "first server")], 64)
        xml.etree.ElementTree.fromstring(drawn)
        lines = re.findall(r'points="([^"]*)"', drawn)
        self.assertEqual(lines[0], "70.0,262.5 470.0,262.5 470.0,97.5 870.0,97.5 870.0,262.5")
        self.assertEqual(len(lines), 2)

    def test_pages_without_a_table_are_refused(self):
        for page in ("", "\n**Figure 1: a burst", BURST.format(1).replace("peak", "no")):
            with self.assertRaises(ValueError):
                elastic_pictures.burst_picture(page)

    def test_one_command_draws_the_page_of_the_repository(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(os.path.dirname(elastic_pictures.HERE), "docs",
                                "elastic-memory.md")
            self.assertEqual(elastic_pictures.main([page, folder]), 0)
            for name in ("elastic-burst.svg", "elastic-reclaim.svg"):
                root = xml.etree.ElementTree.parse(os.path.join(folder, name)).getroot()
                self.assertGreater(len(root), 5)


if __name__ == "__main__":
    unittest.main()
