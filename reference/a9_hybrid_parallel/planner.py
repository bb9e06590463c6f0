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

# BEGIN SOLUTION
#: Bytes of a parameter, of its gradient, and of Adam's fp32 copy and two moments [ZeRO].
WEIGHT, GRADIENT, OPTIMIZER = 2, 2, 12

# The constants of `step_time`. Nothing else in it is fitted to anything.

#: The share of the peak that large products reach. Fitted to the eight rows of Megatron's Table 1.
LARGE_PRODUCT = 0.71

#: Rows, and columns, at which a product gets half of that: a tile of the kernels (128 × 128).
TILE = 128

#: How often what a layer keeps for backward crosses memory in forward: it is written, then read.
PASSES = 2

#: The share of what could hide behind computation that does, and the share of a network card that
#: a collective between nodes gets. Fitted to the ZeRO-3 rows of Megatron's Table 2, together; of
#: the pairs that fit alike, one that puts tp 8 before tp 4 for GPT-3, as Megatron found.
HIDDEN = 2 / 3
CARD = 3 / 4

#: The share of a card that the messages of two stages get. Two published figures say so: 892 GB/s
#: through the bisection of 48 pipelines (both directions) are 9.3 GB/s of 24; sending an eighth of
#: each activation (scatter, gather) gained up to 11 % on 175B, which is 8 GB/s.
PAIR = 1 / 3


