"""The table of tasks: what there is to solve, what it is worth and where it lives.

Everything else (checks, stubs, reports) reads the table; nothing else repeats it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One function or class that a student writes.

    id: "a1.broadcast", as `NotImplementedError`, checks and results name it.
    points: what it is worth.
    module: dotted name inside the solution folder, "a1_collectives.collectives".
    attribute: name inside that module; its methods belong to the task too.
    title: one line for people.
    """

    id: str
    points: float
    module: str
    attribute: str
    title: str

    @property
    def assignment(self) -> str:
        """The folder: "a1_collectives"."""
        return self.module.split(".")[0]

    @property
    def path(self) -> str:
        """The file inside the solution folder: "a1_collectives/collectives.py"."""
        return self.module.replace(".", "/") + ".py"


@dataclass(frozen=True)
class Assignment:
    """A folder of tasks that is graded by one module of checks."""

    name: str
    title: str
    tasks: tuple[Task, ...]
    checks_module: str

    @property
    def key(self) -> str:
        """The short name: "a1"."""
        return self.name.split("_")[0]

    @property
    def points(self) -> float:
        """The sum of its tasks' points."""
        return sum(task.points for task in self.tasks)


def _assignment(name: str, title: str, *rows: tuple[str, str, float, str]) -> Assignment:
    key = name.split("_")[0]
    return Assignment(
        name,
        title,
        tuple(
            Task(f"{key}.{attribute}", points, f"{name}.{module}", attribute, text)
            for module, attribute, points, text in rows
        ),
        checks_module=f"grader.checks.test_{name}",
    )


A1 = _assignment(
    "a1_collectives",
    "Collectives from send and receive",
    ("point_to_point", "rendezvous", 6, "find all ranks through a store"),
    ("point_to_point", "neighbour_exchange", 8, "exchange with both neighbours"),
    ("collectives", "broadcast", 10, "binomial tree from one rank"),
    ("collectives", "scatter", 5, "one tensor to each rank"),
    ("collectives", "gather", 5, "one tensor from each rank"),
    ("collectives", "reduce", 10, "tree to one rank"),
    ("collectives", "all_gather", 10, "every rank's tensor on every rank"),
    ("collectives", "reduce_scatter", 10, "reduce, each rank keeps its share"),
    ("collectives", "all_to_all_single", 16, "uneven exchange between all ranks"),
    ("collectives", "barrier", 4, "dissemination"),
    ("collectives", "all_reduce_pairwise", 6, "everyone to everyone: the quadratic one"),
    ("collectives", "all_reduce_parameter_server", 10, "through one server rank"),
)

A2 = _assignment(
    "a2_ring_all_reduce",
    "All-reduce on rings, trees and hierarchies",
    ("ring", "ring_reduce_scatter", 12, "reduce-scatter around the ring"),
    ("ring", "ring_all_gather", 12, "all-gather around the ring"),
    ("ring", "ring_all_reduce", 26, "both, for any length"),
    ("ring", "pipelined_ring_all_reduce", 12, "reduction hidden behind transfer"),
    ("tree", "halving_doubling_all_reduce", 12, "recursive halving and doubling"),
    ("hierarchical", "hierarchical_all_reduce", 14, "inside nodes, then between them"),
)

# What can be graded today, in the order of the course. Switching an assignment on is one line.
ASSIGNMENTS: tuple[Assignment, ...] = (A1,)

TASKS: tuple[Task, ...] = tuple(task for each in ASSIGNMENTS for task in each.tasks)


class UnknownTask(LookupError):
    """A name that is no assignment and no task; the message suggests the nearest ones."""


def find(task_id: str) -> Task:
    """The task with this id; `UnknownTask` when there is none."""
    for task in TASKS:
        if task.id == task_id:
            return task
    raise UnknownTask(_unknown(task_id))


def select(whats: Iterable[str]) -> list[Task]:
    """Tasks named by `a2`, `a2_ring_all_reduce` or `a2.ring_all_reduce`, in the table's order.

    Nothing named means all tasks. Raises `UnknownTask` for a name that is none of these.
    """
    whats = list(whats)
    if not whats:
        return list(TASKS)
    chosen: set[str] = set()
    for what in whats:
        name = what.strip().rstrip("/")
        ids = {
            task.id for each in ASSIGNMENTS if name in (each.key, each.name) for task in each.tasks
        }
        ids |= {task.id for task in TASKS if task.id == name}
        if not ids:
            raise UnknownTask(_unknown(what))
        chosen |= ids
    return [task for task in TASKS if task.id in chosen]


def _unknown(what: str) -> str:
    names = [each.key for each in ASSIGNMENTS] + [each.name for each in ASSIGNMENTS]
    ids = [task.id for task in TASKS]
    near = difflib.get_close_matches(what, names + ids, n=3, cutoff=0.6)
    # "broadcast" alone is what people type first: match it against the part after the dot.
    bare = {task.attribute: task.id for task in reversed(TASKS)}
    near += [bare[name] for name in difflib.get_close_matches(what, bare, n=2, cutoff=0.6)]
    near = list(dict.fromkeys(near))[:3]
    hint = f"did you mean {' or '.join(near)}?" if near else "`grader status` lists them"
    return f"unknown task or assignment {what!r}: {hint}"
