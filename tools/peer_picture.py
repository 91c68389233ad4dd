#!/usr/bin/env python3
"""Draws the table that tools/compare_peers.py wrote into docs/performance.md as a picture:

    tools/peer_picture.py [PAGE [PICTURE]]     # docs/performance.md, docs/images/peers.svg

compare_peers.py calls it at its end. Each row of the table has a bar for each engine; the best
engine's is full, also in rows where less is better.
"""

import os
import sys
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import peer_table  # noqa: E402

OURS, PEERS = "#1f6feb", ("#8c959f", "#afb8c1", "#6e7781", "#d0d7de")
WIDTH, LEFT, BAR, STEP, ROW_GAP, TOP = 900, 410, 400, 15, 12, 62


class Figures:
    """The page's engines, rows (a label, and each engine's figure or None), and facts."""

    def __init__(self, page):
        begin, end = page.find(peer_table.BEGIN), page.find(peer_table.END)
        if begin < 0 or end < begin:
            raise ValueError("the page lacks the markers of tools/compare_peers.py")
        lines = [[cell.strip() for cell in line.strip("|").split("|")]
                 for line in page[begin:end].splitlines() if line.startswith("| ")]
        self.facts = {cells[0]: cells[1] for cells in lines if len(cells) == 2}
        heads = [cells for cells in lines if len(cells) > 2 and not cells[0]]
        if not heads:
            raise ValueError("the page has no table of tools/compare_peers.py yet")
        self.engines = heads[0][1:-2]
        self.rows = [(cells[0], [number_of(cell) for cell in cells[1:-2]])
                     for cells in lines if len(cells) > 2 and cells[0]]


def number_of(cell):
    """None where an engine has no figure: an empty cell, or a note's number."""
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None


def shares(label, values):
    """The length of each bar, 1 for the best."""
    known = [value for value in values if value]
    if label.endswith("tokens/s"):
        return [value and value / max(known) for value in values]
    return [value and min(known) / value for value in values]


def text(x, y, words, size=12, anchor="start", color="#1f2328", weight="normal"):
    return (f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{color}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def color_of(engine):
    return OURS if engine == 0 else PEERS[(engine - 1) % len(PEERS)]


def legend(engines, y):
    parts, x = [], LEFT
    for i, name in enumerate(engines):
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{color_of(i)}"/>')
        parts.append(text(x + 17, y, name))
        x += 35 + 8 * len(name)
    return parts


def draw_row(y, row):
    label, values = row
    parts = []
    known = [(i, value, share) for i, (value, share) in
             enumerate(zip(values, shares(label, values))) if value]
    middle = y + STEP * len(known) / 2
    model, _, what = label.partition(": ")
    parts.append(text(LEFT - 10, middle - 4, model, anchor="end", weight="bold"))
    parts.append(text(LEFT - 10, middle + 11, what, 11, anchor="end"))
    bottom = max(y + STEP * len(known), y + 2 * STEP)  # of the label, where few have figures
    for i, value, share in known:
        width = max(1, round(BAR * share))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width}" height="{STEP - 3}" '
                     f'fill="{color_of(i)}"/>')
        parts.append(text(LEFT + width + 6, y + STEP - 5, peer_table.three_digits(value), 11,
                          weight="bold" if i == 0 else "normal"))
        y += STEP
    return parts, bottom + ROW_GAP


def draw(figures):
    """The picture as SVG."""
    parts = [text(20, 24, "Sluice and other engines on one CPU; longer bars are better", 15,
                  weight="bold")]
    parts += legend(figures.engines, 48)
    y = TOP
    for row in figures.rows:
        drawn, y = draw_row(y, row)
        parts += drawn
    for name in ("machine", "date"):
        if name in figures.facts:
            parts.append(text(20, y + 6, f"{name}: {figures.facts[name]}", 10, color="#59636e"))
            y += 14
    height = y + 8
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


def write_picture(page, picture):
    with open(page, encoding="utf-8") as file:
        drawn = draw(Figures(file.read()))
    os.makedirs(os.path.dirname(os.path.abspath(picture)), exist_ok=True)
    with open(picture, "w", encoding="utf-8") as out:
        out.write(drawn)


def main(argv):
    root = os.path.dirname(HERE)
    page = argv[0] if argv else os.path.join(root, "docs", "performance.md")
    picture = argv[1] if len(argv) > 1 else os.path.join(root, "docs", "images", "peers.svg")
    write_picture(page, picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
