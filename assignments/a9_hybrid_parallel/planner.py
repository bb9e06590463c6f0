"""What a plan needs and what it takes: bytes of a device, seconds of a step, the best plan.

Sources: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", 2021; Korthikanti et al., "Reducing activation recomputation in large transformer
models", 2022; Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
models", 2020; Thakur, Rabenseifner and Gropp, 2005 (rings).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .given import (
    RECOMPUTATIONS,
    Cluster,
    Memory,
    Model,
    Plan,
    Ranked,
    Ranking,
    Refused,
    StepTime,
)


def memory_per_device(model: Model, plan: Plan) -> Memory:
    """Bytes that `plan` needs on a device of the first pipeline stage, by part.

    Parameters of the device: L = ⌈l/(pp·chunks)⌉·chunks layers (l at most), those with experts
    first; the embedding; the head, too, where pp is 1; all of it divided by tp, experts by ep, too.
    16-bit weights and gradients, 2 bytes each; 12 bytes of Adam's states. ZeRO stage 1 divides the
    states by the number of devices that hold the same parameters (dp·cp; dp·cp/ep for experts),
    stage 2 the gradients, too, and stage 3 the weights, too.

    Activations: of every micro-batch in flight, each layer keeps with S = micro_batch·s/cp tokens
    S·h·(10 + 24/t + 5as/(ht)) bytes, with sequence parallelism (S·h/t)·(34 + 5as/h), without the
    terms of 5as for selective recomputation; 2·S·h for full. In flight are min(pp, micro_batches)
    micro-batches of L layers, or, interleaved, min(pp·chunks + pp − 1, micro_batches·chunks) chunks
    of L/chunks layers.

    Asks nothing else of the plan: whether it can be divided so is `plan`'s question.

    Source: Rajbhandari et al. 2020, section 5; Korthikanti et al. 2022, sections 4 and 5.
    """
    raise NotImplementedError("a9.memory_per_device")


def step_time(model: Model, plan: Plan, cluster: Cluster) -> float:
    """Seconds of a training step: all micro-batches of `plan`, and the optimizer.

    Counts computation, at a rate that falls with the size of the shards; recomputation; the bubble;
    the traffic of every dimension over the links on which the order of ranks puts it (tp innermost,
    then cp, dp, pp); what of it hides behind computation.

    Returns:
        Seconds, above 0. A `StepTime` is a float that also carries where the seconds go and what
        is sent: optional, `grader plan` prints it.

    Judged on published measurements, to 15 % and 30 %, and by laws that hold of any right model:
    the handout lists them. Plans are taken as they are.

    Source: Narayanan et al. 2021, sections 2 and 3.
    """
    raise NotImplementedError("a9.step_time")


def plan(
    model: Model,
    cluster: Cluster,
    batch_tokens: int,
    candidates: Iterable[Plan] | None = None,
) -> Ranking:
    """The plans that train `batch_tokens` tokens a step on the whole cluster, best first.

    Args:
        batch_tokens: of a step; a multiple of the model's sequence.
        candidates: the plans to judge; None: all that you find worth trying. Of every layout (dp,
            pp, tp, cp, and ep for a model with experts, whose product is the number of devices) at
            least one plan must then be judged.

    Returns:
        `Ranking(best, refused)`: each candidate once, in one of them. `best`: those that fit, by
        rising `step_time`. `refused`: the others, each with the first of these kinds that holds:
        "product": dp·cp·pp·tp is not the number of devices; "division": tp does not divide heads,
        heads of keys and values, the columns of the MLP or of an expert, or cp the sequence, or
        (with sequence parallelism) tp its share, or ep the experts (1 where there are none) or
        dp·cp; pp·chunks are more than the layers; chunks above 1 where pp is 1 or does not divide
        the micro-batches; "batch": dp·micro_batch·micro_batches sequences are not the tokens asked
        for; "memory": `memory_per_device` says more than `cluster.usable_memory`. The reason holds
        the numbers that do not fit; for "memory" both, in GB with one decimal.

    100,000 candidates take less than 20 s.

    Raises:
        ValueError: `batch_tokens` is no multiple of the sequence, or below it.

    Source: Narayanan et al. 2021, section 3 (takeaways 1 to 3).
    """
    raise NotImplementedError("a9.plan")
