"""Tests of manuals.py on help texts as CLI11 prints them."""

import os
import subprocess
import tempfile
import unittest

import manuals

ROOT = """Serves models.
Usage: sluice [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Print this help message and exit

Subcommands:
  serve                       The server
  bench                       Load
"""
SERVE = """The server
Usage: sluice serve [OPTIONS] MODEL

Positionals:
  MODEL TEXT REQUIRED         a checkpoint

Options:
  -h,--help                   Print this help message and exit


Engine options:
  --token-budget,--max-num-batched-tokens TEXT
                              tokens per step, or 'auto' [1:2]
  --cache,--no-cache{false}   .on by default
"""


def tree():
    root, names = manuals.parse_help(ROOT, ["sluice"])
    serve, none = manuals.parse_help(SERVE, ["sluice", "serve"])
    bench, _ = manuals.parse_help("Load\nUsage: sluice bench [OPTIONS]\n", ["sluice", "bench"])
    root.subcommands = [serve, bench]
    return root, names, serve, none


class ManualsTest(unittest.TestCase):
    def test_help_is_read(self):
        root, names, serve, none = tree()
        self.assertEqual(names, ["serve", "bench"])
        self.assertEqual(none, [])
        self.assertEqual(root.summary, "Serves models.")
        self.assertEqual([title for title, _ in serve.sections],
                         ["Positionals", "Options", "Engine options"])
        budget, cache = serve.sections[2][1]
        self.assertEqual(budget.flags, ["--token-budget", "--max-num-batched-tokens"])
        self.assertEqual(budget.text, "tokens per step, or 'auto' [1:2]")
        self.assertTrue(budget.takes_value)
        self.assertEqual(cache.flags, ["--cache", "--no-cache"])
        self.assertFalse(cache.takes_value)

    def test_options_that_need_or_exclude_others_are_one_entry_each(self):
        page, _ = manuals.parse_help("""Text
Usage: sluice serve

Options:
  --host TEXT Excludes: --uds address to listen on
  --uds TEXT Excludes: --host --port
                              a socket instead
  --fast Needs: --host        no value
""", ["sluice"])
        self.assertEqual([(entry.flags, entry.takes_value, entry.text) for entry in page.options()],
                         [(["--host"], True, "address to listen on"),
                          (["--uds"], True, "a socket instead"),
                          (["--fast"], False, "no value")])

    def test_a_line_that_cannot_be_read_is_an_error(self):
        with self.assertRaises(ValueError):
            manuals.parse_help("Text\nUsage: sluice\n\nOptions:\n x\n", ["sluice"])

    def test_the_manual_has_every_option_and_no_accidental_command(self):
        page = manuals.man_page(tree()[0], "1.2")
        self.assertIn("\\fB\\-\\-token\\-budget,\\-\\-max\\-num\\-batched\\-tokens TEXT\\fR", page)
        self.assertIn("\\&.on by default", page)
        self.assertIn(".SH SERVE", page)

    def completions(self, *words):
        """The words that bash offers for the last of `words`."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "completion")
            with open(path, "w", encoding="utf-8") as file:
                file.write(manuals.bash_completion(tree()[0]))
            script = (f'. {path}; COMP_WORDS=({" ".join(repr(word) for word in words)}); '
                      f'COMP_CWORD={len(words) - 1}; _sluice; printf "%s\\n" "${{COMPREPLY[@]}}"')
            return subprocess.run(["bash", "-c", script], check=True, capture_output=True,
                                  text=True).stdout.split()

    def test_bash_completes_commands_and_options(self):
        self.assertEqual(self.completions("sluice", "s"), ["serve"])
        self.assertEqual(self.completions("sluice", "serve", "--to"), ["--token-budget"])
        self.assertEqual(self.completions("sluice", "serve", "model", "--no"), ["--no-cache"])
        self.assertEqual(self.completions("sluice", "serve", "mod"), [])  # left to file names

    def test_zsh_specifications_quote_what_zsh_would_read(self):
        text = manuals.zsh_completion(tree()[0])
        self.assertIn("or '\\''auto'\\'' \\[1\\:2\\]", text)


if __name__ == "__main__":
    unittest.main()
