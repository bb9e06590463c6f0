"""Lines for a terminal, in two languages."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.text import Text

from grader.report.wrap import wrap

CHINESE = "先从父节点收，再发给子节点（子树最大的先发），⌈log₂ p⌉ 轮完成。`src` 是全局 rank。"


@pytest.mark.parametrize("width", [10, 17, 24, 40, 200])
def test_no_line_is_too_wide_and_nothing_is_lost(width: int) -> None:
    lines = wrap(Text(CHINESE), width).plain.split("\n")
    assert all(cell_len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == CHINESE.replace(" ", "")
    assert not any(
        line.startswith(("，", "。", "）", "：")) or line.endswith("（") for line in lines
    )


def test_lines_of_chinese_are_full() -> None:
    """A line may break between any two characters, so only marks and words leave room."""
    lines = wrap(Text("rank " + "的" * 60), 20).plain.split("\n")
    assert [cell_len(line) for line in lines[:-1]] == [19] + [20] * (len(lines) - 2)


def test_words_stay_whole_and_a_word_that_is_too_long_is_cut() -> None:
    assert wrap(Text("one two three"), 8).plain == "one two\nthree"
    assert wrap(Text("abcdefghij"), 4).plain == "abcd\nefgh\nij"
    assert wrap(Text("  indented line"), 10).plain == "  indented\nline"
    assert wrap(Text("a\n\nb"), 10).plain == "a\n\nb" and wrap(Text(""), 10).plain == ""


def test_styles_are_kept() -> None:
    came = wrap(Text.assemble(("可能的原因：", "bold"), "数据没有通过消息传递"), 12)
    assert [came.plain[span.start : span.end] for span in came.spans] == ["可能的原因："]
