"""Prose rules for tidy.py: comments, messages and pages in plain English.

Checked are comments and string literals of C++, comments and docstrings of Python, comments of
shell and CMake, the text of Markdown outside code, and names in C++ code that contain a banned
word. String literals of tests are not checked: many of them are test data.

Rules:
    prose-pronoun   code is "it": no "whoever", "nobody", "somebody", "whom"
    prose-start     no sentence or test name begins with "What", "Who" or "Of" used as a noun
    prose-term      the standard term instead of a private synonym
"""

import ast
import re
from dataclasses import dataclass

HASH_COMMENTS = (".py", ".sh", ".cmake")


@dataclass(frozen=True)
class Block:
    """One piece of prose: its text on one line, and the file's line of each of its characters."""

    text: str
    lines: tuple


def block_of(pieces):
    """A Block of (line number, text) pairs, joined by spaces."""
    text, lines = [], []
    for number, piece in pieces:
        if text:
            text.append(" ")
            lines.append(number)
        text.append(piece)
        lines.extend([number] * len(piece))
    return Block("".join(text), tuple(lines))


def _grouped(pieces, is_next):
    """Joins neighbouring pieces into blocks; an empty piece ends a block."""
    group = []
    for number, piece in pieces:
        if group and (not piece or not is_next(group[-1][0], number)):
            yield block_of(group)
            group = []
        if piece:
            group.append((number, piece))
    if group:
        yield block_of(group)


# --------------------------------------------------------------------------------------------------
# Where the prose of a file is.

_CPP_PIECE = re.compile(
    r'(?P<comment>//[^\n]*)'
    r'|(?P<raw>R"(?P<delim>[^()\s\\]{0,16})\(.*?\)(?P=delim)")'
    r'|(?P<text>"(?:\\.|[^"\\\n])*")'
    r"|(?P<char>(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+')",
    re.DOTALL,
)
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")


def _next_line(before, number):
    return number == before + 1


def cpp_blocks(text, with_strings):
    comments, strings = [], []
    number, last = 1, 0
    for match in _CPP_PIECE.finditer(text):
        number += text.count("\n", last, match.start())
        last = match.start()
        if match.group("comment"):
            alone = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
            if not alone:
                comments.append((number, ""))  # a comment after code is its own block
            comments.append((number, match.group("comment").lstrip("/!<").strip()))
            if not alone:
                comments.append((number, ""))
        elif match.group("text") and with_strings:
            line_start = text.rfind("\n", 0, match.start()) + 1
            if not text[line_start : match.start()].lstrip().startswith("#"):
                strings.append((number, match.group("text")[1:-1]))
    yield from _grouped(comments, _next_line)
    for number, piece in strings:
        if piece:
            yield block_of([(number, piece)])


def python_blocks(text):
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first = node.body[0].lineno
            lines = node.body[0].value.value.split("\n")
            pieces = [(first + i, line.strip()) for i, line in enumerate(lines)]
            yield from _grouped(pieces, _next_line)


def hash_blocks(lines):
    pieces = []
    for number, line in enumerate(lines, 1):
        match = re.match(r"\s*#(?!!)\s?(.*)$", line)
        pieces.append((number, match.group(1).strip() if match else ""))
    yield from _grouped(pieces, _next_line)


_INLINE_CODE = re.compile(r"`[^`]*`")


def markdown_blocks(lines):
    """Paragraphs, bullets and table cells; no headings, code blocks or code between backticks."""
    pieces = []
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            pieces.append((number, ""))
            continue
        text = _INLINE_CODE.sub("`-`", line).replace("**", "").strip()
        if fenced or line.startswith("#"):
            text = ""
        if text.startswith("|"):
            pieces.append((number, ""))
            for cell in text.strip("|").split("|"):
                pieces.extend([(number, cell.strip()), (number, "")])
            continue
        if _BULLET.match(line):
            pieces.append((number, ""))
            text = _BULLET.sub("", text)
        pieces.append((number, text))
    yield from _grouped(pieces, _next_line)


