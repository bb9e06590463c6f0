"""Cutting a stack of layers into stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise


def partition_layers(costs: Sequence[float], stages: int) -> list[tuple[int, int]]:
    """Cut layers into stages so that the most expensive stage is as cheap as can be.

    A pipeline runs at the pace of its slowest stage.

    Args:
        costs: time of each layer, >= 0, in any unit.
        stages: how many stages; each gets at least one layer.

    Returns:
        (begin, end) of each stage, end exclusive, in order; together they cover all layers.

    Raises:
        ValueError: there are more stages than layers, no stage, or a cost that is negative or no
            finite number.
    """
    # BEGIN SOLUTION
    layers = len(costs)
    if not 1 <= stages <= layers:
        raise ValueError(f"stages={stages}: expected 1 … {layers}, one for each of {layers} layers")
    for layer, cost in enumerate(costs):
        if not 0 <= cost < float("inf"):
            raise ValueError(f"costs[{layer}]={cost}: expected a finite number >= 0")
    before = [0.0, *accumulate(costs)]
    # best[k][j]: the largest stage of the best cut of the first j layers into k + 1 stages.
    best = [before[1:]]
    cuts: list[list[int]] = []
    for stage in range(1, stages):
        row, cut = [float("inf")] * layers, [0] * layers
        for last in range(stage, layers):
            for first in range(last, stage - 1, -1):
                own = before[last + 1] - before[first]
                largest = max(best[-1][first - 1], own)
                if largest < row[last]:
                    row[last], cut[last] = largest, first
                if own > row[last]:
                    break  # a longer last stage only gets more expensive
        best.append(row)
        cuts.append(cut)
    ends = [layers]
    for cut in reversed(cuts):
        ends.append(cut[ends[-1] - 1])
    bounds = [0, *reversed(ends)]
    return list(pairwise(bounds))
    # END SOLUTION
