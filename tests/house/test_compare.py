"""Comparison with derived bounds, and what its messages say."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.checks.compare import assert_close, assert_same_bits, error_factor
from grader.checks.framework import CheckFailed


def _failure(got: object, expected: torch.Tensor, **options: Any) -> CheckFailed:
    arguments = {"dtype": torch.float32, "operations": 4, "where": "rank 2", **options}
    with pytest.raises(CheckFailed) as caught:
        assert_close(got, expected, **arguments)
    return caught.value


@settings(max_examples=60, deadline=None)
@given(
    ranks=st.integers(1, 40),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**31),
)
def test_sums_in_any_order_pass(ranks: int, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(ranks, 16, generator=generator, dtype=torch.float64).to(dtype)
    wide = parts.to(torch.float64)
    got = torch.zeros(16, dtype=dtype)
    for rank in torch.randperm(ranks, generator=generator).tolist():
        got = got + parts[rank]
    scale = wide.abs().sum(0)
    assert_close(got, wide.sum(0), dtype=dtype, operations=ranks, scale=scale)


def test_bound_is_tight_enough_to_see_one_lost_addend() -> None:
    parts = torch.full((8, 4), 1.0, dtype=torch.float64)
    got = parts[:7].sum(0).float()
    failure = _failure(got, parts.sum(0), operations=8, scale=parts.abs().sum(0))
    assert "expected [8, 8, 8, 8], got [7, 7, 7, 7]" in failure.message


def test_factor_is_at_most_higham_gamma() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        n, u = 20, torch.finfo(dtype).eps / 2
        assert n * u <= error_factor(dtype, n) <= n * u / (1 - n * u)
    assert error_factor(torch.int64, 5) == 0.0
    assert math.isfinite(error_factor(torch.bfloat16, 10_000))


def test_message_names_rank_slice_values_and_count() -> None:
    expected = torch.arange(16, dtype=torch.float64)
    got = expected.float()
    got[4:8] = 1.5
    failure = _failure(got, expected)
    assert failure.message.startswith(
        "rank 2, elements [4:8]: expected [4, 5, 6, 7], got [1.5, 1.5, 1.5, 1.5]; "
        "4 of 16 elements differ"
    )
    assert "largest error 5.5 at [7]" in failure.message


def test_message_for_many_dimensions_and_for_one_value() -> None:
    expected = torch.zeros(3, 4, dtype=torch.float64)
    got = expected.float()
    got[1, 2] = 7
    assert _failure(got, expected).message.startswith(
        "rank 2, element [1, 2]: expected 0, got 7; 1 of 12 elements differs"
    )
    scalar = _failure(torch.tensor(3.0), torch.tensor(4.0, dtype=torch.float64))
    assert scalar.message.startswith("rank 2, value: expected 4, got 3")


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (None, "expected a tensor, got None"),
        ([1.0], "got a value of type list"),
        (torch.zeros(3), "expected shape (4,), got (3,)"),
        (torch.zeros(4, dtype=torch.float64), "expected dtype torch.float32, got torch.float64"),
    ],
)
def test_wrong_form_is_named(got: object, words: str) -> None:
    failure = _failure(got, torch.zeros(4, dtype=torch.float64))
    assert failure.message.startswith("rank 2: ")
    assert words in failure.message


def test_nan_fails_and_points_to_the_missing_wait() -> None:
    expected = torch.ones(4, dtype=torch.float64)
    failure = _failure(torch.tensor([1.0, math.nan, math.nan, 1.0]), expected)
    assert "elements [1:3]: expected [1, 1], got [nan, nan]" in failure.message
    assert failure.cause is not None
    assert "NaN" in failure.cause
    same = torch.tensor([math.nan, math.inf], dtype=torch.float64)
    assert_close(same.float(), same, dtype=torch.float32, operations=1)


def test_overflow_of_the_dtype_may_be_infinite_with_the_right_sign() -> None:
    expected = torch.tensor([1e6, -1e6], dtype=torch.float64)
    fits = torch.tensor([math.inf, -math.inf], dtype=torch.float16)
    assert_close(fits, expected, dtype=torch.float16, operations=1)
    failure = _failure(fits.abs(), expected, dtype=torch.float16)
    assert "element [1]: expected -1000000, got inf" in failure.message


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_must_be_equal(dtype: torch.dtype) -> None:
    expected = torch.tensor([0, 1, 1])
    assert_close(expected.to(dtype), expected, dtype=dtype, operations=99)
    failure = _failure(torch.tensor([0, 1, 0]).to(dtype), expected, dtype=dtype, operations=99)
    assert "element [2]" in failure.message


def test_large_integers_are_compared_exactly() -> None:
    expected = torch.tensor([2**62 + 1])
    failure = _failure(torch.tensor([2**62]), expected, dtype=torch.int64)
    assert "1 of 1 elements differs" in failure.message


def test_complex_values() -> None:
    expected = torch.tensor([1 + 2j], dtype=torch.complex128)
    assert_close(expected.to(torch.complex64), expected, dtype=torch.complex64, operations=1)
    failure = _failure(expected.conj().to(torch.complex64), expected, dtype=torch.complex64)
    assert "element [0]" in failure.message


def test_first_fitting_suspect_names_the_cause() -> None:
    expected = torch.ones(4, dtype=torch.float64)
    suspects = [(expected * 3, "three times"), (expected * 4, "summed, not averaged")]
    fits = _failure(torch.full((4,), 4.0), expected, suspects=suspects, cause="other")
    assert fits.cause == "summed, not averaged"
    none_fits = _failure(torch.full((4,), 5.0), expected, suspects=suspects, cause="other")
    assert none_fits.cause == "other"


def test_empty_tensors_are_equal() -> None:
    empty = torch.empty(0, dtype=torch.float64)
    assert_close(empty.float(), empty, dtype=torch.float32, operations=1)
    assert_same_bits([empty, empty.clone()])


def test_same_bits() -> None:
    value = torch.tensor([1.0, math.nan, -0.0])
    assert_same_bits([value, value.clone(), value.clone()])
    other = torch.tensor([1.0, math.nan, 0.0])
    with pytest.raises(CheckFailed, match=r"ranks 4 and 6 differ bit for bit, element \[2\]"):
        assert_same_bits([value, value, other], ranks=[4, 5, 6])
    swapped = torch.tensor([1 + 2j, 3 + 3j]), torch.tensor([2 + 1j, 3 + 3j])
    with pytest.raises(CheckFailed, match="1 of 2 elements"):
        assert_same_bits(swapped)
    with pytest.raises(CheckFailed, match="expected dtype"):
        assert_same_bits([value, value.double()])
