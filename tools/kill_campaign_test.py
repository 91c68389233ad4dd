"""kill_campaign's look for control groups that are left, over a folder of plain folders, and the
end of what a campaign has started."""

import contextlib
import io
import os
import signal
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


class Processes(unittest.TestCase):
    """Whatever ends a campaign, nothing that it has started is left, stopped processes neither."""

    def campaign(self, end):
        processes = []

        def make_load():
            line = [sys.executable, "-c", "import time; time.sleep(600)"]
            processes.extend(kill_campaign.PROCESSES.start(line, None) for _ in range(2))
            processes[0].send_signal(signal.SIGSTOP)
            return end()

        self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                kill_campaign.run_under_load(make_load, None)
        finally:
            statuses = [process.poll() for process in processes]
            for process in processes:
                process.kill()
                process.wait()
            self.assertEqual(statuses, [-signal.SIGKILL] * 2)

    def test_end_with_a_finding(self):
        def fail():
            raise kill_campaign.Failure("found")
        self.campaign(fail)

    def test_end_with_an_error_of_the_campaign(self):
        with self.assertRaises(ZeroDivisionError):
            self.campaign(lambda: 1 // 0)

    def test_end_by_sigterm(self):
        with self.assertRaises(SystemExit):
            self.campaign(lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause())


if __name__ == "__main__":
    unittest.main()
