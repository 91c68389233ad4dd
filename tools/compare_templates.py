#!/usr/bin/env python3
"""Compares Sluice's chat templates with jinja2 as transformers configures it.

    tools/compare_templates.py RENDERER cases [--write]
    tools/compare_templates.py RENDERER golden DIR
    tools/compare_templates.py RENDERER random DIR [--count 20000] [--seed 1]
    tools/compare_templates.py RENDERER expressions [--count 20000] [--seed 1]

RENDERER is the built `chat_template_render`. DIR holds real templates (*.jinja, in any depth); for
`golden` also golden_rendered.json. `cases` are our own small templates with their expectations
(src/chat_template/testdata/cases.json; --write renews the expectations from jinja2). `random`
renders random conversations with every template, `expressions` random expressions and statements.

Texts must be equal. Errors must be errors on both sides: of the same type and message where the
template raises, meets an undefined value or passes the sandbox; of the same type otherwise, and
for errors in the template's own text just errors.
"""

import argparse
import datetime
import json
import pathlib
import random
import subprocess
import sys
import warnings

import random_templates

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ROOT / "src/chat_template/testdata/cases.json"
NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)
NOW_SECONDS = int((NOW - datetime.datetime(1970, 1, 1)).total_seconds())


class Reference:
    """jinja2, set up by transformers itself."""

    def __init__(self):
        from transformers.utils import chat_template_utils

        self.compile = chat_template_utils._cached_compile_jinja_template
        self.cache = {}

    def render(self, template, context):
        try:
            compiled = self.cache.get(template)
            if compiled is None:
                compiled = self.compile(template)
                compiled.environment.globals["strftime_now"] = NOW.strftime
                self.cache[template] = compiled
            return {"text": compiled.render(**context)}
        except RecursionError:
            return {"error": "RecursionError"}
        except Exception as error:  # noqa: BLE001 - every failure is a result here
            return {"error": f"{type(error).__name__}: {error}"}


class Ours:
    def __init__(self, renderer):
        self.process = subprocess.Popen(
            [renderer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def render(self, template, context):
        request = {"template": template, "context": json.dumps(context), "now": NOW_SECONDS}
        line = json.dumps(request)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            raise SystemExit(f"the renderer died of: {line}")
        return json.loads(reply)


def own_error(message):
    """'chat template NAME, line 3: TypeError: x' without the place."""
    _, _, rest = message.partition(", ")
    place, _, detail = rest.partition(": ")
    return detail if place.startswith("line ") else rest


EXACT = ("UndefinedError", "SecurityError", "TemplateRuntimeError")
TEXT_ERRORS = ("TemplateSyntaxError", "TemplateAssertionError", "SyntaxError")


def same(expected, actual):
    if "text" in expected or "text" in actual:
        return expected == actual
    kind, _, message = expected["error"].partition(": ")
    ours = own_error(actual["error"])
    if kind == "TemplateError":
        return ours == message
    if kind in EXACT:
        return ours == expected["error"]
    if kind in TEXT_ERRORS or kind == "RecursionError":
        return True
    return ours.partition(": ")[0] == kind


class Tally:
    def __init__(self, limit):
        self.compared = self.equal = self.errors = self.shown = self.skipped = 0
        self.limit = limit

    def add(self, expected, actual, template, context, name):
        if " at 0x" in expected.get("text", expected.get("error")):
            self.skipped += 1  # Python prints an address
            return
        self.compared += 1
        self.errors += "error" in expected
        if same(expected, actual):
            self.equal += 1
            return
        if self.shown < self.limit:
            self.shown += 1
            print(f"--- {name}\ntemplate: {template[:600]!r}")
            print(f"context:  {json.dumps(context, ensure_ascii=False)[:1500]}")
            print(f"jinja2:   {expected}\nours:     {actual}")

    def finish(self):
        print(
            f"{self.compared} compared, {self.equal} equal, "
            f"{self.compared - self.equal} different ({self.errors} of jinja2's results are errors; "
            f"{self.skipped} skipped that print an address)"
        )
        return 0 if self.compared == self.equal and self.compared > 0 else 1


def load_templates(directory):
    files = sorted(pathlib.Path(directory).rglob("*.jinja"))
    if not files:
        raise SystemExit(f"no *.jinja under {directory}")
    return {str(f.relative_to(directory)): f.read_text(encoding="utf-8") for f in files}


def run_cases(args, ours, reference, tally):
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    for case in cases:
        expected = reference.render(case["template"], case.get("context", {}))
        if args.write:
            case.pop("text", None)
            case.pop("error", None)
            case.update(expected)
        actual = ours.render(case["template"], case.get("context", {}))
        tally.add(expected, actual, case["template"], case.get("context", {}), "case")
        if not args.write:
            stored = {k: case[k] for k in ("text", "error") if k in case}
            if stored != expected:
                print(f"stale expectation of {case['template']!r}: {stored}, now {expected}")
                tally.compared += 1
    if args.write:
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
        CASES.write_text("[\n" + lines + "\n]\n", encoding="utf-8")


def run_golden(args, ours, reference, tally):
    templates = load_templates(args.directory)
    golden = json.loads((pathlib.Path(args.directory) / "golden_rendered.json").read_text())
    for case in golden["cases"]:
        context = {**golden["base"], **golden["contexts"][case["context"]]}
        template = templates[case["template"]]
        expected = {"text": case["expected"]} if "expected" in case else {"error": case["error"]}
        name = f"{case['template']} {case['context']}"
        tally.add(expected, ours.render(template, context), template, context, name)


def run_random(args, ours, reference, tally):
    templates = load_templates(args.directory)
    rng = random.Random(args.seed)
    names = list(templates)
    for i in range(args.count):
        name = names[i % len(names)]
        context = random_templates.conversation(rng)
        expected = reference.render(templates[name], json.loads(json.dumps(context)))
        tally.add(expected, ours.render(templates[name], context), templates[name], context, name)


def run_expressions(args, ours, reference, tally):
    rng = random.Random(args.seed)
    for _ in range(args.count):
        template, context = random_templates.program(rng)
        reference.cache.clear()
        expected = reference.render(template, json.loads(json.dumps(context)))
        tally.add(expected, ours.render(template, context), template, context, "expression")


def main():
    warnings.simplefilter("ignore", SyntaxWarning)  # Python's view of odd templates
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("renderer")
    parser.add_argument("mode", choices=["cases", "golden", "random", "expressions"])
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.mode in ("golden", "random") and not args.directory:
        parser.error(f"{args.mode} needs DIR")
    tally = Tally(args.show)
    modes = {
        "cases": run_cases,
        "golden": run_golden,
        "random": run_random,
        "expressions": run_expressions,
    }
    modes[args.mode](args, Ours(args.renderer), Reference(), tally)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
