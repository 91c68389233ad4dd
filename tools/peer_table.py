"""The table of tools/compare_peers.py: its rows, medians of rounds, ratios, and the page that it is
written into. Pure except for write_page()."""

import os
import statistics

BEGIN = "<!-- Written by tools/compare_peers.py: begin -->"
END = "<!-- Written by tools/compare_peers.py: end -->"
MODELS = {"0.6b": ("qwen3-0.6b", "0.6B"), "1b": ("llama-1b", "1B")}
FORMS = {"bf16": "BF16", "8bit": "8 bits", "4bit": "4 bits", "q4_0": "a Q4_0 file"}
# Over HTTP: what is measured, the unit, and whether more is better.
HTTP = {
    "gap": ("longest gap of a stream while a prompt of 1,500 tokens arrives, s", False),
    "ttft": ("first token of that prompt, s", False),
    "chats": ("16 chats at once, output tokens/s", True),
    "itl": ("the same, P99 of gaps, s", False),
    "start": ("from the server's exec to the first token of a prompt of 16, s", False),
}


class Row:
    """One line of the table. Its key is MODEL/FORM/JOB; FORM is http for what servers do."""

    def __init__(self, key):
        self.key = key
        self.model, self.form, self.job = key.split("/")

    @property
    def more_is_better(self):
        return self.form != "http" or HTTP[self.job][1]

    @property
    def label(self):
        name = MODELS[self.model][1]
        if self.form == "http":
            return f"{name}, BF16, HTTP: {HTTP[self.job][0]}"
        kind, count = self.job.split("-")
        what = (f"prefill of {int(count):,} tokens" if kind == "prefill" else
                f"decode, {count} stream{'' if count == '1' else 's'}")
        return f"{name}, {FORMS[self.form]}: {what}, tokens/s"


def all_keys():
    keys = []
    for model in MODELS:
        keys += [f"{model}/{form}/{job}" for form in FORMS
                 for job in ("prefill-512", "prefill-2048", "decode-1", "decode-16")]
        keys += [f"{model}/http/{job}" for job in HTTP]
    return keys


class Samples:
    """By row the rounds, each with the figures of engines; and why an engine has none."""

    def __init__(self, data=None):
        data = data or {}
        self.rounds = data.get("rounds", {})
        self.missing = data.get("missing", {})
        self.limits = data.get("limits", [])  # each time that they were measured

    def as_data(self):
        return {"rounds": self.rounds, "missing": self.missing, "limits": self.limits}

    def begin_round(self, key):
        self.rounds.setdefault(key, []).append({})

    def add(self, key, engine, value):
        self.rounds[key][-1][engine] = value
        self.missing.get(key, {}).pop(engine, None)

    def fail(self, key, engine, reason):
        self.missing.setdefault(key, {})[engine] = reason

    def median(self, key, engine):
        values = [r[engine] for r in self.rounds.get(key, []) if engine in r]
        return statistics.median(values) if values else None

    def count(self, key):
        return sum(1 for r in self.rounds.get(key, []) if r)

    def best(self, row, engines):
        """The engine with the best median, or None."""
        medians = {engine: self.median(row.key, engine) for engine in engines}
        known = [engine for engine in engines if medians[engine] is not None]
        pick = max if row.more_is_better else min
        return pick(known, key=medians.get) if known else None

    def ratio(self, row, engine, peers):
        """The median over rounds of how much better `engine` is than the best peer of the round;
        above 1 is ahead. Rounds without the peer of the best median do not count. None without a
        round that has both."""
        ratios = []
        best = self.best(row, peers)
        for figures in self.rounds.get(row.key, []):
            others = [figures[peer] for peer in peers if peer in figures]
            if engine not in figures or best not in figures:
                continue
            if row.more_is_better:
                ratios.append(figures[engine] / max(others))
            else:
                ratios.append(min(others) / figures[engine])
        return statistics.median(ratios) if ratios else None


def three_digits(value):
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def table(samples, names):
    """Lines of the table, and the notes below it. The first name is ours."""
    notes = []

    def cell(key, name):
        value = samples.median(key, name)
        if value is not None:
            return three_digits(value)
        reason = samples.missing.get(key, {}).get(name)
        if reason is None:
            return ""
        note = f"{name}: {reason}"
        if note not in notes:
            notes.append(note)
        return f"({notes.index(note) + 1})"

    lines = ["| | " + " | ".join(names) + " | to the best peer | rounds |",
             "|---" * (len(names) + 3) + "|"]
    for row in map(Row, all_keys()):
        if samples.count(row.key) == 0:
            continue
        ratio = samples.ratio(row, names[0], names[1:])
        cells = [cell(row.key, name) for name in names]
        cells.append("" if ratio is None else f"{ratio:.2f}")
        lines.append(f"| {row.label} | " + " | ".join(cells) + f" | {samples.count(row.key)} |")
    return lines, notes


def limits_line(measured):
    """The machine's limits in words, from each time that they were measured: other work, and other
    machines on the same host, lower them."""
    names = {"read_gb_s": "read GB/s", "amx_bf16_gop_s": "Gop/s: AMX BF16",
             "amx_int8_gop_s": "AMX INT8", "fma_gop_s": "FP32 FMA",
             "avx512_bf16_gop_s": "AVX-512 BF16", "vnni_gop_s": "AVX-512 VNNI",
             "avx_vnni_gop_s": "AVX-VNNI"}
    parts = []
    for key, name in names.items():
        values = sorted(limits[key] for limits in measured if key in limits)
        if not values:
            continue
        text = three_digits(values[-1])
        if values[0] < 0.95 * values[-1]:
            text = three_digits(values[0]) + " to " + text
        parts.append(f"{name} {text}")
    return ", ".join(parts) if parts else "not measured"


def page_part(samples, names, facts):
    """Everything between the markers. `facts` are lines of a table: what, and its value."""
    lines, notes = table(samples, names)
    part = ["| | |", "|---|---|"]
    part += [f"| {what} | {value} |" for what, value in facts]
    part += ["", *lines]
    if notes:
        part.append("")
        part += [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join(part)


def replace_part(page, part):
    """The page with the part between its markers."""
    begin, end = page.find(BEGIN), page.find(END)
    if begin < 0 or end < begin:
        raise ValueError("the page lacks the markers of tools/compare_peers.py")
    return page[:begin + len(BEGIN)] + "\n" + part + "\n" + page[end:]


def write_page(path, part):
    with open(path, encoding="utf-8") as file:
        page = replace_part(file.read(), part)
    with open(path + ".part", "w", encoding="utf-8") as out:
        out.write(page)
    os.rename(path + ".part", path)
