"""The given models and clusters: published sizes, and the simulated cluster's own numbers."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from grader.checks import a9_memory
from grader.fabric.presets import PRESETS, preset
from reference.a9_hybrid_parallel.given import (
    CLUSTERS,
    MODELS,
    Cluster,
    Model,
    Plan,
)


def test_clusters_have_the_names_of_the_simulated_ones() -> None:
    assert tuple(CLUSTERS) == PRESETS


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("devices", [8, 144])
def test_clusters_are_the_simulated_ones(name: str, devices: int) -> None:
    simulated, given = preset(name, devices), Cluster.preset(name, devices)
    assert (given.nodes, given.devices_per_node) == (simulated.nodes, simulated.devices_per_node)
    cards = simulated.nics / simulated.devices_per_node
    for got, wanted in (
        (given.flops, simulated.flops),
        (given.memory_bandwidth, simulated.memory_bandwidth),
        (given.intra_bandwidth, simulated.intra.bandwidth),
        (given.intra_latency, simulated.intra.latency),
        # All devices of a node send at once, through the cards that there are.
        (given.inter_bandwidth, simulated.inter.bandwidth * (cards if name != "uniform" else 1)),
        (given.inter_latency, simulated.inter.latency),
    ):
        assert got == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("gpt3-175b", 174.6), ("llama3-405b", 405.9), ("deepseek-v3", 671.0), ("megatron-1t", 1008.0)],
)
def test_models_have_their_published_sizes(name: str, billions: float) -> None:
    assert MODELS[name].parameters / 1e9 == pytest.approx(billions, abs=0.05)


def test_flops_of_a_gpt_are_the_papers_formula() -> None:
    model, batch = MODELS["gpt3-175b"], 1536
    layers, h, s, v = model.layers, model.hidden, model.sequence, model.vocab
    formula = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))
    assert model.model_flops(batch * s) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_the_examiner_counts_the_same_parameters(name: str) -> None:
    model = MODELS[name]
    fields = dataclasses.asdict(model)
    assert sum(a9_memory.parameters(fields, a9_memory.plan())) == model.parameters


def test_the_examiner_knows_all_fields() -> None:
    model = Model("", 1, 1, 1, 1, 1)
    assert json.loads(json.dumps(dataclasses.asdict(model))) == a9_memory.MODEL
    assert dataclasses.asdict(Plan()) == a9_memory.PLAN


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Model("m", 0, 1, 1, 1, 1), ["layers", "0"]),
        (lambda: Model("m", 2, 64, 6, 9, 9, kv_heads=4), ["kv_heads=4", "heads=6"]),
        (lambda: Model("m", 2, 64, 6, 9, 9, experts=4), ["experts=4", "top_k=0"]),
        (lambda: Model("m", 2, 64, 6, 9, 9, dense_layers=3), ["dense_layers=3", "layers=2"]),
        (lambda: Model.preset("gpt5"), ["gpt5", "gpt3-175b"]),
        (lambda: Plan(tp=0), ["tp=0"]),
        (lambda: Plan(zero=4), ["zero=4"]),
        (lambda: Plan(recomputation="some"), ["some", "selective"]),  # type: ignore[arg-type]
        (lambda: Cluster.preset("dgx"), ["dgx", "dgx-h100"]),
        (lambda: dataclasses.replace(CLUSTERS["dgx-a100"], flops=0.0), ["flops=0.0"]),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(make: Any, words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert all(word in str(caught.value) for word in words)


def test_published_bytes_of_zero() -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5B parameters on 64 devices."""
    dense = a9_memory.model(layers=1, hidden=1, heads=1, vocab=1, sequence=1)
    for zero, gigabytes in enumerate((120.0, 31.4, 16.6, 1.9)):
        states = a9_memory.states(dense, a9_memory.plan(dp=64, zero=zero))
        each = sum(states.values()) / sum(a9_memory.parameters(dense, a9_memory.plan()))
        assert 7.5 * each == pytest.approx(gigabytes, abs=0.05)
