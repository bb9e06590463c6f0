"""What became of the cheats in a batch: points, words, and what they left behind."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.harness.sandbox import bounds_numbers
from grader.harness.sandbox_cgroup import Cgroup
from grader.submission.spreadsheets import read_csv
from grader.submission.store import Store
from tests.cheats.catalogue import Cheat

#: Names that cheats give their files.
LEFT = ("cheat-", "tinyparallel-witness", "tinyparallel-bomb", "tinyparallel-many")


@dataclass
class Verdict:
    """points and words of one submission's task; status of the submission in the gradebook."""

    status: str
    points: float
    max_points: float
    words: str

    def against(self, cheat: Cheat) -> str:
        """What is wrong with it; "" when the cheat failed and was seen."""
        if cheat.name == "control_right":
            return "" if self.points == self.max_points > 0 else f"the right one: {self}"
        # The stub earns nothing, and the honest mistake what a refusal of wrong arguments is worth.
        if self.points > 0:
            return (
                f"{cheat.name} earned {self.points:g} of {self.max_points:g}: {self.words[:2000]}"
            )
        if not re.search(cheat.seen, self.words):
            return f"{cheat.name}: nothing like {cheat.seen!r} in: {self.words[:2000]}"
        return ""


def verdicts(out: Path, chosen: list[Cheat]) -> dict[str, Verdict]:
    """Of each, by name."""
    books = {row["student"]: row for row in read_csv(out / "gradebook.csv")}
    noted: dict[str, str] = {}
    for row in read_csv(out / "suspicions.csv"):
        for student in row["students"].split(", "):
            if row["kind"] != "alike":
                noted[student] = f"{noted.get(student, '')}\n{row['where']}: {row['what']}"
    store = Store(out)
    try:
        documents = {row.student: row.document for row in store.rows()}
    finally:
        store.close()
    found = {}
    for cheat in chosen:
        task = _task(documents.get(cheat.name), cheat.task)
        book = books[cheat.name]
        words = [check["message"] for check in task.get("checks", ())]
        found[cheat.name] = Verdict(
            book["status"],
            task.get("points", 0.0),
            task.get("max_points", 0.0),
            "\n".join([*words, book["note"], noted.get(cheat.name, "")]),
        )
    return found


def _task(document: dict[str, Any] | None, task: str) -> dict[str, Any]:
    listed = [] if document is None else document["tasks"]
    return next((each for each in listed if each["task"] == task), {})


def traces() -> set[str]:
    """Files that submissions can leave where everybody may write."""
    found = set()
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        for name in os.listdir(folder):
            if name.startswith(LEFT) or name == "d":
                found.add(f"{folder}/{name}")
    return found


def bounds_processes() -> bool:
    """Whether the kernel bounds the processes of a sandbox here: a bomb starves nobody."""
    made = Cgroup.make(1 << 30, 64)
    if made is None:
        return bounds_numbers()
    made.end()
    return True
