"""From wrong choices, weights and loads to their likely cause, in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from grader.checks.causes_a8 import CUT_OFF as CUT_OFF

Suspects = list[tuple[torch.Tensor, str]]

TIES = (
    "ties are broken by chance: torch.topk promises no order among equal logits, a stable sort does"
)
ROUNDED = (
    "the choice is made by probabilities that are rounded to 16 bits, where different logits give "
    "equal ones: choose by the logits, or by a softmax in float32"
)


def of_choice(logits: torch.Tensor, indices: torch.Tensor) -> Suspects:
    """Wrong choices of top_k_router."""
    k = indices.shape[1]
    late = logits.flip(1).sort(dim=1, descending=True, stable=True).indices[:, :k]
    return [
        (indices.sort(1).values, "ordered by index, not by falling weight"),
        (indices.flip(1), "ordered by rising weight"),
        (logits.shape[1] - 1 - late, "of equal logits the higher index is taken, not the lower"),
        (
            logits.sort(dim=1, stable=True).indices[:, :k],
            "the smallest logits are taken, not the largest",
        ),
    ]


def why_other_choice(logits: torch.Tensor, got: object, indices: torch.Tensor) -> str | None:
    """Why other indices came: ties, when the logits chosen are the same numbers."""
    if (
        not isinstance(got, torch.Tensor)
        or got.shape != indices.shape
        or got.dtype != indices.dtype
    ):
        return None
    if got.numel() == 0 or int(got.min()) < 0 or int(got.max()) >= logits.shape[1]:
        return None
    if torch.equal(logits.gather(1, got), logits.gather(1, indices)):
        return TIES
    rounded = logits.softmax(1)
    if torch.equal(rounded.gather(1, got), rounded.gather(1, indices)):
        return ROUNDED
    return None


def of_weights(logits: torch.Tensor, indices: torch.Tensor, normalize: bool) -> Suspects:
    """Wrong weights of top_k_router."""
    plain = logits.softmax(1).gather(1, indices)
    sums = plain / plain.sum(1, keepdim=True)
    found: Suspects = [
        (logits.gather(1, indices), "the logits came back, not their softmax"),
        (logits.sigmoid().gather(1, indices), "a sigmoid of the logits, not their softmax"),
        (torch.softmax(plain, 1), "a softmax of the softmax"),
    ]
    if normalize:
        found.insert(0, (plain, "the weights are not normalized: a token's do not sum to 1"))
    else:
        found.insert(0, (sums, "normalize=False was not looked at: the weights sum to 1"))
    return found


def of_logits_gradient(
    logits: torch.Tensor, indices: torch.Tensor, upstream: torch.Tensor, normalize: bool
) -> Suspects:
    """Wrong gradients through top_k_router."""
    found: Suspects = [(torch.zeros_like(logits), "no gradient arrives: it is all zeros")]
    leaf = logits.clone().requires_grad_()
    plain = leaf.softmax(1).gather(1, indices)
    if normalize:
        fixed = plain / plain.detach().sum(1, keepdim=True)
        (part,) = torch.autograd.grad(fixed, leaf, upstream)
        found.append((part, "the sum in the denominator is detached: it needs its gradient, too"))
    return found


def of_loss(probabilities: torch.Tensor, indices: torch.Tensor) -> Suspects:
    """Wrong auxiliary losses."""
    experts, k = probabilities.shape[1], indices.shape[1]
    tokens = max(len(indices), 1)
    counts = torch.bincount(indices.flatten(), minlength=experts).double()
    first = torch.bincount(indices[:, 0], minlength=experts).double() / tokens
    means = probabilities.sum(0) / tokens
    right = counts / (tokens * k)
    return [
        (experts * (first * means).sum(), "only the first choice counts in f, not all k"),
        (
            experts * (right * means).sum() * k,
            "f is divided by the tokens alone, and sums to k: divide by all k · tokens choices, so "
            "that it sums to 1",
        ),
        ((right * means).sum(), "the factor E is missing"),
        ((right * means).mean(), "a mean over experts, where E times the sum is meant"),
        (experts * (counts * means).sum(), "f is a count, not a share"),
        (experts * (right * probabilities.sum(0)).sum(), "P is a sum, not the mean over tokens"),
        (experts * (means * means).sum(), "f is taken from the probabilities, not from the choice"),
    ]


def of_loss_gradient(
    probabilities: torch.Tensor, indices: torch.Tensor, upstream: torch.Tensor
) -> Suspects:
    """Wrong gradients of the auxiliary loss."""
    experts = probabilities.shape[1]
    shares = torch.bincount(indices.flatten(), minlength=experts).double() / indices.numel()
    each = (experts * shares * upstream).expand_as(probabilities)
    chosen = torch.zeros_like(probabilities).scatter(1, indices, 1.0)
    return [
        (torch.zeros_like(probabilities), "no gradient arrives: it is all zeros"),
        (each, "the gradient is not divided by the number of tokens"),
        (each / len(indices) * chosen, "only the chosen experts' probabilities get a gradient"),
    ]


def of_kept(indices: torch.Tensor, weights: torch.Tensor, experts: int, factor: float) -> Suspects:
    """Wrong choices of apply_capacity."""
    tokens, k = indices.shape
    valid = indices >= 0
    exact = tokens * k / experts * factor
    capacity = math.ceil(exact)
    by_choice = [(t, c) for c in range(k) for t in range(tokens)]
    by_token = [(t, c) for t in range(tokens) for c in range(k)]
    heaviest = sorted(by_choice, key=lambda place: -float(weights[place]))

    def fill(
        order: Sequence[tuple[int, int]], most: int, dropped_count: bool = False
    ) -> torch.Tensor:
        taken = [0] * (experts + 1)
        kept = torch.zeros(tokens, k, dtype=torch.bool)
        for place in order:
            expert = int(indices[place])
            if taken[expert] < most and (expert >= 0 or dropped_count):
                taken[expert] += 1
                kept[place] = True
        return kept

    return [
        (
            fill(by_token, capacity),
            "filled token by token: first choices of all tokens come before second ones",
        ),
        (
            fill(heaviest, capacity),
            "filled by weight, the largest first: it must go by choices, first ones before second "
            "ones, and among these by tokens",
        ),
        (fill(by_choice[::-1], capacity), "filled from the end"),
        (fill(by_choice, math.floor(exact)), "the capacity is rounded down, not up"),
        (fill(by_choice, round(exact)), "the capacity is rounded to the nearest, not up"),
        (
            fill(by_choice, math.floor(exact) + 1),
            f"the capacity is {math.floor(exact) + 1}, one too large: {exact:g} is a whole number, "
            f"and must stay what it is",
        ),
        (
            fill(by_choice, math.ceil(tokens / experts * factor)),
            "the capacity lacks the factor k: every token has k assignments",
        ),
        (
            torch.cat([fill_column(indices[:, c], experts, capacity) for c in range(k)], 1)
            if k
            else valid,
            "each choice has a capacity of its own: an expert's places are shared by all choices",
        ),
        (valid, "nothing is dropped"),
        (torch.ones_like(valid), "nothing is dropped, not even what was dropped before"),
        (
            fill(by_choice, capacity, True),
            "choices of -1 are kept: they have been dropped before, and must stay False",
        ),
        (~fill(by_choice, capacity), "True where dropped, not where kept"),
    ]


def fill_column(experts_of: torch.Tensor, experts: int, most: int) -> torch.Tensor:
    """(tokens, 1), kept assignments of one choice alone."""
    taken = [0] * experts
    kept = torch.zeros(len(experts_of), 1, dtype=torch.bool)
    for token, expert in enumerate(experts_of.tolist()):
        if expert >= 0 and taken[expert] < most:
            taken[expert] += 1
            kept[token] = True
    return kept


def of_biased_choice(logits: torch.Tensor, bias: torch.Tensor, k: int) -> Suspects:
    """Wrong choices of BiasBalancedRouter, sorted by index."""

    def chosen(scores: torch.Tensor) -> torch.Tensor:
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        return order.sort(1).values

    probabilities = logits.softmax(1)
    return [
        (chosen(probabilities), "the bias is not in the choice"),
        (chosen(logits + bias), "the bias is added to the logits, not to their softmax"),
        (chosen(probabilities - bias), "the bias is subtracted"),
        (chosen(logits.sigmoid() + bias), "scores are a sigmoid of the logits, not their softmax"),
    ]


def of_biased_weights(logits: torch.Tensor, bias: torch.Tensor, indices: torch.Tensor) -> Suspects:
    """Wrong weights of BiasBalancedRouter for the experts of `indices`."""
    plain = logits.softmax(1).gather(1, indices)
    leaked = (logits.softmax(1) + bias).gather(1, indices)
    inside = (logits + bias).softmax(1).gather(1, indices)
    leak = (
        "the bias leaks into the weights: they must come from the softmax alone, the bias is for "
        "the choice only"
    )
    return [
        (leaked / leaked.sum(1, keepdim=True), leak),
        (leaked, leak),
        (inside / inside.sum(1, keepdim=True), leak),
        (inside, leak),
        (plain, "the weights are not normalized: a token's do not sum to 1"),
    ]


def of_update(
    before: torch.Tensor, counts: Sequence[torch.Tensor], place: int, gamma: float
) -> Suspects:
    """Wrong biases after an update."""
    total = torch.stack(list(counts)).sum(0)
    experts = len(before)
    excess = total * experts - total.sum()
    own = counts[place] * experts - counts[place].sum()
    up_at_mean = torch.where(excess > 0, -gamma, gamma).double()
    down_at_mean = torch.where(excess >= 0, -gamma, gamma).double()
    share = excess.double() / max(int(total.sum()), 1)
    at = "an expert whose load is just the mean is moved; its bias must stay"
    why_other_step = (
        "the bias moves in proportion to the load: it must move by exactly gamma, up or down"
    )
    return [
        (before + gamma * excess.sign(), "moved the wrong way: a loaded expert gains"),
        (
            before - gamma * own.sign(),
            "this rank's counts only: they must be summed over the group",
        ),
        (before + up_at_mean, at),
        (before + down_at_mean, at),
        (before - gamma * share, why_other_step),
        (before - gamma * excess.double(), why_other_step),
        (before, "nothing was moved"),
    ]
