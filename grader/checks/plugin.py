"""The pytest plugin that turns test functions into points.

`grader check` loads it by name and replaces pytest's own output; `pytest grader/checks` gets it
through `conftest.py` and keeps pytest's output, with the table of tasks below it.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from grader import tasks
from grader.checks import workers
from grader.checks.framework import (
    FINAL,
    Award,
    CheckFailed,
    SolutionError,
    SolutionTimeout,
)
from grader.checks.outcomes import FAULT_OF_THE_KIT, Outcome, judge, merge
from grader.checks.results import CheckResult, Observer, Results, TaskResult
from grader.checks.settings import CannotRun, Settings, resolve_device, solution_folder

# Fixtures that run a solution (`cluster`) stand in a module of their own.
pytest_plugins = (
    ["grader.checks.fixtures"] if importlib.util.find_spec("grader.checks.fixtures") else []
)

SETTINGS = pytest.StashKey[Settings]()
RECORDER = pytest.StashKey["Recorder"]()
_METRICS = pytest.StashKey[dict[str, Any]]()
_AWARD = pytest.StashKey[Outcome]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `grader check` that fixtures and checks read."""
    group = parser.getgroup("tinyparallel", "TinyParallel")
    group.addoption("--solution", default="assignments", help="assignments, reference or a folder")
    group.addoption("--seed", type=int, default=0, help="seed of all inputs")
    group.addoption("--device", choices=("auto", "cpu", "cuda"), default="auto")
    group.addoption("--in-process", action="store_true", help="run the solution in this process")
    group.addoption("--sandbox", action="store_true", help="the solution runs in a sandbox")
    group.addoption(
        "--brokered", action="store_true", help="confirm volume where every message passes here"
    )
    group.addoption("--no-throughput", action="store_true", help="leave out the timed checks")
    group.addoption("--lang", choices=("en", "zh"), default="en")
    group.addoption("--task", action="append", default=None, help="grade only this task id")


def pytest_configure(config: pytest.Config) -> None:
    """Settle the settings, once, for all fixtures."""
    config.addinivalue_line("markers", "check(task, points, name): a check that earns points")
    option = config.option
    try:
        settings = Settings(
            solution=option.solution,
            folder=solution_folder(option.solution),
            device=resolve_device(option.device),
            seed=option.seed,
            throughput=not option.no_throughput,
            in_process=option.in_process,
            sandbox=option.sandbox,
            brokered=option.brokered,
            language=option.lang,
            selected=None if option.task is None else tuple(option.task),
        )
        if settings.sandbox and not workers.running():
            workers.use_sandbox(settings.folder)
    except CannotRun as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[SETTINGS] = settings
    config.stash[RECORDER] = recorder = Recorder(settings)
    config.pluginmanager.register(recorder, "tinyparallel-recorder")


@pytest.fixture(scope="session")
def settings(pytestconfig: pytest.Config) -> Settings:
    """What this run was told."""
    return pytestconfig.stash[SETTINGS]


@pytest.fixture
def metrics(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A dict whose contents land in the check's JSON `metrics`, whether it passes or fails."""
    node: pytest.Item = request.node
    return node.stash.setdefault(_METRICS, {})


@pytest.fixture
def award(request: pytest.FixtureRequest) -> Award:
    """`award(fraction, message)`: the check earns only that share of its points."""

    def give(fraction: float, message: str = "") -> None:
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"award: the fraction must lie in [0, 1], got {fraction}")
        request.node.stash[_AWARD] = Outcome("passed", fraction, message)

    return give


