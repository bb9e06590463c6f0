"""Calls of assignment 1 that must be refused: with ValueError, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grader.checks.a1_cases import refusal
from grader.checks.causes import Case


def vectors(world: int = 3, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """One small tensor per rank."""
    return [torch.full((4,), rank + 1, dtype=dtype) for rank in range(world)]


def outside_the_group(root: str, *names: str, op: str | None = None) -> list[Case]:
    """Calls with a root that no rank of the group is: beyond the world, and beside the group."""
    cases = []
    for ranks, wrong in ((None, 7), ((2, 0), 1)):
        arguments = [dict.fromkeys(names, tensor) | {root: wrong} for tensor in vectors()]
        cases.append(refusal(f"{root}={wrong}", arguments, [root, str(wrong)], ranks=ranks, op=op))
    return cases


def root_lists(root: str, one: str, many: str) -> list[Case]:
    """Refusals of scatter and gather. Where only the root can see the fault, it is alone."""
    wrong = [{one: tensor, many: None, root: 7} for tensor in vectors()]
    own = vectors(1)[0]
    cases = [refusal(f"{root}=7", wrong, [root, "7"])]
    for label, given, names in (
        (
            "three tensors for one rank",
            [own.clone() for _ in range(3)],
            [many, "3|tensor(", "1|one"],
        ),
        ("no list on the root", None, [many, "None|0|no "]),
        ("another dtype", [own.double()], [many, "float64", "float32"]),
        ("another shape", [torch.zeros(6)], [many, "6", "4"]),
    ):
        cases.append(refusal(label, [{one: own, many: given, root: 0}], names))
    return cases


def wrong_operations(arguments: Callable[[torch.Tensor], dict[str, Any]]) -> list[Case]:
    """An operation that is none of the five, and AVG of integers."""
    floats, integers = vectors(), vectors(dtype=torch.int32)
    return [
        refusal("op BAND", [arguments(each) for each in integers], ["op", "BAND"], op="BAND"),
        refusal("AVG of int32", [arguments(each) for each in integers], ["AVG", "int"], op="AVG"),
        refusal("op BXOR", [arguments(each) for each in floats], ["op", "BXOR"], op="BXOR"),
    ]


def wrong_lists(many: str, one: str, op: str | None = None) -> list[Case]:
    """Lists of the wrong length, dtype and shape, on all ranks alike."""
    cases = []
    for label, given, names in (
        ("4 tensors for 3 ranks", vectors(4), [many, "4|tensor(", "3"]),
        ("another dtype", [each.double() for each in vectors()], [many, "float64", "float32"]),
        ("another shape", [torch.zeros(6) for _ in range(3)], [many, "6", "4"]),
    ):
        arguments = [{one: tensor, many: given} for tensor in vectors()]
        cases.append(refusal(label, arguments, names, op=op))
    return cases


def wrong_splits() -> list[Case]:
    """Split sizes of all_to_all_single that do not fit the tensors."""
    rows = torch.arange(12.0).view(6, 2)
    even = [2, 2, 2]

    def wrong(
        label: str, names: list[str], output: torch.Tensor, out: Any, input: Any, into: Any
    ) -> Case:
        arguments = {
            "output": output,
            "input": input,
            "output_split_sizes": out,
            "input_split_sizes": into,
        }
        return refusal(label, [arguments] * 3, names)

    room = torch.zeros(6, 2)
    cases = [
        wrong("input sizes too small", ["input", "3", "6"], room[:3], [1] * 3, rows, [1] * 3),
        wrong("output sizes too small", ["output", "3", "6"], room, [1] * 3, rows[:3], [1] * 3),
        wrong("four sizes", ["input", "4|[2, 2, 1, 1]", "3"], room, even, rows, [2, 2, 1, 1]),
        wrong("a negative size", ["output", "-1"], room, [5, 2, -1], rows, even),
        wrong("5 rows for 3 ranks", ["input", "5", "3"], room[:3], None, rows[:5], None),
        wrong("another dtype", ["output", "float64", "float32"], room.double(), even, rows, even),
    ]
    return cases


def wrong_servers() -> list[Case]:
    """Servers that are no rank of the group, and wrong operations."""
    cases = wrong_operations(lambda tensor: {"tensor": tensor})
    for server in (3, -4):
        arguments = [{"tensor": tensor, "server": server} for tensor in vectors()]
        names = ["server", str(server)]
        cases.append(refusal(f"server={server} of 3 ranks", arguments, names, op="SUM"))
    return cases


#: By function: makes the calls that it must refuse.
REFUSALS: dict[str, Callable[[], list[Case]]] = {
    "broadcast": lambda: outside_the_group("src", "tensor"),
    "scatter": lambda: root_lists("src", "output", "inputs"),
    "gather": lambda: root_lists("dst", "tensor", "outputs"),
    "reduce": lambda: (
        outside_the_group("dst", "tensor", op="SUM")
        + wrong_operations(lambda tensor: {"tensor": tensor, "dst": 0})
    ),
    "all_gather": lambda: wrong_lists("outputs", "tensor"),
    "reduce_scatter": lambda: (
        wrong_lists("inputs", "output", op="SUM")
        + wrong_operations(lambda tensor: {"output": tensor, "inputs": [tensor] * 3})
    ),
    "all_to_all_single": wrong_splits,
    "all_reduce_pairwise": lambda: wrong_operations(lambda tensor: {"tensor": tensor}),
    "all_reduce_parameter_server": wrong_servers,
}
