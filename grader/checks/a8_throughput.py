"""How fast `dispatch` is, beside one all-to-all of the bytes that it must move."""

from __future__ import annotations

import numpy as np
import torch

from grader.checks.problems import first_difference, whole_numbers
from grader.checks.throughput import Plan, Problem, Throughput, Timed
from grader.harness.throughput import Inputs

RANKS, EXPERTS, K = 4, 8, 2
PLAN = Plan(floor=0.2, full=0.35)
#: Tokens of a rank, a multiple of the 56 ordered pairs of different experts; hidden.
SHAPES = {"cpu": (1008, 512), "cuda": (8064, 4096)}
BASELINE = 2  # what the baseline's driver writes into the buffer "by"

Expected = list[dict[str, torch.Tensor]]


def problem(device: str = "cpu") -> Timed:
    """Tokens whose two experts are drawn so that every rank sends each other equally many.

    The baseline moves "pairs", the same rows already in the order of their ranks, to "moved".
    """
    tokens, hidden = SHAPES[device]
    per_rank = EXPERTS // RANKS
    ordered = torch.tensor([(a, b) for a in range(EXPERTS) for b in range(EXPERTS) if a != b])
    drawn = ordered.repeat(tokens // len(ordered), 1)
    to_one = int((drawn // per_rank == 0).any(1).sum())  # pairs from one rank to one other
    rows = tokens * K
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "tokens": ((tokens, hidden), torch.float32),
        "indices": ((tokens, K), torch.int64),
        "pairs": ((RANKS * to_one, hidden), torch.float32),
        "rows": ((rows, hidden), torch.float32),
        "counts": ((per_rank,), torch.int64),
        "moved": ((RANKS * to_one, hidden), torch.float32),
        "by": ((1,), torch.int64),
    }

    def make(rng: np.random.Generator) -> Inputs:
        made = []
        for _ in range(RANKS):
            x = whole_numbers(rng, tokens * hidden).view(tokens, hidden)
            indices = drawn[torch.from_numpy(rng.permutation(tokens))]
            going = [(indices // per_rank == rank).any(1) for rank in range(RANKS)]
            pairs = torch.cat([x[here] for here in going])
            made.append({"tokens": x, "indices": indices, "pairs": pairs})
        return made

    def expect(inputs: Inputs) -> Expected:
        found = []
        for rank in range(RANKS):
            by_expert = [
                inputs[source]["tokens"][(inputs[source]["indices"] == expert).any(1)]
                for expert in range(rank * per_rank, (rank + 1) * per_rank)
                for source in range(RANKS)
            ]
            arrived = [each["pairs"].chunk(RANKS)[rank] for each in inputs]
            found.append({"rows": torch.cat(by_expert), "moved": torch.cat(arrived)})
        return found

    def differs(expected: Expected, tensors: Inputs) -> str | None:
        for rank, buffers in enumerate(tensors):
            name = "moved" if int(buffers["by"]) == BASELINE else "rows"
            difference = first_difference(buffers[name], expected[rank][name])
            if difference is not None:
                return f"rank {rank}: {name}: {difference}"
            if name == "rows" and buffers["counts"].tolist() != [rows // per_rank] * per_rank:
                return f"rank {rank}: expert_counts are {buffers['counts'].tolist()}"
        return None

    least = RANKS * (RANKS - 1) * to_one * hidden * torch.float32.itemsize
    return Timed(
        Problem(layout=shapes, make=make, expect=expect, differs=differs, least_nbytes=least),
        [{"experts": EXPERTS, "by": BASELINE}] * RANKS,
    )


def keeps_up(throughput: Throughput) -> None:
    """Judge `dispatch` against `all_to_all_single`."""
    throughput.judge(
        "a8.dispatch",
        "timed_experts:dispatched",
        "timed_experts:library",
        problem(throughput.device),
        PLAN,
        baseline_name="one all_to_all_single of the same bytes",
    )
