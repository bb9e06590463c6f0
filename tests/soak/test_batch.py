"""A sheet of sixty and more: all cheats, bombs, dead and odd links, between honest work.

The batch is killed five times on its way. In the end every honest submission has exactly what it
is worth, every other one is reported, nothing is lost, nobody is graded twice, nothing is left.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader import tasks
from grader.submission import confinement
from grader.submission.store import Row, Store
from tests.cheats.catalogue import ROOT, WHATS, cheats, write_sheet
from tests.cheats.judge import Verdict, bounds_processes, traces, verdicts
from tests.submission.repositories import commit, git, repository
from tests.submission.test_batch_memory import gradebook

REASON = confinement.missing()
BROKERED = REASON is None and "--brokered" in confinement.options()
JOBS = 2
LIMIT = 180.0
KILLS = 5
#: Only the kernel is faster than a fork bomb; where it sets no bound, one would starve all of us.
BOUNDED = bounds_processes()
CHEATS = [cheat for cheat in cheats() if BOUNDED or cheat.needs != "processes"]
WORTH = {task: tasks.find(task).points for task in WHATS}
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}"),
]


def _files(*solved: str) -> dict[str, str]:
    """a1 with these tasks' files solved and the rest as handed out."""
    paths = {task.path for task in tasks.TASKS if task.id.startswith("a1.")}
    done = {tasks.find(task).path for task in solved}
    return {
        f"assignments/{path}": (
            ROOT / ("reference" if path in done else "assignments") / path
        ).read_text(encoding="utf-8")
        for path in paths
    }


def _without(files: dict[str, str], name: str) -> dict[str, str]:
    """The same with one function as it was handed out."""
    stub = f'\n\ndef {name}(*arguments, **options):\n    raise NotImplementedError("a1.{name}")\n'
    path = f"assignments/{tasks.find(f'a1.{name}').path}"
    return files | {path: files[path] + stub}


def _honest(folder: Path) -> tuple[list[str], dict[str, float]]:
    """(lines of the sheet, points that each must get)."""
    everything = _files(*WHATS)
    full = sum(WORTH.values())
    contents: dict[str, tuple[dict[str, str], float]] = {
        f"right{n}": (everything, full) for n in range(3)
    }
    contents |= {
        f"half{n}": (_without(everything, "broadcast"), WORTH["a1.neighbour_exchange"])
        for n in range(2)
    }
    contents["other_half"] = (
        _without(everything, "neighbour_exchange"), WORTH["a1.broadcast"]
    )  # fmt: skip
    contents["untouched"] = (_files(), 0.0)
    broken = everything | {f"assignments/{tasks.find(WHATS[1]).path}": "def broadcast(:\n"}
    contents["syntax_error"] = (broken, WORTH["a1.neighbour_exchange"])
    lines, points = [], {}
    for name, (files, worth) in contents.items():
        sha = repository(folder / name, files)
        lines.append(f"{name},{folder / name}/tree/{sha}")
        points[name] = worth
    one = folder / "right0"
    sha = git(one, "rev-parse", "HEAD")
    git(one, "tag", "handed-in")
    later = commit(one, {"notes.txt": "later"})
    odd = {
        "upper_case": f"{one}/commit/{sha.upper()}",
        "short": f"{one}/tree/{sha[:8]}",
        "with_space": f"  {one}/commits/{sha}/ ",
        "query": f"{one}/tree/{sha}?tab=readme#top",
        "branch": f"{one}/tree/main",
        "tag": f"{one}/tree/handed-in",
        "newer": f"{one}/tree/{later}",
    }
    for name, link in odd.items():
        lines.append(f'{name},"{link}"')
        points[name] = full
    return lines, points


def _dead(folder: Path) -> list[str]:
    one = folder / "right1"
    return [
        f"gone,{one}/tree/{'0' * 40}",
        f"no_branch,{one}/tree/nobody",
        f"no_short,{one}/tree/{'0' * 9}",
        f"no_repository,{folder}/nowhere/tree/{'0' * 40}",
        "no_link,I forgot",
        f"other_host,https://evil.org/a/b/tree/{'0' * 40}",
        f"option,--upload-pack=touch /tmp/tinyparallel-witness /tree/{'0' * 40}",
    ]


