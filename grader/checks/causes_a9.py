"""Likely causes of what goes wrong in assignment 9's planning half."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from grader.fabric.record import Operation

PRODUCT = "not checked: the product of tp, cp, pp and dp must be world_size"
EXPERT_GROUPS = "not checked: ep must divide dp·cp"
SIZES = "not checked: every size must be at least 1"
WORLD = "not checked: world_size must be the number of ranks"
MAX_NORM = "not checked: max_norm must be above 0"
BATCH_TOKENS = "not checked: batch_tokens must be whole sequences, at least one"
STUMBLED = "the error comes from code that stumbled over the argument, not from a check"
NO_NUMBERS = "a message must name the numbers that do not fit, so that one need not search"
NO_NORM = "the norm is not returned"
LOCAL_NORM = "each rank clips by the norm of its own shards"
LOCAL_FACTOR = (
    "the norm that is returned is right, but each rank scales by the norm of its own gradients: "
    "the factor must come from the norm of the whole model"
)

# build_mesh -------------------------------------------------------------------------------------


def missing_group(name: str) -> str:
    """Why a mesh may know no such group."""
    if name == "dp_cp":
        return (
            "the mesh that is returned does not know the group of dp and cp together: "
            'mesh["dp", "cp"]._flatten("dp_cp") makes it, and tells the root its name'
        )
    if name in ("ep", "edp"):
        return (
            f"the mesh that is returned does not know {name}: _unflatten alone does not tell the "
            f"root the names of its dimensions"
        )
    return "the dimension has no name, or none of size 1 is made"


def wrong_names(names: Sequence[str] | None) -> str | None:
    """Why a mesh may have other dimensions."""
    if names and sorted(names) == sorted(("pp", "dp", "cp", "tp")):
        return "the last dimension is the one with consecutive ranks: tp"
    if names and set(names) < {"pp", "dp", "cp", "tp"}:
        return "a dimension of size 1 is left out: the mesh must have all four"
    if names and {"ep", "edp"} & set(names):
        return "ep is a dimension of the mesh: it must not be one, its ranks are some of dp × cp"
    return None


def order_of(case: dict[str, int], groups: Sequence[Mapping[str, Any]]) -> tuple[str, ...] | None:
    """The order of dimensions, outermost first, that gives all groups. groups: by rank, by name."""
    for order in permutations(("pp", "dp", "cp", "tp")):
        inside = 1
        wrong = False
        for name in reversed(order):
            for rank, group in enumerate(groups):
                first = rank - rank // inside % case[name] * inside
                ranks = [first + inside * place for place in range(case[name])]
                wrong = wrong or group[name].get("ranks") != ranks
            inside *= case[name]
        if not wrong:
            return order
    return None


def wrong_group(
    case: dict[str, int],
    name: str,
    got: Sequence[int],
    expected: Sequence[int],
    order: Sequence[str] | None = None,
) -> str | None:
    """Why a group may hold other ranks. order: in which the dimensions are, outermost first."""
    if sorted(got) == sorted(expected):
        return "the ranks are right, their order is not"
    if name == "tp":
        return (
            "tensor-parallel neighbours have consecutive ranks: tp must be the innermost dimension"
        )
    if name in ("ep", "edp") and len(got) == len(expected):
        return (
            "the wrong ranks share the experts: neighbours must. Of the ranks of dp × cp, in their "
            "order, ep must be the inner part and edp the outer one"
        )
    if len(got) != len(expected):
        return f"the group has {len(got)} ranks, but {name} is {len(expected)} here"
    if order is not None:
        mine = ", ".join(each for each in reversed(order) if case[each] > 1)
        return f"from the inside out the dimensions are {mine}: they must be tp, cp, dp, pp"
    return "from the inside out the dimensions must be tp, cp, dp, pp"


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
        return LOCAL_FACTOR
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
    "gradients in fp32": "gradients are counted with 4 bytes: they are 16-bit, 2 bytes each",
    "no fp32 copy": (
        "8 bytes of optimizer states are counted: with Adam's fp32 copy of the weights, beside its "
        "two moments, they are 12 bytes"
    ),
    "one stage later": (
        "ZeRO's stages come one too late: zero=1 must divide the optimizer's states, 2 also the "
        "gradients, 3 also the weights"
    ),
    "nothing sharded": (
        "zero is ignored: ZeRO must divide by the number of devices that hold the same parameters"
    ),
    "everything sharded": (
        "ZeRO divides too much: stage 1 divides only the optimizer's states, stage 2 not the "
        "weights"
    ),
    "without cp": (
        "ZeRO divides by dp alone: the ranks of cp hold the same weights, too, so it must be dp·cp"
    ),
    "by all devices": ("ZeRO divides by all devices: only dp·cp of them hold the same parameters"),
    "experts as the rest": (
        "ZeRO divides experts by dp·cp, too: an expert's replicas are dp·cp/ep devices"
    ),
    "tp left out": "parameters are not divided by tp",
    "ep left out": "experts are not divided by ep",
    "pp left out": "all layers are counted: a stage has only its own",
    "rounded down": (
        "the layers of a stage are rounded down: the fullest stage has ⌈l/(pp·chunks)⌉ layers for "
        "each of its chunks"
    ),
    "no embedding": "the embedding is left out: the first stage holds it, too",
    "head on the first stage": (
        "the head is counted on the first stage: it is on the last, which is the first only where "
        "pp is 1"
    ),
    "no head": (
        "the head is left out: where it is not tied to the embedding it is a matrix of its own, "
        "and with pp = 1 it is on this device"
    ),
    "one micro-batch": (
        "one micro-batch is counted: a stage of 1F1B holds min(pp, micro_batches) of them at once"
    ),
    "all micro-batches": (
        "all micro-batches are counted: a stage of 1F1B holds only min(pp, micro_batches) at once"
    ),
    "pp micro-batches": (
        "pp micro-batches are counted, also where there are fewer: it is min(pp, micro_batches)"
    ),
    "as without chunks": (
        "chunks are ignored: interleaved, the first stage has min(pp·chunks + pp − 1, "
        "micro_batches·chunks) chunks in flight"
    ),
    "all layers": "the activations of all layers are counted: a device keeps those of its stage",
    "sp ignored": (
        "sequence_parallel is ignored: with it all that a layer keeps must be divided by tp, also "
        "10·S·h (norms, dropouts, inputs)"
    ),
    "sp always": (
        "10·S·h of a layer (norms, dropouts, inputs) are divided by tp: that is right only with "
        "sequence parallelism"
    ),
    "cp ignored": "cp is ignored: a device has s/cp tokens",
    "cp twice": (
        "the scores are divided by cp twice: each of the s/cp tokens has scores with all s tokens, "
        "so in 5as/h stands the whole s"
    ),
    "scores kept": ("the scores (5as/h) are counted: selective recomputation does not keep them"),
    "scores dropped": "the scores (5as/h) are left out: without recomputation they are kept, too",
    "micro-batch of one": "micro_batch is ignored: so many sequences are in a micro-batch",
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
        return (
            "products run at the peak of the data sheet: large ones reach only about two thirds of "
            "it"
        )
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
    plan: Mapping[str, Any],
    layers: int,
    got: str | None,
    expected: str | None,
    undivided: Sequence[str] = (),
) -> str | None:
    """Why a plan may be refused, or not, as it should not be. undivided: what cannot be divided."""
    if expected is None:
        uneven = got == "division" and layers % (plan["pp"] * plan["chunks"])
        return (
            "a plan whose stages have unequal numbers of layers is refused: layers need not be "
            "divided evenly"
            if uneven
            else None
        )
    if got is None and expected == "product":
        return "the product of the sizes is not compared with the devices"
    if got is None and expected == "batch":
        return "the sequences of a step are not compared with batch_tokens"
    if got is None and undivided:
        return f"{undivided[0]}: this is not checked"
    return "kinds are tried in the order product, division, batch, memory: the first that holds"


def own_memory(own: float | None, usable: float, memory: float) -> str:
    """Why a plan may be ranked that needs too much. own: bytes by the student's own function."""
    if own is not None and own <= usable:
        return f"memory_per_device says {own / 1e9:.1f} GB for this plan: that is too little"
    if own is not None and own <= memory:
        return (
            "what a plan needs is compared with cluster.memory: only cluster.usable_memory of it "
            "may be filled"
        )
    return "what a plan needs is not compared with cluster.usable_memory, nor with any limit"


def made_up(own: float | None, usable: float) -> str:
    """Why a plan may be refused for its memory, though it fits."""
    if own is not None and own > usable:
        return f"memory_per_device says {own / 1e9:.1f} GB for this plan: that is too much"
    return (
        "the refusal is made up: by its own memory_per_device the plan fits. A plan that fits must "
        "be ranked, however slow"
    )


def not_tried(best: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> str:
    """What of the better plan no plan in the student's own list of the same layout has."""
    layout = ("dp", "pp", "tp", "cp", "ep")
    same = [each for each in tried if all(each[name] == best[name] for name in layout)]
    if not same:
        return "with these sizes (dp, pp, tp, cp, ep) no plan is tried"
    rest = [name for name in best if name not in layout and name != "micro_batches"]
    lacking = [name for name in rest if best[name] not in {each[name] for each in same}]
    if lacking:
        words = " or ".join(f"{name}={best[name]}" for name in lacking)
        return f"no plan of these sizes (dp, pp, tp, cp, ep) is tried with {words}"
    return "each of these values is tried with these sizes, but not all together"
