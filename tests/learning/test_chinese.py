"""What a Chinese reader meets at the command line: no English sentence is left in it."""

from __future__ import annotations

import inspect
import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.cells import cell_len

from grader.checks import a0_checks_links, a0_checks_machine, a0_checks_network
from grader.checks.a0_cases import Case, _judge
from grader.checks.framework import CheckFailed
from grader.cli import app, main
from grader.commands import submit
from grader.commands.help_text import STUDENTS, TEACHERS
from grader.report.language import translated
from tests.submission.quick import quick, sheet_of
from tests.submission.repositories import git, repository

from . import messages
from .test_catalogue import CHINESE, missing

__all__ = ["quick"]
_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|<[^>]*>|\{[^{}\n]*\}|\[[^\[\]\n]*\]")
_COMMAND = re.compile(r"\b(?:grader|git) [a-z]+(?: [\w/.-]+)*")


def english(text: str) -> list[str]:
    """Three English words in a row, where they are neither quoted, nor code, nor a command."""
    bare = _COMMAND.sub("", _QUOTED.sub("", text))
    return re.findall(r"\b[a-z]{2,}(?: [a-z]{2,}){2,}", bare)


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Chinese locale, and a terminal of 80 columns."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    monkeypatch.setenv("COLUMNS", "80")


def test_help_and_refusals_are_complete() -> None:
    found = messages.all_help() | messages.all_said()
    assert len(found) > 300
    assert {"no timed checks", "Options", "git is not installed", "remarks"} <= set(found)
    assert missing(found) == ""


def test_failures_of_a0_are_complete() -> None:
    found = {m: w for m, w in messages.all_failures().items() if w.startswith(("a0_", "test_a0_"))}
    assert len(found) > 30 and "the GPU of rank {0}" in found
    assert missing(found) == ""


def test_the_collector_sees_what_is_said(tmp_path: Path) -> None:
    file = tmp_path / "said.py"
    file.write_text(
        '"""No word of this."""\n'
        '_TABLE = ("nor of", "this one")\n'
        "def f(x):\n"
        '    """Nor this."""\n'
        '    found.notes.append(f"not {x} yet")\n'
        '    assert x, "nobody reads it"\n'
        '    why = "no reason" if x else f"{x} reasons"\n'
        "    raise Refused(f\"cannot do {f'{x} things' if x else 1}: {why}\")\n"
    )
    assert set(messages.said(file)) == {
        "not {0} yet", "no reason", "{0} reasons", "cannot do {0}: {1}", "{0} things",
    }  # fmt: skip
    file = tmp_path / "page.html"
    file.write_text('<p>{{ translated(lang, "two words") }} {{ translated(lang, each) }}</p>')
    assert messages.on_pages(file) == {"two words": 1}


def commands() -> list[tuple[str, ...]]:
    """All of them: (), ("check",), … ("notebook", "build")."""

    def below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, (*path, name))

    return list(below(typer.main.get_command(app), ()))


