"""Handouts: one order everywhere, and the same in English and Chinese."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grader import tasks

from .answers import ROOT

FOLDERS = [
    folder
    for each in tasks.COURSE
    if (folder := ROOT / "reference" / each.name / "README.md").is_file()
]
#: How every handout begins and ends; between stand the mathematics, in one part or several.
ENGLISH = (["Why", "What"], ["The tasks", "How it is graded", "Going further"])
CHINESE = (["为什么", "做什么"], ["任务", "如何评分", "延伸阅读"])


def split(path: Path) -> tuple[list[str], str]:
    """Code blocks (fenced or indented), and the text without them."""
    code: list[str] = []
    text: list[str] = []
    block: list[str] = []
    fenced = False
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("```"):
            fenced = not fenced
            if not fenced:
                code.append("\n".join(block))
                block = []
            continue
        if fenced or line.startswith("    ") or (block and not line.strip()):
            block.append(line)
        else:
            if block:
                code.append("\n".join(block).strip())
                block = []
            text.append(line)
    if block:
        code.append("\n".join(block).strip())
    return code, "\n".join(text)


def shape(path: Path) -> dict[str, object]:
    """What must agree between two languages."""
    code, text = split(path)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    rules = [row for row in rows if re.fullmatch(r"[|:\- ]+", row)]
    return {
        "levels of headings": re.findall(r"^(#+) ", text, re.MULTILINE),
        "code blocks": len(code),
        "tables": [row.count("|") for row in rules],
        "rows of tables": len(rows),
        "points": re.findall(r"^\| `.*?\| *(\d+) *\|", text, re.MULTILINE),
    }


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.parent.name)
def test_english_and_chinese_have_the_same_parts(path: Path) -> None:
    english, chinese = shape(path), shape(path.with_name("README.zh-CN.md"))
    for part in english:
        assert english[part] == chinese[part], part


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_every_task_is_told_in_both_languages(path: Path, name: str) -> None:
    text = path.with_name(name).read_text(encoding="utf-8")
    assignment = next(each for each in tasks.COURSE if each.name == path.parent.name)
    for task in assignment.tasks:
        if task.attribute not in text:
            # Four conjugate functions may stand in one row: `reduce_from_…`.
            assert task.attribute.split("_from_")[0].split("_to_")[0] in text, task.id
    assert f"grader check {assignment.key}" in text


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.parent.name)
@pytest.mark.parametrize(("name", "order"), [("README.md", ENGLISH), ("README.zh-CN.md", CHINESE)])
def test_the_order_is_the_same_everywhere(
    path: Path, name: str, order: tuple[list[str], list[str]]
) -> None:
    _, text = split(path.with_name(name))
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    begin, end = order
    assert headings[: len(begin)] == begin
    assert headings[-len(end) :] == end
    assert len(headings) > len(begin) + len(end)  # the mathematics
