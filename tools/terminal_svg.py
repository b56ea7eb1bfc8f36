#!/usr/bin/env python3
"""Draws a terminal's text as a self-contained SVG. Standard library only.

Usage: tmux capture-pane -p -e -S - | tools/terminal_svg.py [--columns N] [--title TEXT] >out.svg

Understands the SGR escapes that programs use for colour, bold and dim; drops all others.
"""
import argparse
import re
import sys
from html import escape

PALETTE = ["#1c2128", "#e5534b", "#57ab5a", "#c69026", "#539bf5", "#b083f0", "#39c5cf", "#adbac7"]
BRIGHT = ["#768390", "#ff938a", "#8ddb8c", "#eac55f", "#96d0ff", "#dcbdfb", "#76e3ea", "#ffffff"]
TEXT, GROUND = "#adbac7", "#1c2128"
CELL_W, CELL_H, MARGIN, BAR = 8.4, 18, 14, 30
# Wide spaces collapse in SVG, and braille is often wider than the rest: each is placed alone.
OTHER = "[^\\s\u2800-\u28ff\u2502]+"
WORDS = re.compile(f"[\u2800-\u28ff]+|\u2502|{OTHER}(?: {OTHER})*")
ESCAPE = re.compile(r"\x1b\[([0-9;:]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b.")


def apply(codes, style):
    """The style after an SGR escape."""
    style = dict(style)
    for code in [int(c) for c in codes.split(";") if c.isdigit()] or [0]:
        if code == 0:
            style = {}
        elif code == 1:
            style["font-weight"] = "bold"
        elif code == 2:
            style["opacity"] = "0.65"
        elif code == 22:
            style.pop("font-weight", None)
            style.pop("opacity", None)
        elif code == 39:
            style.pop("fill", None)
        elif 30 <= code <= 37:
            style["fill"] = PALETTE[code - 30]
        elif 90 <= code <= 97:
            style["fill"] = BRIGHT[code - 90]
    return style


def spans(line, style):
    """[(column, text, style)] of a line, and the style at its end."""
    out, at, column = [], 0, 0
    for m in list(ESCAPE.finditer(line)) + [None]:
        text = line[at:m.start() if m else len(line)]
        if text:
            out.append((column, text, style))
            column += len(text)
        if m is None:
            break
        at = m.end()
        if m.group(2) == "m":
            style = apply(m.group(1), style)
    return out, style


def draw(lines, columns, title):
    width = columns * CELL_W + 2 * MARGIN
    height = len(lines) * CELL_H + 2 * MARGIN + BAR
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
           f'width="{width:.0f}" height="{height}" role="img">')
    yield f"<title>{escape(title)}</title>"
    yield f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>'
    for i, color in enumerate(("#e5534b", "#c69026", "#57ab5a")):
        yield f'<circle cx="{MARGIN + 6 + 18 * i}" cy="18" r="5.5" fill="{color}"/>'
    yield (f'<g fill="{TEXT}" font-size="14" font-family="ui-monospace, '
           "SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\">")
    style = {}
    for row, line in enumerate(lines):
        parts, style = spans(line, style)
        y = BAR + MARGIN + row * CELL_H + 13
        for column, text, look in parts:
            attributes = "".join(f' {k}="{v}"' for k, v in look.items())
            for run in WORDS.finditer(text):
                x, chars = MARGIN + (column + run.start()) * CELL_W, len(run.group())
                yield (f'<text x="{x:.1f}" y="{y}" textLength="{chars * CELL_W:.1f}"'
                       f'{attributes}>{escape(run.group())}</text>')
    yield "</g>\n</svg>"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, default=0, help="width; 0 = the longest line")
    parser.add_argument("--title", default="a terminal")
    options = parser.parse_args()
    lines = [line.rstrip() for line in sys.stdin.read().rstrip("\n").split("\n")]
    longest = max(len(ESCAPE.sub("", line)) for line in lines)
    for part in draw(lines, options.columns or longest, options.title):
        print(part)


if __name__ == "__main__":
    main()
