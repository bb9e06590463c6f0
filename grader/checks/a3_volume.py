"""What training sends, when, and what it holds: bytes, positions in the record, virtual time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grader.checks.a3_models import build
from grader.checks.framework import CheckFailed
from grader.fabric.cluster import Cluster, uniform
from grader.fabric.trace import Trace

SLACK = 1.05  # padding, and a few numbers that travel along
MARK_BYTES = 16  # for each parameter: a mark whether it was used, say
Metrics = dict[str, Any]

#: One block is one unit: a weight and a bias of this width, in float64.
BLOCKS, WIDTH = 8, 32
MODEL: dict[str, Any] = {"name": "mlp", "width": WIDTH, "blocks": BLOCKS}
UNIT_BYTES = 8 * WIDTH * (WIDTH + 1)
UNITS = ["stem", *(f"blocks.{i}" for i in range(BLOCKS)), "head"]
ROWS = 64  # of a rank's batch


def bytes_of(model: Mapping[str, Any]) -> int:
    """Bytes of all parameters."""
    return sum(p.numel() * p.element_size() for p in build(model).parameters())


def parameters_of(model: Mapping[str, Any]) -> int:
    """How many parameters there are, weights and biases counted singly."""
    return sum(1 for _ in build(model).parameters())


def posted(trace: Trace, rank: int, begin: int, end: int) -> list[tuple[str, int]]:
    """(kind, bytes) of what a rank posted among its events begin … end; receives do not count."""
    found = []
    for event in trace.record.events[rank][begin:end]:
        operation = trace.record.operations[event.operation]
        if event.kind == "post" and operation.kind not in ("recv", "barrier"):
            found.append((operation.kind, operation.nbytes))
    return found


def begins_during_backward(trace: Trace, marks: Sequence[Sequence[int]], metrics: Metrics) -> None:
    """At least half of a step's bytes are posted before backward ends. marks: by rank."""
    for rank, (_, begin, end, finished) in enumerate(marks):
        during = sum(nbytes for _, nbytes in posted(trace, rank, begin, end))
        whole = sum(nbytes for _, nbytes in posted(trace, rank, begin, finished))
        metrics.setdefault("begun_during_backward", round(during / max(whole, 1), 3))
        if whole == 0:
            raise CheckFailed(
                f"rank {rank} sent nothing between the begin of backward and the end of "
                f"finish_gradient_synchronization()",
                cause="the gradients are not averaged, or elsewhere than asked",
            )
        if during * 2 < whole:
            raise CheckFailed(
                f"rank {rank} began {during} of {whole} bytes before backward ended, expected at "
                f"least half",
                cause="communication begins only at the end: send a bucket as soon as its last "
                "gradient is there (register_post_accumulate_grad_hook)"
                if during == 0
                else "the buckets are not in the order in which backward makes the gradients",
            )


def overlapping_cluster(world: int, compute_seconds: float, traffic_seconds_bytes: int) -> Cluster:
    """A cluster on which that many bytes of one port take as long as a block's computation."""
    bandwidth = traffic_seconds_bytes / compute_seconds
    return uniform(world, latency=0.0, bandwidth=bandwidth, flops=FLOPS, memory_bandwidth=math.inf)


FLOPS = 1e12
FORWARD_SECONDS = 2 * ROWS * WIDTH * WIDTH / FLOPS  # of one block


def hides_all_reduces(trace: Trace, world: int, metrics: Metrics) -> None:
    """On a cluster where a block's all-reduce takes as long as its backward, a third is hidden.

    That much a solution reaches whose all-reduces are a reduce-scatter begun in backward and an
    all-gather after it; waiting in backward hides nothing.
    """
    ring_bytes = 2 * UNIT_BYTES * (world - 1) // world
    timed = trace.on(overlapping_cluster(world, 2 * FORWARD_SECONDS, ring_bytes))
    for rank in range(world):
        communicating = timed.timeline.communicating(rank)
        share = timed.overlap(rank) / communicating if communicating else 0.0
        metrics.setdefault("hidden_share", round(share, 3))
        if share < 1 / 3:
            raise CheckFailed(
                f"rank {rank}: {share:.0%} of its {communicating * 1e9:.0f} virtual ns of "
                f"communication overlap with computation, expected at least a third",
                cause="backward waits for the communication it begins: wait in "
                "finish_gradient_synchronization()",
            )


