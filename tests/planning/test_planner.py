"""The reference's planner: how near to measurements, and what it puts where."""

from __future__ import annotations

import pytest

from grader.checks.a9_published import MEGATRON, ZERO3, Row
from reference.a9_hybrid_parallel.given import Cluster, Model, Plan
from reference.a9_hybrid_parallel.planner import plan, step_time


def error(row: Row) -> float:
    """Predicted ÷ published rate, less 1."""
    case = row.case
    seconds = step_time(Model(**case["model"]), Plan(**case["plan"]), Cluster(**case["cluster"]))
    return row.seconds / seconds - 1


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: row.name)
def test_megatrons_table_is_met_with_room_to_spare(row: Row) -> None:
    assert abs(error(row)) < 0.07  # half of what is asked: other rows must be met, too


@pytest.mark.parametrize("row", ZERO3, ids=lambda row: row.name)
def test_zero3_is_met_with_room_to_spare(row: Row) -> None:
    assert abs(error(row)) < 0.15


@pytest.mark.parametrize(
    ("devices", "tflops"), [(384, 153), (768, 149), (1536, 141)], ids=lambda n: str(n)
)
def test_rows_that_nothing_was_fitted_to(devices: int, tflops: float) -> None:
    """Table 2, 174.6B with tensor and pipeline parallelism, 12 stages."""
    model, cluster = Model.preset("gpt3-175b"), Cluster.preset("dgx-a100", devices)
    dp = devices // 96
    cut = Plan(dp=dp, pp=12, tp=8, micro_batches=1536 // dp, recomputation="full")
    flops = model.model_flops(1536 * 2048) + 24 * 1536 * 2048 * model.layers * model.hidden**2 * (
        1 + model.sequence / (6 * model.hidden)
    )
    assert flops / devices / step_time(model, cut, cluster) / 1e12 == pytest.approx(tflops, rel=0.1)


@pytest.mark.parametrize(("name", "devices"), [("dgx-a100", 512), ("dgx-h100", 1024)])
def test_gpt3_goes_on_tp_8_inside_nodes_and_a_pipeline_across(name: str, devices: int) -> None:
    model, cluster = Model.preset("gpt3-175b"), Cluster.preset(name, devices)
    best = plan(model, cluster, 1536 * 2048).best[0].plan
    assert best.tp == 8
    assert best.pp > 1


def test_every_refusal_says_why_with_numbers() -> None:
    model, cluster = Model.preset("gpt3-175b"), Cluster.preset("dgx-a100", 64)
    ranking = plan(model, cluster, 64 * 2048)
    assert ranking.refused
    assert all(any(letter.isdigit() for letter in entry.reason) for entry in ranking.refused)
    assert {entry.kind for entry in ranking.refused} >= {"division", "memory"}
