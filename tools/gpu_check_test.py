"""gpu_check over a folder of fake programs: what counts as run, and what the table says."""

import contextlib
import io
import os
import stat
import tempfile
import textwrap
import unittest

import gpu_check

TEST_PROGRAM = """\
    #!/usr/bin/env python3
    import json, sys
    path = [a for a in sys.argv if a.startswith("--gtest_output=json:")][0].split(":", 1)[1]
    case = CASE
    json.dump({"testsuites": [{"testsuite": [case]}]}, open(path, "w"))
    sys.exit(1 if case.get("failures") else 0)
"""
PASSED = {"name": "a", "status": "RUN", "result": "COMPLETED"}
SKIPPED = {"name": "a", "status": "RUN", "result": "SKIPPED",
           "skipped": [{"message": "no NVIDIA driver here"}]}
FAILED = {"name": "a", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "x is 2"}]}
SLUICE = """\
    #!/usr/bin/env python3
    import json, sys
    if sys.argv[1] == "doctor":
        print(json.dumps({"checks": [{"name": "cuda", "found": "driver 580.1, CUDA 13.0"}]}))
    elif sys.argv[1] == "generate":
        print(json.dumps({"output_tokens": TOKENS}))
"""


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("COMMIT", "abc123\n")
        self.write("sluice", SLUICE.replace("TOKENS", "[1, 2]"))
        self.write_tests(PASSED)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(textwrap.dedent(text))
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def write_tests(self, case):
        for name in ("parity_test", "cuda_models_test"):
            self.write(name, TEST_PROGRAM.replace("CASE", repr(case)))

    def check(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = gpu_check.main(["--folder", self.folder.name])
        return code, out.getvalue()

    def test_all_passed(self):
        code, text = self.check()
        self.assertEqual(code, 0, text)
        self.assertIn("Commit abc123. driver 580.1, CUDA 13.0.", text)
        self.assertEqual(text.count("| passed |"), 6, text)  # a column's name and five rows

    def test_what_was_skipped_did_not_run(self):
        self.write_tests(SKIPPED)
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("| graphs | did not run | 0 | 0 | 1 |", text)
        self.assertIn("no NVIDIA driver here", text)

    def test_a_failure_is_quoted(self):
        self.write_tests(FAILED)
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("| exactness | FAILED | 0 | 1 | 0 |", text)
        self.assertIn("x is 2", text)

    def test_a_crash_is_a_failure(self):
        self.write("parity_test", "#!/bin/sh\necho illegal address >&2\nexit 134\n")
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("illegal address", text)

    def test_other_tokens_than_the_cpu(self):
        self.write("sluice", SLUICE.replace("TOKENS", "[1, 'cuda:0' in sys.argv]"))
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("greedy tokens equal to the CPU's | FAILED | 0 | 3 |", text)


if __name__ == "__main__":
    unittest.main()
