"""A timeline as a picture: one lane per rank over virtual time, as SVG.

The upper bar of a lane shows what the rank did (computed, waited), the bars below its messages in
transfer, sent and received apart, and collectives. Arrows lead from a sender's bar to the
receiver's. Colours follow the reader's light or dark setting.
"""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from grader.fabric.chrome import describe, lanes
from grader.fabric.clock_timeline import Timeline
from grader.fabric.record import Operation

MAX_LANES = 32
MAX_ARROWS = 600
#: Bars and gaps narrower than this many units of the picture are merged, so files stay small.
MIN_BAR = 0.25
#: Narrower bars are not worth a tooltip.
MIN_TIP = 5.0
WIDTH, LEFT, RIGHT, TOP = 1200.0, 84.0, 24.0, 84.0
MAIN_BAR, THIN_BAR, LANE_GAP = 16.0, 7.0, 12.0
MAX_ROWS = 4  # rows of thin bars of a lane; further ones share the last

STYLE = """
svg { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; background: #ffffff; }
.page { fill: #ffffff } .text { fill: #1d2433 } .faint { fill: #5c6675 }
.title { font-size: 15px; font-weight: 600 } .end { text-anchor: end }
.middle { text-anchor: middle }
.lane { fill: #f2f4f7 } .grid { stroke: #d5dae1; stroke-width: 1 }
.compute { fill: #2f6fd0 } .wait { fill: #d3d8e0 } .send { fill: #e08a1e }
.recv { fill: #2a9d6f } .collective { fill: #8a5cd1 }
.arrow { stroke: #465063; stroke-width: .9; fill: none; opacity: .55 }
.tip { fill: #465063 }
@media (prefers-color-scheme: dark) {
svg { background: #14181f }
.page { fill: #14181f } .text { fill: #e6e9ef } .faint { fill: #9aa4b2 }
.lane { fill: #1d232d } .grid { stroke: #333c49 }
.compute { fill: #6aa0f0 } .wait { fill: #3c4656 } .send { fill: #f0a648 }
.recv { fill: #4cc492 } .collective { fill: #b08cf0 }
.arrow { stroke: #c3cad6 } .tip { fill: #c3cad6 }
}
""".strip()

Bar = tuple[str, float, float, str]  # class, begin, end, text of the tooltip


def draw(timeline: Timeline, title: str = "", max_lanes: int = MAX_LANES) -> str:
    """The picture as SVG text.

    title: first line; the cluster's name if empty. Of more than `max_lanes` ranks only the first
    are drawn, of more than 600 arrows only the earliest; the picture says so.
    """
    world = timeline.record.world_size
    shown = min(world, max_lanes)
    span = timeline.makespan or 1.0
    drawing = _Drawing(span)
    y = TOP
    for rank in range(shown):
        y = drawing.lane(timeline, rank, y)
    notes = [f"{world} rank{'s' * (world != 1)} on {timeline.cluster.name}"]
    notes += [f"makespan {seconds_text(timeline.makespan)}"]
    if shown < world:
        notes.append(f"only ranks 0 … {shown - 1} are drawn")
    arrows, hidden = drawing.arrows(timeline, shown)
    if hidden:
        notes.append(f"only the first {MAX_ARROWS} of {MAX_ARROWS + hidden} arrows are drawn")
    if not timeline.complete:
        notes.append("the run was cut off")
    if timeline.order_dependent:
        notes.append("depends on the order of ranks")
    height = y + 34
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" '
        f'width="{WIDTH:g}" height="{height:g}" role="img">',
        f"<title>{escape(title or timeline.cluster.name)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
        'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
        '<path class="tip" d="M0 1 8 4 0 7z"/></marker></defs>',
        f'<rect class="page" width="{WIDTH:g}" height="{height:g}"/>',
        f'<text class="text title" x="{LEFT:g}" y="26">{escape(title or timeline.cluster.name)}'
        "</text>",
        f'<text class="faint" x="{LEFT:g}" y="46">{escape(" · ".join(notes))}</text>',
        *_legend(),
    ]
    return "\n".join([*head, *drawing.back, *_axis(span, y), *drawing.front, *arrows, "</svg>\n"])


def write_picture(timeline: Timeline, path: str | Path, title: str = "") -> None:
    """Write `draw(timeline, title)` to a file."""
    Path(path).write_text(draw(timeline, title), encoding="utf-8")


def seconds_text(seconds: float) -> str:
    """Seconds with a fitting unit: "12.5 ms"."""
    unit, factor = _unit(abs(seconds))
    return f"{seconds / factor:.4g} {unit}"


