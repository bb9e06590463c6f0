"""The reference's Python on a GPU with its kernels and without: values, and times of both.

python -m bench.kernels_python
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import torch

import kernels
from reference.a2_ring_all_reduce.ring import fold
from reference.a3_data_parallel.adamw import FusedAdamW
from reference.a5_sequence_parallel.context_parallel import merge_attention
from reference.a5_sequence_parallel.norm import layer_norm

ROWS, HIDDEN = 8192, 4096
Values = list[torch.Tensor]


@dataclass(frozen=True)
class Work:
    """prepare(): what `run` does once, on fresh operands."""

    name: str
    prepare: Callable[[], Callable[[], Values]]


def works(device: str, dtype: torch.dtype, rows: int, hidden: int) -> list[Work]:
    """What is compared, on tensors of (rows, hidden)."""

    def normal(*shape: int, seed: int, kind: torch.dtype = dtype) -> torch.Tensor:
        made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        return made.to(device, kind)

    def folding() -> Callable[[], Values]:
        total, received = normal(rows, hidden, seed=0), normal(rows, hidden, seed=1)

        def run() -> Values:
            fold(total, received, torch.distributed.ReduceOp.SUM)
            return [total]

        return run

    def stepping() -> Callable[[], Values]:
        parameter = torch.nn.Parameter(normal(rows, hidden, seed=0))
        parameter.grad = normal(rows, hidden, seed=1)
        optimizer = FusedAdamW([parameter])

        def run() -> Values:
            optimizer.step()
            return [parameter.detach()]

        return run

    def merging() -> Callable[[], Values]:
        outs = [normal(rows, hidden, seed=seed) for seed in range(2)]
        lses = [normal(rows, seed=seed, kind=torch.float32) for seed in range(2, 4)]
        return lambda: list(merge_attention(outs[0], lses[0], outs[1], lses[1]))

    def norming() -> Callable[[], Values]:
        leaves = [normal(*s, seed=i) for i, s in enumerate(((rows, hidden), (hidden,), (hidden,)))]
        x, weight, bias = (leaf.requires_grad_() for leaf in leaves)
        upstream = normal(rows, hidden, seed=3)

        def run() -> Values:
            out = layer_norm(x, weight, bias)
            return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]

        return run

    return [
        Work("a2 fold", folding),
        Work("a3 FusedAdamW.step", stepping),
        Work("a5 merge_attention", merging),
        Work("a5 layer_norm, there and back", norming),
    ]


def without() -> mock._patch[object]:
    """Inside it no kernel is used."""
    return mock.patch.object(kernels, "usable", lambda *_: None)


def difference(work: Work) -> float:
    """The largest between both ways, relative to the largest number of its tensor."""
    ours = [value.double() for value in work.prepare()()]
    with without():
        torchs = [value.double() for value in work.prepare()()]
    return max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, torchs, strict=True)
    )


def limit(dtype: torch.dtype, rows: int) -> float:
    """What roundings may come to: sums over rows in float32, and a few of the results."""
    return rows * torch.finfo(torch.float32).eps + 4 * torch.finfo(dtype).eps


def seconds(work: Work, repeats: int = 21) -> float:
    """Median time of a run on the GPU; the first two warm up."""
    run, taken = work.prepare(), []
    for _ in range(repeats + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1e-3)
    return statistics.median(taken[2:])


def main() -> None:
    """Print one line for each function and dtype, or why there is none. Exits on wrong values."""
    if (problem := kernels.cuda_problem()) is not None:
        print(f"not run: {problem}")
        return
    for dtype in (torch.float32, torch.bfloat16):
        for work in works("cuda", dtype, ROWS, HIDDEN):
            apart, fast = difference(work), seconds(work)
            with without():
                slow = seconds(work)
            name = f"{work.name}, {str(dtype).removeprefix('torch.')}"
            print(f"{name:42} {fast * 1e6:9.1f} µs, {slow / fast:5.2f} × torch's operations, "
                  f"{apart:.1e} apart")  # fmt: skip
            if not apart <= limit(dtype, ROWS):
                raise SystemExit(f"{name}: values differ by more than rounding")


if __name__ == "__main__":
    main()
