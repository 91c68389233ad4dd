"""gpu_check over a folder of fake programs: what counts as run, and what the tables say."""

import contextlib
import io
import json
import os
import stat
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

import gpu_bench
import gpu_check

TEST_PROGRAM = """\
    #!/usr/bin/env python3
    import json, sys
    case = CASE
    if "--gtest_list_tests" in sys.argv:
        print("All/Things.")
        print("  " + case["name"] + "  # GetParam() = 1")
        sys.exit(0)
    path = [a for a in sys.argv if a.startswith("--gtest_output=json:")][0].split(":", 1)[1]
    json.dump({"testsuites": [{"name": "All/Things", "testsuite": [case]}]}, open(path, "w"))
    sys.exit(1 if case.get("failures") else 0)
"""
PASSED = {"name": "a/cuda", "status": "RUN", "result": "COMPLETED"}
SKIPPED = {**PASSED, "result": "SKIPPED", "skipped": [{"message": "no NVIDIA driver here"}]}
FAILED = {**PASSED, "failures": [{"failure": "x is 2"}]}
# Dies at its second test, like a test that shares a broken GPU with the tests after it.
CRASHING_PROGRAM = """\
    #!/usr/bin/env python3
    import json, sys
    if "--gtest_list_tests" in sys.argv:
        print("All/Things.\\n  a/cuda\\n  b/cuda\\n  c/cuda")
        sys.exit(0)
    name = [a for a in sys.argv if a.startswith("--gtest_filter=")][0].split("=", 1)[1]
    if name not in ("All/Things.a/cuda", "All/Things.c/cuda"):
        sys.exit("illegal address")
    path = [a for a in sys.argv if a.startswith("--gtest_output=json:")][0].split(":", 1)[1]
    case = {"name": name.split(".")[1], "status": "RUN", "result": "COMPLETED"}
    json.dump({"testsuites": [{"name": "All/Things", "testsuite": [case]}]}, open(path, "w"))
"""
SLUICE = """\
    #!/usr/bin/env python3
    import json, sys
    if sys.argv[1] == "doctor":
        print(json.dumps({"checks": [{"name": "cuda", "found": "driver 580.1, CUDA 13.0"}]}))
    elif sys.argv[1] == "generate":
        print(json.dumps({"output_tokens": TOKENS}))
    elif sys.argv[1:3] == ["bench", "offline"]:
        model = json.load(open(sys.argv[3] + "/config.json"))
        batch = int(sys.argv[sys.argv.index("--max-num-seqs") + 1])
        steps = {"steps": 128, "prefill_tokens": 16384, "decode_tokens": 128 * batch,
                 "seconds": 1.0, "tokens_per_second": 128.0 * batch, "tokens_per_step": batch,
                 "mean_step_ms": 20.0 if "--enforce-eager" in sys.argv else 5.0,
                 "device_busy_seconds": 0.97, "device_idle_seconds": 0.03,
                 "matmul_rows": 400, "matmul_rows_padding": 100,
                 "attention_pairs": 1000, "attention_pairs_padding": 600}
        startup = [{"name": "config", "seconds": 0.1},
                   {"name": "map weights", "seconds": 0.5, "copied_bytes": 20 << 30}]
        print(json.dumps({"prefill": steps, "decode": steps, "hybrid": steps, "startup": startup}))
"""
LOADER = """\
    #!/usr/bin/env python3
    import json, sys
    print(json.dumps({"checks": [{"name": "cuda", "found": sys.argv[2]}]}))
"""
# 15 GB of weights in 5 ms are 3 TB/s: of 4 TB/s, three quarters.
TORCH = """\
    import json, sys
    print(json.dumps({"copy_bytes_per_second": 4e12, "matmul_flops_per_second": 7e14,
                      "upload_bytes_per_second": 5e10,
                      "step_ms": 30.0, "tokens_per_second": 500.0, "version": "none"}))
"""
WRITE_CHECKPOINT = gpu_bench.write_checkpoint
CUBLAS_FOLDER = gpu_check.cublas_folder


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("COMMIT", "abc123\n")
        self.write("sluice", SLUICE.replace("TOKENS", "[1, 2]"))
        self.write("torch_bench.py", TORCH)
        self.write_tests(PASSED)
        # Gigabytes otherwise.
        self.replace(gpu_bench, "write_checkpoint", self.write_config)
        self.replace(gpu_check, "cublas_folder", lambda python: "")

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as stream:
            # Without what python3 in PATH may stand for, and without site-packages: many are run.
            text = textwrap.dedent(text).replace("/usr/bin/env python3", f"{sys.executable} -SE")
            stream.write(text)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    @staticmethod
    def write_config(folder, config):
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as stream:
            json.dump(config, stream)

    def write_tests(self, case):
        for name in ("parity_test", "cuda_models_test"):
            self.write(name, TEST_PROGRAM.replace("CASE", repr(case)))

    def check(self, *options, only="tests"):
        out = io.StringIO()
        parts = ["--only", only] if only else []
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = gpu_check.main(["--folder", self.folder.name, *parts, *options])
        return code, out.getvalue()

    def bench(self, *options, only="benchmarks"):
        """The lines of the benchmarks' table, split at their bars, by name."""
        code, text = self.check(*options, only=only)
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in text.splitlines() if line.startswith("|")]
        return code, {row[0]: row[1:] for row in rows}

    def test_all_passed(self):
        code, text = self.check()
        self.assertEqual(code, 0, text)
        self.assertIn("Commit abc123. driver 580.1, CUDA 13.0.", text)
        self.assertEqual(text.count("| passed |"), 8, text)  # a column's name and seven rows

    def test_a_toolkits_library_is_found_behind_pips(self):
        toolkit = os.path.join(self.folder.name, "toolkit")
        pip = os.path.join(self.folder.name, "pip")
        for folder in ("toolkit/lib64", "pip"):
            os.makedirs(os.path.join(self.folder.name, folder))
        self.replace(gpu_check, "pip_cublas_folder", lambda python: pip)
        self.replace(gpu_check.glob, "glob", lambda pattern: [])
        with unittest.mock.patch.dict(os.environ, {"CUDA_HOME": toolkit}):
            self.write("toolkit/lib64/libcublasLt.so.13", "")
            self.assertEqual(CUBLAS_FOLDER("python"), os.path.join(toolkit, "lib64"))
            self.write("pip/libcublasLt.so.13", "")
            self.assertEqual(CUBLAS_FOLDER("python"), pip)

    def test_rows_name_what_computes_matrix_products(self):
        _, rows = self.bench()
        self.assertIn("products by built-in kernels, no cuBLASLt found",
                      rows["prefill, 2048 tokens"][3])
        found = "CUDA 13.0; cuBLASLt (/x/libcublasLt.so.13)"
        self.write("sluice", SLUICE.replace("CUDA 13.0", found))
        _, rows = self.bench()
        for name in ("prefill, 2048 tokens", "hybrid batches of at most 512 tokens"):
            self.assertIn("products by cuBLASLt (/x/libcublasLt.so.13)", rows[name][3])
        self.assertIn("products by built-in kernels", rows["prefill, FP8 weights, 2048 tokens"][3])

    def test_libraries_are_found_where_pip_and_the_machine_have_them(self):
        os.makedirs(os.path.join(self.folder.name, "site/lib"))
        self.write("site/lib/libcublasLt.so.13", "")
        self.replace(gpu_check, "cublas_folder", CUBLAS_FOLDER)
        self.write("python", f"#!/bin/sh\necho {self.folder.name}/none\n"
                             f"echo {self.folder.name}/site\n")
        python = os.path.join(self.folder.name, "python")
        found = SLUICE.replace('"driver 580.1, CUDA 13.0"', 'os.environ["LD_LIBRARY_PATH"]')
        self.write("sluice", found.replace("import json", "import os, json"))
        with unittest.mock.patch.dict(os.environ, {"LD_LIBRARY_PATH": "/driver"}):
            _, text = self.check("--python", python)
            self.assertIn(f" /driver:{self.folder.name}/site/lib. ", text)
            # Where the folder's own loader is used it is told of them all.
            self.write("sluice", "#!/bin/sh\nexit 1\n")
            os.makedirs(os.path.join(self.folder.name, "lib/glibc"))
            self.write("lib/glibc/ld-linux-x86-64.so.2", LOADER)
            _, text = self.check("--python", python)
            self.assertIn(f"/lib/glibc:{self.folder.name}/lib:/driver:{self.folder.name}/site/lib",
                          text)

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

    def test_a_crash_hides_no_other_test(self):
        self.write("parity_test", CRASHING_PROGRAM)
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("| graphs | FAILED | 2 | 1 | 0 |", text)
        self.assertIn("All/Things.b/cuda: illegal address", text)
        self.assertNotIn("a/cuda:", text)

    def test_tests_that_fail_only_together_are_a_failure(self):
        self.write("parity_test", CRASHING_PROGRAM.replace(
            '("All/Things.a/cuda"', '("All/Things.b/cuda", "All/Things.a/cuda"'))
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("| graphs | FAILED | 3 | 1 | 0 |", text)
        self.assertIn("no test fails by itself, all together do: illegal address", text)

    def test_other_tokens_than_the_cpu(self):
        self.write("sluice", SLUICE.replace("TOKENS", "[1, 'cuda:0' in sys.argv]"))
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("greedy tokens equal to the CPU's | FAILED | 0 | 3 |", text)

    def replace(self, module, name, value):
        patch = unittest.mock.patch.object(module, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def test_what_hangs_is_ended_with_its_helpers(self):
        self.write("parity_test", "#!/bin/sh\nsleep 60 &\nwait\n")
        start = time.monotonic()
        code, text = self.check("--time-limit", "0.3")
        self.assertEqual(code, 1)
        self.assertLess(time.monotonic() - start, 30)
        self.assertIn("did not end within", text)

    def test_a_group_that_hangs_leaves_time_for_the_others(self):
        self.replace(gpu_check, "GROUP_LIMIT_S", 0.6)
        self.write("parity_test", "#!/bin/sh\nexec sleep 60\n")
        code, text = self.check()
        self.assertEqual(code, 1)
        self.assertIn("did not end within", text)
        self.assertIn("| golden models, whole engine | passed | 1 |", text)
        self.assertIn("greedy tokens equal to the CPU's | passed | 3 |", text)

    def test_tests_leave_time_for_benchmarks(self):
        self.write("parity_test", "#!/bin/sh\nexec sleep 60\n")
        self.replace(gpu_bench, "LEAST_S", 0.1)
        code, rows = self.bench("--time-limit", "10", only=None)
        self.assertEqual(code, 1)
        self.assertEqual(rows["ceiling: BF16 matmul"][0], "measured")

    def test_what_is_known_is_written_before_the_next_part_runs(self):
        path = os.path.join(self.folder.name, "gpu.md")
        with unittest.mock.patch.object(gpu_bench, "Bench", side_effect=RuntimeError("a bug")):
            with self.assertRaises(RuntimeError):
                self.check("--output", path, only="benchmarks")
        with open(path, encoding="utf-8") as stream:
            self.assertIn("Commit abc123.", stream.read())

    # ------------------------------------------------------------ benchmarks

    def test_benchmarks_are_put_beside_ceilings_and_goals(self):
        code, rows = self.bench()
        self.assertEqual(code, 0, rows)
        self.assertEqual(rows["ceiling: BF16 matmul"][:1], ["measured"])
        self.assertIn("700 TFLOP/s", rows["ceiling: BF16 matmul"][3])
        self.assertEqual(rows["weights from page cache to the device"],
                         ["met", "0.86", "0.80", "20480 MiB, 42.95 GB/s"])
        self.assertEqual(rows["decode, batch 1, context 1024"][:3], ["missed", "0.76", "0.80"])
        self.assertIn("5.000 ms a step", rows["decode, batch 1, context 1024"][3])
        for name in ("decode, batch 64, context 1024", "prefill, 2048 tokens",
                     "hybrid batches of at most 512 tokens"):
            self.assertIn("padding 25 % of matmul rows, 60 % of attention", rows[name][3])
        self.assertEqual(rows["decode, batch 16, context 1024"][0], "measured")
        self.assertEqual(rows["decode, batch 64, context 1024"][:3], ["met", "1.21", "0.70"])
        self.assertEqual(rows["decode, FP8 weights, batch 1, context 1024"][:3],
                         ["measured", "0.41", "-"])
        self.assertEqual(rows["prefill, FP8 weights, 2048 tokens"][0], "measured")
        self.assertEqual(rows["device busy in a decode loop, batch 16"],
                         ["met", "0.97", "0.95", "idle 3.00 % between steps"])
        self.assertEqual(rows["prefill, 2048 tokens"][:3], ["missed", "0.34", "0.75"])
        self.assertIn("4.00 times that with graphs", rows["decode without graphs, batch 16"][3])
        self.assertEqual(rows["Sluice over transformers eager, batch 16"][:3],
                         ["missed", "4.10", "5.00"])
        self.assertEqual(rows["Sluice over transformers compiled, batch 16"][0], "met")

    def test_without_torch_the_engine_is_measured_all_the_same(self):
        self.write("torch_bench.py", "import sys\n"
                                     "print('no torch', file=sys.stderr)\nsys.exit(3)\n")
        code, rows = self.bench()
        self.assertEqual(code, 0)
        self.assertEqual(rows["ceiling: BF16 matmul"], ["skipped", "-", "-", "no torch"])
        self.assertEqual(rows["decode, batch 1, context 1024"][:3], ["no ceiling", "-", "0.80"])
        self.assertEqual(rows["Sluice over transformers eager, batch 16"][0], "skipped")

    def test_a_part_that_fails_says_why_and_the_others_run(self):
        self.write("torch_bench.py", "import sys\nif sys.argv[1] == 'compiled':\n"
                                     "    raise MemoryError('18 GiB')\n" + textwrap.dedent(TORCH))
        self.write("sluice", SLUICE.replace("TOKENS", "[1]").replace(
            "        model =", "        if '--token-budget' in sys.argv:\n"
                              "            sys.exit('sluice: not enough device memory')\n"
                              "        model ="))
        code, rows = self.bench()
        self.assertEqual(code, 1)
        self.assertEqual(rows["prefill, 2048 tokens"][0], "FAILED")
        self.assertIn("exit status 1: sluice: not enough device memory",
                      rows["prefill, 2048 tokens"][3])
        self.assertIn("MemoryError: 18 GiB", rows["Sluice over transformers compiled, batch 16"][3])
        self.assertEqual(rows["Sluice over transformers eager, batch 16"][0], "missed")
        self.assertEqual(rows["decode, batch 64, context 1024"][0], "met")

    def test_figures_that_cannot_be_used_are_a_failure_of_their_line(self):
        self.write("torch_bench.py", "print('[1]')\n")
        self.write("sluice", SLUICE.replace("TOKENS", "[1]").replace('"hybrid": steps', '"x": 1'))
        code, rows = self.bench()
        self.assertEqual(code, 1)
        self.assertIn("printed no JSON object", rows["ceiling: BF16 matmul"][3])
        self.assertIn("KeyError('hybrid')", rows["hybrid batches of at most 512 tokens"][3])
        self.assertEqual(rows["decode, batch 1, context 1024"][0], "no ceiling")

    def test_a_missing_program_is_a_failure(self):
        os.remove(os.path.join(self.folder.name, "sluice"))
        code, rows = self.bench("--python", "/nonexistent/python")
        self.assertEqual(code, 1)
        self.assertEqual(rows["prefill, 2048 tokens"][0], "FAILED")
        self.assertIn("/nonexistent/python", rows["ceiling: BF16 matmul"][3])

    def test_no_part_runs_past_the_end(self):
        code, rows = self.bench("--time-limit", "0")
        self.assertEqual(code, 0)
        self.assertEqual(rows["prefill, 2048 tokens"], ["skipped", "-", "0.75", "no time was left"])

    def test_a_part_that_hangs_is_ended_at_its_limit(self):
        self.replace(gpu_bench, "TORCH_LIMIT_S", {**gpu_bench.TORCH_LIMIT_S, "ceilings": 0.3})
        self.write("torch_bench.py", "import sys, time\nif sys.argv[1] == 'ceilings':\n"
                                     "    time.sleep(60)\n" + textwrap.dedent(TORCH))
        code, rows = self.bench()
        self.assertEqual(code, 1)
        self.assertEqual(rows["ceiling: BF16 matmul"][0], "FAILED")
        self.assertIn("did not end within 0 s", rows["ceiling: BF16 matmul"][3])
        self.assertEqual(rows["Sluice over transformers compiled, batch 16"][0], "met")

    def test_the_checkpoint_holds_each_tensor_once(self):
        with tempfile.TemporaryDirectory() as folder:
            WRITE_CHECKPOINT(folder, gpu_bench.TINY)
            with open(os.path.join(folder, "model.safetensors"), "rb") as stream:
                data = stream.read()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        ranges = sorted(tensor["data_offsets"] for tensor in header.values())
        self.assertEqual(ranges[0][0], 0)
        self.assertTrue(all(a[1] == b[0] for a, b in zip(ranges, ranges[1:])))
        self.assertEqual(8 + size + ranges[-1][1], len(data))
        self.assertEqual(len(ranges), 2 * 9 + 3)

    def test_bytes_and_operations_of_the_shape(self):
        shape = gpu_bench.Shape(gpu_bench.LLAMA_3_8B)
        parameters = shape.layer_weights + 2 * shape.head_weights
        self.assertAlmostEqual(parameters / 8.03e9, 1, places=2)  # but for norms
        self.assertEqual(shape.kv_bytes_per_token, 128 << 10)
        self.assertEqual(shape.decode_bytes(2, 10) - shape.decode_bytes(1, 10), 10 * (128 << 10))
        self.assertEqual(shape.decode_bytes(1, 10) - shape.decode_bytes(1, 10, "fp8"),
                         shape.layer_weights * (1 - 4 / 128**2))
        self.assertAlmostEqual(shape.prefill_flops(2048) / 29.7e12, 1, places=1)


class TorchBenchTest(unittest.TestCase):
    def test_a_missing_package_is_told_apart_from_a_failure(self):
        import torch_bench  # pylint: disable=import-outside-toplevel
        hidden = dict(sys.modules, torch=None)  # import torch raises ImportError
        err = io.StringIO()
        with unittest.mock.patch.dict(sys.modules, hidden), contextlib.redirect_stderr(err):
            self.assertEqual(torch_bench.main(["ceilings"]), 3)
        self.assertIn("not installed for", err.getvalue())


if __name__ == "__main__":
    unittest.main()
