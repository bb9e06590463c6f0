"""Small charts of a page, as SVG whose colours are the page's own (CSS variables)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 128.0, 32.0, 44.0

Point = tuple[float, float]


def curves(series: Mapping[str, Sequence[Point]], x_label: str, y_label: str) -> str:
    """Lines over two logarithmic axes. series: name → (bytes, value) in rising order, all > 0."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    x_low, x_high = (f(math.log2(x) for x, _ in points) for f in (min, max))
    decades = [math.log10(y) for _, y in points]
    y_low, y_high = math.floor(min(decades)), math.ceil(max(decades) + 1e-9)
    y_high = max(y_high, y_low + 1)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: Point) -> tuple[float, float]:
        x = (math.log2(point[0]) - x_low) / max(x_high - x_low, 1e-9)
        y = (math.log10(point[1]) - y_low) / (y_high - y_low)
        return LEFT + x * inner_width, TOP + (1 - y) * inner_height

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
        f'aria-label="{escape(y_label)}">'
    ]
    for decade in range(y_low, y_high + 1):
        y = place((2**x_low, 10.0**decade))[1]
        parts.append(f'<path class="grid" d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}"/>')
        label = f"{10.0**decade:g}"
        parts.append(f'<text class="end" x="{LEFT - 8:g}" y="{y + 4:.1f}">{label}</text>')
    for size in sorted({x for x, _ in points}):
        x = place((size, 10.0**y_low))[0]
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP:g}V{HEIGHT - BOTTOM:g}"/>')
        parts.append(
            f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18:g}">'
            f"{bytes_text(size)}</text>"
        )
    middle = LEFT + inner_width / 2
    parts.append(f'<text class="middle" x="{middle:g}" y="{HEIGHT - 6:g}">{escape(x_label)}</text>')
    parts.append(f'<text x="4" y="12">{escape(y_label)}</text>')
    ends = _apart([place(line[-1])[1] for line in series.values() if line])
    lines = [(name, line) for name, line in series.items() if line]
    for number, ((name, line), end) in enumerate(zip(lines, ends, strict=True)):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, line))
        parts.append(f'<polyline class="line s{number}" points="{path}"/>')
        parts += [
            f'<circle class="dot s{number}" cx="{place(p)[0]:.1f}" cy="{place(p)[1]:.1f}" r="3.5">'
            f"<title>{escape(name)}, {bytes_text(p[0])}: {p[1]:.3g}</title></circle>"
            for p in line
        ]
        x = place(line[-1])[0] + 10
        parts.append(
            f'<text class="name s{number}" x="{x:.1f}" y="{end + 4:.1f}">{escape(name)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _apart(heights: Sequence[float], least: float = 15.0) -> list[float]:
    """The same heights, moved so that labels at them do not overlap."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    moved = list(heights)
    for before, after in itertools.pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    return moved


def bytes_text(nbytes: float) -> str:
    """ "64 KiB": powers of 1024, three figures."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.3g} GiB"
