"""Likely causes of what goes wrong in assignment 9's planning half."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grader.fabric.record import Operation

UNCHECKED = "the argument is not checked"
STUMBLED = "the error comes from code that stumbled over the argument, not from a check"
NO_NUMBERS = "a message must name the numbers that do not fit, so that one need not search"
NO_NORM = "the norm is not returned"
LOCAL_NORM = "each rank clips by the norm of its own shards"

# build_mesh -------------------------------------------------------------------------------------


def missing_group(name: str) -> str:
    """Why a mesh may know no such group."""
    if name in ("dp_cp", "ep", "edp"):
        return (
            'mesh["dp", "cp"]._flatten(name) makes a dimension known to the root; _unflatten alone '
            "does not"
        )
    return "the dimension has no name, or none of size 1 is made"


def wrong_names(names: Sequence[str] | None) -> str | None:
    """Why a mesh may have other dimensions."""
    if names and sorted(names) == sorted(("pp", "dp", "cp", "tp")):
        return "the last dimension is the one with consecutive ranks: tp"
    if names:
        return "a dimension of size 1 is left out, or ep is one of the root's: it lies in dp × cp"
    return None


def wrong_group(
    case: dict[str, int], name: str, got: Sequence[int], expected: Sequence[int]
) -> str | None:
    """Why a group may hold other ranks."""
    if sorted(got) == sorted(expected):
        return "the ranks are right, their order is not"
    if name == "tp":
        return "tensor-parallel neighbours have consecutive ranks: tp is the innermost dimension"
    if name in ("ep", "edp") and len(got) == len(expected):
        return (
            "experts are shared among neighbours: ep is the inner, edp the outer part of dp × cp "
            "within one stage and one place of tp"
        )
    if len(got) != len(expected):
        return f"the group has {len(got)} ranks, but {name} is {len(expected)} here"
    return "from the inside out the dimensions are tp, cp, dp, pp"


# clip_grad_norm ---------------------------------------------------------------------------------


def wrong_norm(got: float, squares: tuple[list[float], float], place: int) -> str | None:
    """Which other norm that is. squares: of each member's shards, and of what all have."""
    own, shared = squares
    members = len(own)
    for wrong, why in (
        (
            math.sqrt(sum(own) + members * shared),
            "replicated gradients are counted once for each rank",
        ),
        (math.sqrt(own[place] + shared), LOCAL_NORM),
        (
            sum(math.sqrt(each) for each in own) + math.sqrt(shared),
            "the root is taken before the sum: add squares up, then take the root",
        ),
        (
            sum(math.sqrt(each + shared) for each in own),
            "the root is taken before the sum: add squares up, then take the root",
        ),
        (
            math.sqrt(sum(own)) + math.sqrt(shared),
            "the norms of sharded and replicated gradients are added, not their squares",
        ),
        (math.sqrt(sum(own)), "replicated gradients are left out"),
        (sum(own) + shared, "the root is left out"),
        (
            math.sqrt(sum(own) / members + shared),
            "the shards' squares are averaged over the ranks, not summed",
        ),
    ):
        if wrong and abs(got - wrong) <= 1e-4 * wrong:
            return why
    exact = math.sqrt(sum(own) + shared)
    if exact and abs(got / exact - 1) < 0.05:
        return "the squares of 16-bit gradients are added up in 16 bits"
    return None


def wrong_factor(
    factor: float, max_norm: float, squares: tuple[list[float], float], place: int, name: str
) -> str | None:
    """Why a gradient may be multiplied by another factor."""
    own, shared = squares
    norm = math.sqrt(sum(own) + shared)
    right = min(1.0, max_norm / norm) if norm else 1.0
    local = min(1.0, max_norm / math.sqrt(own[place] + shared)) if own[place] + shared else 1.0

    def near(value: float) -> bool:
        return abs(factor - value) <= 1e-2 * abs(value)

    if near(1.0):
        return f"{name} gradients are not scaled"
    if norm < max_norm and factor > 1:
        return "gradients are scaled up: the factor is at most 1"
    if near(local) and not near(right):
        return LOCAL_NORM
    if near(right * right):
        return "gradients are scaled twice"
    return None


def sends_much(operations: Sequence[Operation]) -> str:
    """Why clipping may send more than a number."""
    if len(operations) > 1:
        return "one all-reduce for each gradient: add up the local squares first"
    return "the gradients themselves are sent: only their sum of squares is needed"


# memory_per_device ------------------------------------------------------------------------------