class Recorder:
    """Collects what becomes of every check and tells the observers, task by task."""

    def __init__(self, settings: Settings) -> None:
        self.observers: list[Observer] = []
        self.results = Results(settings.solution, settings.device, settings.seed)
        self.collection_errors: list[str] = []
        self._selected = settings.selected
        self._started = time.monotonic()
        self._offered: set[str] = set()
        self._checks: dict[tuple[str, str], CheckResult] = {}
        self._outcomes: dict[tuple[str, str], list[Outcome]] = {}
        self._check_of: dict[str, tuple[str, str]] = {}
        self._waiting: dict[str, set[str]] = {}
        self._current: str | None = None
        self._running: Outcome | None = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a module of checks could not be collected."""
        if report.failed:
            self.collection_errors.append(f"{report.nodeid}\n{report.longreprtext.strip()}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the selected tasks' checks and put them in the order of the table."""
        order = {task.id: place for place, task in enumerate(tasks.TASKS)}
        items.sort(key=lambda item: order.get(_mark(item)[0], len(order)))
        if self._selected is None:
            return
        self._offered = {_mark(item)[0] for item in items}
        kept = [item for item in items if _mark(item)[0] in self._selected]
        dropped = [item for item in items if _mark(item)[0] not in self._selected]
        items[:] = kept
        if dropped:
            config.hook.pytest_deselected(items=dropped)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Lay out the results: every check of the run, none of which has run yet."""
        found: dict[str, TaskResult] = {}
        for item in session.items:
            task, points, name = _mark(item)
            if not task:
                continue
            result = found.setdefault(task, TaskResult(task, _assignment(task, item)))
            if (task, name) not in self._checks:
                self._checks[task, name] = CheckResult(name, points)
                self._outcomes[task, name] = []
                result.checks.append(self._checks[task, name])
            self._check_of[item.nodeid] = (task, name)
            self._waiting.setdefault(task, set()).add(item.nodeid)
        self.results.tasks = list(found.values())
        # A task whose checks `-k` or the like left out is not part of the run; one that has no
        # checks at all must not pass unseen.
        for task_id in self._selected or ():
            if task_id not in found and task_id not in self._offered:
                self.results.tasks.append(self._without_checks(task_id))
        if session.config.option.collectonly:
            return
        for observer in self.observers:
            observer.began(self.results)
            for result in self.results.tasks:
                if result.task not in found:
                    observer.task_ended(result, self.results)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A new item; perhaps of a new task."""
        self._running = None
        task = self._check_of.get(nodeid, (None, ""))[0]
        if task is not None and task != self._current:
            self._current = task
            for observer in self.observers:
                observer.task_began(task)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Do not wait again and again for a task that once did not end."""
        key = self._check_of.get(item.nodeid)
        if key is None:
            return
        for (task, name), outcomes in self._outcomes.items():
            for outcome in outcomes if task == key[0] else ():
                if outcome.status == "timeout":
                    raise SolutionTimeout(f"not run: {task} did not end in the check {name!r}")
                if outcome.status == "error" and outcome.cause in FINAL:
                    raise SolutionError(
                        f"not run: {task} ended for good in the check {name!r}",
                        cause=outcome.cause,
                    )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Judge a phase of an item, and show failures of the solution without a traceback."""
        report = yield
        if item.nodeid not in self._check_of:
            return report
        outcome = judge(call.excinfo, report.longreprtext)
        if call.excinfo is not None and isinstance(call.excinfo.value, CheckFailed):
            report.longrepr = str(call.excinfo.value)
        if outcome.status == "passed":
            outcome = item.stash.get(_AWARD, outcome)
        before = self._running
        # A teardown that fails spoils a pass; after a failure only the first reason counts.
        if before is None or before.status == "passed":
            outcome.metrics = item.stash.setdefault(_METRICS, {}) | outcome.metrics
            self._running = outcome
        task = self._check_of[item.nodeid][0]
        self._result(task).seconds += call.duration
        return report

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """An item has ended; perhaps its task too."""
        key = self._check_of.get(nodeid)
        if key is None:
            return
        outcomes = self._outcomes[key]
        if self._running is not None:
            outcomes.append(self._running)
        waiting = self._waiting[key[0]]
        waiting.discard(nodeid)
        missing = sum(self._check_of[each] == key for each in waiting)
        merge(self._checks[key], outcomes, missing)
        for observer in () if missing else self.observers:
            if (told := getattr(observer, "check_ended", None)) is not None:
                told(key[0], self._checks[key])
        self.results.seconds = time.monotonic() - self._started
        if not waiting:
            for observer in self.observers:
                observer.task_ended(self._result(key[0]), self.results)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """The table under pytest's own output; `grader check` prints a better one."""
        if self.observers or not self.results.tasks:
            return
        terminalreporter.section("tasks")
        for task in self.results.tasks:
            earned = f"{task.points:g}/{task.max_points:g}"
            terminalreporter.line(f"{task.task:36} {task.status:13} {earned:>8}")
        total = f"{self.results.points:g} of {self.results.max_points:g} points"
        terminalreporter.line(total)

    def _result(self, task_id: str) -> TaskResult:
        return next(result for result in self.results.tasks if result.task == task_id)

    def _without_checks(self, task_id: str) -> TaskResult:
        task = tasks.find(task_id)
        modules = {each.name: each.checks_of(task) for each in tasks.ASSIGNMENTS}
        file = modules[task.assignment].rsplit(".", 1)[-1] + ".py"
        errors = [text for text in self.collection_errors if file in text.splitlines()[0]]
        reason = errors[0] if errors else f"no check of {task_id} was found"
        check = CheckResult("has checks", task.points, message=f"{FAULT_OF_THE_KIT}\n{reason}")
        return TaskResult(task_id, task.assignment, [check])


class Attachment:
    """Handed to `pytest.main` by `run_checks`: connects a run to its observers."""

    def __init__(self, observers: Sequence[Observer], silent: bool) -> None:
        self._observers = observers
        self._silent = silent
        self.recorder: Recorder | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """After everyone else has configured: attach, and silence pytest."""
        self.recorder = config.stash[RECORDER]
        self.recorder.observers.extend(self._observers)
        standard = config.pluginmanager.get_plugin("terminalreporter")
        if self._silent and standard is not None:
            config.pluginmanager.unregister(standard)
            # Other plugins ask for a reporter: give them one that nobody sees. It stays open for
            # the rest of the process, as sys.stdout does.
            nowhere = open(os.devnull, "w")  # noqa: SIM115
            config.pluginmanager.register(TerminalReporter(config, nowhere), "terminalreporter")


def _mark(item: pytest.Item) -> tuple[str, float, str]:
    """(task id, points, name) of an item; the id is "" when it is no check."""
    mark = item.get_closest_marker("check")
    if mark is None:
        return "", 0.0, ""
    return mark.kwargs["task"], mark.kwargs["points"], mark.kwargs["name"]


def _assignment(task_id: str, item: pytest.Item) -> str:
    try:
        return tasks.find(task_id).assignment
    except tasks.UnknownTask:
        # Checks of an assignment that is not switched on yet.
        return Path(item.path).stem.removeprefix("test_")