def in_buckets(
    trace: Trace, rank: int, marks: Sequence[int], bucket_bytes: int, nbytes: int, largest: int
) -> None:
    """Messages no larger than a bucket, and few. nbytes: of all gradients; largest: of one."""
    extra = MARK_BYTES * parameters_of(MODEL)
    sent = posted(trace, rank, marks[0], marks[3])
    limit = max(bucket_bytes, largest) + extra
    for kind, size in sent:
        if size > limit:
            raise CheckFailed(
                f"rank {rank}: {kind} of {size} bytes, expected at most bucket_bytes="
                f"{bucket_bytes} (and {extra} for marks)",
                cause="bucket_bytes is ignored",
            )
    calls = sum(kind not in ("send", "broadcast") for kind, _ in sent)
    most = 2 * math.ceil(nbytes / bucket_bytes) + 2
    # All-reduces made of other collectives count twice.
    if calls > 2 * most:
        raise CheckFailed(
            f"rank {rank}: {calls} collectives for {nbytes} bytes of gradients, expected about "
            f"{most}: buckets of bucket_bytes={bucket_bytes}",
            cause="every gradient travels alone: each call costs a latency",
        )


def average_moves_at_most(trace: Trace, nbytes: int, parameters: int, metrics: Metrics) -> None:
    """All ranks together send no more than ring all-reduces of the gradients."""
    world = len(trace.bytes_sent)
    limit = 2 * (world - 1) * (SLACK * nbytes + MARK_BYTES * parameters)
    metrics.setdefault("bytes_sent_by_all", trace.total_bytes)
    metrics.setdefault("allowed_bytes", round(limit))
    if trace.total_bytes > limit:
        raise CheckFailed(
            f"{trace.total_bytes} bytes sent by all {world} ranks for {nbytes} bytes of gradients, "
            f"expected at most {limit:.0f}, what ring all-reduces send",
            cause="gradients travel twice, or in a wider dtype, or parameters travel too",
        )


def _who_serves(pairs: Sequence[tuple[int, int]]) -> str:
    common = set(pairs[0]).intersection(*pairs)
    if common:
        return f"`server` is ignored: everything goes through rank {min(common)}"
    return "workers exchange gradients among themselves"


def through_the_server(
    trace: Trace, server: int, nbytes: int, parameters: int, metrics: Metrics
) -> None:
    """Every worker exchanges its gradients with the server, and nothing else."""
    world = len(trace.bytes_sent)
    for rank, kinds in enumerate(trace.collectives):
        other = sorted(set(kinds) - {"gather", "scatter", "barrier"})
        if other:
            raise CheckFailed(
                f"rank {rank} called {', '.join(other)}, expected messages between workers and "
                f"server, or gather and scatter",
                cause="this collective is a ring or a tree among the workers",
            )
    strangers = [pair for pair in trace.traffic if server not in pair and trace.traffic[pair]]
    if strangers:
        raise CheckFailed(
            f"rank {strangers[0][0]} sent to rank {strangers[0][1]}, expected messages to and from "
            f"the server (rank {server}) only",
            cause=_who_serves(strangers),
        )
    metrics["bytes_sent_by_the_server"] = trace.bytes_sent[server]
    metrics["bytes_received_by_the_server"] = trace.bytes_received[server]
    for verb, counts in (("sent", trace.bytes_sent), ("received", trace.bytes_received)):
        for rank, count in enumerate(counts):
            share = (world - 1) if rank == server else 1
            low, high = share * nbytes, share * (SLACK * nbytes + MARK_BYTES * parameters)
            who = "the server" if rank == server else "a worker"
            if not low <= count <= high:
                cause = "`server` is ignored" if count >= (world - 1) * nbytes else None
                if rank == server and count < low:
                    cause = "the server is no server: somebody else averages"
                raise CheckFailed(
                    f"{who}, rank {rank}, {verb} {count} bytes, expected {low} to {high:.0f}: "
                    f"{nbytes} bytes of gradients for each of its partners",
                    cause=cause or "gradients travel twice, or in a wider dtype",
                )


