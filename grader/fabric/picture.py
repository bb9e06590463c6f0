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

MAX_LANES = 32
MAX_ARROWS = 600
#: Bars and gaps narrower than this many units of the picture are merged, so files stay small.
MIN_BAR = 0.25
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
