"""Given: how many tokens each expert gets, as a picture or as bars of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["load_bars", "load_svg"]

_HEIGHT, _LEFT, _TOP, _BAR = 160, 50, 44, 14
_ABOVE, _BELOW = "#d9734e", "#5b8fd6"


def load_bars(counts: Sequence[int], width: int = 40) -> str:
    """Bars of text, a line for each expert; ``|`` is the mean.

    counts: of all experts, as ``torch.bincount(indices.flatten(), minlength=E).tolist()``.
    """
    largest, mean = max([*counts, 1]), _mean(counts)
    lines = []
    for expert, count in enumerate(counts):
        bar = list("█" * round(width * count / largest)) + [" "] * (width + 1)
        bar[round(width * mean / largest)] = "|"
        lines.append(f"expert {expert:>3} {''.join(bar[: width + 1])} {count}")
    return "\n".join([*lines, _summary(counts)])


def load_svg(loads: Mapping[str, Sequence[int]], title: str = "") -> str:
    """Bars as an SVG document: a panel for each of the loads, by name, at one scale.

    The dashed line is the mean; experts above it are drawn in another colour. Pointing at a bar
    shows its number.
    """
    largest = max((count for counts in loads.values() for count in [*counts, 1]), default=1)
    experts = max((len(counts) for counts in loads.values()), default=0)
    panel = _HEIGHT + 56
    width, height = max(_LEFT + _BAR * experts + 30, 480), _TOP + panel * len(loads)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="18" font-size="13">{escape(title)}</text>',
    ]
    for number, (name, counts) in enumerate(loads.items()):
        floor = _TOP + panel * number + _HEIGHT + 16
        out.append(
            f'<text x="{_LEFT}" y="{floor - _HEIGHT - 8}">{escape(name)}: {_summary(counts)}</text>'
        )
        mean = _mean(counts)
        for expert, count in enumerate(counts):
            tall = _HEIGHT * count / largest
            colour = _ABOVE if count > mean else _BELOW
            x = _LEFT + _BAR * expert
            out.append(
                f'<g><title>expert {expert}: {count}</title><rect x="{x}" y="{floor - tall:.1f}" '
                f'width="{_BAR - 3}" height="{tall:.1f}" fill="{colour}"/></g>'
            )
            if expert % 4 == 0:
                out.append(f'<text x="{x}" y="{floor + 13}">{expert}</text>')
        level, right = floor - _HEIGHT * mean / largest, _LEFT + _BAR * len(counts)
        out.append(
            f'<line x1="{_LEFT}" y1="{level:.1f}" x2="{right}" y2="{level:.1f}" stroke="black" '
            f'stroke-dasharray="4 3"/>'
        )
        out.append(f'<text x="8" y="{level + 4:.1f}">{mean:g}</text>')
    return "\n".join([*out, "</svg>", ""])


def _mean(counts: Sequence[int]) -> float:
    return sum(counts) / max(len(counts), 1)


def _summary(counts: Sequence[int]) -> str:
    mean = _mean(counts)
    largest = max(counts, default=0)
    ratio = f", {largest / mean:.2f} × the mean" if mean else ""
    return f"mean {mean:g}, largest {largest}{ratio}"
