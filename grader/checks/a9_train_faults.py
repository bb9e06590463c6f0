"""Wrong losses of `train`: which fault gives just these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from grader.checks.a9_train_model import (
    Fault,
    Layout,
    batch,
    curve,
    initial,
    is_sharded,
    loss_of,
)


def is_near(a: float, b: float, bound: float) -> bool:
    """Equal to `bound`, relative to numbers above 1."""
    return abs(a - b) <= bound * max(abs(b), 1.0)


def why_other_curve(
    losses: list[float],
    layout: Layout,
    config: dict[str, Any],
    text: torch.Tensor,
    first: int,
    bound: float,
    faults: Sequence[Fault],
    cause: str | None,
    step: int,
) -> str | None:
    """Why the losses are other ones than one device's, from `step` on. cause: if nothing fits."""
    # Adam hardly minds how large a gradient is: a wrong curve is known by its last digits only.
    close = bound / 100 if bound < 1e-8 else bound
    for fault in (*faults, *usual_faults(layout, config)):
        wrong = curve(config, text, fault)[0][first:]
        if all(is_near(a, b, close) for a, b in zip(losses, wrong, strict=True)):
            return fault.cause
    if _are_of_replicas(losses, layout, config, text, first, close):
        return (
            "gradients are not averaged over the dp replicas: each trains a model of its own, on "
            "its own sequences"
        )
    if cause is not None:
        return cause
    if step == 0 and first == 0:
        return _of_first_loss(losses[0], layout, config, text, bound)
    return _by_layout(layout, config)


def _are_of_replicas(
    losses: list[float],
    layout: Layout,
    config: dict[str, Any],
    text: torch.Tensor,
    first: int,
    bound: float,
) -> bool:
    """Whether they are the means over models that were trained apart, each on its share."""
    if layout.dp == 1:
        return False
    shares = [Fault("", share=(part, layout.dp)) for part in range(layout.dp)]
    curves = [curve(config, text, each)[0][first:] for each in shares]
    means = [sum(each) / layout.dp for each in zip(*curves, strict=True)]
    return all(is_near(a, b, bound) for a, b in zip(losses, means, strict=True))


def _of_first_loss(
    loss: float, layout: Layout, config: dict[str, Any], text: torch.Tensor, bound: float
) -> str:
    """Why the loss may be wrong before anything was trained."""
    dp, seed = layout.dp, config["seed"]
    whole = first_loss(config, text, [(seed, 0)])
    if is_near(loss * config["microbatches"], whole, bound):
        return "the loss is divided by the number of micro-batches twice"
    for draws in ([(seed, r) for r in range(dp)], [(seed + r, 0) for r in range(dp)]):
        shares = (first_loss(config, text, draws, parts) for parts in (1, dp))
        if dp > 1 and any(is_near(loss, each, bound) for each in shares):
            return (
                "every dp replica draws a batch of its own: all must take their shares of the same "
                "one, batch_of_step(text, config, step)"
            )
    if layout.ranks == 1:
        return (
            "the loss before the first update is wrong already: layers must be those of "
            "build_layer(config, number), sequences those of batch_of_step(text, config, step)"
        )
    if layout.ranks == dp and layout.ep == 1:
        return (
            "the loss before the first update is wrong already, and no layer is cut: so the "
            "sequences are wrong. Replica r of dp must take the r-th of dp equal shares of "
            "batch_of_step(text, config, step)"
        )
    if dp == 1:
        return (
            "the loss before the first update is wrong already: the model is another one than on "
            "one device (a layer, its number, or how it is cut)"
        )
    return (
        "the loss before the first update is wrong already: the model is another one than on one "
        "device, or the replicas have the wrong sequences"
    )


def first_loss(
    config: dict[str, Any], text: torch.Tensor, draws: Sequence[tuple[int, int]], parts: int = 1
) -> float:
    """Mean of the first losses of replicas. draws: (seed, step) of each one's batch.

    parts: into how many shares each cuts it, to take its own.
    """
    weights, total = initial(config), 0.0
    for replica, (seed, step) in enumerate(draws):
        x, y = batch(text, config | {"seed": seed}, step)
        x, y = (each.chunk(parts, 1)[replica % parts] for each in (x, y))
        total += float(loss_of(weights, config, x, y)) / len(draws)
    return total


