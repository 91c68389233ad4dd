#!/usr/bin/env python3
"""Draws figures of docs/elastic-memory.md from the page's own tables, as SVG:

    tools/elastic_pictures.py [PAGE [FOLDER]]     # docs/elastic-memory.md, docs/images

- elastic-burst.svg: the peak TTFT of bursts (figures 1 and 8);
- elastic-reclaim.svg: what taking memory back costs a server with streams.

tools/elastic_figures.py calls it at its end. With --real it also draws elastic-limits.svg, the
memory of two servers over time, from what it has measured (limits_picture).
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from peer_picture import OURS, PEERS, number_of, text  # noqa: E402

GOAL = "#cf222e"
SECOND = "#bf8700"
WIDTH, LEFT, BAR, STEP = 900, 330, 470, 22


def table_after(page, title):
    """The rows of the first table after a line that begins with this: cells as text."""
    at = page.find("\n" + title)
    if at < 0:
        raise ValueError(f"the page has no line that begins with: {title}")
    rows = []
    for line in page[at + 1:].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows:
            break
    if len(rows) < 3:
        raise ValueError(f"the page has no table after: {title}")
    return rows[0], rows[2:]  # without the line below the heads


def column(heads, name):
    for i, head in enumerate(heads):
        if head.startswith(name):
            return i
    raise ValueError(f"the table has no column '{name}'")


def svg(parts, height):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


def bars(y, title, rows, goal=None):
    """Horizontal bars of (label, value, color) below a title, and a line at the goal."""
    parts = [text(20, y + 14, title, 13, weight="bold")]
    y += 26
    top, most = y, max([value for _, value, _ in rows] + ([goal] if goal else []))
    for label, value, color in rows:
        width = max(1, round(BAR * value / most))
        parts.append(text(LEFT - 10, y + 14, label.replace("`", ""), 12, anchor="end"))
        parts.append(f'<rect x="{LEFT}" y="{y + 2}" width="{width}" height="{STEP - 6}" '
                     f'fill="{color}"/>')
        parts.append(text(LEFT + width + 6, y + 14, f"{value:g}", 11,
                          weight="bold" if color == OURS else "normal"))
        y += STEP
    if goal:
        x = LEFT + round(BAR * goal / most)
        parts.append(f'<line x1="{x}" y1="{top - 4}" x2="{x}" y2="{y}" stroke="{GOAL}" '
                     'stroke-dasharray="4 3"/>')
        parts.append(text(x, top - 8, f"goal {goal:g}", 11, anchor="middle", color=GOAL))
    return parts, y + 14


def burst_picture(page):
    parts = [text(20, 24, "A burst of twice the rate: the longest wait for a first token, seconds",
                  15, weight="bold")]
    y = 40
    for title, words in (("**Figure 1: a burst", "Yi-34B on an A100, simulated"),
                         ("**Figure 8: a burst", "Llama-3-70B on two H100, simulated")):
        heads, rows = table_after(page, title)
        at = column(heads, "peak TTFT")
        drawn, y = bars(y, words, [(row[0], number_of(row[at]),
                                    OURS if row[0].startswith("`fair` over") else PEERS[0])
                                   for row in rows])
        parts += drawn
    return svg(parts, y)


def reclaim_picture(page):
    heads, rows = table_after(page, "**Memory reclaimed")
    parts = [text(20, 24, "A program takes back memory that a server with streams has borrowed", 15,
                  weight="bold")]
    y = 40
    for name, words, goal in (("back after", "seconds until all of it is back", 1),
                              ("P99 TBT", "P99 of the time between tokens, to that before", 1.5)):
        at = column(heads, name)
        drawn, y = bars(y, words, [(f"{row[0]}, {row[1]} reclaims", number_of(row[at]), OURS)
                                   for row in rows], goal)
        parts += drawn
    return svg(parts, y)


def limits_picture(samples, bursts, whole):
    """`samples`: (seconds, the first server's limit, the second's) in MiB, by time. `bursts`:
    (seconds of its begin and end, server)."""
    left, right, top, bottom = 70, WIDTH - 30, 70, 290
    last = samples[-1][0]

    def x(seconds):
        return round(left + (right - left) * seconds / last, 1)

    def y(mib):
        return round(bottom - (bottom - top) * mib / whole, 1)

    parts = [text(20, 24, "Memory follows the load: KV limits of two servers, MiB", 15,
                  weight="bold")]
    for begin, end, server in bursts:
        parts.append(f'<rect x="{x(begin)}" y="{top}" width="{round(x(end) - x(begin), 1)}" '
                     f'height="{bottom - top}" fill="{PEERS[3]}" fill-opacity="0.4"/>')
        parts.append(text(round((x(begin) + x(end)) / 2, 1), top - 8, f"burst on the {server}", 11,
                          anchor="middle"))
    for mib in (0, whole / 2, whole):
        parts.append(f'<line x1="{left}" y1="{y(mib)}" x2="{right}" y2="{y(mib)}" '
                     f'stroke="{PEERS[3]}"/>')
        parts.append(text(left - 8, y(mib) + 4, f"{mib:g}", 11, anchor="end"))
    for second in range(0, int(last) + 1, max(1, int(last) // 10)):
        parts.append(text(x(second), bottom + 18, f"{second} s", 11, anchor="middle"))
    for server, color in ((1, OURS), (2, SECOND)):
        points, before = [], None
        for sample in samples:
            if before is not None:
                points.append(f"{x(sample[0])},{y(before)}")  # the limit until it is read anew
            points.append(f"{x(sample[0])},{y(sample[server])}")
            before = sample[server]
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" '
                     'stroke-width="2"/>')
        at = left + (server - 1) * 120
        parts.append(f'<rect x="{at}" y="{bottom + 30}" width="12" height="12" fill="{color}"/>')
        parts.append(text(at + 17, bottom + 40, ("first", "second")[server - 1] + " server"))
    return svg(parts, bottom + 54)


def write_picture(folder, name, drawn):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        out.write(drawn)


def write_pictures(page, folder):
    with open(page, encoding="utf-8") as file:
        words = file.read()
    write_picture(folder, "elastic-burst.svg", burst_picture(words))
    write_picture(folder, "elastic-reclaim.svg", reclaim_picture(words))


def main(argv):
    root = os.path.dirname(HERE)
    page = argv[0] if argv else os.path.join(root, "docs", "elastic-memory.md")
    folder = argv[1] if len(argv) > 1 else os.path.join(root, "docs", "images")
    write_pictures(page, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
