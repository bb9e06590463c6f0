"""What the terminal and the page say of a task's checks."""

from __future__ import annotations

import io

from rich.console import Console

from grader.checks.results import CheckResult, Results, TaskResult
from grader.report.files import markdown
from grader.report.terminal import Progress, rounded


def printed(task: TaskResult, language: str = "en") -> str:
    out = io.StringIO()
    Progress(Console(file=out, width=200), language).task_ended(task, results_of(task))
    return out.getvalue()


def results_of(task: TaskResult) -> Results:
    results = Results("work", "cpu", 0)
    results.tasks = [task]
    return results


def test_points_have_one_decimal_and_are_full_only_when_all_are_earned() -> None:
    assert rounded(25.8408, 26) == "25.8" and rounded(26, 26) == "26" and rounded(0.0) == "0"
    assert rounded(25.98, 26) == "25.9" and rounded(3.25) == "3.2" and rounded(6.5) == "6.5"
    failed = CheckResult("three", 2.0, "failed", 1.8408, "wrong", "no idea", {})
    task = TaskResult("a1.x", "a1", [passed("one"), failed])
    assert "3.8/4" in printed(task) and "3.8408" not in printed(task)
    assert "未通过：three（2 分）" in printed(task, "zh")
    assert "可能的原因：no idea" in printed(task, "zh")


def passed(name: str, *warnings: str) -> CheckResult:
    return CheckResult(name, 2.0, "passed", 2.0, "", None, {"warnings": list(warnings)})


def test_warnings_are_shown_once_also_when_every_point_was_earned() -> None:
    task = TaskResult("a1.x", "a1", [passed("one", "on NCCL this hangs\nrank 0"), passed("two")])
    task.checks.append(passed("three", "on NCCL this hangs\nrank 0", "a send was not waited for"))
    text = printed(task)
    assert text.count("warning: on NCCL this hangs") == 1
    assert "      rank 0\n" in text
    assert "warning: a send was not waited for" in text
    assert "警告：on NCCL" in printed(task, "zh")
    assert "on NCCL this hangs" in markdown(results_of(task), "en")


def test_many_warnings_are_cut() -> None:
    task = TaskResult("a1.x", "a1", [passed("one", *(f"rank {r} never waited" for r in range(9)))])
    text = printed(task)
    assert text.count("never waited") == 3 and "… and 6 more warnings" in text
    assert markdown(results_of(task), "en").count("never waited") == 9


def test_no_warning_is_shown_where_there_is_none() -> None:
    assert "warning" not in printed(TaskResult("a1.x", "a1", [passed("one")]))


def test_one_failure_in_several_checks_is_told_once() -> None:
    checks = [
        CheckResult(name, 1.0, "failed", 0.0, "deadlock: rank 0 → rank 1\n  rank 0 waits", "why")
        for name in ("gives the sum", "in sub-groups", "with bf16")
    ]
    checks.append(CheckResult("another", 1.0, "failed", 0.0, "something else"))
    text = printed(TaskResult("a1.x", "a1", checks))
    assert text.count("deadlock: rank 0") == 1 and text.count("likely cause: why") == 1
    assert text.count("the same as 'gives the sum' above") == 2
    assert "something else" in text
