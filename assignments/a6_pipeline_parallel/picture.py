"""Given: a timeline as a picture, in the colours of the DualPipe figure, or as text."""

from __future__ import annotations

from html import escape

from .schedule import Action, Overlapped, Step, actions_of
from .timeline import Timeline

__all__ = ["to_svg", "to_terminal"]

#: Fill colours: forward, whole backward, backward for input, backward for weights.
COLOURS = {"F": "#f5b942", "B": "#5fb35f", "I": "#58c4c4", "W": "#5b8fd6"}
_WORDS = {
    "F": "forward",
    "B": "backward",
    "I": "backward for input",
    "W": "backward for weights",
}
_ROW, _LEFT, _TOP, _UNIT = 26, 70, 46, 24
# Of the terminal: black on yellow, green, cyan, blue.
_ANSI = {"F": "\x1b[30;43m", "B": "\x1b[30;42m", "I": "\x1b[30;46m", "W": "\x1b[30;44m"}


def to_svg(timeline: Timeline, title: str = "") -> str:
    """The timeline as an SVG document: one row per rank, time to the right.

    A cell shows its micro-batch; chunks of the upper half of the stages are drawn in a paler tone
    when a rank holds several. An overlapped pair is cut along its diagonal. Pointing at a cell
    shows its step and times.
    """
    unit = _UNIT / min((_shortest(timeline)), 1.0)
    width = _LEFT + timeline.makespan * unit + 20
    height = _TOP + _ROW * len(timeline.schedule) + 40
    pale = _paler_stages(timeline)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<text x="10" y="18" font-size="13">{escape(title)}</text>',
        f'<text x="10" y="35">{escape(_summary(timeline))}</text>',
    ]
    for rank, steps in enumerate(timeline.schedule):
        y = _TOP + _ROW * rank
        out.append(f'<text x="10" y="{y + 17}">rank {rank}</text>')
        for index, step in enumerate(steps):
            begin, end = timeline.begin[rank][index], timeline.end[rank][index]
            x, w = _LEFT + begin * unit, (end - begin) * unit
            out.append(f"<g><title>{step}: {begin:g} … {end:g}</title>")
            out += _cell(step, x, y, w, pale)
            out.append("</g>")
    y, x = _TOP + _ROW * len(timeline.schedule) + 12, float(_LEFT)
    kinds = {action.kind for steps in timeline.schedule for s in steps for action in actions_of(s)}
    for kind in (k for k in COLOURS if k in kinds):
        out.append(f'<rect x="{x:.0f}" y="{y}" width="14" height="14" fill="{COLOURS[kind]}"/>')
        out.append(f'<text x="{x + 19:.0f}" y="{y + 11}">{_WORDS[kind]}</text>')
        x += 45 + 6 * len(_WORDS[kind])
    return "\n".join([*out, "</svg>", ""])


def to_terminal(timeline: Timeline, colour: bool = False) -> str:
    """The timeline as text: one line per rank, as many characters as a step takes time.

    F3 is a forward of micro-batch 3, F3B1 a pair. When a rank holds several stages, an apostrophe
    marks those of the upper half: F3'. With ``colour`` the cells have the colours of the picture.
    """
    pale = _paler_stages(timeline)
    labels = [[_label(step, pale) for step in steps] for steps in timeline.schedule]
    # Wide enough for every label in its time.
    per_unit = 1.0
    for rank, texts in enumerate(labels):
        for index, text in enumerate(texts):
            seconds = timeline.end[rank][index] - timeline.begin[rank][index]
            per_unit = max(per_unit, (len(text) + 1) / seconds if seconds > 0 else 0.0)
    margin = len(f"rank {len(labels) - 1} ")
    lines = [_summary(timeline)]
    for rank, texts in enumerate(labels):
        line, column = f"rank {rank}".ljust(margin), 0
        for index, text in enumerate(texts):
            begin = round(timeline.begin[rank][index] * per_unit)
            end = round(timeline.end[rank][index] * per_unit)
            line += "." * (begin - column)
            cell = text.ljust(end - begin)
            if colour:
                cell = f"{_ANSI[text[0]]}{cell[:-1]}\x1b[0m{cell[-1:]}"
            line += cell
            column = end
        lines.append((line + "." * (round(timeline.makespan * per_unit) - column)).rstrip())
    return "\n".join(lines)


def _summary(timeline: Timeline) -> str:
    peaks = sorted(set(timeline.peaks))
    text = f"{peaks[0]}" if len(peaks) == 1 else " ".join(map(str, timeline.peaks))
    costs = " ".join(
        f"{n}={v:g}" for n, v in zip(("F", "I", "W", "FB"), timeline.costs, strict=True)
    )
    return (
        f"makespan {timeline.makespan:g}, bubble {timeline.bubble:g}, peak activations {text} "
        f"({costs})"
    )


def _shortest(timeline: Timeline) -> float:
    times = [timeline.costs.of(step) for steps in timeline.schedule for step in steps]
    return min((time for time in times if time > 0), default=1.0)


def _paler_stages(timeline: Timeline) -> int:
    """The first stage of the upper half if ranks hold several stages, else past the last."""
    last = several = 0
    for steps in timeline.schedule:
        stages = {action.stage for step in steps for action in actions_of(step)}
        last = max([last, *stages])
        several |= len(stages) > 1
    return (last + 2) // 2 if several else last + 1


def _label(step: Step, pale: int) -> str:
    return "".join(
        f"{a.kind}{a.microbatch}{chr(39) if a.stage >= pale else ''}" for a in actions_of(step)
    )


def _cell(step: Step, x: float, y: int, w: float, pale: int) -> list[str]:
    h = _ROW - 2
    box = f'x="{x:.2f}" y="{y}" width="{w:.2f}" height="{h}" stroke="#333" stroke-width="0.6"'
    if not isinstance(step, Overlapped):
        return [f'<rect {box} fill="{_fill(step, pale)}"/>', _number(step, x + w / 2, y + 16)]
    return [
        f'<rect {box} fill="{_fill(step.backward, pale)}"/>',
        f'<polygon points="{x:.2f},{y} {x + w:.2f},{y} {x:.2f},{y + h}" '
        f'fill="{_fill(step.forward, pale)}"/>',
        _number(step.forward, x + w / 4, y + 12),
        _number(step.backward, x + 3 * w / 4, y + 20),
    ]


def _fill(action: Action, pale: int) -> str:
    colour = COLOURS[action.kind]
    if action.stage < pale:
        return colour
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{(part + 255) // 2:02x}" for part in parts)


def _number(action: Action, x: float, y: int) -> str:
    return f'<text x="{x:.2f}" y="{y}" text-anchor="middle">{action.microbatch}</text>'
