"""The capstone on simulated ranks: as a script, its checkpoints, and how parts are chosen."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.fabric import simulate
from grader.fabric.script import run_script
from grader.fabric.simulate import SimulationResult
from tests.capstone.ranks import ROOT, SMALL

FOLDER = "reference.a9_hybrid_parallel"
Changed = dict[str, Any]


def trained(changes: Any = None, **options: Any) -> SimulationResult:
    """`train` on simulated ranks; changes(parts module) is called first on each of them."""

    def body(rank: int, _: Any) -> Any:
        config, parts, train = (
            importlib.import_module(f"{FOLDER}.{name}") for name in ("config", "parts", "train")
        )
        if changes is not None:
            changes(parts, train)
        losses = train.train(config.TrainConfig(**{**SMALL, "quiet": True, **options}))
        return losses, dict(parts.decided)

    ranks = options.get("dp", 1) * options.get("pp", 1) * options.get("tp", 1)
    return simulate(body, ranks, packages=("reference",), initialize=False, time_limit=60)


def losses_of(result: SimulationResult) -> list[float]:
    assert not result.findings, result.findings[0].message
    losses: list[float] = result.returns[0][0]
    return losses


def test_script_with_relative_imports_runs_on_simulated_ranks() -> None:
    argv = ["--dp=2", "--pp=2", "--tp=2", "--sp", "--steps=2", "--layers=2", "--hidden=16"]
    result = run_script(ROOT / "reference/a9_hybrid_parallel/train.py", 8, argv)
    assert not result.findings, result.findings[0].message
    assert not result.errors


def test_a_save_that_was_cut_off_leaves_the_last_whole_checkpoint(tmp_path: Path) -> None:
    whole = losses_of(trained(steps=6))
    losses_of(trained(steps=3, checkpoint=str(tmp_path), tp=2))
    # Cut off while writing, and (were renaming not the last thing) after that.
    (tmp_path / ".step-00000005.unfinished").mkdir()
    (tmp_path / ".step-00000005.unfinished" / "__0_0.distcp").write_bytes(b"half of")
    (tmp_path / "step-00000004").mkdir()
    (tmp_path / "step-00000004" / "__0_0.distcp").write_bytes(b"half of")
    rest = losses_of(trained(steps=6, checkpoint=str(tmp_path), resume=True, dp=2))
    assert rest == pytest.approx(whole[3:], rel=1e-12)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    losses_of(trained(steps=5, checkpoint=str(tmp_path), save_every=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


def _unimplemented(parts: Any, train: Any) -> None:
    right = parts._load

    class Stub:
        @classmethod
        def from_dense(cls, module: Any, group: Any = None) -> Any:
            raise NotImplementedError("a4.ParallelMLP")

    parts._load = lambda module, name: Stub if name == "ParallelMLP" else right(module, name)


def _wrong(parts: Any, train: Any) -> None:
    right = parts._load

    def loss(logits: Any, target: Any, group: Any) -> Any:
        return right("a4_tensor_parallel.cross_entropy", "vocab_parallel_cross_entropy")(
            logits, target, group
        ) * 1.001  # fmt: skip

    parts._load = lambda module, name: loss if name.endswith("entropy") else right(module, name)


def _wrong_on_one_rank(parts: Any, train: Any) -> None:
    if torch.distributed.is_initialized():
        raise AssertionError("before initialize")
    right, import_module = parts._load, importlib.import_module
    import os

    rank = int(os.environ["RANK"])

    def load(module: str, name: str) -> Any:
        if name == "partition_layers" and rank == 1:
            import_module("reference.there_is_no_such_module")
        return right(module, name)

    parts._load = load


@pytest.mark.parametrize(
    ("changes", "part", "why"),
    [
        (_unimplemented, "MLP", "NotImplementedError: a4.ParallelMLP"),
        (_wrong, "loss", "ValueError: the loss is off by"),
        (_wrong_on_one_rank, "partition", "another rank's trial failed"),
    ],
)
def test_what_fails_its_trial_is_replaced_and_named(changes: Any, part: str, why: str) -> None:
    result = trained(changes, tp=2, steps=3)
    assert losses_of(result) == pytest.approx(losses_of(trained(steps=3)), rel=1e-12)
    decided = result.returns[0][1]
    assert decided[part].startswith(why)
    assert [name for name, reason in decided.items() if reason] == [part]


def test_a_part_that_does_not_exist_is_refused() -> None:
    def force(parts: Any, train: Any) -> None:
        right = parts.choose_parts
        train.choose_parts = lambda config, mesh: right(config, mesh, fallback=["wheels"])

    result = trained(force, steps=1)
    assert result.errors[0].type == "ValueError"
    assert "wheels" in result.errors[0].message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dp": 3, "batch": 8}, ("batch=8", "dp=3", "microbatches=2")),
        ({"tp": 3}, ("tp=3", "heads=2")),
        ({"pp": 9}, ("pp=9", "layers=2")),
        ({"ep": 2, "experts": 4}, ("ep=2", "dp=1")),
        ({"dp": 2, "ep": 2}, ("ep=2", "experts=0")),
        ({"dp": 2, "ep": 2, "experts": 3}, ("ep=2", "experts=3")),
        ({"resume": True}, ("resume", "checkpoint")),
        ({"experts": 2, "tp": 2, "sp": True}, ("sp", "experts=2")),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: dict[str, Any], words: tuple[str, ...]) -> None:
    config = importlib.import_module(f"{FOLDER}.config")
    with pytest.raises(ValueError) as raised:
        config.TrainConfig(**{**SMALL, **options})
    assert all(word in str(raised.value) for word in words)
