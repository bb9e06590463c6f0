"""The checks of assignment 8: routers, dispatch and combine, the mixture-of-experts layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grader.checks import a8_balance as balance
from grader.checks import a8_bias as bias
from grader.checks import a8_cases as cases
from grader.checks import a8_exchange as exchange
from grader.checks import a8_layer as layer
from grader.checks import a8_router as router
from grader.checks import a8_sent as sent
from grader.checks.a8_cases import COMBINE, DISPATCH
from grader.checks.a8_throughput import keeps_up
from grader.checks.framework import check
from grader.checks.throughput import Throughput
from grader.checks.world import SimulatedCluster

Metrics = dict[str, Any]

BIASED, MOE = bias.BIASED, layer.MOE


def row(task: str, points: float, demand: str) -> Any:
    """A row of a table of checks."""
    mark = pytest.mark.check(task=task, points=float(points), name=demand)
    return pytest.param(task, marks=mark, id=task)


# top_k_router -------------------------------------------------------------------------------------


@check(router.TOP_K, points=3, name="chooses the k best experts and weighs them")
def test_top_k_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    router.top_k_values(cluster, rng)


@check(router.TOP_K, points=2, name="breaks ties to the lower index")
def test_top_k_ties(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    router.top_k_ties(cluster, rng)


@check(router.TOP_K, points=2, name="gives the logits their gradient")
def test_top_k_gradients(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    router.top_k_gradients(cluster, rng)


@check(router.TOP_K, points=1, name="refuses a k outside 1 … experts")
def test_top_k_refuses(cluster: SimulatedCluster) -> None:
    router.top_k_refuses(cluster)


# load_balancing_loss ------------------------------------------------------------------------------


@check(balance.LOSS, points=3, name="is E times the sum of share times mean probability")
def test_loss_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    balance.loss_values(cluster, rng)


@check(balance.LOSS, points=1, name="is 1 when the load is even")
def test_loss_ends(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    balance.loss_ends(cluster, rng)


@check(balance.LOSS, points=3, name="has the gradient of the mean probabilities")
def test_loss_gradients(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    balance.loss_gradients(cluster, rng)


@check(balance.LOSS, points=1, name="refuses shapes that do not fit")
def test_loss_refuses(cluster: SimulatedCluster) -> None:
    balance.loss_refuses(cluster)


# apply_capacity -----------------------------------------------------------------------------------


@check(balance.CAPACITY, points=4, name="keeps first choices of all tokens before second ones")
def test_capacity_order(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    balance.capacity_order(cluster, rng)


@check(balance.CAPACITY, points=3, name="fills every expert up to its capacity, rounded up")
def test_capacity_sizes(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    balance.capacity_sizes(cluster, rng)


@check(balance.CAPACITY, points=2, name="copes with one expert for all, none, and dropped choices")
def test_capacity_odd(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    balance.capacity_odd(cluster, rng)


@check(balance.CAPACITY, points=1, name="refuses what does not fit")
def test_capacity_refuses(cluster: SimulatedCluster) -> None:
    balance.capacity_refuses(cluster)


# BiasBalancedRouter -------------------------------------------------------------------------------


@check(BIASED, points=3, name="chooses with the bias and weighs without it")
def test_bias_choice(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    bias.choice(cluster, rng)


@check(BIASED, points=2.5, name="moves every bias by gamma towards the mean load")
def test_bias_update(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    bias.update(cluster, rng)


@check(BIASED, points=2, name="sums the counts over the group")
def test_bias_groups(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    bias.groups(cluster, rng, metrics)


@check(BIASED, points=0.5, name="refuses what does not fit")
def test_bias_refuses(cluster: SimulatedCluster) -> None:
    bias.refuses(cluster)


# dispatch and combine -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task",
    [
        row(DISPATCH, 2, "brings every token to its experts, in order"),
        row(COMBINE, 2.5, "brings the weighted sums back"),
    ],
)
def test_exchange_values(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    worlds = cases.everybody(cases.exchange, rng, combines=task == COMBINE)
    exchange.run_judged(cluster, task, worlds)
    exchange.run_judged(cluster, task, exchange.dtypes(rng, task))


@pytest.mark.parametrize(
    "task",
    [
        row(DISPATCH, 1.5, "copes with ranks without tokens and one expert for all"),
        row(COMBINE, 1.5, "copes with ranks without tokens and one expert for all"),
    ],
)
def test_exchange_odd(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    worlds = cases.odd(rng, gradient=True, combines=task == COMBINE)
    exchange.run_judged(cluster, task, worlds)


@pytest.mark.parametrize(
    "task",
    [
        row(DISPATCH, 1.5, "gives the tokens their gradient"),
        row(COMBINE, 3, "gives results and weights their gradients"),
    ],
)
def test_exchange_gradients(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    worlds = cases.everybody(cases.exchange, rng, gradient=True, combines=task == COMBINE)
    exchange.run_judged(cluster, task, worlds)


@pytest.mark.parametrize(
    "task", [row(DISPATCH, 1, "works in sub-groups"), row(COMBINE, 1, "works in sub-groups")]
)
def test_exchange_groups(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    exchange.groups(cluster, rng, task)


@pytest.mark.parametrize(
    "task",
    [
        row(DISPATCH, 2, "sends each token once to a rank, and nothing else"),
        row(COMBINE, 2.5, "returns each token once from a rank, and nothing else"),
    ],
)
def test_exchange_bytes(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, task: str
) -> None:
    sent.judge_volume(cluster, rng, metrics, task)


@pytest.mark.parametrize(
    "task",
    [
        row(DISPATCH, 0.5, "exchanges with all ranks at once"),
        row(COMBINE, 0.5, "exchanges with all ranks at once"),
    ],
)
def test_exchange_rounds(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, task: str
) -> None:
    sent.judge_rounds(cluster, rng, metrics, task)


@pytest.mark.parametrize(
    "task",
    [
        row(DISPATCH, 0.5, "refuses what does not fit before anything is sent"),
        row(COMBINE, 1, "refuses what does not fit before anything is sent"),
    ],
)
def test_exchange_refuses(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    sent.judge_refusals(cluster, rng, task)


@check(DISPATCH, points=3, name="keeps up with one all-to-all of the same bytes")
def test_dispatch_throughput(throughput: Throughput) -> None:
    keeps_up(throughput)


# the layer ----------------------------------------------------------------------------------------


@check(MOE, points=4, name="equals the layer on one device")
def test_layer_output(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    layer.run_judged(cluster, layer.sizes(rng), "output")


@check(MOE, points=5, name="gives experts their gradient, whatever the EP size")
def test_layer_experts(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    layer.run_judged(cluster, layer.sizes(rng), "experts")


@check(MOE, points=4, name="gives router and input their gradients")
def test_layer_router(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    layer.run_judged(cluster, layer.sizes(rng), "router", "x")


@check(MOE, points=3, name="copes with ranks without tokens and one expert for all")
def test_layer_odd(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    layer.odd(cluster, rng)


@check(MOE, points=2, name="works in sub-groups")
def test_layer_groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    layer.groups(cluster, rng)


@check(MOE, points=1, name="trains as the layer on one device does")
def test_layer_training(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    layer.training(cluster, rng)


@check(MOE, points=3, name="sends each token once to a rank, and one row back")
def test_layer_bytes(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    layer.bytes_sent(cluster, rng, metrics)


@check(MOE, points=1, name="holds this rank's experts only")
def test_layer_shards(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    layer.shards(cluster, rng, metrics)


@check(MOE, points=1, name="refuses what does not fit")
def test_layer_refuses(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    layer.refuses(cluster, rng)
