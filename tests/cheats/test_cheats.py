"""Cheats are handed in like everybody's work: none earns more than honest failure, all are seen."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from grader.submission import confinement
from grader.submission.batch import BatchOptions, run_batch
from tests.cheats.catalogue import WHATS, Cheat, cheats, write_sheet
from tests.cheats.judge import Verdict, bounds_processes, traces, verdicts

#: Of one task, and of each kind one or two; `tests/soak/test_batch.py` takes all.
WHAT = "a1.broadcast"
REASON = confinement.missing()
BROKERED = REASON is None and "--brokered" in confinement.options()
BOUNDED = bounds_processes()
QUICK = [
    cheat
    for cheat in cheats()
    if cheat.quick and cheat.task == WHAT and (BOUNDED or cheat.needs != "processes")
]
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}")


def hand_in_all(
    chosen: list[Cheat], folder: Path, jobs: int
) -> tuple[dict[str, Verdict], set[str]]:
    """(what became of each, what is left on this machine)."""
    before = traces()
    options = BatchOptions(throughput=False, jobs=jobs, allow_local=True, seconds=240.0)
    sheet = write_sheet(chosen, folder)
    scratch = folder / "scratch"  # others may run a batch at the same time
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        run_batch(sheet, [WHAT], folder / "out", options, print)
    left = traces() - before | {str(path) for path in scratch.iterdir()}
    return verdicts(folder / "out", chosen), left


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Verdict], set[str]]:
    return hand_in_all(QUICK, tmp_path_factory.mktemp("quick"), 2)


@pytest.mark.parametrize("cheat", QUICK, ids=lambda cheat: cheat.name)
def test_cheat(cheat: Cheat, quick: tuple[dict[str, Verdict], set[str]]) -> None:
    if cheat.needs == "brokered" and not BROKERED:
        pytest.skip("a cheat that only a brokered world sees")
    assert quick[0][cheat.name].against(cheat) == ""


def test_no_cheat_leaves_anything_behind(quick: tuple[dict[str, Verdict], set[str]]) -> None:
    assert quick[1] == set()


def test_the_list_is_complete() -> None:
    names = {cheat.name for cheat in cheats()}
    assert {"control_right", "control_wrong", "control_stub"} <= names and len(names) >= 35
    assert all(cheat.task in WHATS for cheat in cheats())
