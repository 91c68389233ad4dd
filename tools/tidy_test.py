"""Tests of tools/tidy.py: every rule fires on a bad example and is quiet on a good one."""

import contextlib
import io
import os
import tempfile
import unittest
import unittest.mock

import tidy

HEADER = "// Its contract. Threads: any.\n#pragma once\n"


class TreeTest(unittest.TestCase):
    """Writes a small tree and checks it."""

    def check(self, files, prose=False):
        """files: {path: text}. Returns {(path, rule)}."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8", newline="") as stream:
                    stream.write(text)
            return {(f.path, f.rule) for f in tidy.check_tree(root, list(files), prose)}

    def assert_fires(self, rule, path, text, more=None):
        found = self.check({path: text, **(more or {})})
        self.assertIn((path, rule), found)

    def assert_quiet(self, rule, path, text, more=None):
        found = self.check({path: text, **(more or {})})
        self.assertNotIn((path, rule), found)


class CleanTree(TreeTest):
    def test_nothing_found(self):
        found = self.check({
            "src/kv/CMakeLists.txt": "sluice_library(NAME kv SRCS a.cpp)\n"
                                     "sluice_test(NAME kv SRCS a_test.cpp DEPS kv)\n",
            "src/kv/a.h": HEADER + '#include "base/result.h"\n',
            "src/kv/a.cpp": '#include "kv/a.h"\n',
            "src/kv/a_test.cpp": '#include "kv/a.h"\n',
            "src/base/result.h": HEADER,
        })
        self.assertEqual(found, set())

    def test_this_repository_lists_files(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.assertIn("CMakeLists.txt", tidy.list_files(root))

    def test_exit_code(self):
        out, err = io.StringIO(), io.StringIO()
        quiet = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with tempfile.TemporaryDirectory() as root, quiet[0], quiet[1]:
            self.assertEqual(tidy.main(["--root", root]), 0)
            with open(os.path.join(root, "a.py"), "w", encoding="utf-8") as stream:
                stream.write("x = 1 \n")
            self.assertEqual(tidy.main(["--root", root]), 1)

    def test_prose_is_checked_except_in_pending_folders(self):
        files = {"docs/a.md": "Whoever asks.\n"}
        with unittest.mock.patch.object(tidy.tidy_prose, "PENDING", ("src/",)):
            self.assertEqual(self.check(files), {("docs/a.md", "prose-pronoun")})
        with unittest.mock.patch.object(tidy.tidy_prose, "PENDING", ("docs/",)):
            self.assertEqual(self.check(files), set())
            self.assertEqual(self.check(files, prose=True), {("docs/a.md", "prose-pronoun")})


class TextRules(TreeTest):
    def test_lines(self):
        self.assert_fires("line-length", "src/kv/a.h", HEADER + "// " + "x" * 98 + "\n")
        self.assert_quiet("line-length", "src/kv/a.h", HEADER + "// " + "x" * 97 + "\n")
        prose = f'x = [\n    "{"word " * 30}",\n]\n'
        self.assert_quiet("line-length", "tools/a.py", prose)
        self.assert_fires("line-length", "tools/a.py", f'x = f({"a, " * 40}"b")\n')
        self.assert_fires("trailing-space", "docs/a.md", "text \n")
        self.assert_fires("tab", "src/kv/a.h", HEADER + "\tint x;\n")
        self.assert_fires("line-end", "docs/a.md", "text\r\n")
        self.assert_fires("line-end", "docs/a.md", "text")

    def test_encoding_and_size(self):
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "a.md"), "wb") as stream:
                stream.write(b"\xff\n")
            with open(os.path.join(root, "b.bin"), "wb") as stream:
                stream.truncate(tidy.MAX_FILE_BYTES + 1)
            rules = {f.rule for f in tidy.check_tree(root, ["a.md", "b.bin"])}
        self.assertEqual(rules, {"encoding", "blob-size"})

    def test_allow_needs_a_reason(self):
        line = "int x = 1; " + "/" * 100 + "\n"
        allowed = HEADER + "// tidy: allow(line-length) a long table\n" + line
        self.assert_quiet("line-length", "src/kv/a.h", allowed)
        bare = HEADER + "// tidy: allow(line-length)\n" + line
        self.assert_fires("line-length", "src/kv/a.h", bare)
        other = HEADER + "// tidy: allow(tab) reason\n" + line
        self.assert_fires("line-length", "src/kv/a.h", other)


class SizeRules(TreeTest):
    def test_files(self):
        def lines(n):
            return HEADER + "int x;\n" * (n - 2)

        self.assert_quiet("file-size", "src/kv/a.h", lines(600))
        self.assert_fires("file-size", "src/kv/a.h", lines(601))
        self.assert_quiet("file-size", "src/device/cpu/a.h", lines(900))
        self.assert_fires("file-size", "src/device/cpu/a.h", lines(901))
        self.assert_quiet("file-size", "src/kv/a_test.cpp", lines(1000))
        self.assert_fires("file-size", "src/kv/a_test.cpp", lines(1001))
        generated = "// Generated by tools/make_table.py\n" + lines(700)
        self.assert_quiet("file-size", "src/kv/a.h", generated)

    def test_functions(self):
        def body(n):
            return "  x = 1;\n" * (n - 2)

        shapes = [
            "int f(int x) {\n%s}\n",
            "namespace a {\nint C::f(int x) const noexcept {\n%s}\n}\n",
            "class C {\n public:\n  void f() {\n%s}\n};\n",
            "template <class T>\nvoid f(T x) {\n%s}\n",
            "TEST(A, b) {\n%s}\n",
            "C::C(int x) : x_(x) {\n%s}\n",
            "#define M(x) {\nvoid f() {\n%s}\n",
            "const char* s = \"{{{\";  // {\nvoid f() {\n%s}\n",
        ]
        for shape in shapes:
            with self.subTest(shape):
                self.assert_fires("function-size", "src/kv/a.cpp", shape % body(72))
                self.assert_quiet("function-size", "src/kv/a.cpp", shape % body(68))
        loops = "void f() {\n  for (;;) {\n%s  }\n  if (x) {\n%s  }\n}\n" % (body(40), body(40))
        self.assert_fires("function-size", "src/kv/a.cpp", loops)
        members = "struct S {\n" + "  int x;\n" * 90 + "};\n"
        self.assert_quiet("function-size", "src/kv/a.cpp", members)
        self.assert_quiet("function-size", "src/kv/a.cpp",
                          "constexpr int kTable[f(1)] = {\n" + "  1,\n" * 90 + "};\n")

    def test_python_functions(self):
        self.assert_fires("function-size", "tools/a.py", "def f():\n" + "    x = 1\n" * 70)
        self.assert_quiet("function-size", "tools/a.py", "def f():\n" + "    x = 1\n" * 69)
        self.assert_fires("syntax", "tools/a.py", "def f(:\n")


class IncludeRules(TreeTest):
    def include(self, path, name, more=None):
        return path, f'#include "{name}"\n', {f"src/{name}": HEADER, **(more or {})}

    def test_direction(self):
        bad = [("src/base/a.cpp", "kv/b.h"), ("src/scheduler/a.cpp", "device/b.h"),
               ("src/kv/a.cpp", "request/b.h"), ("src/model/a.cpp", "device/cpu/b.h"),
               ("src/engine/a.cpp", "device/cpu/b.h"), ("src/device/a.cpp", "device/cpu/b.h"),
               ("src/scheduler/a_test.cpp", "engine/b.h")]
        for path, name in bad:
            with self.subTest(path):
                self.assert_fires("include", *self.include(path, name))
        good = [("src/kv/a.cpp", "base/b.h"), ("src/kv/a.cpp", "kv/b.h"),
                ("src/device/cpu/a.cpp", "device/b.h"), ("src/engine/a.cpp", "sampling/b.h"),
                ("apps/a.cpp", "device/cpu/b.h"), ("tests/parity/a.cpp", "device/cpu/b.h"),
                ("src/engine/a_test.cpp", "device/cpu/b.h")]
        for path, name in good:
            with self.subTest(path):
                self.assert_quiet("include", *self.include(path, name))
        support = '#include "tests/support/b.h"\n', {"tests/support/b.h": HEADER}
        self.assert_quiet("include", "src/scheduler/a_test.cpp", *support)
        self.assert_fires("include", "src/scheduler/a.cpp", *support)

    def test_paths(self):
        self.assert_fires("include", "src/kv/a.cpp", '#include "b.h"\n', {"src/kv/b.h": HEADER})
        self.assert_fires("include", "src/newfolder/a.h", HEADER)
        self.assert_quiet("include", "src/kv/a.cpp", '// #include "nothing.h"\n')

    def test_vendor_and_heavy_headers(self):
        self.assert_fires("vendor-header", "src/device/a.cpp", "#include <cuda_runtime.h>\n")
        self.assert_quiet("vendor-header", "src/device/cuda/a.cpp", "#include <cuda_runtime.h>\n")
        self.assert_fires("heavy-header", "src/checkpoint/a.h",
                          HEADER + "#include <nlohmann/json.hpp>\n")
        self.assert_quiet("heavy-header", "src/checkpoint/a.h",
                          HEADER + "#include <nlohmann/json_fwd.hpp>\n")
        self.assert_quiet("heavy-header", "src/checkpoint/a.cpp",
                          "#include <nlohmann/json.hpp>\n")
        self.assert_fires("heavy-header", "src/kv/a.cpp", "#include <spdlog/spdlog.h>\n")
        self.assert_fires("heavy-header", "src/kv/a.cpp", "#include <CLI/CLI.hpp>\n")
        self.assert_quiet("heavy-header", "apps/a.cpp", "#include <CLI/CLI.hpp>\n")
        self.assert_fires("heavy-header", "src/base/a.h", HEADER + "#include <openssl/evp.h>\n")
        self.assert_fires("heavy-header", "src/kv/a.cpp", "#include <pcre2.h>\n")


class HeaderAndTreeRules(TreeTest):
    def test_headers(self):
        self.assert_fires("pragma-once", "src/kv/a.h", "// Contract.\n")
        self.assert_fires("contract", "src/kv/a.h", "#pragma once\n")
        self.assert_quiet("contract", "tests/a.h", "#pragma once\n")

    def test_test_names(self):
        self.assert_fires("test-name", "src/kv/a_test.cpp", "int x;\n")
        for path in ("src/kv/a_test.cpp", "src/kv/a_under_load_test.cpp"):
            self.assert_quiet("test-name", path, "int x;\n", {"src/kv/a.h": HEADER})
        self.assert_fires("test-name", "src/kv/ab_test.cpp", "int x;\n", {"src/kv/a.h": HEADER})

    def test_cmake_lists(self):
        lists = {"src/device/CMakeLists.txt": "sluice_library(SRCS a.cpp cpu/b.cpp\n# c.cpp\n)\n"}
        self.assert_quiet("cmake", "src/device/a.cpp", "", lists)
        self.assert_quiet("cmake", "src/device/cpu/b.cpp", "", lists)
        self.assert_fires("cmake", "src/device/c.cpp", "", lists)
        self.assert_fires("cmake", "src/device/cpu/a.cpp", "", lists)
        self.assert_fires("cmake", "apps/main.cpp", "")
        shared = {"src/kv/CMakeLists.txt": "x(${PROJECT_SOURCE_DIR}/tests/support/a.cpp)\n"}
        self.assert_quiet("cmake", "tests/support/a.cpp", "", shared)

    def test_type_names(self):
        body = "namespace sluice {\n%s\n}  // namespace sluice\n"
        twice = "struct Twice {\n  int a = 0;\n};"
        other = {"src/base/b.cpp": body % twice}
        found = self.check({"src/kv/a.cpp": body % twice, **other})
        self.assertIn(("src/base/b.cpp", "type-name"), found)  # the second one seen
        unnamed = body % f"namespace {{\n{twice}\n}}  // namespace"
        for text in (body % "struct Twice;", unnamed, "namespace a {\n%s\n}" % twice):
            found = self.check({"src/kv/a.cpp": text, **other})
            self.assertNotIn("type-name", [rule for _, rule in found])

    def test_shared_ptr(self):
        self.assert_fires("shared-ptr", "src/kv/a.cpp", "int x;\nstd::shared_ptr<int> p;\n")
        self.assert_quiet("shared-ptr", "src/kv/a.cpp", "std::shared_ptr<int> p;  // two owners\n")
        self.assert_quiet("shared-ptr", "src/kv/a.cpp", "// two owners\nstd::shared_ptr<int> p;\n")

    def test_relative_paths(self):
        self.assert_fires("relative-path", "docs/a.md", "see ../other/file.md\n")
        self.assert_quiet("relative-path", "docs/a.md", "see ../src/kv/a.h and ../src\n",
                          {"src/kv/a.h": HEADER})
        self.assert_quiet("relative-path", "src/kv/a_test.cpp", 'x = "../etc/passwd";\n')


class WordRules(TreeTest):
    BAD = [
        ("todo", "src/kv/a.cpp", "// TO" + "DO: later\n"),
        ("word", "src/kv/a.cpp", "int page_table;\n"),
        ("word", "src/kv/a.cpp", "// inter-token latency\n"),
        ("absolute-path", "docs/a.md", "run /home/me/sluice\n"),
        ("absolute-path", "src/kv/a.cpp", 'const char* p = "/tmp/x";\n'),
        ("test-hook", "src/kv/a.h", HEADER + "void reset_for_test();\n"),
        ("iostream", "src/kv/a.cpp", "std::cout << 1;\n"),
        ("printf", "src/kv/a.cpp", "  std::printf(x);\n"),
        ("printf", "src/kv/a.cpp", "  fprintf(stderr, x);\n"),
        ("using-namespace", "tests/a.cpp", "using namespace std;\n"),
        ("backend-if", "apps/a.cpp", "#ifdef SLUICE_CUDA\n#endif\n"),
        ("backend-if", "apps/a.cpp", "#if defined(USE_CUDA)\n#endif\n"),
        ("vendor-word", "src/device/a.h", HEADER + "cudaStream_t s;\n"),
        ("thread-local", "src/kv/a.cpp", "thread_local int x;\n"),
        ("wall-clock", "src/kv/a.cpp", "std::chrono::system_clock::now();\n"),
        ("pure", "src/scheduler/a.cpp", "std::chrono::steady_clock::now();\n"),
        ("pure", "src/scheduler/a.cpp", "std::mutex m;\n"),
        ("random", "src/kv/a.cpp", "std::mt19937 g;\n"),
        ("random", "src/kv/a.cpp", "int x = rand();\n"),
        ("std-regex", "src/kv/a.cpp", "std::regex r;\n"),
        ("assert", "src/kv/a.cpp", "assert(x);\n"),
        ("endl", "apps/a.cpp", "out << std::endl;\n"),
        ("locale", "src/kv/a.cpp", "std::stod(text);\n"),
    ]
    GOOD = [
        ("todo", "src/kv/a.cpp", "int todo_list;\n"),
        ("iostream", "apps/a.cpp", "std::cout << 1;\n"),
        ("iostream", "src/kv/a.cpp", '// std::cout\nf("std::cout");\n'),
        ("printf", "src/kv/a.cpp", "std::snprintf(b, n, x);\n"),
        ("printf", "src/base/check.cpp", "std::fprintf(stderr, x);\n"),
        ("absolute-path", "src/kv/a_test.cpp", 'f("/tmp/x");\n'),
        ("absolute-path", "docs/a.md", "https://example.org/home/x and build/tmp/x\n"),
        ("vendor-word", "src/device/cuda/a.h", HEADER + "cudaStream_t s;\n"),
        ("pure", "src/engine/a.cpp", "std::mutex m;\n"),
        ("assert", "src/kv/a.cpp", "static_assert(true);\n"),
        ("random", "src/kv/a.cpp", "int brand = operand(1);\n"),
        ("thread-local", "src/kv/a_test.cpp", "thread_local int x;\n"),
        ("locale", "src/kv/a.cpp", 'error("atoi(x)");\n'),
    ]

    def test_bad(self):
        for rule, path, text in self.BAD:
            with self.subTest(rule=rule, text=text):
                self.assert_fires(rule, path, text)

    def test_good(self):
        for rule, path, text in self.GOOD:
            with self.subTest(rule=rule, text=text):
                self.assert_quiet(rule, path, text)

    def test_every_ban_has_a_bad_example(self):
        self.assertEqual({ban.rule for ban in tidy.BANS}, {rule for rule, _, _ in self.BAD})


class Masking(unittest.TestCase):
    def test_keeps_positions(self):
        text = 'a = "x{\\"}"; // {\nb = R"j({"k": 1})j"; /* {\n */ c = 1\'000; d = \'{\';\n'
        masked = tidy.mask_cpp(text)
        self.assertEqual(len(masked), len(text))
        self.assertEqual(masked.count("\n"), text.count("\n"))
        self.assertNotIn("{", masked)
        self.assertIn("1'000", masked)


if __name__ == "__main__":
    unittest.main()