def as_fast_as_the_server(trace: Trace, nbytes: int, parameters: int, metrics: Metrics) -> None:
    """One step takes 2 latencies and 2 (p − 1) times the gradients through the server's link."""
    world = len(trace.bytes_sent)
    bandwidth = 1e9
    latency = nbytes / bandwidth  # so that each more of either shows
    cluster = uniform(world, latency, bandwidth, memory_bandwidth=math.inf, flops=1e30)
    seconds = trace.on(cluster).makespan
    most = 2 * (world - 1) * (SLACK * nbytes + MARK_BYTES * parameters) / bandwidth
    limit = 2 * latency + most
    ring = 2 * (world - 1) * (latency + nbytes / world / bandwidth)
    metrics |= {"virtual_seconds": seconds, "of_a_ring": ring, "allowed_seconds": limit}
    if seconds > 1.01 * limit:
        raise CheckFailed(
            f"a step's communication takes {seconds * 1e6:.1f} virtual µs on {world} ranks, "
            f"expected at most {limit * 1e6:.1f}: two latencies, and {2 * (world - 1)} times the "
            f"gradients through the server's link",
            cause="the server serves one worker after the other: post all receives, then all sends",
        )


def shares_are_balanced(numels: Sequence[int], sizes: Sequence[int], per_element: int) -> None:
    """numels: state elements by rank. sizes: elements of each parameter, all of them stepped."""
    whole = per_element * sum(sizes)
    for rank, numel in enumerate(numels):
        if len(numels) > 1 and numel >= whole:
            raise CheckFailed(
                f"rank {rank} keeps {numel} elements of optimizer state, expected its share of the "
                f"{whole} that the whole optimizer keeps",
                cause="nothing is sharded: every rank keeps the states of all parameters",
            )
    if sum(numels) != whole:
        raise CheckFailed(
            f"the ranks keep {list(numels)} elements of optimizer state, {sum(numels)} in all, "
            f"expected {whole}: every state on exactly one rank",
            cause="some states are kept twice" if sum(numels) > whole else "some are kept nowhere",
        )
    difference, largest = max(numels) - min(numels), per_element * max(sizes)
    if difference > largest:
        raise CheckFailed(
            f"the ranks keep {list(numels)} elements of optimizer state: the largest and the "
            f"smallest share differ by {difference}, expected at most {largest}, the largest "
            f"parameter's",
            cause="every rank gets about as many parameters, whatever their sizes",
        )


def parameters_move_once(trace: Trace, nbytes: int, metrics: Metrics) -> None:
    """Each new parameter reaches the other ranks once. nbytes: of all parameters."""
    world = len(trace.bytes_sent)
    limit = 1.25 * (world - 1) * nbytes
    metrics.setdefault("bytes_sent_by_all", trace.total_bytes)
    metrics.setdefault("allowed_bytes", round(limit))
    if trace.total_bytes > limit:
        kinds = trace.collectives[0]
        raise CheckFailed(
            f"{trace.total_bytes} bytes sent by all {world} ranks, expected at most {limit:.0f}: "
            f"{nbytes} bytes of parameters to {world - 1} other rank(s), and a quarter for padding",
            cause="an all-reduce moves twice what a broadcast does"
            if kinds["all_reduce"]
            else "parameters travel more than once, or gradients and states travel too",
        )