def _stage_layers(model: Model, plan: Plan) -> int:
    """Layers on a device of the fullest stage, all its chunks together."""
    return min(model.layers, -(-model.layers // (plan.pp * plan.chunks)) * plan.chunks)


def _stage_parameters(model: Model, plan: Plan) -> tuple[float, float]:
    """Parameters of a device of the first stage, as full as any: (of no expert, of experts)."""
    layers = _stage_layers(model, plan)
    sparse = min(layers, model.moe_layers)
    dense = layers * model.attention_layer + (layers - sparse) * model.mlp + sparse * model.router
    dense += model.embedding + (model.head if plan.pp == 1 else 0)
    return dense / plan.tp, sparse * model.experts * model.expert / (plan.ep * plan.tp)


def _kept(model: Model, plan: Plan, recomputation: str) -> float:
    """Bytes that one layer keeps of one micro-batch [Korthikanti et al., table 2]."""
    cells = plan.micro_batch * model.sequence / plan.cp * model.hidden
    if recomputation == "full":
        return 2 * cells
    scores = 5 * model.heads * model.sequence / model.hidden
    cut = 24 + (0 if recomputation == "selective" else scores)
    return cells * ((10 + cut) / plan.tp if plan.sequence_parallel else 10 + cut / plan.tp)


# END SOLUTION


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
    # BEGIN SOLUTION
    weights = gradients = optimizer = 0.0
    dense, experts = _stage_parameters(model, plan)
    for parameters, replicas in ((dense, plan.replicas), (experts, plan.replicas / plan.ep)):
        weights += WEIGHT * parameters / (replicas if plan.zero >= 3 else 1)
        gradients += GRADIENT * parameters / (replicas if plan.zero >= 2 else 1)
        optimizer += OPTIMIZER * parameters / (replicas if plan.zero >= 1 else 1)
    p, v, m = plan.pp, plan.chunks, plan.micro_batches
    in_flight = min(p, m) if v == 1 else min(p * v + p - 1, m * v)
    layers = in_flight * _stage_layers(model, plan) / v
    return Memory(weights, gradients, optimizer, layers * _kept(model, plan, plan.recomputation))
    # END SOLUTION


# BEGIN SOLUTION
class _Link(NamedTuple):
    latency: float
    bandwidth: float


def _link(cluster: Cluster, span: int, share: float = CARD) -> _Link:
    """What ties ranks that lie among `span` consecutive ones; share: of a card, between nodes."""
    if cluster.devices_per_node % span == 0:
        return _Link(cluster.intra_latency, cluster.intra_bandwidth)
    return _Link(cluster.inter_latency, share * cluster.inter_bandwidth)


def _ring(ranks: int, nbytes: float, link: _Link) -> float:
    """Seconds of an all-gather or reduce-scatter of `nbytes` in all; an all-reduce is both."""
    return (ranks - 1) * (link.latency + nbytes / ranks / link.bandwidth)


def _rate(cluster: Cluster, rows: float, columns: float) -> float:
    """FLOP/s of products with so many rows and columns on a device."""
    share = rows / (rows + TILE) * columns / (columns + TILE)
    return cluster.flops * LARGE_PRODUCT * share


def _layer(model: Model, plan: Plan, cluster: Cluster, sparse: bool) -> tuple[float, float]:
    """Seconds that one layer computes in forward, for a micro-batch: (in all, scores alone)."""
    tokens, t = plan.micro_batch * model.sequence / plan.cp, plan.tp
    rate = _rate(cluster, tokens, model.hidden / t)
    matrices = model.attention_layer + (model.router if sparse else model.mlp)
    seconds = 2 * tokens * matrices / t / rate
    if sparse:
        rows = tokens * plan.ep * model.top_k / model.experts  # of an expert, from all its ranks
        narrow = _rate(cluster, rows, model.expert_hidden / t)
        seconds += 2 * tokens * model.top_k * model.expert / t / narrow
    scores = 4 * tokens * model.sequence * model.hidden / t / rate
    # What is computed selectively again never reaches memory, as in FlashAttention.
    through = "selective" if plan.recomputation == "selective" else "none"
    moved = PASSES * _kept(model, plan, through) / cluster.memory_bandwidth
    return seconds + scores + moved, scores


def _computation(model: Model, plan: Plan, cluster: Cluster) -> float:
    """Seconds that the slowest stage computes, forward and backward, for a micro-batch."""
    layers = _stage_layers(model, plan)
    sparse = min(layers, model.moe_layers)
    seconds = 0.0
    for count, experts in ((layers - sparse, False), (sparse, True)):
        if count:
            forward, scores = _layer(model, plan, cluster, experts)
            again = {"none": 0.0, "selective": scores, "full": forward}[plan.recomputation]
            seconds += count * (3 * forward + again)
    # The last stage makes the logits, on top of its layers unless it has one less than the others.
    tokens = plan.micro_batch * model.sequence / plan.cp
    rate = _rate(cluster, tokens, model.hidden / plan.tp)
    logits = 6 * tokens * model.hidden * model.vocab / plan.tp / rate
    spare = seconds / layers if model.layers % plan.pp else 0.0
    return seconds + max(0.0, logits - spare)


def _messages(model: Model, plan: Plan, cluster: Cluster) -> dict[str, tuple[float, float]]:
    """(seconds, bytes that a device sends) of a micro-batch on a stage, by dimension."""
    t, layers = plan.tp, _stage_layers(model, plan)
    again = 1 if plan.recomputation == "full" else 0
    activation = 2 * plan.micro_batch * model.sequence / plan.cp * model.hidden
    found = {}
    # f and g of Megatron: two all-reduces in forward, two in backward.
    calls = (4 + 2 * again) * layers
    found["tp"] = (
        calls * 2 * _ring(t, activation, _link(cluster, t)),
        calls * 2 * (t - 1) / t * activation,
    )
    # Keys and values go around the ring in forward; they and their gradients in backward.
    link, pair = _link(cluster, t * plan.cp), 2 * activation * model.key_value_share / t
    hops = (3 + again) * layers * (plan.cp - 1)
    found["cp"] = (hops * (link.latency + pair / link.bandwidth), hops * pair)
    # Dispatch and combine, and both in backward; a token goes to a rank once.
    link, ranks = _link(cluster, t * plan.ep), plan.ep
    copies = min(model.top_k, ranks) * (ranks - 1) / ranks
    nbytes = copies * activation / (t if plan.sequence_parallel else 1)
    calls = (4 + 2 * again) * min(layers, model.moe_layers) * (ranks > 1)
    found["ep"] = (calls * (link.latency + nbytes / link.bandwidth), calls * nbytes)
    # Activations to the next stage, gradients to the one before, scattered over tp.
    link, sends = _link(cluster, plan.devices, PAIR), 2 * plan.chunks * (plan.pp > 1)
    found["pp"] = (
        sends * (link.latency + activation / t / link.bandwidth),
        sends * activation / t,
    )
    return found


def _replicas(model: Model, plan: Plan, cluster: Cluster) -> tuple[float, float]:
    """(seconds, bytes sent) for gradients and weights among replicas, in a step."""
    link = _link(cluster, plan.tp * plan.replicas)
    # Ψ is gathered or reduced so often: 2Ψ in a step, 3Ψ for ZeRO-3, which keeps nothing whole
    # from one micro-batch to the next (nor does ZeRO-2 the gradients), and gathers by layers.
    times = {0: 2, 1: 2, 2: plan.micro_batches + 1, 3: 3 * plan.micro_batches}[plan.zero]
    calls = _stage_layers(model, plan) if plan.zero == 3 else 1
    dense, experts = _stage_parameters(model, plan)
    seconds = sent = 0.0
    for parameters, ranks in ((dense, plan.replicas), (experts, plan.replicas // plan.ep)):
        if parameters:
            nbytes = GRADIENT * parameters
            seconds += times * calls * _ring(ranks, nbytes / calls, link)
            sent += times * (ranks - 1) / ranks * nbytes
    return seconds, sent


def _exposed(traffic: float, computation: float) -> float:
    """What is left of traffic that has so much computation to hide behind."""
    return traffic - HIDDEN * min(traffic, computation)


# END SOLUTION


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
    # BEGIN SOLUTION
    m, bubble = plan.micro_batches, (plan.pp - 1) / plan.chunks
    computation = _computation(model, plan, cluster)
    messages = _messages(model, plan, cluster)
    # Stages wait for each other's messages; all other traffic may hide.
    beside = sum(seconds for name, (seconds, _) in messages.items() if name != "pp")
    exposed = _exposed(beside, computation)
    one = computation + exposed + messages["pp"][0]
    reduction, sent = _replicas(model, plan, cluster)
    backward = computation * (2 / 4 if plan.recomputation == "full" else 2 / 3)
    reduction = _exposed(reduction, m * computation if plan.zero >= 2 else backward)
    memory = memory_per_device(model, plan)
    states = memory.optimizer / OPTIMIZER * (WEIGHT + GRADIENT + OPTIMIZER)
    optimizer = 2 * states / cluster.memory_bandwidth  # read and written
    parts = {
        "compute": m * computation,
        "bubble": bubble * one,
        "tp+cp+ep": m * exposed,
        "pp": m * messages["pp"][0],
        "dp": reduction,
        "optimizer": optimizer,
    }
    traffic = {name: m * nbytes for name, (_, nbytes) in messages.items()} | {"dp": sent}
    return StepTime((m + bubble) * one + reduction + optimizer, parts, traffic)
    # END SOLUTION


# BEGIN SOLUTION
def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _refusal(model: Model, plan: Plan, cluster: Cluster, batch: int) -> tuple[str, str] | None:
    """Why a plan cannot be, whatever memory there is; None if nothing speaks against it."""
    if plan.devices != cluster.devices:
        return "product", (
            f"dp {plan.dp} × cp {plan.cp} × pp {plan.pp} × tp {plan.tp} = {plan.devices} devices, "
            f"the cluster has {cluster.devices}"
        )
    local = model.sequence // plan.cp
    for what, whole, name, parts in (
        ("heads", model.heads, "tp", plan.tp),
        ("heads of keys and values", model.kv_heads or model.heads, "tp", plan.tp),
        ("columns of the MLP", model.ffn_hidden or 4 * model.hidden, "tp", plan.tp),
        ("columns of an expert", model.expert_hidden, "tp", plan.tp),
        ("tokens", model.sequence, "cp", plan.cp),
        ("tokens", local, "tp", plan.tp if plan.sequence_parallel else 1),
        ("ranks of dp × cp", plan.replicas, "ep", plan.ep),
        ("experts", model.experts or 1, "ep", plan.ep),
    ):
        if whole % parts:
            return "division", f"{whole} {what} cannot be divided by {name}={parts}"
    if plan.pp * plan.chunks > model.layers:
        return "division", (
            f"{model.layers} layers are not enough for pp={plan.pp} × chunks={plan.chunks}"
        )
    if plan.chunks > 1 and (plan.pp == 1 or plan.micro_batches % plan.pp):
        return "division", (
            f"chunks={plan.chunks}: {plan.micro_batches} micro-batches cannot be taken by "
            f"pp={plan.pp} stages in turn"
        )
    if plan.batch != batch:
        return "batch", (
            f"dp {plan.dp} × {plan.micro_batches} micro-batches of {plan.micro_batch} are "
            f"{plan.batch} sequences a step, asked for are {batch}"
        )
    return None


def _layouts(model: Model, devices: int) -> Iterator[dict[str, Any]]:
    """All sizes whose product is right."""
    for tp in _divisors(devices):
        for pp in _divisors(devices // tp):
            for cp in _divisors(devices // tp // pp):
                dp = devices // tp // pp // cp
                for ep in _divisors(dp * cp) if model.experts else (1,):
                    yield {"dp": dp, "pp": pp, "tp": tp, "cp": cp, "ep": ep}


def _candidates(model: Model, cluster: Cluster, batch: int) -> Iterator[Plan]:
    """Every layout, with the schedules and savings that suit it; once, where none can be."""
    for sizes in _layouts(model, cluster.devices):
        each, rest = divmod(batch, sizes["dp"])
        common = {**sizes, "sequence_parallel": sizes["tp"] > 1}
        simple = Plan(**common, micro_batches=max(each, 1))
        if rest or not each or _refusal(model, simple, cluster, batch):
            yield simple
            continue
        stages = model.layers // sizes["pp"] if model.layers % sizes["pp"] == 0 else 1
        for size in (size for size in (1, 2, 4, 8, 16) if each % size == 0):
            count = each // size
            turns = sizes["pp"] > 1 and count % sizes["pp"] == 0
            for chunks in _divisors(stages) if turns else (1,):
                for zero in range(4 if simple.replicas > 1 else 1):
                    for recomputation in RECOMPUTATIONS:
                        yield Plan(
                            **common, micro_batch=size, micro_batches=count, chunks=chunks,
                            zero=zero, recomputation=recomputation,
                        )  # fmt: skip


def _in_gb(memory: Memory) -> str:
    parts = ", ".join(f"{name} {getattr(memory, name) / 1e9:.1f}" for name in memory._fields)
    return f"{memory.total / 1e9:.1f} GB are needed ({parts})"


# END SOLUTION


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
    # BEGIN SOLUTION
    batch, rest = divmod(batch_tokens, model.sequence)
    if rest or batch < 1:
        raise ValueError(
            f"batch_tokens={batch_tokens} is no multiple of the sequence of {model.sequence} tokens"
        )
    ranking = Ranking([], [])
    for each in _candidates(model, cluster, batch) if candidates is None else candidates:
        refusal = _refusal(model, each, cluster, batch)
        if refusal is None:
            memory = memory_per_device(model, each)
            if memory.total <= cluster.usable_memory:
                ranking.best.append(Ranked(each, memory, step_time(model, each, cluster)))
                continue
            usable = f"{cluster.usable_memory / 1e9:.1f} GB are usable"
            refusal = "memory", f"{_in_gb(memory)}, {usable}"
        ranking.refused.append(Refused(each, *refusal))
    ranking.best.sort(key=lambda ranked: ranked.seconds)
    return ranking
    # END SOLUTION
