#!/usr/bin/env python3
"""Writes the manual page and the shell completions of sluice from what --help prints.

Usage: tools/manuals.py PROGRAM FOLDER
Writes FOLDER/sluice.1 (man), FOLDER/sluice.bash and FOLDER/_sluice (zsh). The program's help is the
only source, so an option cannot be missing from them.
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# A line of a section: two blanks, the entry, its text in column 30 or on the next line. An entry
# may end with the options that it needs or excludes.
TEXT_COLUMN = 30
RELATION = r" (?:Needs|Excludes):(?: --?[A-Za-z][\w-]*)+"
ENTRY = re.compile(rf"  (\S.*?(?:{RELATION})*)(?:\s{{2,}}(\S.*)|(?<=^.{{29}}) (\S.*))?$")


@dataclass
class Entry:
    """An option, a positional argument or a subcommand."""
    name: str  # "-o,--output TEXT REQUIRED", "MODEL TEXT", "serve"
    text: str = ""

    @property
    def own(self):
        """The name without the options that it needs or excludes."""
        return re.sub(rf"\{{[^}}]*\}}|{RELATION}", "", self.name)

    @property
    def flags(self):
        """The names of an option: ["-o", "--output"]."""
        return [flag for flag in re.split(r"[ ,]", self.own)
                if re.fullmatch(r"--?[A-Za-z][\w-]*", flag)]

    @property
    def takes_value(self):
        return " " in self.own.strip()


@dataclass
class Page:
    """One command, as its --help describes it."""
    words: list  # the command: ["sluice", "bench", "serve"]
    summary: str = ""
    usage: str = ""
    sections: list = field(default_factory=list)  # pairs of a title and its entries
    subcommands: list = field(default_factory=list)  # pages

    def options(self):
        return [entry for _, entries in self.sections for entry in entries if entry.flags]

    def walk(self):
        yield self
        for page in self.subcommands:
            yield from page.walk()


def parse_help(text, words):
    """The page that a help text describes, without its subcommands; and their names."""
    page = Page(words)
    entries = None
    for line in text.splitlines():
        if not line.strip():
            continue
        if line.startswith("Usage: "):
            page.usage = line[len("Usage: "):]
        elif not line.startswith(" ") and line.endswith(":"):
            entries = []
            page.sections.append((line[:-1], entries))
        elif entries is None:
            page.summary = (page.summary + " " + line.strip()).strip()
        elif line.startswith(" " * TEXT_COLUMN):
            entries[-1].text = (entries[-1].text + " " + line.strip()).strip()
        else:
            found = ENTRY.match(line)
            if not found:
                raise ValueError(f"cannot read this line of the help of {' '.join(words)}: {line}")
            entries.append(Entry(found[1], found[2] or found[3] or ""))
    names = [entry.name for title, entries in page.sections if title == "Subcommands"
             for entry in entries]
    return page, names


def read_pages(program, words=("sluice",)):
    """The page of a command with those of all its subcommands."""
    text = subprocess.run([program, *words[1:], "--help"], check=True, capture_output=True,
                          text=True).stdout
    page, names = parse_help(text, list(words))
    page.subcommands = [read_pages(program, (*words, name)) for name in names]
    return page


# ---------------------------------------------------------------- the manual page

def roff(text):
    """Text as man shows it unchanged."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def roff_entries(entries):
    lines = []
    for entry in entries:
        lines += [".TP", f"\\fB{roff(entry.name)}\\fR", roff(entry.text) or "\\&"]
    return lines


