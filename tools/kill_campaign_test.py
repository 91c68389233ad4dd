"""kill_campaign's look for control groups that are left, over a folder of plain folders."""

import os
import subprocess
import sys
import tempfile
import unittest

import kill_campaign


def start_process():
    """One that ends with its input."""
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"],
                            stdin=subprocess.PIPE)


def end(process):
    process.communicate()


class ControlGroups(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def make(self, process):
        path = os.path.join(self.root, "memory", f"sluice-{process.pid}")
        os.makedirs(path)
        return path

    def look(self):
        return kill_campaign.control_groups(self.root)

    def test_names_the_new_group_of_a_process_that_is_gone(self):
        ended, running = start_process(), start_process()
        self.addCleanup(end, running)
        before = self.look()
        left = self.make(ended)
        self.make(running)
        end(ended)
        self.assertEqual(kill_campaign.left_groups(before, self.look()), [left])

    def test_an_older_group_is_no_finding_when_another_process_with_its_number_ends(self):
        process = start_process()
        self.make(process)
        before = self.look()
        end(process)
        self.assertEqual(kill_campaign.left_groups(before, self.look()), [])


if __name__ == "__main__":
    unittest.main()
