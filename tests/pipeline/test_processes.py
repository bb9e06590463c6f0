"""The reference's executors on real processes with gloo."""

from __future__ import annotations

import pytest

from .gloo_world import run_world


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (2, [("gpipe", 3), ("1f1b", 5), ("interleaved", 4), ("zb1p", 5), ("dualpipe", 6)]),
        (3, [("1f1b", 2), ("zb1p", 7), ("interleaved", 6), ("dualpipev", 7)]),
        (4, [("1f1b", 8), ("zb1p", 8), ("dualpipe", 12), ("dualpipev", 9)]),
    ],
)
def test_loss_and_gradients_equal_the_unsplit_models(
    size: int, cases: list[tuple[str, int]]
) -> None:
    errors = run_world(size, "tests.pipeline.gloo_ranks:errors", cases)
    assert len(errors) == size
    for found in errors:
        assert len(found) == len(cases)
        assert max(found) <= 1e-10