@dataclass
class Soaked:
    """All that a killed and finished batch left."""

    points: dict[str, float]
    book: dict[str, dict[str, str]]
    rows: list[Row]
    events: Counter[tuple[str, str]]
    verdicts: dict[str, Verdict]
    left: set[str]
    seconds: float
    kills: int


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Soaked:
    folder = tmp_path_factory.mktemp("soak")
    before = traces()
    sheet = write_sheet(CHEATS, folder)
    lines, points = _honest(folder)
    mixed = [*sheet.read_text(encoding="utf-8").splitlines()[1:], *lines, *_dead(folder)]
    random.Random(1).shuffle(mixed)
    sheet.write_text("\n".join(["student,link", *mixed]), encoding="utf-8")
    out = folder / "out"
    begin = time.monotonic()
    kills = _run_and_kill(sheet, out)
    seconds = time.monotonic() - begin
    store = Store(out)
    rows = store.rows()
    names = {row.id: row.student for row in rows}
    happened = Counter((names[number], event) for number, event, _ in store.events())
    store.close()
    left = traces() - before | {str(path) for path in (folder / "scratch").iterdir()}
    found = verdicts(out, CHEATS)
    return Soaked(points, gradebook(out), rows, happened, found, left, seconds, kills)


def _run_and_kill(sheet: Path, out: Path) -> int:
    command = [sys.executable, "-m", "grader", "batch", str(sheet), *WHATS, "--out", str(out)]
    command += ["--allow-local", "--no-throughput", "--jobs", str(JOBS), "--seconds", str(LIMIT)]
    command += ["--any-kit"]  # who edits the kit meanwhile must not spoil hours of this
    scratch = out.with_name("scratch")
    scratch.mkdir()
    dice = random.Random(2)
    kills = 0
    while True:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        if kills == KILLS:
            words = process.communicate()[0]
            assert process.returncode == 0, words[-3000:]
            return kills
        graded = 0
        for line in process.stdout:
            graded += " graded" in line
            if graded >= 4:
                break
        assert graded >= 4, "it ended before it could be killed"
        time.sleep(dice.random() * 3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1


def test_every_honest_submission_is_graded_exactly(soaked: Soaked) -> None:
    found = {name: float(soaked.book[name]["points"]) for name in soaked.points}
    assert found == soaked.points
    assert {soaked.book[name]["status"] for name in soaked.points} == {"graded"}


def test_every_cheat_earns_nothing_and_is_seen(soaked: Soaked) -> None:
    wrong = [
        soaked.verdicts[cheat.name].against(cheat)
        for cheat in CHEATS
        if BROKERED or cheat.needs != "brokered"
    ]
    assert [words for words in wrong if words] == []


@pytest.mark.skipif(not BOUNDED, reason="no kernel here bounds a sandbox's processes")
def test_the_fork_bomb_was_among_them(soaked: Soaked) -> None:
    assert "forks_a_bomb" in soaked.book


def test_every_dead_or_bad_link_is_reported(soaked: Soaked) -> None:
    statuses = {name: soaked.book[name]["status"] for name in soaked.book}
    for name in ("gone", "no_branch", "no_short", "no_repository"):
        assert statuses[name] == "dead link" and soaked.book[name]["note"], name
    for name in ("no_link", "other_host", "option"):
        assert statuses[name] == "bad link" and soaked.book[name]["note"], name
    assert "can change" in soaked.book["branch"]["note"]


def test_nobody_is_lost_and_nobody_graded_twice(soaked: Soaked) -> None:
    assert soaked.kills == KILLS and len(soaked.book) >= 60 + BOUNDED
    for row in soaked.rows:
        if row.state != "dead":
            assert soaked.events[row.student, "graded"] == 1, row.student


def test_nothing_is_left(soaked: Soaked) -> None:
    assert soaked.left == set()


def test_hanging_submissions_hold_up_nobody(soaked: Soaked) -> None:
    hanging = [row for row in soaked.rows if row.status == "timeout"]
    other = [row for row in soaked.rows if row.status == "graded"]
    work = sum(row.seconds for row in other) + LIMIT * len(hanging)
    longest = max((row.seconds for row in other), default=0.0)
    # Each kill costs what was in hand, and a start.
    assert soaked.seconds < 1.5 * work / JOBS + (KILLS + 1) * (longest + 10.0)