def man_page(root, version):
    lines = [f'.TH SLUICE 1 "" "Sluice {version}" "User Commands"',
             ".SH NAME", "sluice \\- server for large language models",
             ".SH SYNOPSIS"]
    for page in root.walk():
        if not page.subcommands:
            lines += [f"\\fB{roff(' '.join(page.words))}\\fR"
                      f" {roff(page.usage.removeprefix(' '.join(page.words)).strip())}", ".br"]
    for page in root.walk():
        if not page.subcommands:
            lines += [f".SH {roff(' '.join(page.words[1:]).upper())}", roff(page.summary)]
            for title, entries in page.sections:
                if title != "Positionals":
                    lines.append(f".SS {roff(title)}")
                lines += roff_entries(entries)
    lines += [".SH ENVIRONMENT"] + roff_entries([
        Entry("SLUICE_API_KEY", "the key that all clients of serve need, as --api-key"),
        Entry("SLUICE_LOG", "the least level of log lines: debug, info, warning or error"),
        Entry("HF_HOME, HF_HUB_CACHE", "where the Hugging Face cache is"),
        Entry("XDG_CACHE_HOME", "where measurements and snapshots are kept (~/.cache)")])
    lines += [".SH EXIT STATUS"] + roff_entries([
        Entry("0", "success"), Entry("1", "an error, told on standard error"),
        Entry("2", "a wrong command line")])
    lines += [".SH SEE ALSO", "The documentation in the folder docs of the source, above all",
              "docs/serving.md, docs/running\\-models.md and docs/switching.md."]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- shell completion

def bash_completion(root):
    """Completes commands and options by the words so far, and file names elsewhere."""
    cases = []
    for page in root.walk():
        words = [entry.name for title, entries in page.sections if title == "Subcommands"
                 for entry in entries]
        words += [flag for entry in page.options() for flag in entry.flags]
        cases.append(f'    "{" ".join(page.words[1:])}") words="{" ".join(words)}" ;;')
    commands = " ".join(f'"{" ".join(page.words[1:])}"' for page in root.walk()
                        if len(page.words) > 1)
    return f"""# bash completion of sluice, made from its help
_sluice() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command="" word known words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    for known in {commands}; do
      [ "${{command:+$command }}$word" != "$known" ] || {{ command=$known; break; }}
    done
  done
  case $command in
{chr(10).join(cases)}
  esac
  COMPREPLY=()
  if [ "${{current:0:1}}" = - ] || [ -z "$command" ] || [ "${{words:0:1}}" != - ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}}
complete -o bashdefault -o default -F _sluice sluice
"""


def zsh_text(text):
    """Text inside brackets of a zsh specification within single quotes."""
    return re.sub(r"([\[\]:\\])", r"\\\1", text).replace("'", "'\\''")


def zsh_completion(root):
    functions = []
    for page in root.walk():
        name = "_".join(page.words)
        specs = []
        for entry in page.options():
            value = ":value:_files" if entry.takes_value else ""
            for flag in entry.flags:
                specs.append(f"    '*{flag}[{zsh_text(entry.text)}]{value}'")
        if page.subcommands:
            names = " ".join(f"'{sub.words[-1]}:{zsh_text(sub.summary)}'"
                             for sub in page.subcommands)
            cases = "\n".join(f"      {sub.words[-1]}) _{'_'.join(sub.words)} ;;"
                              for sub in page.subcommands)
            functions.append(f"""_{name}() {{
  local state
  local -a commands=({names})
  _arguments -C \\
{chr(10).join(spec + ' ' + chr(92) for spec in specs)}
    '1:command:->command' '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $words[1] in
{cases}
      esac ;;
  esac
}}""")
        else:
            functions.append(f"""_{name}() {{
  _arguments \\
{chr(10).join(spec + ' ' + chr(92) for spec in specs)}
    '*:file:_files'
}}""")
    body = "\n\n".join(functions)
    return f"""#compdef sluice
# zsh completion of sluice, made from its help

{body}

_sluice "$@"
"""


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: tools/manuals.py PROGRAM FOLDER")
    program, folder = sys.argv[1], Path(sys.argv[2])
    root = read_pages(program)
    version = subprocess.run([program, "--version"], check=True, capture_output=True,
                             text=True).stdout.split()[-1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sluice.1").write_text(man_page(root, version))
    (folder / "sluice.bash").write_text(bash_completion(root))
    (folder / "_sluice").write_text(zsh_completion(root))


if __name__ == "__main__":
    main()
