"""The reference's formulas agree with the simulated clock, and with the figures they come from."""

from __future__ import annotations

import pytest

from grader.checks import a0_costs as costs
from grader.fabric.clock import replay
from grader.fabric.cluster import uniform
from reference.a0_interconnect.collective_cost import all_reduce_time
from reference.a0_interconnect.links import nvlink_bandwidth, pcie_bandwidth

ALPHA, BETA = costs.ALPHA, costs.BETA


@pytest.mark.parametrize("algorithm", costs.ALGORITHMS)
@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 24, 100, 256])
def test_simulated_time_is_the_formulas_to_one_per_cent(algorithm: str, ranks: int) -> None:
    for nbytes in (1 << 10, 1 << 28):
        record = costs.recorded(algorithm, ranks, nbytes)
        shown = replay(record, uniform(ranks, ALPHA, 1 / BETA, switch_adds=True)).makespan
        formula = all_reduce_time(algorithm, nbytes, ranks, ALPHA, BETA)
        assert shown == pytest.approx(formula, rel=0.01)


def test_links_are_as_fast_as_the_figures_say() -> None:
    sixteen = [pcie_bandwidth(generation, 16) / 1e9 for generation in range(1, 8)]
    assert [round(rate, 2) for rate in sixteen] == [4, 8, 15.75, 31.51, 63.02, 121, 242]
    assert [nvlink_bandwidth(generation) / 1e9 for generation in range(1, 6)] == [
        80, 150, 300, 450, 900,
    ]  # fmt: skip