def blocks_of(file):
    if file.is_cpp:
        yield from cpp_blocks(file.text, with_strings=not file.is_test)
    elif file.suffix == ".md":
        yield from markdown_blocks(file.lines)
    elif file.suffix in HASH_COMMENTS or file.path.endswith("CMakeLists.txt"):
        yield from hash_blocks(file.lines)
        if file.suffix == ".py":
            yield from python_blocks(file.text)


# --------------------------------------------------------------------------------------------------
# The rules.

_PRONOUN = re.compile(
    r"\b(who(?:m)?ever|whom|nobody|somebody|someone|(?:those|all|any|ones?) who)\b", re.I)
_PRONOUN_IN_NAME = re.compile(r"\b\w*(?:Whoever|Whom(?![a-z])|Nobody|Somebody|Someone)\w*"
                              r"|\b(?:whoever|nobody|somebody|someone)(?:_\w+)?\b")
_START = re.compile(
    r"(?:^|(?<=[.!?]) )((?:What|Who|Whose|Of|Those (?:of|that|which|who)))(?= )(?! course)")
_TEST_START = re.compile(r"^TEST(?:_F|_P)?\(\w+, *((?:What|Who|Whose|Those|Of)[A-Z]\w*)\)")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True)
class Term:
    pattern: re.Pattern
    instead: str


def _term(pattern, instead, flags=re.I):
    return Term(re.compile(pattern, flags), instead)


# In prose. A private synonym costs each reader a search.
TERMS = (
    _term(r"\bsoften(s|ed|ing)?\b", "softmax"),
    _term(r"\b(keeps?|its|their|of|the|and) books\b|^Books\.", "bookkeeping, or recorded calls"),
    _term(r"\bgiv(e|es|ing) way\b|\bgave way\b", "yield"),
    _term(r"\b(has|have|had|had had|with) no way (for|of)\b", "no algorithm for"),
    _term(r"\bbut for\b", "except for"),
    _term(r"\bof so many\b|\bso many (?!that\b)\w+ (in|at|of|behind)\b", "name the number"),
    _term(r"\bas (it|they) lies?\b", "unchanged, or in place"),
    _term(r"\bfor ever\b", "permanently, or in every later call"),
    _term(r"\bsights?\b", "visible keys"),
    _term(r"\b(asks?|asked|asking) for ahead\b", "prefetch"),
)
# In names of types, functions and variables.
NAME_TERMS = (
    _term(r"\bsoften(_\w+)?\b", "softmax", 0),
    _term(r"\bSoon\b|\bsoon\b(?=[.,;)])", "prefetch", 0),
    _term(r"\bSight\b|\bsight(_of)?\b", "visible range", 0),
    _term(r"\bGiveWay\w*|\b\w*give_way\w*", "yield", 0),
)


def check_prose(file):
    """Yields (line, rule, message)."""
    for block in blocks_of(file):
        yield from _check_block(block)
    if file.is_cpp:
        for number, line in enumerate(file.code, 1):
            match = _PRONOUN_IN_NAME.search(line)
            if match:
                yield number, "prose-pronoun", f"'{match.group(0)}': say caller, thread, client"
            match = _TEST_START.match(line)
            if match:
                yield number, "prose-start", f"'{match.group(1)}': begin with the thing that acts"
            for term in NAME_TERMS:
                match = term.pattern.search(line)
                if match:
                    yield number, "prose-term", f"'{match.group(0)}': say {term.instead}"


def _check_block(block):
    for match in _PRONOUN.finditer(block.text):
        message = f"'{match.group(0)}': say caller, owner, thread, request, client, operator"
        yield block.lines[match.start()], "prose-pronoun", message
    for match in _START.finditer(block.text):
        end = _SENTENCE_END.search(block.text, match.end())
        if end and end.group(0) == "?":
            continue
        start = match.start(1)
        message = f"'{block.text[start : start + 30]}...': begin with the thing that acts"
        yield block.lines[start], "prose-start", message
    for term in TERMS:
        for match in term.pattern.finditer(block.text):
            yield block.lines[match.start()], "prose-term", f"'{match.group(0)}': {term.instead}"