@pytest.mark.parametrize("command", commands(), ids=" ".join)
@pytest.mark.usefixtures("chinese")
def test_help_is_chinese_and_fits(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("用法：") and "选项：" in out and CHINESE.search(out)
    assert english(out) == [] and "default" not in out and "required" not in out
    assert all(cell_len(line) <= 80 for line in out.splitlines())


def test_help_is_chinese_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    assert main(["check", "--lang", "zh", "--help"]) == 0
    assert "评测解答" in capsys.readouterr().out
    assert main(["check", "--help"]) == 0
    assert "Grade a solution" in capsys.readouterr().out


@pytest.mark.parametrize("command", [(), ("notebook",)])
def test_commands_stand_in_the_order_of_use_and_none_is_cut_off(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    out = capsys.readouterr().out
    students, _, teachers = out.partition("Commands:")[2].partition("For teachers:")
    listed = re.findall(r"^  (\w+) +(\w.*)$", students, re.MULTILINE)
    assert all(words.endswith(".") and not words.endswith("...") for _, words in listed)
    if not command:
        assert tuple(name for name, _ in listed) == STUDENTS
        assert tuple(re.findall(r"^  (\w+) ", teachers, re.MULTILINE)) == TEACHERS
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "--seed", "x"], "'--seed' 的值无效：应为整数"),
        (["check", "--device", "tpu"], "不是 'auto', 'cpu', 'cuda' 之一"),
        (["check", "--jsn"], "没有 --jsn 这个选项"),
        (["chekc"], "你是指 'check' 吗"),
        (["plan", "x", "--cluster", "a"], "缺少选项 '--devices'"),
        (["sim", "x", "--ranks", "0"], "'--ranks' 的值无效：应不小于 1"),
        (["status", "more"], "多余的参数：more"),
        (["check", "--json"], "选项 '--json' 后面要有一个值"),
        (["check", "--solution", "/no/where"], "没有这个解答文件夹：/no/where"),
        (["check", "--brokered", "--solution", "reference"], "--brokered 需要 --sandbox"),
        (["check", "b7"], "没有叫 'b7' 的任务或作业"),
        (["draw", "a6.gpipe_schedule", "--costs", "1"], "应为 F,I,W,FB，都大于 0"),
        (["release"], "DEST、--check、--assignments 三者写且只写一个"),
        (["topo", "--text", "x"], "--text 需要 --solution"),
        (["batch", "/no/sheet.csv", "--unsandboxed"], "无法打开 /no/sheet.csv：文件不存在"),
        (["batch", "x.csv", "--deadline", "soon"], "应为 2026-03-20 23:59 或"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("chinese")
def test_refusals_are_chinese(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if arguments[0] == "batch":
        arguments = [*arguments, "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert words in err and english(err) == [] and len(err.splitlines()) == 1


@pytest.mark.usefixtures("chinese")
def test_submit_is_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    repository(mine, {"assignments/a1_collectives/collectives.py": "", "VERSION": "1"})
    (mine / "assignments/a1_collectives/collectives.py").write_text("changed")
    (mine / "more.txt").write_text("mine")
    monkeypatch.chdir(mine)

    def said() -> str:
        assert main(["submit", "--no-grade"]) == 1
        out = capsys.readouterr().out
        assert english(out) == [] and out.splitlines()[-1].startswith("还没有链接")
        return out

    assert "问题：没有叫 origin 的 remote（一个也没有）" in said()
    git(mine, "remote", "add", "origin", "/srv/homework.git")
    out = said()
    assert "问题：尚未 commit：assignments/a1_collectives/collectives.py。请 git add" in out
    assert "问题：尚未 push：1 个 commit。请运行 git push origin main" in out
    assert "等（另有 " in out and "注意：尚未 commit，也不参与评测：more.txt" in out
    assert main(["submit", "--lang", "en", "--no-grade"]) == 1
    assert "problem: not pushed: 1 commit: git push" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    (tmp_path / "assignments").mkdir()
    assert main(["submit"]) == 2
    assert "不在 git 仓库里" in capsys.readouterr().err


def test_the_report_of_submit_is_chinese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = {
        "check": "knows the ring", "status": "failed", "points": 0.0, "max_points": 1.5,
        "message": "ring, 2 ranks, 0 bytes: returned 1, expected 2 s\n"
        "likely cause: right for all sizes but none: an empty message still pays latency (the "
        "latencies are left out)",
    }  # fmt: skip
    task = {"task": "a0.all_reduce_time", "status": "failed", "checks": [check]}
    numbers = {"points": 0.0, "max_points": 1.5}
    document = numbers | {"tasks": [task | numbers]}

    def run(command: list[str]) -> SimpleNamespace:
        (tmp_path / "results.json").write_text(json.dumps(document))
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(subprocess, "run", run)
    submit._grade([], tmp_path, True, "zh", "https://github.com/a/b/tree/0", "0")
    page = (tmp_path / "report.html").read_text(encoding="utf-8").partition("</style>")[2]
    assert english(page) == [] and "<th>链接</th>" in page and "2 个 rank，0 字节：返回了" in page


@pytest.mark.usefixtures("quick")
def test_batch_is_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = sheet_of(tmp_path, {"ann": "7", "bob": "error", "cat": "3"})
    gone = f"{tmp_path}/ann/tree/{'0' * 40}"
    more = f"dan,https://example.org/dan/homework/tree/0123abc\neve,{gone}\nann,nothing\n"
    sheet.write_text(f"{sheet.read_text()}\n{more}", encoding="gb18030")
    told = ["--allow-local", "--unsandboxed", "--lang", "zh", "--out", str(tmp_path / "out")]
    assert main(["batch", str(sheet), "a1.broadcast", *told]) == 0
    out = capsys.readouterr().out
    assert english(out.replace("it is a error", "")) == []
    assert "第 5 行（dan）不计入：'example.org' 不是本课程接受的网站" in out
    assert "已获取，还需" in out and "：eve：链接失效：仓库里没有 commit 000" in out
    assert "ann：7 分（满分 10）" in out and "bob：出错：it is a error" in out
    assert "5 名学生：1 名链接无法识别，1 名链接失效，2 名已评测，1 名未能评测" in out
    for path in (tmp_path / "out").rglob("*.html"):
        page = path.read_text(encoding="utf-8").partition("</style>")[2]
        assert english(page.replace("it is a error", "")) == [] and CHINESE.search(page), path
    assert main(["batch", str(sheet), "a1", *told]) == 2
    assert "换一个文件夹" in capsys.readouterr().err


def cases_of_a0(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """All calls that the checks of assignment 0 make."""
    found: list[Case] = []
    for module in (a0_checks_links, a0_checks_machine, a0_checks_network):
        monkeypatch.setattr(module, "run", lambda cluster, task, cases, **_: found.extend(cases))
        for name, check in list(vars(module).items()):
            if name.startswith("test_"):
                given = {"cluster": None, "dice": random.Random(name)}
                check(*(given[each] for each in inspect.signature(check).parameters))
    return found


def graph(kinds: list[str | None], *edges: list[Any], directed: bool = False) -> dict[str, Any]:
    return {"directed": directed, "kinds": kinds, "edges": list(edges)}


EMPTY = {key: {} for key in ("cpu_affinity", "numa_affinity", "nic_names")}
ANSWERS: list[Any] = [
    None, "x", 3, 0.5, list(range(99)), [4, 7], [0, 1], {"seconds": 1.0, "cpu_seconds": 1.0},
    EMPTY | {"gpus": [], "nics": [], "links": []},
    EMPTY | {"gpus": [f"GPU{i}" for i in range(8)], "nics": [], "links": [["GPU0", "GPU1", "NV9"]]},
    graph([], directed=True), graph([None]), graph(["host"] * 2, [0, 1, None]),
    graph(["host"] * 2, [0, 1, 5e9]), graph(["host", "switch", "host"], [0, 1, 1.0], [1, 2, 2.0]),
    graph(["switch"] * 3), graph(["host"] * 8),
    *([{"gpu": f"GPU{i}", "cores": cores, "nic": nic} for i in range(ranks)]
      for ranks in (1, 2, 3, 4, 8) for nic in (None, "NIC0", "NIC7")
      for cores in ([0], [0, 0], [99], list(range(4)))),
]  # fmt: skip
ERRORS = [
    {"type": "KeyError", "message": "'a: b'", "where": "topology.py:3"},
    {"type": "ValueError", "message": "line 3: no", "where": "topology.py:3"},
]


def test_failures_of_a0_are_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"returned": each, "error": None} for each in ANSWERS]
    answers += [{"returned": None, "error": each} for each in ERRORS]
    told: dict[str, str] = {}
    for case in cases_of_a0(monkeypatch):
        for answer in answers:
            try:
                _judge(case, answer)
            except CheckFailed as failure:
                message = f"{case.label}: {failure.message}"
                # Of messages that differ in numbers one is enough.
                told.setdefault(re.sub(r"[0-9.e+-]+", "0", message), message)
    assert len(told) > 500
    left = []
    for message in told.values():
        came = translated("zh", message)
        if english(came) or not CHINESE.search(came.partition("：")[2]):
            left.append(f"{message}\n    {came}")
    assert left == []