#: A change to the formula, as `a9_memory.expected` knows it -> what it means when it fits.
TWISTS = {
    "gradients in fp32": "gradients are 16-bit: 2 bytes each",
    "no fp32 copy": "Adam keeps an fp32 copy of the weights beside its two moments: 12 bytes",
    "two moments in 16 bits": "Adam's states are in fp32: 12 bytes a parameter, with the copy",
    "one stage later": (
        "ZeRO's stages: 1 divides the optimizer's states, 2 also gradients, 3 also weights"
    ),
    "nothing sharded": "ZeRO divides by the number of devices that hold the same parameters",
    "everything sharded": "ZeRO's stage 1 divides the states alone, stage 2 not the weights",
    "without cp": "context-parallel ranks hold the same weights: ZeRO divides by dp·cp",
    "by all devices": "ZeRO divides by the devices that hold the same parameters, not by all",
    "experts as the rest": "an expert's replicas are dp·cp/ep devices, not dp·cp",
    "tp left out": "every parameter is divided by tp",
    "ep left out": "experts are divided by ep",
    "pp left out": "a stage has its own layers only",
    "rounded down": "the fullest stage has ⌈l/(pp·chunks)⌉ layers for each of its chunks",
    "no embedding": "the first stage holds the embedding, too",
    "head on the first stage": "the head is on the last stage: the first has it only where pp is 1",
    "no head": "a head that is not the embedding is a matrix of its own, on the stage of pp = 1",
    "one micro-batch": "a stage of 1F1B holds several micro-batches: min(pp, micro_batches)",
    "all micro-batches": "1F1B holds min(pp, micro_batches) micro-batches, not all of them",
    "pp micro-batches": "where micro-batches are fewer than stages, no more are in flight",
    "as without chunks": "interleaved, the first stage has pp·chunks + pp − 1 chunks in flight",
    "all layers": "the activations of a device are those of its stage's layers",
    "sp ignored": "with sequence parallelism everything that a layer keeps is divided by tp",
    "sp always": (
        "without sequence parallelism 10·S·h of a layer are not divided by tp: norms, dropouts"
    ),
    "cp ignored": "a device has s/cp tokens",
    "cp twice": "scores are of s/cp tokens with all s: 5as/h keeps the whole sequence",
    "scores kept": "selective recomputation does not keep the scores' 5as/h",
    "scores dropped": "without recomputation the scores' 5as/h are kept, too",
    "micro-batch of one": "a micro-batch has micro_batch sequences",
}

# step_time --------------------------------------------------------------------------------------

CONSTANT_MFU = (
    "the time is that of one constant rate (MFU): communication does not count, nor the shard's "
    "size"
)


def off_by(ratio: float) -> str | None:
    """What a step time that is ratio times the published one may come from."""
    for factor, why in (
        (1000, "milliseconds"),
        (0.75, "recomputation is left out: full recomputation is a fourth pass beside three"),
        (1e-12, "TFLOP/s and FLOP/s are mixed up"),
    ):
        if abs(ratio / factor - 1) < 0.08:
            return why
    if ratio < 0.7:
        return "products do not run at the peak: large ones reach about two thirds of it"
    return None


def lacks(answer: dict[str, Any]) -> str:
    """A step time that is no number."""
    return f"returned {answer['type']}, expected seconds"


# plan -------------------------------------------------------------------------------------------

TOO_SLOW = (
    "too many candidates, or too much work for each: 100,000 take less than 20 s where what is "
    "cheap to refuse is refused first"
)
UNREFUSED = "a plan that cannot be is ranked"


def wrong_refusal(
    plan: dict[str, Any], got: str | None, expected: str | None, numbers: Sequence[Any]
) -> str | None:
    """Why a plan may be refused, or not, as it should not be."""
    if expected is None:
        return "the plan fits; layers need not be divided evenly" if got == "division" else None
    if got is None and expected == "memory":
        return "memory is not compared with cluster.usable_memory"
    if got is None and expected == "product":
        return "the product of the sizes is not compared with the devices"
    if got is None and expected == "batch":
        return "the sequences of a step are not compared with batch_tokens"
    if got is None:
        names = [name for name in ("tp", "cp", "ep", "chunks", "pp") if plan[name] > 1]
        return f"what {', '.join(names)} must divide is not looked at"
    return "kinds are tried in the order product, division, batch, memory: the first that holds"


def not_tried(first: dict[str, Any], best: dict[str, Any]) -> str:
    """What the better plan has that the student's own best one has not."""
    differs = [name for name in best if best[name] != first[name]]
    return f"not all of these are tried: {', '.join(differs)}"
