# ruff: noqa: F821 (names of the reference)
"""Experts are thought to have dp·cp replicas, although ep ranks share them out."""

TASK = "a9.memory_per_device"
EXPECT = {"status": "failed", "check": "chunks and experts", "cause": "dp·cp/ep devices"}


def memory_per_device(model, plan):
    parameters, n = sum(_stage_parameters(model, plan)), plan.replicas
    layers = min(plan.pp, plan.micro_batches) * _stage_layers(model, plan)
    if plan.chunks > 1:
        flying = min(plan.pp * plan.chunks + plan.pp - 1, plan.micro_batches * plan.chunks)
        layers = flying * _stage_layers(model, plan) / plan.chunks
    return Memory(
        2 * parameters / (n if plan.zero >= 3 else 1),
        2 * parameters / (n if plan.zero >= 2 else 1),
        12 * parameters / (n if plan.zero >= 1 else 1),
        layers * _kept(model, plan, plan.recomputation),
    )
