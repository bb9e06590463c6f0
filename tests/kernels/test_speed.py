"""The speed checks, whose measurement needs a GPU: what they judge by does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from grader.checks import kernels_speed
from grader.checks.drivers.kernels_work import make, names
from grader.checks.framework import CheckFailed
from grader.checks.kernels_run import KernelRunner
from kernels.ops import Kernels

REFERENCE = Path(__file__).resolve().parents[2] / "reference"
FILES = {
    "reduce_add": "a2_ring_all_reduce",
    "adamw": "a3_data_parallel",
    "vocab": "a4_tensor_parallel",
    "attention_merge": "a5_sequence_parallel",
    "layer_norm": "a5_sequence_parallel",
    "moe": "a8_expert_parallel",
}


def _kernels(name: str) -> Kernels:
    folder = next(folder for key, folder in FILES.items() if name.startswith(key))
    return Kernels(REFERENCE / folder / "kernels.cu")


def _call(function: Any) -> None:
    function()


@pytest.mark.parametrize("name", names())
def test_results_are_compared_with_torch(name: str) -> None:
    work = make(_kernels(name), name, 1 << 18, "cpu")
    assert 1 << 15 < work.nbytes < 1 << 20
    assert work.agree(_call)
    work.theirs()
    assert work.agree(_call)
    if name.startswith(("reduce_add", "adamw", "moe_permute")):  # in place
        assert not work.agree(lambda ours: None)


class _Spoilt:
    """Kernels of which one result, `which`, has a wrong last element."""

    def __init__(self, kernels: Kernels, which: int) -> None:
        self._kernels, self._which = kernels, which

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._kernels, name)

        def spoilt(*arguments: Any, **options: Any) -> Any:
            results = whole(*arguments, **options)
            changed = results if results is not None else arguments
            changed = changed if isinstance(changed, tuple) else (changed,)
            changed[self._which].view(-1)[-1] += 1
            return results

        return spoilt


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("reduce_add_bf16", 0),
        *(("adamw_fp32", each) for each in (0, 2, 3)),
        *(("vocab_cross_entropy_forward_bf16", each) for each in range(3)),
        *(("attention_merge_bf16", each) for each in range(2)),
        *(("layer_norm_forward_fp32", each) for each in range(3)),
        ("moe_unpermute_bf16", 0),
    ],
)
def test_any_wrong_result_is_seen(name: str, which: int) -> None:
    spoilt = cast(Kernels, _Spoilt(_kernels(name), which))
    assert not make(spoilt, name, 1 << 18, "cpu").agree(_call)


class _Runner:
    """Stands for a GPU on which a launch takes this part of a copy's time, or is wrong."""

    def __init__(self, *ratios: float, agrees: bool = True) -> None:
        self.settings: Any = None
        self.metrics: dict[str, Any] = {}
        self._ratios, self._agrees = list(ratios), agrees

    def speed(self, task: str, payload: dict[str, Any]) -> dict[str, Any]:
        ratio = self._ratios.pop(0) if len(self._ratios) > 1 else self._ratios[0]
        count = payload["repeats"]
        return {
            "agrees": self._agrees,
            "copy_seconds": [1e-3] * count,
            "seconds": [1e-3 / ratio] * count,
        }


def _judged(runner: _Runner, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(kernels_speed, "speed_problem", lambda settings: None)
    awarded: list[float] = []

    def award(part: float, words: str) -> None:
        assert "of a copy's bandwidth" in words
        awarded.append(part)

    kernels_speed.judge_speed(
        cast(KernelRunner, runner), cast(Any, award), "a2.reduce_add", "reduce_add_bf16", full=0.85
    )
    return awarded[0]


@pytest.mark.parametrize(
    ("ratios", "part"),
    [((0.9,), 1.0), ((1.1,), 1.0), ((0.6, 0.9), 1.0), ((0.625,), 0.5), ((0.3,), 0.0)],
)
def test_points_grow_with_the_bandwidth(
    monkeypatch: pytest.MonkeyPatch, ratios: tuple[float, ...], part: float
) -> None:
    assert _judged(_Runner(*ratios), monkeypatch) == pytest.approx(part)


def test_launches_that_do_nothing_are_too_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailed, match="less time than its bytes need: 400%"):
        _judged(_Runner(4.0), monkeypatch)


def test_wrong_results_earn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailed, match="is wrong"):
        _judged(_Runner(0.9, agrees=False), monkeypatch)
