"""What runs on every rank of a real world: the layer, beside one device that has all tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from reference.a8_expert_parallel.dispatch import dispatch
from reference.a8_expert_parallel.given import Expert, Gate
from reference.a8_expert_parallel.layer import ExpertParallelMoE
from reference.a8_expert_parallel.router import top_k_router

HIDDEN = 6


def errors(rank: int, cases: list[dict[str, Any]]) -> list[float]:
    """By case (experts, k, counts of tokens by rank): the largest error of values and gradients."""
    return [_error(rank, **case) for case in cases]


def _error(rank: int, experts: int, k: int, counts: list[int]) -> float:
    torch.manual_seed(5)
    size = dist.get_world_size()
    models = [Expert(HIDDEN, 8).double() for _ in range(experts)]
    gate = Gate(HIDDEN, experts, partial(top_k_router, k=k)).double()
    xs = [torch.randn(count, HIDDEN, dtype=torch.float64) for count in counts]
    upstream = [torch.randn_like(x) for x in xs]

    whole = torch.cat(xs).requires_grad_()
    weights, indices = gate(whole)
    total = torch.zeros_like(whole)
    for number, model in enumerate(models):
        share = torch.where(indices == number, weights, 0.0).sum(1, keepdim=True)
        total = total + share * model(whole)
    trained = [gate.weight, *(p for model in models for p in model.parameters())]
    wanted = torch.autograd.grad(total, [whole, *trained], torch.cat(upstream))

    each = experts // size
    own = models[rank * each : (rank + 1) * each]
    x = xs[rank].clone().requires_grad_()
    layer = ExpertParallelMoE(own, gate)
    output = layer(x)
    output.backward(upstream[rank])
    assert gate.weight.grad is not None
    dist.all_reduce(gate.weight.grad)
    gradient_of = dict(zip(map(id, trained), wanted[1:], strict=True))
    pairs = [
        (output, total.split(counts)[rank]),
        (x.grad, wanted[0].split(counts)[rank]),
        *((p.grad, gradient_of[id(p)]) for p in layer.parameters()),
    ]
    return max(
        (float((a - b).abs().max()) for a, b in pairs if a is not None and a.numel()), default=0.0
    )


def refusal(rank: int, index: int) -> str:
    """What `dispatch` says when rank 1 has a wrong index; the others do not call it."""
    if rank != 1:
        return ""
    try:
        dispatch(torch.zeros(2, 3), torch.tensor([[0], [index]]), 2 * dist.get_world_size())
    except ValueError as error:
        return str(error)
    return "went through"
