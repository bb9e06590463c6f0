"""The cases of `all_to_all_single`: who sends how many rows to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader.checks.a1_cases import (
    SPECS,
    Spec,
    expect_equal,
    expect_unchanged,
    filler,
    label_of,
    random_tensor,
    traits_of,
)
from grader.checks.causes import Case

Rows = Sequence[Sequence[int]]

OWN_SLICE = "this part was never written: the own slice is not copied"
EVEN = [[2, 2, 2], [2, 2, 2], [2, 2, 2]]
UNEVEN = [[1, 2, 3], [4, 2, 1], [2, 5, 3]]
UNEVEN_FOUR = [[1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 1, 5], [1, 1, 6, 2]]
ONE_IDLE = [[0, 0, 0], [2, 0, 3], [1, 0, 2]]  # rank 0 has nothing, rank 1 gets nothing
ALL_TO_ONE = [[0, 0, 5, 0], [0, 0, 3, 0], [0, 0, 4, 0], [0, 0, 0, 0]]
NOTHING = [[0, 0], [0, 0]]


def all_to_all(
    rng: torch.Generator,
    world: int,
    ranks: Sequence[int] | None,
    spec: Spec,
    rows: Rows,
    columns: tuple[int, ...] = (),
    splits: bool = True,
) -> Case:
    """rows[i][j] rows go from group rank i to j. splits: pass the sizes, else None."""
    members = list(range(world) if ranks is None else ranks)
    size = len(members)
    inputs = {
        rank: random_tensor(rng, spec, (sum(rows[place]), *columns))
        for place, rank in enumerate(members)
    }
    arriving = [[rows[i][j] for i in range(size)] for j in range(size)]
    expected = {
        rank: torch.cat(
            [torch.split(inputs[members[i]], list(rows[i]))[place] for i in range(size)]
        )
        for place, rank in enumerate(members)
    }
    outputs = {
        rank: filler(random_tensor(rng, spec, tuple(want.shape))) for rank, want in expected.items()
    }

    def judge(answers: list[Any]) -> None:
        for rank, want in expected.items():
            got = answers[rank]["arguments"]["output"]
            missing = [(outputs[rank], "nothing was written into `output`")]
            gap = torch.split(want.clone(), arriving[members.index(rank)])
            gap[members.index(rank)].copy_(filler(gap[members.index(rank)]))
            missing.append((torch.cat(gap), OWN_SLICE))
            expect_equal(got, want, f"rank {rank}", missing)
            after = answers[rank]["arguments"]["input"]
            cause = "`input` must not be written to"
            expect_unchanged(after, inputs[rank], "input", f"rank {rank}", cause)

    arguments = []
    for rank in range(world):
        place = members.index(rank) if rank in members else 0
        mine = members[place]
        arguments.append(
            {
                "output": outputs[mine],
                "input": inputs[mine],
                "output_split_sizes": arriving[place] if splits else None,
                "input_split_sizes": list(rows[place]) if splits else None,
            }
        )
    empty = any(count == 0 for row in rows for count in row)
    more = ["split sizes"] * splits + ["several columns"] * bool(columns) + ["empty"] * empty
    shape = (sum(map(sum, rows)), *columns)
    traits = traits_of((spec[0], shape, spec[2]), size, ranks, *more)
    label = label_of((spec[0], shape, spec[2]), world, ranks, f"rows {[list(r) for r in rows]}")
    width = torch.Size(columns).numel()
    needs = {
        rank: {members[i] for i in range(size) if rows[i][place] * width}
        for place, rank in enumerate(members)
    }
    return Case(label, arguments, judge, ranks=ranks, traits=traits, needs=needs)


def usual_cases(rng: torch.Generator) -> list[Case]:
    """Even and uneven slices of every form, all of them with rows."""
    return [
        all_to_all(rng, 3, None, SPECS[0], EVEN, splits=False),
        all_to_all(rng, 3, None, SPECS[3], EVEN, (4,), splits=False),
        all_to_all(rng, 3, None, SPECS[0], UNEVEN),
        all_to_all(rng, 3, None, SPECS[1], UNEVEN, (3,)),
        all_to_all(rng, 3, None, SPECS[2], UNEVEN, (5,)),
        all_to_all(rng, 4, None, SPECS[0], UNEVEN_FOUR),
        all_to_all(rng, 4, None, SPECS[9], UNEVEN_FOUR, (2, 3)),
        all_to_all(rng, 4, None, SPECS[4], UNEVEN_FOUR),
        all_to_all(rng, 3, None, SPECS[7], UNEVEN),
        all_to_all(rng, 8, None, SPECS[0], [[1 + (i * j) % 3 for j in range(8)] for i in range(8)]),
    ]


def empty_cases(rng: torch.Generator) -> list[Case]:
    """Slices without rows, ranks that have or get nothing, no rows at all."""
    return [
        all_to_all(rng, 3, None, SPECS[0], ONE_IDLE),
        all_to_all(rng, 3, None, SPECS[1], ONE_IDLE, (4,)),
        all_to_all(rng, 4, None, SPECS[0], ALL_TO_ONE, (2,)),
        all_to_all(rng, 2, None, SPECS[0], NOTHING),
        all_to_all(rng, 2, None, SPECS[0], NOTHING, (3,), splits=False),
    ]


def group_cases(rng: torch.Generator) -> list[Case]:
    """Sub-groups of permuted ranks, and a rank alone."""
    return [
        all_to_all(rng, 1, None, SPECS[0], [[3]]),
        all_to_all(rng, 1, None, SPECS[2], [[3]], (2,), splits=False),
        all_to_all(rng, 6, (4, 1, 2), SPECS[0], UNEVEN),
        all_to_all(rng, 6, (4, 1, 2), SPECS[1], ONE_IDLE, (2,)),
        all_to_all(rng, 6, (5, 0, 3, 2), SPECS[0], UNEVEN_FOUR),
        all_to_all(rng, 6, (2,), SPECS[0], [[2]]),
    ]