def _unit(seconds: float) -> tuple[str, float]:
    """The largest unit that `seconds` fills, and its length in seconds."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor:
            return unit, factor
    return "ns", 1e-9


class _Drawing:
    """Bars drawn so far, and where each operation's bar lies (for the arrows)."""

    def __init__(self, span: float) -> None:
        self.scale = (WIDTH - LEFT - RIGHT) / span
        self.back: list[str] = []
        self.front: list[str] = []
        self.middle: dict[int, float] = {}

    def x(self, seconds: float) -> float:
        return LEFT + seconds * self.scale

    def lane(self, timeline: Timeline, rank: int, top: float) -> float:
        """Draw a rank's lane at height `top`; where the next one begins."""
        y = top + 2
        operations = timeline.record.operations
        bars: list[Bar] = []
        for segment in timeline.segments(rank):
            text: str = segment.kind
            if segment.kind == "wait":
                text = f"wait for {describe(operations[segment.operation])}"
            where = f" ({segment.location})" if segment.location else ""
            bars.append((segment.kind, segment.begin, segment.end, text + where))
        self._bars(bars, y, MAIN_BAR)
        y += MAIN_BAR + 2
        for family in ("send", "recv", "collective"):
            mine = [
                operation
                for op in timeline.operations(rank)
                if _family(operation := operations[op]) == family
            ]
            rows = lanes([(timeline.begin[op.id], timeline.end[op.id]) for op in mine])
            per_row: list[list[Bar]] = [[] for _ in range(min(MAX_ROWS, max(rows, default=-1) + 1))]
            for op, row in zip(mine, rows, strict=True):
                row = min(row, MAX_ROWS - 1)
                self.middle[op.id] = y + row * (THIN_BAR + 1) + THIN_BAR / 2
                what = f"{describe(op)}, {op.nbytes:,} bytes"
                per_row[row].append((family, timeline.begin[op.id], timeline.end[op.id], what))
            for row_bars in per_row:
                self._bars(row_bars, y, THIN_BAR)
                y += THIN_BAR + 1
        y += 2
        label = y - (y - top) / 2 + 4
        self.back.append(
            f'<rect class="lane" x="{LEFT:g}" y="{top:g}" width="{WIDTH - LEFT - RIGHT:g}" '
            f'height="{y - top:g}"/>'
        )
        self.back.append(
            f'<text class="text end" x="{LEFT - 10:g}" y="{label:g}">rank {rank}</text>'
        )
        return y + LANE_GAP

    def _bars(self, bars: list[Bar], y: float, height: float) -> None:
        merged: list[Bar] = []
        for kind, begin, end, text in sorted(bars, key=lambda bar: (bar[1], bar[2])):
            last = merged[-1] if merged else None
            if (
                last is not None
                and last[0] == kind
                and (begin - last[2]) * self.scale < MIN_BAR
                and min(end - begin, last[2] - last[1]) * self.scale < 4 * MIN_BAR
            ):
                merged[-1] = (kind, last[1], max(end, last[2]), last[3])
            else:
                merged.append((kind, begin, end, text))
        for kind, begin, end, text in merged:
            width = max(MIN_BAR, (end - begin) * self.scale)
            # A hair of the lane between neighbours, so that bars of one colour can be counted.
            width = width - 0.6 if width > 3 else width
            box = f'<rect class="{kind}" x="{self.x(begin):.2f}" y="{y:g}" width="{width:.2f}"'
            if width < MIN_TIP:
                self.front.append(f'{box} height="{height:g}"/>')
                continue
            tip = escape(f"{text}: {seconds_text(begin)} – {seconds_text(end)}")
            self.front.append(f'{box} height="{height:g}" rx="1.5"><title>{tip}</title></rect>')

    def arrows(self, timeline: Timeline, shown: int) -> tuple[list[str], int]:
        """Arrows between drawn ranks, and how many more there would be."""
        sides: dict[int, dict[str, int]] = {}
        for rank in range(shown):
            for op in timeline.operations(rank):
                operation = timeline.record.operations[op]
                if operation.kind in ("send", "recv"):
                    sides.setdefault(operation.match, {})[operation.kind] = op
        pairs = [(ends["send"], ends["recv"]) for ends in sides.values() if len(ends) == 2]
        pairs.sort(key=lambda pair: (timeline.begin[pair[0]], pair))
        return [
            f'<path class="arrow" marker-end="url(#tip)" d="M{self.x(timeline.begin[send]):.2f} '
            f'{self.middle[send]:g} {self.x(timeline.end[send]):.2f} {self.middle[recv]:g}"/>'
            for send, recv in pairs[:MAX_ARROWS]
        ], max(0, len(pairs) - MAX_ARROWS)


def _family(operation: Operation) -> str:
    return operation.kind if operation.kind in ("send", "recv") else "collective"


def _legend() -> list[str]:
    parts, x = [], LEFT
    for kind, text in (
        ("compute", "computes"),
        ("wait", "waits"),
        ("send", "sends"),
        ("recv", "receives"),
        ("collective", "collective"),
    ):
        parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="58" width="14" height="10" rx="1.5"/>'
            f'<text class="text" x="{x + 19:.1f}" y="67">{text}</text>'
        )
        x += 44 + 6.6 * len(text)
    return parts


def _axis(span: float, bottom: float) -> list[str]:
    """Grid lines at round times and their labels under the last lane, all in one unit."""
    rough = span / 8
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    unit, factor = _unit(span)
    digits = max(0, -math.floor(math.log10(step / factor) + 1e-9))
    lines = []
    for i in range(int(span / step * 1.0001) + 1):
        x = LEFT + i * step * (WIDTH - LEFT - RIGHT) / span
        lines.append(f'<path class="grid" d="M{x:.2f} {TOP - 6:g}V{bottom - 4:g}"/>')
        lines.append(
            f'<text class="faint middle" x="{x:.2f}" y="{bottom + 12:g}">'
            f"{i * step / factor:.{digits}f} {unit}</text>"
        )
    return lines
