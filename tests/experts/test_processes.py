"""The reference's layer on real processes with gloo."""

from __future__ import annotations

import pytest

from tests.pipeline.gloo_world import run_world


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (2, [{"experts": 4, "k": 2, "counts": [5, 3]}, {"experts": 2, "k": 1, "counts": [0, 4]}]),
        (3, [{"experts": 6, "k": 3, "counts": [4, 0, 7]}]),
    ],
)
def test_layer_equals_one_device(size: int, cases: list[dict[str, object]]) -> None:
    errors = run_world(size, "tests.experts.gloo_ranks:errors", cases)
    assert len(errors) == size
    for found in errors:
        assert len(found) == len(cases)
        assert max(found) <= 1e-12


def test_a_local_error_is_raised_without_waiting_for_others() -> None:
    said = run_world(2, "tests.experts.gloo_ranks:refusal", 9)
    assert said[0] == ""
    assert "9" in said[1]
    assert "num_experts = 4" in said[1]
