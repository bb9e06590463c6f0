"""From a wrong number of assignments 4 and 5 to its likely cause, in one line."""

from __future__ import annotations

from typing import Any

import torch

from grader.checks import a4_dense as dense
from grader.checks.a4_cases import CUTS, LayerCase, Step, share

Suspects = list[tuple[torch.Tensor, str]]

NOT_CUT = "this parameter was not cut: every rank keeps the whole of it"
IN_PLACE = "an operation in place works on what the caller passed: work on a copy"
INDEX_NOT_REFUSED = "the range of the indices is not checked"
A_VIEW = "the shard is a view: the whole weight stays in memory behind it"
NOT_REFUSED = "a size that cannot be cut into equal parts loses its remainder silently"
NO_REDUCE_BACKWARD = (
    "the rank's own part of the gradient only: f is missing before the layer (all-reduce backward)"
)
NOT_MASKED = "rows of other ranks' indices are not set to zero before the sum"
OWN_TOKENS = (
    "the gradient of this rank's tokens only: of a replicated parameter the ranks' are summed"
)
NO_REDUCE_FORWARD = "the rank's own part of the sum only: g is missing after the layer"


def partial(case: LayerCase, wanted: Step, number: int, place: int) -> tuple[Any, Any] | None:
    """(output without the whole bias, input gradient) through one rank's shards alone."""
    if case.layer not in ("column", "row", "mlp", "attention") or case.masks is not None:
        return None
    options = dict(case.spec["options"])
    size = case.size
    if case.layer == "attention":
        options["head_dim"] = options.get("head_dim") or options["hidden"] // options["heads"]
        options["heads"] //= size
        options["kv_heads"] = (options.get("kv_heads") or case.spec["options"]["heads"]) // size
    cuts = CUTS[case.layer]
    state = {
        name: case.shard(name, value, place)
        for name, value in wanted.before.items()
        if name in cuts or case.layer == "column"
    }
    x = case.xs[number]
    if case.layer == "row":
        x = share(x, -1, place, size)
    x = x.clone().requires_grad_()
    output = dense.forward({"kind": case.spec["kind"], "options": options}, state, x)
    gradient = case.gradients[number]
    if case.layer == "column":
        gradient = share(gradient, -1, place, size)
    output.backward(gradient)  # type: ignore[no-untyped-call]
    return output.detach(), x.grad


def of_output(case: LayerCase, wanted: Step, number: int, place: int) -> Suspects:
    """Wrong outputs that people get."""
    size, whole = case.size, wanted.output
    suspects: Suspects = []
    if size == 1:
        return suspects
    if case.leaves is not None:
        suspects.append((whole, "the whole output came back, not this rank's share"))
        for other in range(size):
            taken = share(whole, case.leaves, other, size)
            suspects.append((taken, f"the share of group rank {other}, not of group rank {place}"))
    alone = partial(case, wanted, number, place)
    if alone is not None and case.leaves is None:
        suspects.append((alone[0], NO_REDUCE_FORWARD))
    bias_name = {"row": "bias", "mlp": "down.bias", "attention": "output.bias"}.get(case.layer)
    if bias_name in wanted.before:
        bias = wanted.before[bias_name]
        suspects += [
            (whole + (size - 1) * bias, "the bias is added on every rank before the sum"),
            (whole - bias, "the bias was left out"),
        ]
        if alone is not None:
            suspects.append((alone[0] + bias, NO_REDUCE_FORWARD))
    if case.layer == "embedding":
        weight = wanted.before["weight"]
        rows = share(weight, 0, place, size)
        index = case.xs[number]
        local = index - place * len(rows)
        here = (local >= 0) & (local < len(rows))
        mine = rows[local.clamp(0, len(rows) - 1)] * here.unsqueeze(-1)
        suspects.append((mine, NO_REDUCE_FORWARD))
        for clamp in (True, False):
            total = torch.zeros_like(whole)
            for other in range(size):
                table = share(weight, 0, other, size)
                at = index - other * len(table)
                inside = (at >= 0) & (at < len(table))
                at = at.clamp(0, len(table) - 1) if clamp else at.masked_fill(~inside, 0)
                total += table[at]
            suspects.append(
                (total, "rows of other ranks' indices are not set to zero before the sum")
            )
    return suspects


def of_input_gradient(case: LayerCase, wanted: Step, number: int, place: int) -> Suspects:
    """Wrong gradients of the input that people get."""
    gradient, size = wanted.input_gradient, case.size
    if gradient is None or size == 1:
        return []
    own = share(gradient, case.enters, place, size)
    suspects: Suspects = []
    alone = partial(case, wanted, number, place)
    if alone is not None and case.layer in ("column", "mlp", "attention"):
        suspects.append((alone[1], NO_REDUCE_BACKWARD))
    suspects += [
        (own * size, "the gradient is summed over ranks that all have it already"),
        (own / size, "the gradient is averaged: the ranks hold parts of one sum"),
    ]
    if case.layer == "row" and case.enters is None:
        zeros = torch.zeros_like(gradient)
        width = gradient.shape[-1] // size
        zeros[..., place * width : (place + 1) * width] = share(gradient, -1, place, size)
        suspects.append((zeros, "only this rank's share of the gradient: the others' are missing"))
    return suspects


def of_gradient(
    case: LayerCase, wanted: Step, number: int, name: str, gradient: torch.Tensor, place: int
) -> Suspects:
    """Wrong gradients of a parameter that people get. gradient: the whole one."""
    size = case.size
    if size == 1:
        return []
    own = case.shard(name, gradient, place)
    suspects: Suspects = [
        (own * size, "the gradient is summed over ranks that all have it already"),
        (own / size, "the gradient is averaged: the ranks hold parts of one sum"),
        (gradient, NOT_CUT),
    ]
    of_tokens = _of_own_tokens(case, wanted, number, name, place)
    if of_tokens is not None:
        suspects.insert(0, (of_tokens, OWN_TOKENS))
    return suspects


def _of_own_tokens(
    case: LayerCase, wanted: Step, number: int, name: str, place: int
) -> torch.Tensor | None:
    """The part of a gradient that a rank's own tokens make, where that is easily told."""
    if case.enters != 0:
        return None
    upstream = share(case.gradients[number], 0, place, case.size)
    if name == "mlp.down.bias":
        return upstream.sum((0, 1)) if not case.spec["options"]["dropout"] else None
    if case.layer != "norm":
        return None
    state = {n: v.clone().requires_grad_() for n, v in wanted.before.items()}
    x = share(case.xs[number], 0, place, case.size)
    (found,) = torch.autograd.grad(dense.forward(case.spec, state, x), state[name], upstream)
    return found
