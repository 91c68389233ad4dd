"""Tests of tools/tidy_prose.py: every rule finds its lapse, in every kind of prose, at its line."""

import unittest

import tidy
import tidy_prose


def findings(path, text):
    """[(line, rule)] of a file."""
    found = tidy_prose.check_prose(tidy.File(path, text))
    return sorted((line, rule) for line, rule, _ in found)


class Pronouns(unittest.TestCase):
    def test_words(self):
        for word in ("Whoever calls", "nobody reads", "somebody waits", "to whom it belongs",
                     "for those who wait", "All who ask"):
            self.assertEqual(findings("src/a.h", f"// Then {word} it.\n"), [(1, "prose-pronoun")])
        for text in ("The caller reads it.", "a client who left", "anybody", "the whole"):
            self.assertEqual(findings("src/a.h", f"// {text}\n"), [])

    def test_names(self):
        self.assertEqual(findings("src/a.cpp", "TEST(Queue, NobodyWaits) {}\n"),
                         [(1, "prose-pronoun")])
        self.assertEqual(findings("src/a.cpp", "int whoever_asks = 0;\n"), [(1, "prose-pronoun")])
        self.assertEqual(findings("src/a.cpp", "int whole = 0;\n"), [])


class Starts(unittest.TestCase):
    def test_sentences(self):
        for text in ("What a step gives.", "It runs. What comes back is kept.", "Of the model.",
                     "Who is next runs.", "Those that wait run.", "One.\n// Of the model."):
            found = findings("src/a.h", f"// {text}\n")
            self.assertEqual([rule for _, rule in found], ["prose-start"], text)
        for text in ("What runs next? The first row.", "Of course it runs.", "The model's size.",
                     "Those two are equal.", "Step: What it runs", "Whatever fails is logged."):
            self.assertEqual(findings("src/a.h", f"// {text}\n"), [], text)

    def test_names_of_tests(self):
        for code in ("TEST(Queue, WhatWaitsIsKept) {}", "TEST_P(Queue, OfTwoTheFirstRuns) {}"):
            self.assertEqual(findings("src/a_test.cpp", code + "\n"), [(1, "prose-start")], code)
        for code in ("TEST(Queue, KeepsTheWaiting) {}", "TEST(What, Offers) {}"):
            self.assertEqual(findings("src/a_test.cpp", code + "\n"), [], code)

    def test_line_of_a_sentence_inside_a_block(self):
        text = "int a;\n\n// The first line is long and\n// ends. What comes then\n// is kept.\n"
        self.assertEqual(findings("src/a.h", text), [(4, "prose-start")])

    def test_comment_behind_code_is_a_block_of_its_own(self):
        text = "int a;  // the first\nint b;  // What is left\n// goes on\n"
        self.assertEqual(findings("src/a.h", text), [(2, "prose-start")])


class Terms(unittest.TestCase):
    def test_prose(self):
        for text in ("It keeps books.", "All fail but for one.", "Threads give way.",
                     "Of 3 rows one is softened.", "It has no way for FP8."):
            rules = [rule for _, rule in findings("src/a.h", f"// {text}\n")]
            self.assertIn("prose-term", rules, text)
        for text in ("A shelf of bookkeeping.", "One way to do it.", "so many that it fails"):
            self.assertEqual(findings("src/a.h", f"// {text}\n"), [], text)

    def test_names(self):
        for code in ("void soften_row();", "struct Soon {", "GiveWay yield;", "Sight low;"):
            self.assertEqual(findings("src/a.h", code + "\n"), [(1, "prose-term")], code)
        self.assertEqual(findings("src/a.h", "struct Prefetch {};\n"), [])


class KindsOfProse(unittest.TestCase):
    LAPSE = "Whoever asks."

    def assert_finds(self, path, text, line):
        self.assertEqual(findings(path, text), [(line, "prose-pronoun")])

    def test_cpp_strings(self):
        self.assert_finds("src/a.cpp", f'int a;\nlog("{self.LAPSE}");\n', 2)
        self.assertEqual(findings("src/a_test.cpp", f'log("{self.LAPSE}");\n'), [])
        self.assertEqual(findings("src/a.cpp", f'auto x = R"({self.LAPSE})";\n'), [])

    def test_python(self):
        self.assert_finds("tools/a.py", f"# {self.LAPSE}\n", 1)
        self.assert_finds("tools/a.py", f'def f():\n    """One.\n\n    {self.LAPSE}\n    """\n', 4)
        self.assertEqual(findings("tools/a.py", f'x = "{self.LAPSE}"\n'), [])

    def test_hash_comments(self):
        for path in ("tools/a.sh", "cmake/a.cmake", "src/CMakeLists.txt"):
            self.assert_finds(path, f"x\n# {self.LAPSE}\n", 2)

    def test_markdown(self):
        self.assert_finds("docs/a.md", f"One\ntwo. {self.LAPSE}\n", 2)
        self.assert_finds("docs/a.md", f"| a | {self.LAPSE} |\n", 1)
        self.assert_finds("docs/a.md", f"- one\n- {self.LAPSE}\n", 2)
        for text in (f"# {self.LAPSE}\n", f"```\n{self.LAPSE}\n```\n", f"`{self.LAPSE}`\n"):
            self.assertEqual(findings("docs/a.md", text), [], text)
        self.assertEqual(findings("docs/a.md", "- **What works**: all\n"), [(1, "prose-start")])


if __name__ == "__main__":
    unittest.main()
