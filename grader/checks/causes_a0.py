"""Likely causes of what goes wrong in assignment 0."""

from __future__ import annotations

from collections.abc import Sequence

#: What may be true of a case -> what it means when just such cases fail. Narrow ones first.
TRAITS = {
    "empty": "right for all sizes but none: an empty message still pays latency",
    "no hops": "right over hops, wrong without any",
    "one rank": "right for several ranks, wrong for one, which costs nothing",
    "not a power of two, halving": (
        "right for powers of two, wrong for other numbers of ranks: those beyond the largest power "
        "of two need a message before and one after"
    ),
    "not a power of two, tree": (
        "right for powers of two, wrong for other numbers of ranks: a tree of n ranks has "
        "⌈log₂ n⌉ levels, a whole number"
    ),
    "not a power of two": "right for powers of two, wrong for other numbers of ranks",
    "rest": "right where chunks divide the message, wrong where the last one is shorter",
    "larger chunk": "right for chunks smaller than the message, wrong for larger ones",
    "slow first": "right where the first hop is not the slowest, wrong where it is",
    "slow last": "right where the last hop is not the slowest, wrong where it is",
    "ansi": "right without colours, wrong with the ANSI codes that drivers put around the header",
    "crlf": "right with \\n, wrong with \\r\\n line ends",
    "preamble": "right where the text begins with the header, wrong after other lines",
    "columns": "right for cells parted by tabs, wrong for columns of blanks",
    "tabs": "right for columns of blanks, wrong for cells parted by tabs",
    "no numa column": "right with a NUMA column, wrong without",
    "gpu numa id": "right without the column GPU NUMA ID, wrong with it",
    "no nic rows": "right where NICs have rows, wrong where they only have columns",
    "old nic names": "right for NIC0, NIC1, …, wrong for old drivers' mlx5_0, mlx5_1, …",
    "no legend": "right where legends follow the matrix, wrong where none does",
    "wrapped": "right for rows of one line, wrong where they are wrapped into several",
    "glued": "right for a row per line, wrong where two stand in one line",
    "list": "right for one range of numbers, wrong for lists such as 0-23,48-71",
    "N/A": "right for numbers, wrong for N/A",
    "one gpu": "right for several GPUs, wrong for a single one",
    "two digits": "right for GPU0 to GPU9, wrong for GPU10 and more",
    "few cores": "right where cores suffice, wrong for fewer cores than ranks",
    "uneven cores": "right where the ranks divide the cores, wrong where they do not",
    "interleaved": (
        "right where neighbouring ranks share cores, wrong where the ranks that share them are not "
        "next to each other"
    ),
    "not all gpus": "right with a rank on every GPU, wrong with fewer ranks",
    "gap": "right for GPUs numbered without gaps, wrong where numbers are missing",
    "gamma": "right without the cost of adding, wrong with it",
    "side of 2": "right for sides above 2, wrong for a side of 2 (one link, not two)",
    "side of 1": "right for sides above 1, wrong for a side of 1 (no link)",
}


def common_trait(failed: Sequence[frozenset[str]], passed: Sequence[frozenset[str]]) -> str | None:
    """What the first of `TRAITS` means that all failed cases have, and none that passed."""
    if not passed:
        return None
    shared = frozenset.intersection(*failed) - frozenset().union(*passed)
    return next((TRAITS[trait] for trait in TRAITS if trait in shared), None)
