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
    raise NotImplementedError("a6.partition_layers")
