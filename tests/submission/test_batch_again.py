"""The same batch with a changed sheet: handed in again, gone, misspelt, another kit's folder."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest

from grader.checks.settings import CannotRun
from grader.submission.batch import run_batch
from grader.submission.pages import page_name
from grader.submission.store import FILE as DATABASE
from grader.submission.store import FORMAT, Store
from tests.submission.quick import FILE, TOLD, quick, sheet_of
from tests.submission.repositories import commit, repository
from tests.submission.test_batch_memory import WHAT, events, gradebook, silent

__all__ = ["quick"]
WHERE = f"assignments/{FILE}"


def times(tmp_path: Path, hour: int, ref: str = "main") -> Path:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(f"student,link,time\nann,{tmp_path}/ann/tree/{ref},2026-03-10 {hour}:00\n")
    return sheet


@pytest.mark.parametrize("only", [(), ("ann",)])
def test_a_branch_handed_in_again_is_fetched_again(
    tmp_path: Path, quick: None, only: tuple[str, ...]
) -> None:
    repository(tmp_path / "ann", {WHERE: "3"})
    out = tmp_path / "out"
    run_batch(times(tmp_path, 10), WHAT, out, TOLD, silent)
    later = commit(tmp_path / "ann", {WHERE: "8"})
    run_batch(times(tmp_path, 10), WHAT, out, TOLD, silent)
    assert gradebook(out)["ann"]["points"] == "3"  # nobody handed anything in
    run_batch(times(tmp_path, 12), WHAT, out, dataclasses.replace(TOLD, only=only), silent)
    assert gradebook(out)["ann"]["points"] == "8"
    store = Store(out)
    (row,) = store.rows()
    store.close()
    assert row.sha == later and row.submitted is not None and row.submitted.hour == 12
    (tmp_path / "ann").rename(tmp_path / "away")
    run_batch(times(tmp_path, 13), WHAT, out, TOLD, silent)
    book = gradebook(out)["ann"]
    assert (book["status"], book["grade"]) == ("dead link", "0")


def test_a_commit_handed_in_again_stays_what_it_is(tmp_path: Path, quick: None) -> None:
    sha = repository(tmp_path / "ann", {WHERE: "3"})
    out = tmp_path / "out"
    for hour in (10, 12):
        run_batch(times(tmp_path, hour, sha), WHAT, out, TOLD, silent)
    assert events(out)["ann", "fetched"] == events(out)["ann", "graded"] == 1


def test_all_names_are_looked_at_before_anybody_is_graded_again(
    tmp_path: Path, quick: None
) -> None:
    sheet, out = sheet_of(tmp_path, {"ann": "10"}), tmp_path / "out"
    run_batch(sheet, WHAT, out, TOLD, silent)
    with pytest.raises(CannotRun, match="--only nobody"):
        run_batch(sheet, WHAT, out, dataclasses.replace(TOLD, only=("ann", "nobody")), silent)
    assert events(out)["ann", "again"] == 0
    store = Store(out)
    assert [row.state for row in store.rows()] == ["done"]
    store.close()


def test_pages_of_people_who_left_the_sheet_are_removed(tmp_path: Path, quick: None) -> None:
    sheet, out = sheet_of(tmp_path, {"ann": "10", "bob": "5"}), tmp_path / "out"
    run_batch(sheet, WHAT, out, TOLD, silent)
    (out / "students/mine.html").write_text("the teacher's own")
    sheet.write_text("\n".join(sheet.read_text().splitlines()[:2]))
    run_batch(sheet, WHAT, out, TOLD, silent)
    assert {page.name for page in (out / "students").iterdir()} == {page_name("ann"), "mine.html"}


@pytest.mark.parametrize(
    "script",
    [
        f"PRAGMA user_version = {FORMAT + 1}",
        "ALTER TABLE submissions ADD COLUMN more TEXT",
        "ALTER TABLE submissions DROP COLUMN document",
    ],
)
def test_a_database_of_another_format_is_refused(tmp_path: Path, script: str) -> None:
    Store(tmp_path).close()
    Store(tmp_path).close()
    database = sqlite3.connect(tmp_path / DATABASE)
    assert database.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    database.executescript(script)
    database.close()
    with pytest.raises(CannotRun, match="was written by another version of the kit"):
        Store(tmp_path)


def test_a_database_of_somebody_else_stays_as_it_is(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / DATABASE)
    database.executescript("CREATE TABLE mine (x)")
    with pytest.raises(CannotRun, match="was written by another version of the kit"):
        Store(tmp_path)
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    database.close()


def test_a_folder_in_place_of_the_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATABASE).mkdir()
    with pytest.raises(CannotRun, match="cannot be read"):
        Store(tmp_path)
    (tmp_path / DATABASE).rmdir()
    Store(tmp_path).close()


def test_a_batch_of_the_first_kits_goes_on(tmp_path: Path) -> None:
    Store(tmp_path).close()
    database = sqlite3.connect(tmp_path / DATABASE)
    database.executescript("PRAGMA user_version = 0")
    database.close()
    Store(tmp_path).close()
