"""Tokens/s of the capstone against one process, and against the same model under torch's DDP.

    python -m bench capstone            # on processes here, with gloo

Pairs of steps in turn (A B A B ...), all in one run; medians of the pairs' ratios, above 1 the
capstone is faster. On a machine with fewer cores than ranks no layout can win: what is seen then
is what a layout costs.
"""

from __future__ import annotations

from typing import Any

from tests.pipeline.gloo_world import run_world

MODEL = {
    "layers": 4, "hidden": 128, "heads": 4, "sequence": 128, "batch": 16, "microbatches": 2,
    "device": "cpu", "quiet": True, "steps": 1,
}  # fmt: skip
REPEATS = 7
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"dp": 2},
    {"pp": 2},
    {"tp": 2},
    {"tp": 2, "sp": True},
    {"dp": 2, "tp": 2, "sp": True},
    {"dp": 2, "ep": 2, "experts": 4},
)


def main() -> None:
    """Print one line per layout."""
    for layout in LAYOUTS:
        ranks = layout.get("dp", 1) * layout.get("pp", 1) * layout.get("tp", 1)
        given = {"config": MODEL | layout, "repeats": REPEATS, "ddp": layout == {"dp": 2}}
        found = run_world(ranks, "bench._capstone_ranks:compare", given, timeout=600)[0]
        label = ", ".join(f"{name} {value}" for name, value in layout.items())
        line = f"{label}: {found['tokens']:.0f} tokens/s, "
        line += f"{_ratio(found['one'])} of one process's {found['one_tokens']:.0f}"
        if "ddp" in found:
            line += f"; {_ratio(found['ddp'])} of torch's DDP's {found['ddp_tokens']:.0f}"
        print(f"{line}; losses differ by at most {found['difference']:.1e}")


def _ratio(found: list[float]) -> str:
    median, low, high = found
    return f"{median:.2f} ({low:.2f} ... {high:.2f})"


if __name__ == "__main__":
    main()