def usual_faults(layout: Layout, config: dict[str, Any]) -> list[Fault]:
    """What people get wrong in such a layout."""
    dp, m, ep = layout.dp, config["microbatches"], layout.ep
    found = [
        Fault("the parameters are never updated", frozen=True),
        Fault("weight_decay does not reach the optimizer", decay=False),
        Fault("gradients of micro-batches are summed, not averaged", scale=float(m)),
        Fault("gradients are divided by the number of micro-batches twice", scale=1 / m),
    ]
    if layout.sp and layout.tp > 1:
        found.append(Fault(HEAD_TWICE, body_scale=float(layout.tp)))
    if dp > 1:
        found += [
            Fault("gradients are summed over the dp replicas, not averaged", scale=float(dp)),
            Fault("gradients are averaged over the dp replicas twice", scale=1 / dp),
            Fault(experts_large(dp), expert_scale=float(dp)),
        ]
        for part in range(dp):
            share = f"share {part + 1} of {dp}"
            found += [
                Fault(
                    f"every dp replica trains on the same sequences: all losses are those of a run "
                    f"on {share} of each batch alone",
                    share=(part, dp),
                ),
                Fault(
                    f"the loss is one replica's, not the mean over all: training itself is right, "
                    f"but what is returned is the loss of {share} of each batch",
                    report=(part, dp),
                ),
            ]
    if ep > 1:
        found += [
            Fault(experts_large(ep), expert_scale=float(ep)),
            Fault("the experts' gradients are divided too often", expert_scale=1 / ep),
            Fault("the experts' gradients are divided too often", expert_scale=1 / dp),
        ]
    return found


HEAD_TWICE = (
    "with sequence parallelism the gradient that comes back from the head is summed over tp twice: "
    "by the column-parallel layer, and behind gather_from_sequence_parallel"
)


def experts_large(factor: int) -> str:
    """The experts' gradients lack a division by `factor`."""
    return (
        f"the experts' gradients are too large, by the factor {factor}: an expert gets the tokens "
        f"of ep replicas, each with the mean loss of its own, so the sum must be divided"
    )


def _by_layout(layout: Layout, config: dict[str, Any]) -> str | None:
    if layout.tp > 1 and layout.sp:
        return (
            "with sequence parallelism the ranks of tp see different tokens: the gradients of what "
            "they all hold (norms, biases) must be summed over tp"
        )
    if layout.tp > 1:
        return (
            "what the ranks of tp hold alike (norms, positions, biases) becomes different, or the "
            "gradient of a shard is wrong"
        )
    if layout.ep > 1 or config["experts"]:
        return "the gradients of experts or router are not those of all tokens"
    if layout.pp > 1:
        return "a stage's gradients are not those of all micro-batches"
    if layout.dp > 1:
        return "the gradients are not the mean over the dp replicas"
    return None


# Norms -------------------------------------------------------------------------------------------

UNCLIPPED = "the gradient is never clipped: max_norm has no effect"
PART_OF_NORM = (
    "every rank clips by the norm of a part of the model, perhaps of what it holds itself: squares "
    "must be summed over tp, pp and ep"
)


def norm_faults(layout: Layout, config: dict[str, Any]) -> list[Fault]:
    """Ways to clip by another norm than the whole model's."""
    dp, tp, ep = layout.dp, layout.tp, layout.ep

    def counts(replicas: bool, alike: float) -> Callable[[str], float]:
        def count(name: str) -> float:
            times = (dp / ep if ".experts." in name else dp) if replicas else 1.0
            return times if is_sharded(name) else times * alike

        return count

    found = [Fault(UNCLIPPED, clip=False)]
    if tp > 1:
        found += [
            Fault(
                "the norm is too large: what all tp ranks hold (norms, some biases) is counted "
                "once for each of them, and must count once",
                counts=counts(False, tp),
            ),
            Fault(
                "the norm is too small: what all tp ranks hold (norms, some biases) is left out",
                counts=counts(False, 0.0),
            ),
        ]
    if dp > 1:
        found.append(
            Fault(
                "the norm is too large: the dp replicas have the same gradients, and all of them "
                "are counted",
                counts=counts(True, 1.0),
            )
        )
    if dp > 1 and tp > 1:
        found.append(
            Fault(
                "the norm is too large: what several ranks hold, over dp and over tp, is counted "
                "once for each of them, and must count once",
                counts=counts(True, tp),
            )
        )
    for cut in range(1, config["layers"] + 2) if layout.pp == 2 else ():
        found.append(
            Fault(
                "each stage clips by the norm of its own layers: squares must be summed over pp",
                apart=_stage_of(cut),
            )
        )
    return found


def _stage_of(cut: int) -> Callable[[str], int]:
    return lambda name: int(int(name.split(".")[0]) >= cut)


#: A dimension -> why the norm may be wrong when it is the only one.
NORM_OVER = {
    "dp": "the dp replicas have the same gradients, which must count once",
    "tp": (
        "the squares of shards must be summed over tp, and what all tp ranks hold must count once"
    ),
    "pp": "every stage's squares must be summed over pp",
    "ep": "the squares of the experts must be summed over ep, all others must count once",
}
