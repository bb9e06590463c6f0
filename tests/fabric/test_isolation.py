"""Ranks are threads of one process, and a program cannot tell: nothing of one reaches another."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.fabric.ranks import run


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Writes the modules of a package named `homework` and makes it importable."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(files: dict[str, str]) -> None:
        for name, text in {"__init__.py": "", **files}.items():
            path = tmp_path / "homework" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        importlib.invalidate_caches()

    return write


# The solution's own modules -----------------------------------------------------------------------


def test_a_module_global_belongs_to_one_rank(package: Callable[[dict[str, str]], None]) -> None:
    package(
        {
            "state.py": """
                import functools
                import torch.distributed as dist

                counter = 0
                seen = []

                def step(rank):
                    global counter
                    counter += rank + 1
                    seen.append(rank)
                    dist.barrier()
                    return counter, list(seen)

                @functools.lru_cache
                def my_rank():
                    return dist.get_rank()
            """,
            "user.py": "from homework.state import my_rank, seen\nfrom . import state",
        }
    )

    def program(rank: int, _: Any) -> tuple[Any, ...]:
        from homework import state, user  # type: ignore[import-not-found]

        assert user.state is state and sys.modules["homework.state"] is state
        first, second = state.step(rank), state.step(rank)
        assert user.seen is state.seen
        dist.barrier()
        import homework.state as again  # type: ignore[import-not-found]

        assert again is state
        return first, second, user.my_rank()

    for rank, (first, second, cached) in enumerate(run(program, 3, packages=("homework",))):
        assert first == (rank + 1, [rank])
        assert second == (2 * (rank + 1), [rank, rank])
        assert cached == rank
    assert not any(name.partition(".")[0] == "homework" for name in sys.modules)


def test_a_copy_imported_before_the_run_is_put_back(
    package: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    package({"state.py": "value = 1"})
    mine = importlib.import_module("homework.state")
    for name in ("homework", "homework.state"):
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, name, mine if "." in name else sys.modules.get(name, mine))
    mine.value = 5

    def program(rank: int, _: Any) -> int:
        from homework import state

        before: int = state.value
        state.value = rank
        return before

    assert run(program, 2, packages=("homework",)) == [1, 1]
    assert sys.modules["homework.state"] is mine and mine.value == 5


def test_a_module_that_is_not_there_stays_so(package: Callable[[dict[str, str]], None]) -> None:
    package({"broken.py": "raise RuntimeError('half way')"})

    def program(rank: int, _: Any) -> None:
        for _ in range(2):
            with pytest.raises(ImportError):
                import homework.absent  # type: ignore[import-not-found]
            with pytest.raises(RuntimeError, match="half way"):
                import homework.broken  # type: ignore[import-not-found]  # noqa: F401
            dist.barrier()

    run(program, 2, packages=("homework",))


# Random numbers -----------------------------------------------------------------------------------


def draws(rank: int, between: Callable[[], None]) -> list[Any]:
    """What a seeded program draws, with something happening `between` the draws."""
    torch.manual_seed(rank + 30)
    random.seed(rank + 30)
    np.random.seed(rank + 30)
    dropout = torch.nn.Dropout(0.5)
    values: list[Any] = []
    for _ in range(3):
        values.append(torch.rand(3).tolist())
        between()
        values.append(dropout(torch.ones(8)).tolist())
        values.append(random.random())
        between()
        values.append([np.random.rand(2).tolist(), np.random.sample(), np.random.ranf()])
        values.append(torch.nn.Linear(2, 2).weight.tolist())
        values.append([random.sample(range(100), 3), np.random.permutation(5).tolist()])
        values.append(torch.randperm(5).tolist())
    with torch.random.fork_rng():
        values.append(torch.rand(1).item())
        between()
    values.append(torch.initial_seed())
    values.append(random.getstate()[1][:3])
    return values


@pytest.mark.parametrize("schedule", [None, 1])
@pytest.mark.parametrize("compute", [False, True])
def test_random_numbers_are_those_of_processes(schedule: int | None, compute: bool) -> None:
    def program(rank: int, _: Any) -> list[Any]:
        return draws(rank, dist.barrier)

    actual = run(program, 3, schedule=schedule, compute=compute)
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        for rank in range(3):
            assert actual[rank] == draws(rank, lambda: None)
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        np.random.set_state(kept[2])


def test_unseeded_ranks_repeat_from_run_to_run() -> None:
    def program(rank: int, _: Any) -> tuple[Any, ...]:
        dist.barrier()
        return torch.rand(1).item(), random.random(), float(np.random.rand())

    first = run(program, 2)
    assert run(program, 2) == first
    assert first[0][1:] != first[1][1:]
    assert run(program, 2, seed=1)[0][1:] != first[0][1:]


# The process's settings ---------------------------------------------------------------------------


def test_the_environment_belongs_to_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "before")
    from os import environ

    def program(rank: int, _: Any) -> None:
        assert environ["RANK"] == os.environ["LOCAL_RANK"] == os.getenv("RANK") == str(rank)
        assert int(os.environ["WORLD_SIZE"]) == 3
        assert os.environ["GIVEN"] == "before"
        os.environ["MINE"] = str(rank)
        os.environ["GIVEN"] = f"changed by {rank}"
        dist.barrier()
        assert environ["MINE"] == os.environ["MINE"] == str(rank)
        assert os.environb[b"MINE"] == str(rank).encode()
        assert environ.get("GIVEN") == f"changed by {rank}"
        if rank == 1:
            del os.environ["GIVEN"]
        dist.barrier()
        assert ("GIVEN" in os.environ) == (rank != 1)
        assert os.getenv("GIVEN", "gone") == ("gone" if rank == 1 else f"changed by {rank}")
        assert dict(os.environ)["MINE"] == os.environ.copy()["MINE"] == str(rank)
        assert os.environ.setdefault("NEW", "x") == "x"
        assert os.environ.pop("NEW") == "x" and "NEW" not in os.environ

    before = dict(os.environ)
    run(program, 3)
    assert dict(os.environ) == before and os.environ["GIVEN"] == "before"
    assert "MINE" not in os.environ and os.getenv("MINE") is None


def test_extra_environment_and_arguments() -> None:
    def program(rank: int, _: Any) -> tuple[str, list[str]]:
        sys.argv.append(f"--rank={rank}")
        dist.barrier()
        return os.environ["NODE"], sys.argv

    before = list(sys.argv)
    returns = run(
        program, 2, argv=("train.py", "-v"), environment=lambda rank: {"NODE": str(rank // 2)}
    )
    assert returns == [("0", ["train.py", "-v", f"--rank={rank}"]) for rank in range(2)]
    assert sys.argv == before


def test_the_default_dtype_and_import_path_belong_to_one_rank() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 1:
            torch.set_default_dtype(torch.float64)
            sys.path.insert(0, "/of/rank/1")
        dist.barrier()
        assert torch.ones(1).dtype is (torch.float64 if rank == 1 else torch.float32)
        assert ("/of/rank/1" in sys.path) == (rank == 1)

    path = list(sys.path)
    run(program, 3)
    assert torch.get_default_dtype() is torch.float32
    assert sys.path == path


def test_gradient_mode_and_autocast_belong_to_one_rank() -> None:
    def program(rank: int, _: Any) -> None:
        torch.set_grad_enabled(rank != 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=rank == 2):
            dist.barrier()
            assert torch.is_grad_enabled() == (rank != 1)
            product = torch.ones(2, 2) @ torch.ones(2, 2)
            assert product.dtype is (torch.bfloat16 if rank == 2 else torch.float32)

    run(program, 3)
    assert torch.is_grad_enabled()


# Output -------------------------------------------------------------------------------------------


def test_output_says_which_rank_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def program(rank: int, _: Any) -> None:
        print("one", end=" ")
        print("line")
        dist.barrier()
        print("two\nthree", file=sys.stderr if rank == 1 else sys.stdout)

    streams = sys.stdout, sys.stderr
    run(program, 2)
    assert (sys.stdout, sys.stderr) == streams
    print("outside")
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "[rank 0] one line",
        "[rank 1] one line",
        "[rank 0] two",
        "[rank 0] three",
        "outside",
    ]
    assert err.splitlines() == ["[rank 1] two", "[rank 1] three"]


def test_redirected_output_is_the_ranks_own(capsys: pytest.CaptureFixture[str]) -> None:
    def program(rank: int, _: Any) -> str:
        text = io.StringIO()
        redirect = contextlib.redirect_stdout(text) if rank == 0 else contextlib.nullcontext()
        with redirect:
            dist.barrier()
            print("hello")
            dist.barrier()
        return text.getvalue()

    streams = sys.stdout, sys.stderr
    assert run(program, 2) == ["hello\n", ""]
    assert (sys.stdout, sys.stderr) == streams
    assert capsys.readouterr().out == "[rank 1] hello\n"