def fully_sharded_moves_at_most(trace: Trace, nbytes: int, metrics: Metrics) -> None:
    """Two gathers and a reduce-scatter per step. nbytes: of all parameters."""
    world = len(trace.bytes_sent)
    limit = 3 * (world - 1) * (SLACK * nbytes + MARK_BYTES * parameters_of(MODEL))
    metrics.setdefault("bytes_sent_by_all", trace.total_bytes)
    metrics.setdefault("allowed_bytes", round(limit))
    if trace.total_bytes > limit:
        kinds = trace.collectives[0]
        cause = "units are gathered more often than once for forward and once for backward"
        if kinds["all_reduce"]:
            cause = "gradients are all-reduced, not reduce-scattered"
        elif kinds["broadcast"]:
            cause = "shards are broadcast one by one"
        raise CheckFailed(
            f"{trace.total_bytes} bytes sent by all {world} ranks for {nbytes} bytes of "
            f"parameters, expected at most {limit:.0f}: two all-gathers and a reduce-scatter",
            cause=cause,
        )


def prefetches(trace: Trace, world: int, what: str, metrics: Metrics) -> None:
    """Where a unit's gather takes as long as its forward, at least half is hidden."""
    gathered = UNIT_BYTES * (world - 1) // world
    timed = trace.on(overlapping_cluster(world, FORWARD_SECONDS, gathered))
    for rank in range(world):
        communicating = timed.timeline.communicating(rank)
        share = timed.overlap(rank) / communicating if communicating else 0.0
        metrics.setdefault(f"hidden_share_{what}", round(share, 3))
        if share < 0.5:
            raise CheckFailed(
                f"{what}, rank {rank}: {share:.0%} of its {communicating * 1e9:.0f} virtual ns of "
                f"communication overlap with computation, expected at least 50 %",
                cause="a unit is gathered only when it is needed: begin to gather the next one "
                "before this one computes, and wait for it later",
            )


def holds_little(
    ranks: Sequence[Mapping[str, int]], world: int, metrics: Metrics, moments: Sequence[str]
) -> None:
    """Live bytes against what shards, two units, gradients and activations need."""
    figures = {name: max(each[name] for each in ranks) for name in ranks[0]}
    whole = bytes_of(MODEL)
    shards = math.ceil(whole / world) + UNIT_BYTES // 4  # padding
    forward, backward = figures["plain_forward"], figures["plain_backward"]
    limits = {
        "constructed": (shards, "its shards"),
        "forward": (
            shards + 2 * UNIT_BYTES + forward,
            "shards, two units and activations, during forward",
        ),
        "after_forward": (
            shards + 2 * UNIT_BYTES + forward,
            "shards, two units and activations, after forward",
        ),
        "backward": (
            2 * shards + 2 * UNIT_BYTES + 4 * UNIT_BYTES + backward,
            "shards of parameters and gradients, two units of parameters, the gradients of two "
            "with what is sent of them, and activations, during backward",
        ),
        "between": (2 * shards, "shards of parameters and gradients, between steps"),
    }
    metrics |= {"parameter_bytes": whole, **{f"bytes_{k}": v for k, v in figures.items()}}
    for moment in moments:
        limit, what = limits[moment]
        if figures[moment] > limit:
            raise CheckFailed(
                f"a rank of {world} held {figures[moment]} bytes, expected at most {limit}: {what} "
                f"(all parameters: {whole} bytes)",
                cause=_memory_cause(moment, figures, whole, limits["forward"][0]),
            )


def _memory_cause(moment: str, figures: Mapping[str, int], whole: int, forward: int) -> str:
    if moment == "constructed":
        if figures["constructed"] >= whole:
            return "nothing was sharded: every rank still holds all parameters"
        return "something beside the shards is kept"
    if moment in ("forward", "after_forward"):
        if figures["evaluation"] > forward:
            return "units are not freed after their forward, or all are gathered at once"
        return (
            "whole parameters outlive forward: autograd keeps what it saved for backward; empty "
            "the storage, or gather again when it is asked for"
        )
    if moment == "backward":
        return "units are not freed after their backward, or whole gradients are kept"
    return "whole parameters or gradients are kept between steps"
